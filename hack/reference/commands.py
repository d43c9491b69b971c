"""The pages of the command line, one for each verb, from the parser of `perdure`."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import click

from perdure.cli.app import VERBS, build, verb_of
from reference.markdown import page, table

_HEAD: Final = """\
`perdure` starts, inspects, and controls workflows. It is also installed as `kubectl-perdure`, so `kubectl perdure
list` works too. You can do all of this with kubectl; this command shows more at a glance. [The command
line](../../cli.md) shows it at work."""
_ALL: Final = """\
Exit status of all commands: 0 for success, 1 for a negative result (the run failed, the request was refused), 2 for
an error (usage, no cluster, not found), and 124 for a timeout."""
_OPTION: Final = re.compile(r"`[^`]*`|(?<![\w-])(--?[a-z][\w-]*)")
"""Code, or an option outside of code."""


def pages() -> dict[str, str]:
    """Write an index, and a page for each verb."""
    program = build("perdure")
    verbs = {name: verb_of(name) for name in VERBS}
    rows = [(f"[`{name}`]({name}.md)", command.get_short_help_str(200)) for name, command in verbs.items()]
    found = {
        "cli/README.md": page(
            "Commands", "operator/perdure/cli/app.py", _HEAD, table(("command", "what it does"), sorted(rows)), _ALL
        )
    }
    for name, command in verbs.items():
        source = f"operator/perdure/cli/verbs/{VERBS[name][0].partition(':')[0]}.py"
        found |= {
            f"cli/{'-'.join(called)}.md": page(f"perdure {' '.join(called)}", source, *parts)
            for called, parts in _commands(
                command, (name,), program.make_context("perdure", [], resilient_parsing=True)
            )
        }
    return found


def _commands(
    command: Any, called: tuple[str, ...], program: click.Context
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the words and the text of a command, and of its subcommands."""
    inner = getattr(command, "commands", {})
    if not inner:
        yield called, _parts(command, " ".join(called), program)
        return
    rows = [
        (f"[`{name}`]({'-'.join((*called, name))}.md)", each.get_short_help_str(200)) for name, each in inner.items()
    ]
    yield called, [*text(command.help.format(program="perdure")), table(("command", "what it does"), sorted(rows))]
    for name, each in inner.items():
        yield from _commands(each, (*called, name), program)


def _parts(command: Any, called: str, program: click.Context) -> list[str]:
    """Write what a command does, its usage, its arguments and its options."""
    summary, *details = text(command.help.format(program="perdure"))
    context = command.make_context(called, [], parent=program, resilient_parsing=True)
    parts = [summary, f"    {command.get_usage(context).removeprefix('Usage: ')}", *details]
    for kind in ("argument", "option"):
        records = [p.get_help_record(context) for p in command.get_params(context) if p.param_type_name == kind]
        rows = [(f"`{names}`", meaning) for names, meaning in filter(None, records)]
        if rows:
            parts.append(table((kind, "meaning"), rows))
    return parts


def text(help_text: str) -> Iterator[str]:
    r"""Yield the paragraphs of a help text; those after `\b` are examples, which keep their lines."""
    for paragraph in inspect.cleandoc(help_text).split("\n\n"):
        if not paragraph.startswith("\b"):
            yield _OPTION.sub(lambda found: f"`{found[1]}`" if found[1] else found[0], " ".join(paragraph.split()))
            continue
        title, _, lines = paragraph.removeprefix("\b\n").partition("\n")
        yield title
        yield "\n".join(f"    {line.strip()}" for line in lines.splitlines())
