"""What the schema cannot say of a run's own options, of a run itself or in the template of a Schedule."""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.api.searching import unfit
from perdure.api.workflowrun import WorkflowRunSpec
from perdure.language.program import Finding


def options(spec: WorkflowRunSpec, path: str = "spec") -> Iterator[Finding]:
    """What is wrong with the options of a run; `path` is where its spec stands."""
    yield from search_attributes(f"{path}.searchAttributes", spec.search_attributes)


def search_attributes(path: str, given: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with search attributes; `path` is where they stand."""
    for name, message in unfit(given).items():
        yield Finding(f"{path}.{name}", message)
