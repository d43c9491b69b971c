"""Commands: how they read options and arguments, show help, and report errors.

A verb is a function with the decorators of Click: `verb`, then its arguments and options in the order of the help. The docstring
is the help text, in which `{program}` is the name that the user has called.
"""

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from enum import StrEnum
from functools import partial, update_wrapper
from typing import Any, Final, Generic, TypeVar

import click
from click.exceptions import Exit
from click.shell_completion import CompletionItem

from perdure.cli import flags
from perdure.cli.terminal import program_of
from perdure.client.errors import ClientError, ExitCode
from perdure.kube.paths import InvalidNameError

_INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, as of shells."""

_NOT_UTF_8: Final = "surrogates not allowed"
"""Python's reason for the error about a text, such as an argument, that is not UTF-8."""

_OVERRIDABLE: Final = frozenset(
    {
        "--address",
        "--audience",
        "--color",
        "--context",
        "--namespace",
        "--output",
        "--service",
        "--service-account",
        "--system-namespace",
        "--time-format",
        "--timeout",
    }
)
"""The options about the connection and the output. A shell alias sets them, and the user overrides them, as with kubectl."""

_Word = TypeVar("_Word", bound=StrEnum)


class _Documented(click.Command):
    """A command with the name of the program in its help text, and with the arguments in front of the options."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help text."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(inspect.cleandoc(self.help or "").format(program=program_of(ctx)))

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments."""
        arguments = [each.get_help_record(ctx) for each in self.get_params(ctx) if isinstance(each, click.Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)


class Verb(_Documented):
    """A verb. It also takes the global options, and reports errors as one sentence."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options."""
        declared = {name for parameter in self.params for name in parameter.opts}
        try:
            rest = flags.extract(args, declared)
            if not ctx.resilient_parsing:
                _, _, param_order = self.make_parser(ctx).parse_args(list(rest))
                _check_repeated(param_order)
            return super().parse_args(ctx, rest)
        except click.BadParameter:
            if ctx.resilient_parsing:
                return []
            raise
        except UnicodeEncodeError as error:
            raise click.UsageError(_of_encoding(error)) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete an option; global options come after those of the verb."""
        found = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("--"):
            return found
        matching = [flag for flag in flags.GLOBAL if flag.name.startswith(incomplete)]
        return [*found, *(CompletionItem(flag.name, help=flag.help) for flag in matching)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; report an error as one sentence, and exit with its status."""
        try:
            return super().invoke(ctx)
        except ClientError as error:
            click.echo(f"Error: {' '.join(str(error).split())}", err=True)
            raise Exit(error.status) from error
        except InvalidNameError as error:
            click.echo(f"Error: {error}", err=True)
            raise Exit(ExitCode.TROUBLE) from error
        except UnicodeEncodeError as error:
            if error.reason != _NOT_UTF_8:  # the terminal cannot show a character
                raise
            click.echo(f"Error: {_of_encoding(error)}", err=True)
            raise Exit(ExitCode.TROUBLE) from error
        except KeyboardInterrupt as error:
            raise Exit(_INTERRUPTED) from error


class Group(_Documented, click.Group):
    """A group of verbs, which recognizes the names of its verbs in other tools."""

    command_class = Verb

    def __init__(self, *args: Any, advice: Mapping[str, str] | None = None, **attributes: Any) -> None:
        """`advice`: what to use in place of the commands of other tools, by the name of the command."""
        super().__init__(*args, **{"no_args_is_help": True, **attributes})
        self._advice = advice or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the verbs, in the order of the code."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb."""
        if args and args[0] in self._advice and args[0] not in self.commands:
            advice = self._advice[args[0]].format(program=program_of(ctx))
            ctx.fail(f"there is no command `{args[0]}`; {advice}")
        return super().resolve_command(ctx, args)


class _Argument(click.Argument):
    """An argument whose help says that it is required."""

    def make_metavar(self, ctx: click.Context) -> str:
        """Return the argument as the usage shows it."""
        name = self.human_readable_name
        return name if self.required or name.startswith("[") else f"[{name}]"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the name and the help."""
        return self.human_readable_name, f"{self.help or ''}{'  [required]' if self.required else ''}"


argument = partial(click.argument, cls=_Argument)
option = click.option


def verb(name: str | None = None) -> Callable[[Callable[..., None]], Verb]:
    """Return the decorator of a verb; by default, its name is that of the function."""
    return click.command(name, cls=Verb)


def group(
    name: str | None = None, *, advice: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Group]:
    """Return the decorator of a verb with verbs of its own, which does nothing itself."""
    return click.group(name, cls=Group, advice=advice)


class Words(click.Choice[_Word], Generic[_Word]):
    """The words of an enum, exactly as they are written."""

    def __init__(self, words: type[_Word]) -> None:
        super().__init__(list(words))

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        """Return a word as the user writes it; by itself, Click takes the name of the member."""
        return str(choice)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return the error of a text that is not one of the words."""
        return f"{str(value)!r} is not one of {', '.join(repr(str(word)) for word in self.choices)}"


class AnyCase(Words[_Word]):
    """The words of an enum in any case, with a hint for misspelled words and for those of other systems."""

    def __init__(self, words: type[_Word], other_words: Mapping[str, str] | None = None) -> None:
        """`other_words`: names in other systems in lower case, and our word for each."""
        super().__init__(words)
        self._other_words = other_words or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _Word:
        """Return the word."""
        known = {word.casefold(): word for word in self.choices}
        entered = str(value).casefold()
        if entered in known:
            return known[entered]
        meant = self._other_words.get(entered) or ", ".join(
            known[near] for near in get_close_matches(entered, known, 1)
        )
        hint = f"; did you mean {meant}?" if meant else ""
        message = f"`{value}` is not one of {', '.join(self.choices)}{hint}"
        raise click.BadParameter(message, ctx=ctx, param=param)


class WholeNumber(click.IntRange):
    """A whole number."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the placeholder in the help."""
        return "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if fault := _out_of_range(number, self.min, self.max):
            self.fail(fault, param, ctx)
        return number


class Decimal(click.FloatRange):
    """A finite number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        if fault := _out_of_range(number, self.min, self.max):
            self.fail(fault, param, ctx)
        return number


def _out_of_range(number: float, minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and number < minimum:
        return f"{number} is less than {minimum:g}"
    if maximum is not None and number > maximum:
        return f"{number} is more than {maximum:g}"
    return ""


Decorator = Callable[[Callable[..., None]], Callable[..., None]]
"""A decorator of a verb, such as an option."""


def stacked(decorators: Iterable[Decorator]) -> Decorator:
    """Return one decorator for several options; the help shows them in this order."""
    ordered = list(decorators)

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        for each in reversed(ordered):
            verb = each(verb)
        return verb

    return decorate


def packed(options_type: type[Any], *options: Decorator, **fixed: Any) -> Decorator:
    """Return the decorator of a verb that takes several options as one argument, after the context from Click.

    Args:
        options_type: A dataclass with a field for each of them. Options that the verb declares itself count as well.
        options: The options that the decorator adds, after those of the verb.
        fixed: Fields that are not options.
    """
    names = {each.name for each in fields(options_type)} - fixed.keys()

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        def command(context: click.Context, /, **values: Any) -> None:
            shared = {key: values.pop(key) for key in names & values.keys()}
            verb(context, options_type(**shared, **fixed), **values)

        return stacked(options)(click.pass_context(update_wrapper(command, verb)))

    return decorate


def _of_encoding(error: UnicodeEncodeError) -> str:
    part = ascii(error.object[error.start : error.end])
    return f"a name or a value contains {part}, which is not UTF-8"


def _check_repeated(parameters: Iterable[click.Parameter]) -> None:
    """Check that no option for one value is given twice: the first value would be lost silently.

    Args:
        parameters: The parameters from Click, each as often as the command line has it.

    Raises:
        BadParameter: An option is given twice.
    """
    for parameter, times in Counter(parameters).items():
        single = isinstance(parameter, click.Option) and not parameter.multiple and not parameter.is_flag
        if times > 1 and single and _OVERRIDABLE.isdisjoint(parameter.opts):
            raise click.BadParameter(f"is given {times} times, but takes one value; give it once", param=parameter)
