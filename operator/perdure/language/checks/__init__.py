"""Static checks: what is wrong, or looks wrong, with a definition before anything runs.

One set for everybody: `perdure lint` shows all findings, the operator shows them in the condition `Ready` of a Workflow and
starts no run of one with errors, a simulation refuses the same. A run that has started is pinned to its definition and is
compiled only: a new check of a new version must not stop it.

`check` looks at one definition, `between` at what the manifests of several files say of each other. What is found by whom:
`perdure.language.compiler` finds what cannot be interpreted; `reads` and `shapes` what an expression reads and whether that can
be there; `flow` steps that never run, calls without end, waits without limit; `values` inputs that do not fit their schema;
`pods` names in a pod that are Perdure's own; `options` what is wrong with a run's own options;
`signals` which signals a definition sends and waits for.
"""

from perdure.language.checks.between import Documents, between
from perdure.language.checks.definition import Checked, check, checked_program
from perdure.language.checks.run_options import labels, options

__all__ = ["Checked", "Documents", "between", "check", "checked_program", "labels", "options"]
