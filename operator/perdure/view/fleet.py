"""Formats the operators that share the work, one line each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from rich.text import Text

from perdure.api import labels, times
from perdure.api.state_versions import OLDEST, newest_in
from perdure.controller.fleet.shards import shard_of, shards_of
from perdure.runtime.upgrades import UpgradeRecord
from perdure.view import tables, text
from perdure.view.page import Page

_RECORD_SUFFIX: Final = "-state-version"
"""What the name of an upgrade record has after that of the release, which is also the name of the fleet."""
_HEADING: Final = ("FLEET", "OPERATOR", "SHARDS", "RENEWED", "VERSION", "READS", "WRITES", "ADDRESS", "MEMBERS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One operator."""

    fleet: str
    name: str
    shards: int
    """Number of shards of the operator, computed from its known members; zero if its Lease has expired."""
    renewed: datetime | None
    expired: bool
    release: str
    reads: str
    """The state versions that the operator reads, such as `1-2`."""
    writes: str
    """The state version that it writes."""
    address: str
    members: tuple[str, ...]

    @property
    def newest_read(self) -> int:
        """The newest state version that the operator reads."""
        return newest_in(self.reads)


def members_of(leases: Iterable[Mapping[str, Any]], now: datetime) -> list[Member]:
    """Read the Leases of operators.

    Args:
        leases: The Leases.
        now: The time.

    Returns:
        The operators, by fleet and name.
    """
    return sorted((_member(lease, now) for lease in leases), key=lambda member: (member.fleet, member.name))


def owners_of(members: Iterable[Member], namespace: str, workflow_id: str) -> list[Member]:
    """Select the operators that own a workflow ID: one of each fleet, apart from the seconds after a change.

    Args:
        members: The operators.
        namespace: The namespace of the workflow.
        workflow_id: Its ID.

    Returns:
        The operators whose Lease has not expired, and among whose members they own the shard.
    """
    shard = shard_of(namespace, workflow_id)
    return [each for each in members if not each.expired and shard in shards_of(each.name, each.members)]


def _member(lease: Mapping[str, Any], now: datetime) -> Member:
    meta, spec = lease["metadata"], lease.get("spec") or {}
    annotations = meta.get("annotations") or {}
    renewed = times.read_kubernetes_time(spec.get("renewTime"))
    seconds = float(spec.get("leaseDurationSeconds") or 0)
    expired = renewed is None or now - renewed > timedelta(seconds=seconds)
    members = tuple(filter(None, str(annotations.get(labels.MEMBERS_ANNOTATION, "")).split(",")))
    return Member(
        fleet=str((meta.get("labels") or {}).get(labels.FLEET_LABEL, "")),
        name=str(meta["name"]),
        shards=0 if expired else len(shards_of(meta["name"], members)),
        renewed=renewed,
        expired=expired,
        release=str(annotations.get(labels.MEMBER_RELEASE_ANNOTATION, "")),
        reads=str(annotations.get(labels.STATE_VERSIONS_ANNOTATION, OLDEST)),
        writes=str(annotations.get(labels.STATE_VERSION_ANNOTATION, OLDEST)),
        address=str(annotations.get(labels.MEMBER_ADDRESS_ANNOTATION, "")),
        members=members,
    )


def behind(members: Iterable[Member]) -> tuple[int, list[str]]:
    """The newest state version that a live operator reads (0 without one), and the names of those that cannot read it."""
    live = [each for each in members if not each.expired]
    newest = max((each.newest_read for each in live), default=0)
    return newest, [each.name for each in live if each.newest_read < newest]


def of_record(members: Iterable[Member], record: Mapping[str, Any]) -> list[Member]:
    """The operators to which an upgrade record belongs: those of its release, if several are in one namespace."""
    release = str(record["metadata"]["name"]).removesuffix(_RECORD_SUFFIX)
    return [each for each in members if each.fleet == release]


def upgrade_lines(members: Sequence[Member], records: Sequence[Mapping[str, Any]], now: datetime) -> list[str]:
    """Say which state version the operators write, and when they write the next one: a sentence or two for each upgrade record.

    Args:
        members: The operators; none if a single one does all the work.
        records: The ConfigMaps with the records.
        now: The time.
    """
    lines = []
    for each in records:
        release = str(each["metadata"]["name"]).removesuffix(_RECORD_SUFFIX)
        who = f"The operators of `{release}`" if len(records) > 1 else "The operators"
        lines.append(_upgrade_line(who, of_record(members, each), UpgradeRecord.read(each), now))
    return lines


def _upgrade_line(who: str, members: Sequence[Member], record: UpgradeRecord, now: datetime) -> str:
    line, live = f"{who} write state version {record.writes}", [each for each in members if not each.expired]
    can_follow = record.follows is not None and all(each.newest_read >= record.follows for each in live)
    if can_follow and record.until is not None:
        left = text.duration(max(record.until - now, timedelta(0)))
        return f"{line}, and version {record.follows} in {left}, or after `perdure fleet --finish-upgrade`."
    newest, older = behind(members)
    if newest <= record.writes:
        return f"{line}."
    if older:
        return f"{line}. Version {newest} follows when these are replaced: {', '.join(older)}."
    return (
        f"{line}. Version {newest} follows after the hold-back, which begins when the operators look at the upgrade record the "
        "next time, within 10s."
    )


def as_json(members: Sequence[Member]) -> list[dict[str, object]]:
    """Return the operators as JSON."""
    return [
        {
            "fleet": member.fleet,
            "operator": member.name,
            "shards": member.shards,
            "renewTime": text.iso(member.renewed) if member.renewed else None,
            "expired": member.expired,
            "version": member.release,
            "readsStateVersions": member.reads,
            "writesStateVersion": member.writes,
            "address": member.address,
            "members": list(member.members),
        }
        for member in members
    ]


def table(members: Sequence[Member], page: Page) -> list[Text]:
    """Show the operators.

    Args:
        members: The operators.
        page: The page for the output.

    Returns:
        Lines; the first one is the heading.
    """
    return tables.table(_HEADING, [_row(member, page) for member in members], page)


def _row(member: Member, page: Page) -> tuple[str, ...]:
    renewed = f"{text.age(page.now - member.renewed)} ago" if member.renewed else page.glyphs.dash
    return (
        member.fleet,
        member.name,
        str(member.shards),
        f"{renewed} (expired)" if member.expired else renewed,
        member.release,
        member.reads,
        member.writes,
        member.address,
        ",".join(member.members),
    )
