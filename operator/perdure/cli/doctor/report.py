"""Formats the findings of `doctor`: a line for each, with the fix if the check did not pass."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from perdure.cli.doctor.findings import CheckResult
from perdure.view import text
from perdure.view.page import Page

_RESULT_WIDTH = 9
_INDENT = " " * 13


def lines(findings: Sequence[CheckResult], page: Page) -> Iterator[Text]:
    """Show findings.

    Args:
        findings: The findings.
        page: The page for the output.

    Yields:
        Lines.
    """
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        status = page.status(finding.result)
        status.pad_right(_RESULT_WIDTH + 2 - len(status))
        yield Text.assemble(status, f"{text.pad(finding.check, width)}  {text.one_line(finding.message)}")
        if finding.fix:
            yield Text(f"{_INDENT}Fix: {text.one_line(finding.fix)}", style="dim")
