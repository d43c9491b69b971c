"""Formats the output artifacts of a run. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rich.text import Text

from perdure.api.lenient import mapping
from perdure.view import columns
from perdure.view.page import Page

_MAX_SHOWN: Final = 20
"""Maximum number of artifacts to show with a run."""


def artifacts_of(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the references to the output artifacts in a history, by step and name, in the order in which the steps started.

    Args:
        events: The events, as stored.
    """
    completed = [event for event in events if event.get("eventType") == "ActivityTaskCompleted"]
    return {
        f"{event.get('activityId')}/{name}": reference
        for event in sorted(completed, key=lambda event: int(event.get("scheduledEventId") or 0))
        for name, reference in mapping(event.get("artifacts")).items()
    }


def table(artifacts: Mapping[str, Any], page: Page) -> list[Text]:
    """Show artifacts, one line each.

    Args:
        artifacts: The references, by step and name.
        page: The page for the output.

    Returns:
        Lines; the first one is the heading.
    """
    fields = {"BYTES": "size", "KEY": "key"}
    if any(mapping(each).get("copy") for each in artifacts.values()):
        fields["COPY"] = "copy"
    rows = [
        (name, *(str(mapping(each).get(field, "")) for field in fields.values())) for name, each in artifacts.items()
    ]
    return columns.table(("ARTIFACT", *fields), rows, page)


def section(artifacts: Mapping[str, Any], page: Page) -> Iterator[Text]:
    """Show the first artifacts of a run.

    Args:
        artifacts: The references, by step and name.
        page: The page for the output.

    Yields:
        Indented lines; none if there are no artifacts.
    """
    if not artifacts:
        return
    for line in table(dict([*artifacts.items()][:_MAX_SHOWN]), page):
        yield Text("  ").append_text(line)
    if len(artifacts) > _MAX_SHOWN:
        yield Text(f"  {len(artifacts) - _MAX_SHOWN} more; `{page.program} artifacts list` shows all")
