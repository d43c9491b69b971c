"""Output to the terminal: its colors, width, and characters, the formats for programs, and the page for text."""

import json
import os
import shutil
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

import click

from perdure.api.labels import GROUP
from perdure.cli.templates import render
from perdure.lazy import lazily

with lazily():
    from rich import console as rich_console

    from perdure.api import yaml_text
    from perdure.kube import clock
    from perdure.view import page
    from perdure.view import text as view_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rich.console import Console
    from rich.text import Text

    from perdure.view.page import Page


class Color(StrEnum):
    """The mode of colors."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


Output = str
"""A format of the output: a word, or a template of the user."""

REPORT_WORDS = ("text", "json", "yaml")
"""Formats for data without names."""

OBJECT_WORDS = ("text", "wide", "json", "yaml", "name")
"""Formats of objects."""


def is_for_users(output: Output) -> bool:
    """Return whether a format is for users; the other formats are for programs."""
    return output in {"text", "wide"}


class Screen:
    """Standard output, or a file."""

    def __init__(self, color: Color = Color.AUTO, file: TextIO | None = None) -> None:
        self._file = file or sys.stdout
        self._color = color
        self._console: Console | None = None
        self.utf8 = (getattr(self._file, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf8")
        """Whether the encoding has all characters."""
        if not self.utf8 and hasattr(self._file, "reconfigure"):
            self._file.reconfigure(errors="backslashreplace")  # escape what the encoding lacks

    @property
    def width(self) -> int:
        """Columns of the terminal; `COLUMNS` or 80 without one."""
        return shutil.get_terminal_size((80, 24)).columns

    @property
    def height(self) -> int:
        """Lines of the terminal; `LINES` or 24 without one."""
        return shutil.get_terminal_size((80, 24)).lines

    @property
    def interactive(self) -> bool:
        """Whether the output is a terminal that can redraw lines."""
        return self._file.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def console(self) -> "Console":
        """The console of rich."""
        if self._console is None:
            options: dict[Color, dict[str, Any]] = {
                Color.AUTO: {},
                Color.ALWAYS: {"force_terminal": True, "color_system": "standard", "no_color": False},
                Color.NEVER: {"color_system": None},
            }
            self._console = rich_console.Console(
                file=self._file, width=self.width, highlight=False, markup=False, emoji=False, **options[self._color]
            )
        return self._console

    def show(self, lines: "Iterable[Text]") -> None:
        """Print lines without wrapping."""
        if self.console.color_system is None:  # rich needs 0.1 ms for each line
            self._file.writelines(f"{line.plain.expandtabs()}\n" for line in lines)
            self._file.flush()
            return
        for line in lines:
            self.console.print(line, soft_wrap=True)

    def write(self, text: str) -> None:
        """Print plain text."""
        self._file.write(text + "\n")
        self._file.flush()

    def write_data(self, output: Output, data: Any, names: "Iterable[str]" = ()) -> None:
        """Print data in a format for programs.

        Args:
            output: The format.
            data: The data for JSON or YAML.
            names: The names to print, one per line.
        """
        if output == "json":
            self.write(json.dumps(data, indent=2, ensure_ascii=not self.utf8))
        elif output == "yaml":
            self.write(yaml_text.dump_blocks(data, allow_unicode=self.utf8).rstrip("\n"))
        elif output == "name":
            for name in names:
                self.write(name)
        else:
            self.write(render(output, data).removesuffix("\n"))

    def write_value(self, output: Output, value: Any) -> None:
        """Print a result; in a format for users, text is printed unquoted."""
        if output != "text":
            self.write_data(output, value)
        elif isinstance(value, str):
            for line in view_text.paragraphs(value):
                self.write(line)
        else:
            self.write(json.dumps(value, indent=2, ensure_ascii=not self.utf8))

    def write_object(self, output: Output, item: "Mapping[str, Any]") -> None:
        """Print an object in a format for programs."""
        self.write_data(output, item, [_reference(item)])

    def write_objects(self, output: Output, items: "Sequence[Mapping[str, Any]]") -> None:
        """Print a list of objects in a format for programs."""
        self.write_data(output, {"apiVersion": "v1", "kind": "List", "items": items}, map(_reference, items))

    def show_all(
        self,
        output: Output,
        items: Any,
        table: "Callable[[], Iterable[Text]]",
        *,
        otherwise: str,
        names: "Iterable[str] | None" = None,
    ) -> None:
        """Print everything that a verb has found.

        Args:
            output: The format.
            items: What it has found, as data for programs.
            table: Returns the lines for users.
            otherwise: The sentence for users if there is nothing.
            names: The names to print, one per line; None if `items` are objects of Kubernetes, which have names.
        """
        if not is_for_users(output):
            if names is None:
                self.write_objects(output, items)
            else:
                self.write_data(output, items, names)
        elif items:
            self.show(table())
        else:
            click.echo(otherwise, err=True)


def progress_screen(output: Output) -> Screen:
    """The output of a command that follows a run, until the run has ended.

    It is standard error in a format for programs, so that standard output contains only the run.
    """
    return Screen() if is_for_users(output) else Screen(file=sys.stderr)


def reference(kind: str, name: str) -> str:
    """Return the kind and the name of one of our objects, as kubectl prints and accepts them."""
    return f"{kind.lower()}.{GROUP}/{name}"


def _reference(item: "Mapping[str, Any]") -> str:
    meta = item["metadata"]
    return reference(item["kind"], meta.get("name") or meta["generateName"])


class TimeFormat(StrEnum):
    """Format of times."""

    RELATIVE = "relative"
    ISO = "iso"


def program_of(context: click.Context) -> str:
    """Return the name of the program.

    Args:
        context: The context of the verb.

    Returns:
        `perdure` or `kubectl perdure`.
    """
    return str(context.find_root().info_name or "perdure")


def page_of(
    context: click.Context,
    screen: Screen,
    *,
    times: TimeFormat = TimeFormat.RELATIVE,
    cluster: str | None = None,
    brief: bool = False,
) -> "Page":
    """Create the page for the output of a verb.

    Args:
        context: The context of the verb.
        screen: The screen to print to.
        times: Format of times.
        cluster: The requested context of the kubeconfig.
        brief: Whether a run with many steps is shown on about one screen.

    Returns:
        The page at the current time.
    """
    return page.Page(
        now=clock.now(),
        width=screen.width,
        glyphs=page.UNICODE if screen.utf8 else page.ASCII,
        iso=times is TimeFormat.ISO,
        program=program_of(context),
        context=cluster,
        brief=brief,
    )
