"""Plays scenarios on a server, stores the responses in files, and compares them."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fidelity import scenarios
from fidelity.driver import SCENARIOS, Session
from fidelity.normal import Json, leaves
from support.temporal import Server

FOLDER = Path(__file__).parent / "recorded"
REQUESTS = Path(__file__).parent / "requests.json"
"""By scenario, the fields that its requests set."""
ABSENT = "(absent)"
NAMES = sorted(SCENARIOS)
assert scenarios.__all__
SEARCH_ATTRIBUTES = {"CustomKeywordField": "INDEXED_VALUE_TYPE_KEYWORD", "CustomIntField": "INDEXED_VALUE_TYPE_INT"}


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that has another value on another server."""

    where: str
    """Scenario, number and RPC of the step, and the path of the field."""
    temporal: Json
    ours: Json

    @property
    def field(self) -> str:
        """Which field of which message it is, wherever that is: for example ``DescribeSchedule: response.info.notes``.

        The code of an error is there with both values, such as ``ListSchedules: error.code UNKNOWN INVALID_ARGUMENT``.
        """
        _, rpc, path = self.where.rsplit(": ", 2)
        path = re.sub(r"\.\d+\b", ".*", re.sub(r"<\S+ \d+>[:\d]*|\brequest \d+", "*", path))
        event = _EVENT.match(path)
        if event is None:
            return f"{rpc}: {path}{f' {self.temporal} {self.ours}' if path == 'error.code' else ''}"
        kind = event[0].rpartition(".")[2].rpartition(" ")[0]
        return f"{kind}: {path[event.end() + 1 :]}".replace(f"{kind.lower()}_event_attributes.", "")

    def __str__(self) -> str:
        return f"{self.where}: Temporal {self.temporal!r}, Perdure {self.ours!r}"


def prepare(server: Server) -> None:
    """Have the search attributes that scenarios use."""
    session = Session(server)
    for name, kind in SEARCH_ATTRIBUTES.items():
        session.call("AddSearchAttributes", search_attributes={name: kind})


def play(name: str, server: Server) -> Session:
    """A scenario, played on a server."""
    session = Session(server)
    SCENARIOS[name](session)
    return session


def recorded(name: str) -> list[Json]:
    """The steps of a scenario as Temporal's server has answered them."""
    steps: list[Json] = json.loads(path_of(name).read_text())
    return steps


def path_of(name: str) -> Path:
    return FOLDER / f"{name.replace('_', '-')}.json"


def text_of(steps: list[Json]) -> str:
    return json.dumps(steps, indent=1, ensure_ascii=False) + "\n"


def differences(name: str, temporal: list[Json], ours: list[Json]) -> Iterator[Difference]:
    """Each field that differs; of histories the order of their events, and the fields of those that both have."""
    for number, step in enumerate(temporal):
        other = ours[number] if number < len(ours) else {}
        note = f" ({step['note']})" if "note" in step else ""
        begin = f"{name} {number}{note}: {step['rpc']}: "
        recorded_parts, served_parts = _by_type(step), _by_type(other)
        recorded, served = dict(leaves(recorded_parts)), dict(leaves(served_parts))
        for path in [*recorded, *(path for path in served if path not in recorded)]:
            event = _EVENT.match(path)
            if event and not (_holds(recorded_parts, event[0]) and _holds(served_parts, event[0])):
                continue  # shown by the order of events
            if recorded.get(path, ABSENT) != served.get(path, ABSENT):
                yield Difference(begin + path, recorded.get(path, ABSENT), served.get(path, ABSENT))


_EVENT = re.compile(r"(.*\.)?history\.events\.[A-Z_]+ \d+")


def _by_type(value: Json) -> Json:
    """Plain data with the events of histories named by their type, each counted, and with their order."""
    if isinstance(value, list):
        return [_by_type(part) for part in value]
    if not isinstance(value, dict):
        return value
    made = {key: _by_type(part) for key, part in value.items()}
    if isinstance(events := made.get("events"), list):
        types = [event["event_type"].removeprefix("EVENT_TYPE_") for event in events]
        made["order"] = " ".join(types)
        made["events"] = {f"{kind} {types[:index].count(kind) + 1}": events[index] for index, kind in enumerate(types)}
    return made


def _holds(value: Json, path: str) -> bool:
    """Whether plain data has something at a path."""
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True
