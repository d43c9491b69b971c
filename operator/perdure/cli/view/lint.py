"""Formats the output of `lint`: a line for each finding, as in compilers, and a summary."""

from collections.abc import Iterator

from rich.text import Text

from perdure.cli.linting import Linted
from perdure.cli.view import text
from perdure.cli.view.page import Page
from perdure.language.program import Severity

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def show(linted: Linted, page: Page) -> Iterator[Text]:
    """Show the findings.

    Args:
        linted: The findings.
        page: The page for the output.

    Yields:
        Lines such as ``order.yaml:12:5: Error: spec.steps[1].activity.name: there is …``.
    """
    for found in linted.found:
        line = Text(f"{text.one_line(found.file)}:{found.position.line}:{found.position.column}: ")
        line.append(f"{found.finding.severity.value}: ", style=_STYLES[found.finding.severity])
        yield line.append(text.one_line(str(found.finding).removeprefix(": ")))
    counts = [
        _several(linted.count(severity), severity.value.lower()) for severity in Severity if linted.count(severity)
    ]
    good = not linted.count(Severity.ERROR)
    icon = page.glyphs.icons["Succeeded" if good else "Failed"]
    what = ", ".join(counts) or "nothing found"
    summary = f"{icon} {_several(linted.objects, 'object')}: {what}"
    yield Text(summary, style="green" if good else "bold red")


def _several(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
