"""The reference has every reason that the operator writes, with its status or type, and no other."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest

from perdure.api.crdgen import KINDS
from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.engine.state import RunStatus
from reference.reasons import CONDITIONS, EVENTS, section
from support.manuals import REPOSITORY

ROOMS = ("controller", "engine", "frontend", "runtime", "schedule")
"""Where the operator decides what conditions, answers and Events say."""
ENUMS = {enum.__name__: enum for enum in (ConditionType, ConditionReason, EventReason)}
WAITS = ("Refusal", "NotReadyError", "wait")
"""Callables that make a condition and a Warning of the same reason."""


@cache
def sources() -> list[ast.Module]:
    files = (file for room in ROOMS for file in sorted((REPOSITORY / "operator" / "perdure" / room).rglob("*.py")))
    return [ast.parse(file.read_text(encoding="utf-8")) for file in files]


def written(node: ast.AST) -> Iterator[ConditionType | ConditionReason | EventReason]:
    """The members that a piece of code names, but for those that it only compares with."""
    match node:
        case ast.Compare() | ast.MatchValue():
            return
        case ast.Attribute(value=ast.Name(id=name), attr=member) if name in ENUMS and member in ENUMS[name].__members__:
            yield ENUMS[name][member]
    for child in ast.iter_child_nodes(node):
        yield from written(child)


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call, with the last part of what is called."""
    for node in (node for source in sources() for node in ast.walk(source)):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    yield name, node


def waits() -> set[EventReason]:
    """Reasons that a run waits for, which its Events have too."""
    found = {reason for name, call in calls() if name in WAITS for reason in written(call)}
    assert len(found) > 4
    return {EventReason(reason) for reason in found}


def closed() -> set[EventReason]:
    """The reasons of Events for closed runs."""
    return {EventReason(status) for status in RunStatus if status is not RunStatus.RUNNING}


def test_every_reason_is_used_and_documented() -> None:
    found = [member for source in sources() for member in written(source)]
    of = {enum: {member for member in found if isinstance(member, enum)} for enum in ENUMS.values()}
    conditions = [rows for kind in CONDITIONS.values() for rows in kind.values()]
    assert {each for kind in CONDITIONS.values() for each in kind} == of[ConditionType] == set(ConditionType)
    assert {each for rows in conditions for each in rows} == of[ConditionReason] == set(ConditionReason)
    events = {each for rows in EVENTS.values() for each in rows}
    assert events == of[EventReason] | waits() | closed() == set(EventReason)


def test_no_reason_is_a_string_literal() -> None:
    """`TaskNotFound` is for workers: Operations do not poll for workflow tasks."""
    words = {
        argument.value.value
        for _, call in calls()
        for argument in call.keywords
        if argument.arg == "reason" and isinstance(argument.value, ast.Constant)
    }
    assert {word for word in words if re.fullmatch("([A-Z][a-z]+)+", str(word))} == {"TaskNotFound"}


def types_in_code() -> Iterator[tuple[EventReason, str]]:
    """Reasons of Events, and the type in the same call or tuple."""
    for node in (node for source in sources() for node in ast.walk(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=arguments, keywords=keywords):
                parts = [*arguments, *(keyword.value for keyword in keywords)]
                warning = any(keyword.arg == "warning" for keyword in keywords)
            case ast.Tuple(elts=parts):
                name, warning = "", False
            case _:
                continue
        types = {part.value for part in parts if isinstance(part, ast.Constant) and part.value in ("Normal", "Warning")}
        if name in ("warn", "_warn", "_report_problem") or warning:
            types = {"Warning"}
        elif name == "_note":
            types = {"Normal"}
        direct = [part for part in parts if isinstance(part, ast.Attribute)]
        yield from ((m, each) for part in direct for m in written(part) if isinstance(m, EventReason) for each in types)


def test_the_type_of_an_event_is_the_one_in_the_code() -> None:
    in_code: dict[EventReason, set[str]] = defaultdict(set)
    for reason, type_ in types_in_code():
        in_code[reason].add(type_)
    reported: dict[EventReason, set[str]] = defaultdict(set)
    for rows in EVENTS.values():
        for reason, types in rows.items():
            reported[reason].update(types.split(" or "))
    assert len(in_code) > 25
    assert {reason: reported[reason] for reason in in_code} == in_code
    assert {frozenset(reported[reason]) for reason in waits()} == {frozenset({"Warning"})}


def test_every_kind_with_conditions_is_in_the_reference() -> None:
    known = {kind.__name__ for kind in KINDS}
    assert set(CONDITIONS) == known - {"HistorySegment", "Payload", "ArtifactSet", "CachedResult", "WorkflowRevision"}
    assert set(EVENTS) - known == {"any object", "ConfigMap", "Lease", "Pod"}


@pytest.mark.parametrize("kind", CONDITIONS)
def test_each_kind_has_its_own_meaning_of_a_reason(kind: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \| (.*) \|$", "\n".join(section(kind)), re.MULTILINE)
    assert len(rows) == sum(map(len, CONDITIONS[kind].values())) + len(EVENTS[kind])
    for reason, _, meaning in rows:
        assert re.fullmatch(r"[A-Z`].*[.]", meaning), reason
        assert not re.search(rf"\b({'|'.join(CONDITIONS)}): ", meaning), reason
