"""What differs between Argo and Perdure on purpose, each with its reason; the documentation lists them (docs/from-argo.md)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fidelity.argo.observed import STUCK, Observed
from fidelity.argo.workflows import RandomCase


@dataclass(frozen=True)
class Difference:
    """A difference that is known."""

    name: str
    """Its entry in the documentation."""
    applies: Callable[[RandomCase, Observed], bool]
    """Whether a workflow that went so on Argo has it."""


def _succeeded_late(case: RandomCase, argo: Observed) -> bool:
    """Whether a workflow has succeeded after its deadline: one of its containers never ended by itself."""
    limited = "activeDeadlineSeconds" in case.manifest["spec"]
    return limited and argo.phase == "Succeeded" and any(case.outcome(*each).hangs for each in argo.numbered())


KNOWN: Final = (
    Difference("A workflow that Argo's controller never ends", lambda _, argo: argo.phase == STUCK),
    Difference(
        "A condition that Argo cannot read, because a value in it has quotes",
        lambda _, argo: any("Invalid 'when' expression" in each for each in argo.errors),
    ),
    Difference(
        "A workflow that succeeds after its deadline, because the tasks that it ended may fail", _succeeded_late
    ),
    Difference(
        "A tag of a hook that Argo leaves as it is",
        lambda _, argo: any("{{" in value for _, values in argo.attempts for value in values.values()),
    ),
)


def known(case: RandomCase, argo: Observed) -> Difference | None:
    """Return the known difference that a workflow has; None if it has none."""
    return next((each for each in KNOWN if each.applies(case, argo)), None)


NOT_IMPORTED: Final = frozenset(
    {
        *("arguments-artifacts.yaml", "artifact-passing-subpath.yaml", "artifactory-artifact.yaml", "cron-when.yaml"),
        *("custom-metrics.yaml", "dag-custom-metrics.yaml", "data-transformations.yaml", "hdfs-artifact.yaml"),
        *("expression-reusing-verbose-snippets.yaml", "fibonacci-seq-conditional-param.yaml", "influxdb-ci.yaml"),
        *("input-artifact-azure.yaml", "input-artifact-http.yaml", "input-artifact-oss.yaml"),
        *("output-artifact-azure.yaml", "retry-conditional.yaml", "webhdfs-input-output-artifacts.yaml"),
    }
)
"""The examples of which parts have no counterpart."""
