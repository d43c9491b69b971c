"""Command lines of containers that return values: the interpreters of scripts, and a shell that writes the result."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from perdure.importing.reader import Object

_OPTIONS: Final = {
    **dict.fromkeys(("sh", "bash", "ash", "dash", "ksh", "zsh", "python", "pypy"), "-c"),
    **dict.fromkeys(("node", "perl", "ruby"), "-e"),
    "php": "-r",
}
_EXPANDED: Final = re.compile(r"\$(?=[$(])")

_JSON: Final = """json() {
  printf '"%s"' "$(sed -e ':a' -e '$!N' -e '$!ba' -e 's/\\\\/\\\\\\\\/g' -e 's/"/\\\\"/g' -e 's/\\t/\\\\t/g' -e 's/\\n/\\\\n/g')"
}
"""
"""A function of the shell that writes its input as a string of JSON."""

MISSING_CODE: Final = 250
"""The exit code of a container that has succeeded without writing an output that has no default."""
FINAL_CODE: Final = 251
"""The exit code of a container whose failure is not retried because of the time that it took."""

_PRINTED: Final = """out=$("$@") || {{ code=$?; printf '%s\\n' "$out"; {} "$code"; }}
printf '%s\\n' "$out"
"""
"""Runs the command line, and stores its stdout; the gap is what ends the shell."""


@dataclass(frozen=True, slots=True)
class Output:
    """A value that a container writes to a file."""

    name: str
    path: str
    default: str | None = None
    is_json: bool = False
    """Whether the file contains JSON for expressions instead of text."""


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A file or a folder to copy to the volume of an output artifact after the command line."""

    source: str
    target: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class TimedFailures:
    """Failures that are not retried if the attempt took some time."""

    codes: tuple[int, ...]
    """Exit codes; those of all other failures, if there are none."""
    times: tuple[tuple[int, int | None], ...]
    """Ranges of the duration in seconds, without their ends; None: unbounded."""


@dataclass(frozen=True, slots=True)
class Returns:
    """The values that a container returns, and the files that it copies."""

    outputs: tuple[Output, ...] = ()
    """The files with the values to return."""
    prints: bool = False
    """Whether stdout is also a value."""
    copies: tuple[FileCopy, ...] = ()
    final: tuple[TimedFailures, ...] = ()
    """The failures that end with `FINAL_CODE`; those without codes are the last ones."""

    def __bool__(self) -> bool:
        """Whether a shell must run the command line."""
        return bool(self.outputs or self.prints or self.copies or self.final)


def option_of(interpreter: str) -> str | None:
    """Return the option of an interpreter for a program, such as `-c`; None if it has no such option."""
    return _OPTIONS.get(PurePosixPath(interpreter).name.rstrip("0123456789."))


def not_expanded(text: str) -> str:
    """Escape a text for `args` so that Kubernetes does not expand `$(NAME)` and `$$`."""
    return _EXPANDED.sub("$$", text)


def returning(line: Iterable[str], returns: Returns) -> Object:
    """Return the command of a container that runs a command line and then writes the result.

    The image needs `sh` and `sed`, and `date`, if failures are final because of the time that they took.

    Args:
        line: The command line.
        returns: What the container returns.

    Returns:
        `command` and `args`. A single value is the result itself; several are the fields of an object.
    """
    outputs, prints = returns.outputs, returns.prints
    end = "ended" if returns.final else "exit"
    runs = '"$@" || ended "$?"\n' if returns.final else '"$@"\n'
    program = "set -e\n" + _ended(returns.final) + (_PRINTED.format(end) if prints else runs)
    program += "".join(map(_copy, returns.copies))
    program += "".join(
        f"test -e {quoted(each.path)} || {end} {MISSING_CODE}\n" for each in outputs if each.default is None
    )
    if len(outputs) + prints == 1:
        program += f"{_content(outputs[0]) if outputs else _OUT} > /dev/termination-log\n"
        program += "" if outputs and outputs[0].is_json else _TEXT
        program += _NOT_EMPTY
    elif outputs:
        program += _JSON + _object(outputs, prints=prints)
    return {"command": ["sh", "-c"], "args": [not_expanded(program), "perdure", *line]}


def _ended(final: tuple[TimedFailures, ...]) -> str:
    """Return a function of the shell that ends it after a failure, and the time at which it starts."""
    if not final:
        return ""
    lines = ["started=$(date +%s)", "ended() {", "  seconds=$(($(date +%s) - started))", '  case "$1" in']
    for each in final:
        lines.append(f"  {'|'.join(map(str, each.codes)) or '*'})")
        for start, end in each.times:
            before = "" if end is None else f' && [ "$seconds" -lt {end} ]'
            lines.append(f'    if [ "$seconds" -ge {start} ]{before}; then exit {FINAL_CODE}; fi')
        lines.append("    ;;")
    return "\n".join([*lines, "  esac", '  exit "$1"', "}", ""])


def _copy(copied: FileCopy) -> str:
    line = f"cp -r {quoted(copied.source)} {quoted(copied.target)}"
    return f"if [ -e {quoted(copied.source)} ]; then {line}; fi\n" if copied.optional else f"{line}\n"


_NOT_EMPTY: Final = """[ -s /dev/termination-log ] || printf '""' > /dev/termination-log
"""
"""Writes an empty text for an empty result, which would be null."""

_TEXT: Final = """case "$(cat /dev/termination-log)" in
*[[:cntrl:]]*) ;;
null) printf '"null"' > /dev/termination-log ;;
'"'*'"') text=$(sed -e 's/\\\\/&&/g' -e 's/"/\\\\&/g' /dev/termination-log); printf '"%s"' "$text" > /dev/termination-log ;;
esac
"""
"""Writes the word `null`, and a text in quotes, as a string of JSON: both would be JSON themselves, and become other texts."""

_OUT: Final = """printf %s "$out\""""


def _content(output: Output) -> str:
    read = f'printf %s "$(cat {quoted(output.path)})"'
    if output.default is None:
        return read
    return f"if [ -e {quoted(output.path)} ]; then {read}; else printf %s {quoted(output.default)}; fi"


def _object(outputs: tuple[Output, ...], *, prints: bool) -> str:
    values = [(each.name, f"{{ {_content(each)}; }}", each.is_json) for each in outputs]
    values += [("result", _OUT, False)] if prints else []
    lines = ["{"]
    for i, (name, content, is_json) in enumerate(values):
        key = ("," if i else "{") + f'"{name}":'
        lines += [f"  printf %s {quoted(key)}", f"  {content}" + ("" if is_json else " | json")]
    return "\n".join([*lines, "  printf '}'", "} > /dev/termination-log", ""])


def quoted(text: str) -> str:
    """Quote a word for a shell."""
    return text if re.fullmatch("[-./:=@%_A-Za-z0-9]+", text) else "'" + text.replace("'", "'\\''") + "'"
