"""Translates conditions and expressions of Argo Workflows and Tekton to CEL, and writes values as CEL.

Argo has two languages. Conditions (`when`) are govaluate, in which a word that is not quoted is a text. Expressions (`{{=…}}`,
`expression`) are expr-lang. They share their operators, so one parser reads both. Inside expressions, Argo has functions of
Sprig, whose arguments have another order than those of expr-lang, and JSON paths (`jsonpath`).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perdure.language.coercion import as_text

Resolve = Callable[[tuple[str, ...]], str]
"""Translates a reference, such as `("inputs", "parameters", "x")`. Raises `UntranslatableError`."""


class _Tags:
    """Finds the tags of Argo in a text, as a pattern does.

    What follows the last closing braces has none: a pattern would look from each of its opening braces to the end of the text.
    """

    _PATTERN: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)

    @staticmethod
    def _divided(text: str) -> tuple[str, str]:
        end = text.rfind("}}")
        return (text[: end + 2], text[end + 2 :]) if end >= 0 else ("", text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        return self._PATTERN.finditer(self._divided(text)[0])

    def findall(self, text: str) -> list[str]:
        return [found[1] for found in self.finditer(text)]

    def search(self, text: str) -> re.Match[str] | None:
        return next(self.finditer(text), None)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self._PATTERN.fullmatch(text) if text.endswith("}}") else None

    def split(self, text: str) -> list[str]:
        head, tail = self._divided(text)
        *parts, last = self._PATTERN.split(head)
        return [*parts, last + tail]

    def sub(self, change: str | Callable[[re.Match[str]], str], text: str) -> str:
        head, tail = self._divided(text)
        return self._PATTERN.sub(change, head) + tail


TAG: Final = _Tags()
"""The tags of Argo."""
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<tag>\{\{.*?\}\})
    |(?P<number>[0-9]+(?:\.[0-9]+)?)
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>\*\*|=~|!~|==|!=|<=|>=|&&|\|\||\?\?|\?\.|\.\.|[-+*/%!<>?:.,()\[\]{}#]))""",
    re.VERBOSE | re.DOTALL,
)
_BINARY: Final = {
    "??": 1,
    "||": 2,
    "or": 2,
    "&&": 3,
    "and": 3,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "=~", "!~", "in", "not"), 4),
    **dict.fromkeys(("matches", "contains", "startsWith", "endsWith"), 4),
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "%": 6,
}
_ORDER: Final = frozenset({"<", "<=", ">", ">="})
_INTEGERS: Final = 1 << 63
"""The first integer that CEL does not have."""
_EQUALITY: Final = frozenset({"==", "!="})
_ARITHMETIC: Final = frozenset({"+", "-", "*", "/", "%"})
_SAME: Final = {"or": "||", "and": "&&"}
_CALLS: Final = {
    "asInt": "int",
    "int": "int",
    "asFloat": "double",
    "float": "double",
    "string": "string",
    "len": "size",
}
_IDENTITY: Final = frozenset({"toJson", "toJSON", "fromJSON", "fromJson"})
"""Functions for JSON: results and parameters are JSON values here, and are written as JSON in text."""
_METHODS: Final = {
    "upper": "upperAscii",
    "lower": "lowerAscii",
    "trim": "trim",
    "split": "split",
    "join": "join",
    "replace": "replace",
}
_MACROS: Final = {"filter": "filter", "map": "map", "all": "all", "any": "exists", "one": "exists_one"}
_ROOTS: Final = frozenset(
    {"inputs", "outputs", "steps", "tasks", "workflow", "item", "lastRetry", "retries", "node", "pod"}
) | {*("response", "params", "context", "workspaces", "results", "cronworkflow", "status", "exitCode")}
"""Names that references begin with."""


class UntranslatableError(Exception):
    """A part has no counterpart; the message has its name and the fix."""


@dataclass(frozen=True, slots=True)
class Term:
    """A translated part."""

    text: str
    kind: str = "value"
    """`reference`, `text` and `number` (both only for literals), or `value`."""
    atom: bool = True
    """Whether the expression needs no parentheses."""
    constant: str | None = None
    """The text of a constant."""
    read: str = ""
    """The reference that a text consists of."""
    is_float: bool = False
    """Whether it is a number that may have a fraction. As text, a whole one has none, as in Go."""

    @property
    def closed(self) -> str:
        """Return the expression, in parentheses if needed."""
        return self.text if self.atom else f"({self.text})"

    @property
    def as_string(self) -> str:
        """Return the expression converted to text."""
        return (
            self.text
            if self.kind == "text"
            else literal(self.text)
            if self.kind == "number"
            else f"string({self.text})"
        )


def condition(text: str, resolve: Resolve) -> str:
    """Translate a `when`: a condition in govaluate, or one tag with an expression.

    Raises:
        UntranslatableError: The expression has no counterpart.
    """
    match = TAG.fullmatch(text.strip())
    if match and match[1].startswith("="):
        return _truth(_Parser(match[1][1:], resolve, words=False).parse())
    return _truth(_Parser(text, resolve, words=True).parse())


def expression(text: str, resolve: Resolve) -> str:
    """Translate an expression.

    Raises:
        UntranslatableError: The expression has no counterpart.
    """
    term = _Parser(text, resolve, words=False).parse()
    return f"string({term.text})" if term.is_float else term.text


def reference(text: str, resolve: Resolve) -> str:
    """Translate a simple tag, such as `inputs.parameters.x`."""
    return resolve(tuple(re.sub(r"\[['\"]?([^]'\"]+)['\"]?\]", r".\1", text.strip()).split(".")))


def tag(content: str, resolve: Resolve) -> str:
    """Translate the text between `{{` and `}}`."""
    content = content.strip()
    return expression(content[1:], resolve) if content.startswith("=") else reference(content, resolve)


def _truth(term: Term) -> str:
    """Convert a term to a condition; a text, such as the value of a parameter, is true if it is `true`."""
    return term.text if term.kind == "value" else f"{term.as_string} == 'true'"


class _Tokens:
    """The tokens of an expression, in order."""

    def __init__(self, source: str) -> None:
        self.source = source.strip()
        self.at = 0

    def error(self) -> UntranslatableError:
        """Create the error about the next token."""
        rest = self.source[self.at :].strip()
        where = f" at `{rest[:30]}`" if rest else ""
        return UntranslatableError(f"`{self.source}` cannot be translated{where}; write it in CEL")

    def peek(self) -> tuple[str, str]:
        """Return the kind and the text of the next token; empty at the end."""
        found = _TOKEN.match(self.source, self.at)
        if found is None or found.lastgroup is None:
            rest = self.source[self.at :].strip()
            return ("unknown", rest[0]) if rest else ("", "")
        return found.lastgroup, found[found.lastgroup]

    def next(self) -> tuple[str, str]:
        """Take the next token."""
        kind, text = self.peek()
        found = _TOKEN.match(self.source, self.at)
        if found is None:
            raise self.error()
        self.at = found.end()
        return kind, text

    def accept(self, sign: str) -> bool:
        """Take the next token if it is the given sign or word."""
        if self.peek()[1] != sign or self.peek()[0] == "text":
            return False
        self.next()
        return True

    def expect(self, sign: str) -> None:
        """Take a required sign."""
        if not self.accept(sign):
            raise self.error()


class _Parser:
    """Reads one expression by precedence."""

    def __init__(self, source: str, resolve: Resolve, *, words: bool) -> None:
        self._tokens = _Tokens(source)
        self._resolve = resolve
        self._words = words
        self._closures = 0

    def parse(self) -> Term:
        """Parse the whole expression."""
        term = self._ternary()
        if self._tokens.peek()[1]:
            raise self._tokens.error()
        return term

    def _ternary(self) -> Term:
        term = self._binary(1)
        if not self._tokens.accept("?"):
            return term
        then = self._ternary()
        self._tokens.expect(":")
        other = self._ternary()
        if then.is_float or other.is_float:  # CEL wants one type
            return Term(f"{_closed_truth(term)} ? {then.as_string} : {other.as_string}", "text", atom=False)
        return Term(f"{_closed_truth(term)} ? {then.closed} : {other.closed}", atom=False)

    def _binary(self, lowest: int) -> Term:
        left = self._unary()
        while (level := _BINARY.get(self._tokens.peek()[1], 0)) >= lowest and self._tokens.peek()[0] in {
            "sign",
            "word",
        }:
            sign = self._tokens.next()[1]
            if sign == "not":
                self._tokens.expect("in")
                left = Term(f"!({_joined('in', left, self._binary(level + 1)).text})")
            elif sign in _ARITHMETIC:
                left = self._computed(sign, left, self._binary(level + 1))
            else:
                left = _joined(_SAME.get(sign, sign), left, self._binary(level + 1))
        return left

    def _unary(self) -> Term:
        if self._tokens.accept("!") or (not self._words and self._tokens.accept("not")):
            return Term(f"!{_closed_truth(self._unary())}")
        if self._tokens.accept("-"):
            inner = self._unary()
            if inner.kind != "number":
                return Term(f"-{_number(inner)}", is_float=True)
            return Term(f"-{inner.closed}", "number", constant=inner.constant and f"-{inner.constant}")
        return self._postfix()

    def _computed(self, sign: str, left: Term, right: Term) -> Term:
        """Join two numbers, or texts with `+`. All numbers of govaluate have fractions, and so has a quotient of expr-lang."""
        terms = (left, right)
        is_text = sign == "+" and "text" in (left.kind, right.kind)
        if self._words and is_text:
            return Term(f"{left.as_string} + {right.as_string}", "text", atom=False)
        if self._words and sign == "%":
            parts = [term.text if term.kind == "number" else f"int({term.text})" for term in terms]
            return Term(" % ".join(parts), atom=False)
        if not is_text and (self._words or sign == "/" or any(term.is_float for term in terms)):
            return Term(f"{_number(left)} {sign} {_number(right)}", atom=False, is_float=True)
        return _joined(sign, left, right)

    def _postfix(self) -> Term:
        kind, text = self._tokens.peek()
        if kind == "word" and text in _ROOTS:
            return self._reference()
        term = self._primary()
        while term.kind != "number":
            if self._tokens.accept("?."):
                raise self._tokens.error()
            if self._tokens.accept("."):
                term = Term(member(term.closed, self._tokens.next()[1]))
            elif self._tokens.accept("["):
                inner = self._ternary()
                self._tokens.expect("]")
                term = Term(f"{term.closed}[{inner.text}]")
            else:
                break
        return term

    def _reference(self) -> Term:
        path = [self._tokens.next()[1]]
        while True:
            start = self._tokens.at
            if self._tokens.accept("."):
                path.append(self._tokens.next()[1])
            elif self._tokens.accept("["):
                kind, text = self._tokens.next()
                if kind != "text" or not self._tokens.accept("]"):
                    self._tokens.at = start
                    break
                path.append(text[1:-1])
            else:
                break
        term = Term(self._resolve(tuple(path)), "reference")
        while self._tokens.accept("["):
            inner = self._ternary()
            self._tokens.expect("]")
            term = Term(f"{term.closed}[{inner.text}]", "reference")
        return term

    def _primary(self) -> Term:
        kind, text = self._tokens.next()
        match kind, text:
            case "tag", _:
                return Term(tag(text[2:-2], self._resolve), "reference", atom=not text[2:].lstrip().startswith("="))
            case "number", _:
                return Term(text, "number", constant=text)
            case "text", _:
                return self._text(text[1:-1])
            case "word", "true" | "false":
                return Term(text, "value", constant=text)
            case "word", "nil" | "null":
                return Term("null")
            case "word", "sprig":
                self._tokens.expect(".")
                return self._sprig(self._tokens.next()[1])
            case "word", _:
                return self._word(text)
            case "sign", "(":
                return self._group()
            case "sign", "{":
                return Term("{" + ", ".join(self._entries()) + "}")
            case "sign", "[":
                return Term(f"[{', '.join(each.text for each in self._list(']'))}]")
            case "sign", "#" if self._closures:
                return Term(f"e{self._closures}", "reference")
            case "sign", "." if self._closures:
                return Term(member(f"e{self._closures}", self._tokens.next()[1]), "reference")
        raise self._tokens.error()

    def _text(self, text: str) -> Term:
        pieces = TAG.split(text)
        if len(pieces) == 1:
            return Term(literal(text), "text", constant=text)
        terms = [
            Term(f"string({tag(piece, self._resolve)})") if i % 2 else Term(literal(piece))
            for i, piece in enumerate(pieces)
            if piece
        ]
        if len(terms) > 1:
            return Term(" + ".join(term.text for term in terms), "text", atom=False)
        return Term(terms[0].text, "text", read=terms[0].text.removeprefix("string"))

    def _word(self, text: str) -> Term:
        if self._tokens.peek()[1] == "(":
            return self._call(text)
        if self._words:
            return Term(literal(text), "text", constant=text)
        raise UntranslatableError(f"`{text}` in `{self._tokens.source}` has no counterpart; write it in CEL")

    def _group(self) -> Term:
        terms = self._list(")")
        if len(terms) == 1:
            return terms[0]
        return Term(f"[{', '.join(each.text for each in terms)}]")

    def _list(self, end: str) -> list[Term]:
        terms: list[Term] = []
        while not self._tokens.accept(end):
            terms.append(self._ternary())
            if not self._tokens.accept(","):
                self._tokens.expect(end)
                break
        return terms

    def _entries(self) -> Iterator[str]:
        """Yield the entries of a map."""
        while not self._tokens.accept("}"):
            kind, text = self._tokens.next()
            if kind not in {"text", "word", "number"}:
                raise self._tokens.error()
            self._tokens.expect(":")
            yield f"{literal(text[1:-1] if kind == 'text' else text)}: {self._ternary().text}"
            if not self._tokens.accept(","):
                self._tokens.expect("}")
                break

    def _call(self, name: str) -> Term:
        self._tokens.expect("(")
        if name in _MACROS:
            subject = self._ternary()
            self._tokens.expect(",")
            return self._macro(_MACROS[name], subject)
        terms = self._list(")")
        if name in _IDENTITY and terms:
            return Term(terms[0].text, "reference", terms[0].atom)
        if name == "jsonpath" and len(terms) == 2:  # noqa: PLR2004 (the value and the path)
            return _selected(terms[0], terms[1].text.strip("'"))
        if name in _CALLS and terms:
            kind, made = "text" if name == "string" else "value", _CALLS[name]
            return Term(f"{made}({terms[0].text})", kind, is_float=made == "double")
        if name in _METHODS and terms:
            rest = ", ".join(term.text for term in terms[1:])
            return Term(f"{terms[0].closed}.{_METHODS[name]}({rest})")
        raise UntranslatableError(f"the function `{name}` has no counterpart in CEL; compute the value in an activity")

    def _sprig(self, name: str) -> Term:
        self._tokens.expect("(")
        made = _sprig(name, [term.text for term in self._list(")")])
        if made is None:
            raise UntranslatableError(
                f"the function `sprig.{name}` has no counterpart; compute the value in an activity"
            )
        return Term(made)

    def _macro(self, macro: str, subject: Term) -> Term:
        self._closures += 1
        braces = self._tokens.accept("{")
        body = self._ternary()
        if braces:
            self._tokens.expect("}")
        self._tokens.expect(")")
        variable = f"e{self._closures}"
        self._closures -= 1
        return Term(f"{subject.closed}.{macro}({variable}, {body.text})")


def _closed_truth(term: Term) -> str:
    return term.closed if term.kind == "value" else f"({_truth(term)})"


def _joined(sign: str, left: Term, right: Term) -> Term:
    """Join two terms by an operator. A term that is compared with text becomes text; order compares numbers."""
    if sign in {"&&", "||"}:
        return Term(f"{_closed_truth(left)} {sign} {_closed_truth(right)}", atom=False)
    if left.kind == right.kind == "number" and ("." in left.text) != ("." in right.text):
        return Term(f"{_number(left)} {sign} {_number(right)}", atom=False)
    is_float = left.is_float or right.is_float
    if sign in _EQUALITY and not (is_float and "text" not in (left.kind, right.kind)):
        return Term(_equality(sign, left, right), atom=False)
    if sign in _EQUALITY or (sign in _ORDER and (is_float or "reference" in (left.kind, right.kind))):
        return Term(f"{_number(left)} {sign} {_number(right)}", atom=False)
    if sign in {"=~", "matches"}:
        return Term(f"{left.as_string if left.kind != 'value' else left.closed}.matches({right.text})")
    if sign == "!~":
        return Term(f"!{left.as_string}.matches({right.text})")
    if sign in {"contains", "startsWith", "endsWith"}:
        return Term(f"{left.as_string if left.kind == 'reference' else left.closed}.{sign}({right.text})")
    if sign == "??":
        return Term(f"{left.closed} != null ? {left.closed} : {right.closed}", atom=False)
    if sign == "in":
        return Term(f"{left.as_string if left.kind == 'reference' else left.closed} in {right.closed}", atom=False)
    return Term(f"{left.closed} {sign} {right.closed}", atom=False)


def _equality(sign: str, left: Term, right: Term) -> str:
    for one, other in ((left, right), (right, left)):
        read = one.closed if one.kind == "reference" else one.read
        if read and other.constant is not None:
            return _compared(sign, read, other.constant)
    if left.kind == right.kind == "reference" or {left.kind, right.kind} == {"reference", "text"}:
        return f"{left.as_string} {sign} {right.as_string}"
    return f"{left.closed} {sign} {right.closed}"


def _compared(sign: str, read: str, constant: str) -> str:
    """Compare a value of any type with a constant: with its text, and with the JSON value that has this text."""
    found, value = _value_with_text(constant)
    if found:
        same = f"{read} in [{literal(constant)}, {literal(value)}]"
        return same if sign == "==" else f"!({same})"
    return f"{read} {sign} {literal(constant)}"


def _value_with_text(text: str) -> tuple[bool, Any]:
    """Return whether a JSON value other than a text has this text, and that value."""
    if not text:
        return True, None
    try:
        value = json.loads(text)
    except ValueError:
        return False, None
    exact = not isinstance(value, int | float) or abs(value) < _INTEGERS
    return exact and as_text(value) == text, value


def _number(term: Term) -> str:
    if term.is_float:
        return term.closed
    if term.kind == "number":
        return term.text if "." in term.text else f"{term.text}.0"
    return f"double({term.text})"


def _selected(value: Term, path: str) -> Term:
    made = _at_path(value.closed, path, _test)
    if made is None:
        raise UntranslatableError(f"the JSON path `{path}` cannot be translated; select the fields in CEL")
    return Term(made, "reference")


def _test(text: str) -> str:
    """Translate a condition on the item `@` of a list."""

    def resolve(path: tuple[str, ...]) -> str:
        made = _ITEM
        for name in path[1:]:
            made = member(made, name)
        return made

    return _truth(_Parser(text.replace("@", "item"), resolve, words=False).parse())


def template(text: str, resolve: Resolve, known: Callable[[str], bool] = lambda _: True) -> str:
    """Translate a text with tags to a text with expressions.

    Args:
        text: The text.
        resolve: Translates references.
        known: Whether the text between braces is a tag of the system; other text is kept.

    Raises:
        UntranslatableError: A tag has no counterpart.
    """
    result = ""
    for i, piece in enumerate(TAG.split(text)):
        if i % 2 == 0:
            result += piece.replace("${", "$${")
        elif not known(piece.strip()):
            result += "{{" + piece.replace("${", "$${") + "}}"
        else:
            result += interpolation(tag(piece, resolve))
    return result


def value_of(value: Any, resolve: Resolve, known: Callable[[str], bool] = lambda _: True) -> str:
    """Return the expression of a value whose texts may have tags, at any depth.

    Args:
        value: The value.
        resolve: Translates references.
        known: Whether the text between braces is a tag of the system; other text is kept.

    Raises:
        UntranslatableError: A tag has no counterpart.
    """
    if isinstance(value, list):
        return f"[{', '.join(value_of(each, resolve, known) for each in value)}]"
    if isinstance(value, dict):
        fields = (f"{literal(str(key))}: {value_of(each, resolve, known)}" for key, each in value.items())
        return "{" + ", ".join(fields) + "}"
    if not isinstance(value, str):
        return literal(value)
    pieces: list[str] = []
    for i, piece in enumerate(TAG.split(value)):
        if i % 2 and known(piece.strip()):
            pieces.append(f"string({tag(piece, resolve)})")
        elif piece or i % 2:
            pieces.append(literal("{{" + piece + "}}" if i % 2 else piece))
    return " + ".join(pieces) or "''"


def interpolation(source: str) -> str:
    """Return an expression for use in a text; a constant is unchanged."""
    constant = re.fullmatch(r"'([^'\\]*)'", source)
    return constant[1].replace("${", "$${") if constant else "${" + source + "}"


def constants(values: Mapping[str, str]) -> Resolve:
    """Create a resolver for constants only, for expressions that are evaluated during conversion."""

    def resolve(path: tuple[str, ...]) -> str:
        name = ".".join(path)
        if name not in values:
            raise UntranslatableError(f"`{name}` is not known before the run starts")
        return values[name]

    return resolve


_ITEM: Final = "each"
"""The variable for an item of a list."""
_PATH_PART: Final = re.compile(
    r"""\.(?P<name>[A-Za-z_][-A-Za-z0-9_]*)
    |\[(?P<index>[0-9]+)\]
    |\['(?P<quoted>[^']*)'\]
    |(?P<all>\[\*\]|\.\*)
    |\[(?P<start>[0-9]*):(?P<end>[0-9]*)\]
    |\[\?\((?P<test>(?:[^()]|\([^()]*\))*)\)\]""",
    re.VERBOSE,
)


def _at_path(value: str, path: str, condition: Callable[[str], str]) -> str | None:
    """Return the expression for a part of a value; None if the path has no counterpart.

    Args:
        value: The expression for the value.
        path: The path, such as `$.items[0].name`.
        condition: Translates a test on an item, such as `@.age > 42`.
    """
    rest, many = path.removeprefix("$"), False
    while rest:
        found = _PATH_PART.match(rest)
        if found is None or (many and found.lastgroup not in {"name", "index", "quoted"}):
            return None
        rest = rest[found.end() :]
        match found.lastgroup:
            case "all":
                many = True
            case "test":
                value, many = f"{value}.filter({_ITEM}, {condition(found['test'])})", True
            case "end":
                value, many = f"{value}.slice({found['start'] or 0}, {found['end'] or f'size({value})'})", True
            case _:
                base = _ITEM if many else value
                part = f"{base}[{found['index']}]" if found["index"] else member(base, found["name"] or found["quoted"])
                value = f"{value}.map({_ITEM}, {part})" if many else part
    return value


_TEXT: Final = "string"
_INT: Final = "int"
_ANY: Final = ""
_SPRIG: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "upper": ((_TEXT,), "{0}.upperAscii()"),
    "lower": ((_TEXT,), "{0}.lowerAscii()"),
    "trim": ((_TEXT,), "{0}.trim()"),
    "replace": ((_TEXT, _TEXT, _TEXT), "{2}.replace({0}, {1})"),
    "splitList": ((_TEXT, _TEXT), "{1}.split({0})"),
    "join": ((_TEXT, _ANY), "{1}.join({0})"),
    "contains": ((_TEXT, _TEXT), "{1}.contains({0})"),
    "hasPrefix": ((_TEXT, _TEXT), "{1}.startsWith({0})"),
    "hasSuffix": ((_TEXT, _TEXT), "{1}.endsWith({0})"),
    "b64enc": ((_TEXT,), "base64.encode(bytes({0}))"),
    "sub": ((_INT, _INT), "({0} - {1})"),
    "div": ((_INT, _INT), "({0} / {1})"),
    "mod": ((_INT, _INT), "({0} % {1})"),
    "int": ((_INT,), "{0}"),
    "int64": ((_INT,), "{0}"),
    "atoi": ((_INT,), "{0}"),
    "float64": ((_ANY,), "double({0})"),
    "toString": ((_TEXT,), "{0}"),
    "first": ((_ANY,), "{0}[0]"),
    "last": ((_ANY,), "{0}[size({0}) - 1]"),
    "toJson": ((_ANY,), "{0}"),
    "fromJson": ((_ANY,), "{0}"),
}
"""The types of the arguments, and the expression."""
_SUMMARIES: Final[dict[str, Callable[[Sequence[str]], str]]] = {
    "add": lambda values: f"({' + '.join(values)})",
    "mul": lambda values: f"({' * '.join(values)})",
    "max": lambda values: f"math.greatest({', '.join(values)})",
    "min": lambda values: f"math.least({', '.join(values)})",
}
"""Functions of any number of whole numbers."""

_PARTS: Final = {"2006": (0, 4), "01": (5, 7), "02": (8, 10), "15": (11, 13), "04": (14, 16), "05": (17, 19)}
"""The parts of a layout of Go, and where they are in a time in RFC 3339."""
_LAYOUT: Final = re.compile(r"(2006|01|02|15|04|05)|([-/:. TZ]+)")


def _sprig(name: str, arguments: Sequence[str]) -> str | None:
    """Return the expression for a call; None if the function has no counterpart.

    Args:
        name: The function.
        arguments: The expressions of its arguments.
    """
    if name in _SUMMARIES and arguments:
        return _SUMMARIES[name]([f"int({each})" for each in arguments])
    if name == "date" and len(arguments) == 2:  # noqa: PLR2004 (the layout and the time)
        return _date(*arguments)
    kinds, made = _SPRIG.get(name, ((), ""))
    if not made or len(kinds) != len(arguments):
        return None
    values = [f"{kind}({each})" for kind, each in zip(kinds, arguments, strict=True)]
    return made.format(*values)


def _date(layout: str, time: str) -> str | None:
    """Return the expression that formats a time in UTC; None if the layout has other parts than numbers with all digits."""
    text, made, end = layout.strip("'"), [], 0
    for found in _LAYOUT.finditer(text):
        if found.start() != end:
            break
        start, stop = _PARTS.get(found[1], (0, 0))
        made.append(f"string({time}).substring({start}, {stop})" if found[1] else f"'{found[2]}'")
        end = found.end()
    return f"({' + '.join(made)})" if made and end == len(text) else None


_IDENTIFIER: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")

_CEL_WORDS: Final = frozenset(
    {"in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop"}
) | {*("package", "namespace", "return", "var", "void", "while", "true", "false", "null")}


def literal(value: Any) -> str:
    """Write a JSON value as an expression."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(str(key))}: {literal(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def has_field(base: str, name: str) -> str:
    """Return the condition that a map has a field."""
    selected = member(base, name)
    return f"{literal(name)} in {base}" if selected.endswith("]") else f"has({selected})"


CAUGHT: Final = "!failed"
"""The only key of the output of a step whose failure was caught; its value is the type of the failure.

What programs write has names of Argo or Tekton as keys, or is the JSON of a program: it does not have this key.
"""


def was_caught(output: str) -> str:
    """Return the condition that an output is the failure of its step, which was caught."""
    return f"type({output}) == map && {has_field(output, CAUGHT)}"


def member(base: str, name: str) -> str:
    """Return an expression that selects a field."""
    if _IDENTIFIER.fullmatch(name) and name not in _CEL_WORDS:
        return f"{base}.{name}"
    return f"{base}[{literal(name)}]"
