"""Static checks: errors and likely mistakes in a definition, found before anything runs.

All users share one set of checks: `perdure lint` shows all findings; the operator shows them in the condition `Ready` of a
Workflow and starts no run of a Workflow with errors; simulations reject the same errors. A started run is pinned to its
definition, which is only compiled: a check that a new version of Perdure adds must not stop it.

In `definition`, `check` checks one definition, and `check_references` references between the manifests of several files.
`perdure.language.compiler` finds what cannot be interpreted. The other modules:

=============  ========================================================================================================
`shapes`       the paths in an expression, and the shapes of values
`flow`         steps that never run, calls without end, waits without limit
`activities`   the pod, artifacts, work, limits, and cache of an activity
`templates`    the paths that an expression reads, its type, and whether it has a value
`texts`        texts that look like expressions but are not evaluated, and expressions in dangerous places
`run_options`  mistakes in the options of a run, and in the defaults of a namespace
=============  ========================================================================================================
"""

from perdure.language.checks.definition import CheckedDefinition, Documents, check, check_references
from perdure.language.checks.run_options import (
    annotations,
    deadlines,
    default_mistakes,
    labels,
    options,
    scheduled_input,
    unevaluated,
)
from perdure.language.checks.templates import reads_schedule
from perdure.language.checks.texts import in_data

__all__ = [
    "CheckedDefinition",
    "Documents",
    "annotations",
    "check",
    "check_references",
    "deadlines",
    "default_mistakes",
    "in_data",
    "labels",
    "options",
    "reads_schedule",
    "scheduled_input",
    "unevaluated",
]
