"""Build and read the Leases of fleet members. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from perdure.api import labels
from perdure.api.state_versions import OLDEST, parse_version
from perdure.api.times import write_micro_time
from perdure.controller.state_versions import StateVersions
from perdure.kube import client as kube

LONGEST_SECONDS: Final = 300.0
"""The longest duration of a Lease, as the chart limits it. So a forged Lease does not hold shards for longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The identity of a member."""

    fleet: str
    """The fleet: the name of the release."""
    name: str
    """The member: the name of the pod, and of its Lease."""
    pod_uid: str = ""
    """The UID of the pod, which owns the Lease: Kubernetes deletes the Lease with the pod, even if no member is left."""
    address: str = ""
    """Its address for other members: IP address and port, or only the IP address if it serves no SDKs."""
    seconds: int = 10
    """The duration of its Lease."""
    release: str = ""
    """The version of Perdure that it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLease:
    """The content of the Lease of a member."""

    member: str
    """The member: the name of its pod."""
    holder: str
    """The process that holds the Lease. Each start of the operator is a new process."""
    uid: str
    version: str
    """The resourceVersion, which changes with each renewal."""
    seconds: float
    """The duration of the Lease."""
    renewed: str = ""
    """The time of the renewal according to the member."""
    members: frozenset[str] = frozenset()
    """The members among which it divides the shards, itself included."""
    address: str = ""
    """The address of the member."""
    reads: int = OLDEST
    """The newest state version that it reads."""


def lease(settings: MemberSettings, holder: str, versions: StateVersions, now: datetime) -> kube.Object:
    """Build the Lease of a joining member, which knows no others yet. `holder` is its process."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": settings.name,
            "labels": {labels.FLEET_LABEL: settings.fleet},
            "annotations": _annotations(settings, (), versions),
            **_owner(settings),
        },
        "spec": {**_renewed(settings, holder, now), "acquireTime": write_micro_time(now)},
    }


def renewal(  # noqa: PLR0917 (the content of a Lease)
    settings: MemberSettings,
    holder: str,
    version: str,
    members: Collection[str],
    versions: StateVersions,
    now: datetime,
) -> kube.Object:
    """Build the merge patch that renews the Lease if its resourceVersion has not changed."""
    return {
        "metadata": {
            "resourceVersion": version,
            # Without the label the others would not count on this member, which would continue to decide.
            "labels": {labels.FLEET_LABEL: settings.fleet},
            "annotations": _annotations(settings, members, versions),
        },
        "spec": _renewed(settings, holder, now),
    }


def _owner(settings: MemberSettings) -> dict[str, Any]:
    if not settings.pod_uid:
        return {}
    pod = {"apiVersion": "v1", "kind": "Pod", "name": settings.name, "uid": settings.pod_uid}
    return {"ownerReferences": [pod]}


def _annotations(settings: MemberSettings, members: Collection[str], versions: StateVersions) -> dict[str, str]:
    return {
        labels.STATE_VERSIONS_ANNOTATION: f"{OLDEST}-{versions.reads}",
        labels.STATE_VERSION_ANNOTATION: str(versions.writes),
        labels.MEMBER_ADDRESS_ANNOTATION: settings.address,
        labels.MEMBERS_ANNOTATION: ",".join(sorted(members)),
        labels.MEMBER_RELEASE_ANNOTATION: settings.release,
    }


def _renewed(settings: MemberSettings, holder: str, now: datetime) -> dict[str, Any]:
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": settings.seconds,
        "renewTime": write_micro_time(now),
    }


def read(obj: kube.Object, default: float) -> MemberLease:
    """Read a Lease. `default`: the duration in seconds if the Lease has none."""
    meta, spec = obj["metadata"], obj.get("spec") or {}
    annotations = meta.get("annotations") or {}
    return MemberLease(
        member=meta["name"],
        holder=str(spec.get("holderIdentity") or ""),
        uid=meta["uid"],
        version=meta["resourceVersion"],
        seconds=min(float(spec.get("leaseDurationSeconds") or default), LONGEST_SECONDS),
        renewed=str(spec.get("renewTime") or ""),
        members=frozenset(annotations.get(labels.MEMBERS_ANNOTATION, "").split(",")),
        address=annotations.get(labels.MEMBER_ADDRESS_ANNOTATION, ""),
        reads=parse_version(annotations.get(labels.STATE_VERSIONS_ANNOTATION, "").rpartition("-")[2]),
    )
