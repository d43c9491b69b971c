"""How long finished runs are kept, as their namespace wants it, and which are removed so that they do not fill etcd. Pure.

A namespace keeps its finished runs by age and by number (`Policy`). Beyond the limits of the installation (`Limits`), the oldest
runs of a namespace are removed. If all namespaces together have too many, those with the most lose runs first, until each has at
most a fair share (`fair_share`): what one namespace adds never costs a smaller one its runs.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

import orjson

from perdure.api.json_values import integer, mapping, mappings, text
from perdure.api.phases import Phase
from perdure.engine.payloads import referred_to
from perdure.runtime import status_encoding
from perdure.runtime.segments import size_of

MIB: Final = 1024 * 1024
DEFAULT_TTL: Final = 86_400
"""How long a run is kept if neither it nor its namespace says so, in seconds."""
_SUCCEEDED: Final = frozenset({Phase.COMPLETED, Phase.CONTINUED_AS_NEW})


def has_succeeded(phase: str) -> bool:
    """Whether a closed run with this phase counts as successful."""
    return phase in _SUCCEEDED


def ttl_of(spec: Mapping[str, Any], phase: str) -> int | None:
    """The time to live in a spec, in seconds; None if it sets none.

    Args:
        spec: The spec of a WorkflowRun or an Operation, or a part of a `retention`.
        phase: The phase of the closed object.
    """
    found = None if has_succeeded(phase) else integer(spec.get("ttlSecondsAfterFailure"))
    return integer(spec.get("ttlSecondsAfterFinished")) if found is None else found


class Finished(Protocol):
    """A run that has finished."""

    @property
    def uid(self) -> str:
        """The UID of the run."""
        ...

    @property
    def closed(self) -> str:
        """The time at which the run finished, RFC 3339 in UTC."""
        ...

    @property
    def size(self) -> int:
        """Return the size of the run in bytes, with its HistorySegments."""
        ...


class Kept(Finished, Protocol):
    """A finished run that the policy of its namespace applies to."""

    @property
    def workflow(self) -> str:
        """Its Workflow or workflow type."""
        ...

    @property
    def phase(self) -> str:
        """Its phase."""
        ...


_Run = TypeVar("_Run", bound=Finished)
_Kept = TypeVar("_Kept", bound=Kept)


def _age(run: Finished) -> tuple[str, str]:
    """The sort key of finished runs: the oldest first."""
    return run.closed, run.uid


_LIMITS: Final = ("successfulRunsHistoryLimit", "failedRunsHistoryLimit")
"""The limits of runs that have completed, and of those that have closed in another way."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How long a namespace keeps its finished runs."""

    rules: Mapping[str, Any] = field(default_factory=dict)
    """The `retention` in the spec of its WorkflowDefaults."""
    workflows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The rules of single Workflows and workflow types, by name."""

    @classmethod
    def of(cls, defaults: Mapping[str, Any]) -> "Policy":
        """The policy in the spec of WorkflowDefaults."""
        rules = mapping(defaults.get("retention"))
        return cls(rules, {text(each.get("name")): each for each in mappings(rules.get("workflows"))})

    def ttl(self, workflow: str, phase: str) -> int:
        """How long a closed run is kept that does not say so itself, in seconds."""
        found = ttl_of(self.workflows.get(workflow, {}), phase)
        found = ttl_of(self.rules, phase) if found is None else found
        return DEFAULT_TTL if found is None else found

    @property
    def has_limits(self) -> bool:
        """Whether it limits the number of runs."""
        return any(rules.get(name) is not None for rules in (self.rules, *self.workflows.values()) for name in _LIMITS)

    def beyond_limits(self, finished: Iterable[_Kept]) -> list[_Kept]:
        """Return the runs beyond the limits, the oldest first.

        The runs of a Workflow with a limit of its own count by themselves, and all others of the namespace together.

        Args:
            finished: The finished runs of the namespace that its limits apply to.
        """
        groups: dict[tuple[str, str], list[_Kept]] = defaultdict(list)
        for run in finished:
            name = _LIMITS[not has_succeeded(run.phase)]
            own = self.workflows.get(run.workflow, {}).get(name) is not None
            groups[run.workflow if own else "", name].append(run)
        extra: list[_Kept] = []
        for (workflow, name), runs in groups.items():
            limit = integer((self.workflows[workflow] if workflow else self.rules).get(name))
            if limit is not None and len(runs) > limit:
                extra += sorted(runs, key=_age)[: len(runs) - limit]
        return sorted(extra, key=_age)


def fair_share(amounts: Iterable[int], limit: int) -> int | None:
    """The most that each may keep so that all together keep at most `limit`; None if they do not exceed it.

    Who has less than the others keeps everything, and leaves the rest of its equal part to them (max-min fairness).

    Args:
        amounts: What each has.
        limit: What all may have together; 0 means no limit.
    """
    left = limit
    ascending = sorted(amounts)
    for number, amount in enumerate(ascending):
        share = left // (len(ascending) - number)
        if limit and amount > share:
            return share
        left -= amount
    return None


@dataclass(frozen=True, slots=True)
class Share:
    """What a namespace may keep of what all namespaces together may have; None means that they have not exceeded it."""

    runs: int | None = None
    size: int | None = None
    """In bytes."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the finished runs that the namespaces keep; 0 means no limit."""

    runs: int = 10_000
    """Finished runs. About a day of one run every nine seconds, and at most 10 MiB of the operator's memory."""
    size: int = 256 * MIB
    """Bytes of finished runs and their HistorySegments. An eighth of etcd's default quota of 2 GiB."""
    all_runs: int = 50_000
    """Finished runs of all namespaces together. They take about 10 GiB of the API server's memory."""
    all_size: int = 1024 * MIB
    """Bytes of the finished runs of all namespaces together. Half of etcd's default quota."""

    def used(self, total: "Tally") -> float:
        """The part of the limits of all namespaces together that is used: 1 is the limit."""
        runs = total.runs / self.all_runs if self.all_runs else 0.0
        return max(runs, total.size / self.all_size if self.all_size else 0.0)

    def share(self, tallies: Collection["Tally"]) -> Share:
        """Return what each namespace may keep.

        Args:
            tallies: The finished runs of each namespace.
        """
        return Share(
            runs=fair_share((tally.runs for tally in tallies), self.all_runs),
            size=fair_share((tally.size for tally in tallies), self.all_size),
        )

    def exceeded_by(self, tally: "Tally", share: Share = Share()) -> str:
        """Return why runs of a namespace must be removed; empty if the limits are not exceeded.

        Args:
            tally: Its finished runs.
            share: What it may keep of what all namespaces together may have.
        """
        together = "all namespaces together have too many finished runs, and this one has"
        if share.runs is not None and tally.runs > share.runs:
            return f"{together} {tally.runs}, its share of the limit of {self.all_runs} is {share.runs}"
        if share.size is not None and tally.size > share.size:
            its, limit = share.size / MIB, self.all_size / MIB
            return f"{together} {tally.size / MIB:.0f} MiB of them, its share of the limit of {limit:.0f} MiB is {its:.0f} MiB"
        if 0 < self.runs < tally.runs:
            return f"the namespace has {tally.runs} finished runs, and the limit is {self.runs}"
        if 0 < self.size < tally.size:
            return f"its finished runs take {tally.size / MIB:.0f} MiB, and the limit is {self.size / MIB:.0f} MiB"
        return ""


@dataclass(slots=True)
class Tally:
    """Number and total size of the finished runs of a namespace."""

    runs: int = 0
    size: int = 0
    """The total size in bytes."""

    def add(self, size: int) -> None:
        """Add a run."""
        self.runs += 1
        self.size += size

    def remove(self, size: int) -> None:
        """Remove a run."""
        self.runs -= 1
        self.size -= size


def surplus(
    finished: Iterable[_Run], limits: Limits, removable: Callable[[_Run], bool], share: Share = Share()
) -> list[_Run]:
    """Return the runs to remove, the oldest first, until the rest is within the limits.

    Args:
        finished: All finished runs of a namespace.
        limits: The limits of the namespace.
        removable: Whether a run may be removed. A run that may not be removed still counts, so younger ones are removed instead.
        share: What the namespace may keep of what all namespaces together may have.
    """
    oldest_first = sorted(finished, key=_age)
    tally = Tally(len(oldest_first), sum(run.size for run in oldest_first))
    removed: list[_Run] = []
    for run in oldest_first:
        if not limits.exceeded_by(tally, share):
            break
        if removable(run):
            removed.append(run)
            tally.remove(run.size)
    return removed


def stored_size(run: dict[str, Any]) -> int:
    """The size of a run in bytes: its object as JSON, and the events and large payloads of its history."""
    history = (run.get("status") or {}).get("history") or {}
    total = int(history.get("sizeBytes") or 0)
    try:
        tail = history.get("events") or ()
        sealed = max(0, total - size_of(tail)) if history.get("segments") else 0
        stored = {**run, "status": status_encoding.encode(run["status"])} if run.get("status") else run
        return len(orjson.dumps(stored)) + (sealed or sum(referred_to(orjson.dumps(tail)).values()))
    except (TypeError, ValueError):  # nested too deeply, or a number of more than 64 bits
        return total
