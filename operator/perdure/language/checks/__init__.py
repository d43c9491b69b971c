"""Static checks: errors and likely mistakes in a definition, found before anything runs.

All users share one set of checks: `perdure lint` shows all findings; the operator shows them in the condition `Ready` of a
Workflow and starts no run of a Workflow with errors; simulations reject the same errors. A started run is pinned to its
definition, which is only compiled: a check that a new version of Perdure adds must not stop it.

`check` checks one definition; `between` checks references between the manifests of several files. The modules:
`perdure.language.compiler` finds what cannot be interpreted; `reads` and `shapes` the paths that an expression reads and whether
they can exist; `flow` steps that never run, calls without end, waits without limit; `values` inputs that do not fit their schema;
`pods` names in a pod that are Perdure's own; `limits` the WorkflowLimits of activities; `run_options` mistakes in the options of
a run; `signals` the signals that a definition sends and waits for.
"""

from perdure.language.checks.between import Documents, between
from perdure.language.checks.definition import Checked, check, checked_program
from perdure.language.checks.run_options import labels, options, unevaluated
from perdure.language.checks.texts import in_data

__all__ = ["Checked", "Documents", "between", "check", "checked_program", "in_data", "labels", "options", "unevaluated"]
