"""Actions: the compiled kinds of steps. Each kind has a class; `Action` is their union."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from perdure.api.kinds.steps import ActivityCall, ChildWorkflow
from perdure.language.expressions import Template

Timeout = timedelta | Template | None
"""A duration, or its expression; None: no limit."""


@dataclass(frozen=True, slots=True)
class RunActivity:
    """`activity`, also as a compensation."""

    call: ActivityCall
    input: Template | None
    timeouts: Mapping[str, Template]
    """Templates of the timeouts that are expressions, by Python field name."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """`sleep`: exactly one of the fields is set."""

    duration: timedelta | Template | None
    until: datetime | Template | None


@dataclass(frozen=True, slots=True)
class WaitForSignal:
    """`waitForSignal`."""

    name: str
    timeout: Timeout
    approval: bool = False
    message: Template | None = None


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """`waitUntil`."""

    condition: Template
    timeout: Timeout


@dataclass(frozen=True, slots=True)
class RunChild:
    """`childWorkflow`."""

    call: ChildWorkflow
    input: Template | None
    workflow_id: Template | None
    search_attributes: Template | None
    execution_timeout: Timeout
    run_timeout: Timeout


@dataclass(frozen=True, slots=True)
class CallBlock:
    """`call`, also as a compensation and in `switch` and `catch`."""

    block: str
    input: Template | None


@dataclass(frozen=True, slots=True)
class Case:
    """A case of `switch`."""

    when: Template
    call: CallBlock


@dataclass(frozen=True, slots=True)
class Switch:
    """`switch`."""

    cases: tuple[Case, ...]
    default: CallBlock | None


@dataclass(frozen=True, slots=True)
class Parallel:
    """`parallel`."""

    branches: Mapping[str, CallBlock]
    """The branches by name, in order."""
    required: int
    """Number of branches that must succeed."""


@dataclass(frozen=True, slots=True)
class SetVariables:
    """`set`."""

    values: Template


@dataclass(frozen=True, slots=True)
class SignalRun:
    """`signal`."""

    workflow_id: Template | None
    name: Template | None
    input: Template | None


@dataclass(frozen=True, slots=True)
class ContinueAsNew:
    """`continueAsNew`."""

    input: Template | None
    """The input of the next run; None: the input of this run."""


@dataclass(frozen=True, slots=True)
class Fail:
    """`fail`."""

    type: str
    non_retryable: bool
    message: Template | None
    details: Template | None


@dataclass(frozen=True, slots=True)
class Return:
    """`return`."""

    output: Template | None


Action = (
    RunActivity
    | Sleep
    | WaitForSignal
    | WaitUntil
    | RunChild
    | CallBlock
    | Switch
    | Parallel
    | SetVariables
    | SignalRun
    | ContinueAsNew
    | Fail
    | Return
)


@dataclass(frozen=True, slots=True)
class Loop:
    """`forEach`."""

    items: Template | None
    variable: str
    max_concurrency: int | None


@dataclass(frozen=True, slots=True)
class Catch:
    """An entry of `catch`."""

    error_types: tuple[str, ...]
    variable: str
    call: CallBlock
