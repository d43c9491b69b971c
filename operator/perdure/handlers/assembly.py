"""Assemble the operator from its parts, except for the watches."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from perdure import IMAGE, __version__
from perdure.api.state_versions import NEWEST, OLDEST
from perdure.archive.rows import Archive, ArchiveSettings, OnUnavailable
from perdure.controller import state_versions
from perdure.controller.capacity import CapacitySettings, share_of_memory
from perdure.controller.deadletters import DeadLetters
from perdure.controller.dispatch.hibernation import HibernationSettings
from perdure.controller.fleet.membership import MemberSettings, Membership
from perdure.controller.fleet.shards import AllShards, Shards
from perdure.controller.informers import Undecoded
from perdure.controller.limits import WorkflowLimits
from perdure.controller.manager import Manager
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.operations.queue import Operations
from perdure.controller.payloads import Blobs
from perdure.controller.pods.attempt_pods import ActivityIdentity, Pods
from perdure.controller.retry_policies import Policies
from perdure.controller.services import Services
from perdure.controller.upgrades import UpgradeSettings
from perdure.controller.workflows.definitions import Definitions
from perdure.controller.workflows.revisions import RevisionRetention
from perdure.kube.client import Client, Object
from perdure.kube.events import Recorder
from perdure.runtime.attempts import PodSettings
from perdure.runtime.retention import MIB, Limits

_HOLD_BACK: Final = 86_400
"""Default of the hold-back of upgrades, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """The options from the environment, which the chart sets."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; if empty, the whole cluster."""
    excluded: tuple[str, ...] = ()
    """Namespaces to leave to another operator; ``*`` stands for any characters."""
    port: int = 8080
    """Port of /livez, /readyz and /metrics."""
    log_level: str = "info"
    workers: int = 32
    """How many runs and schedules are processed concurrently; one namespace gets at most half of that number."""
    activity_identity: str = "perdure-activity"
    """Name of the ServiceAccount of activities with a Lease, and of the ClusterRole and RoleBinding with its permissions."""
    sidecar_image: str = IMAGE
    """Image of the containers that the operator adds to pods: its own."""
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets, in the namespaces of activities, with which nodes pull that image."""
    without_failure_logs: tuple[str, ...] = ()
    """Namespaces in which failures do not contain the end of a log; ``*`` stands for any characters."""
    run_as_user: int | None = 65532
    """The user of pods that do not set one; None: the platform sets it."""
    pod_ttl: timedelta = timedelta(minutes=5)
    """How long the pods of successful attempts are kept for their logs; zero: they are deleted immediately."""
    instance: str = "perdure"
    """Name of this pod, for Events."""
    finished: Limits = field(default_factory=Limits)
    """The limits of the finished runs that the namespaces keep."""
    revisions: RevisionRetention = field(default_factory=RevisionRetention)
    """How long revisions of Workflows are kept that no run refers to."""
    routine_events: bool = False
    """Whether to record Events that need no action, such as the start or completion of a run."""
    fleet: str = ""
    """The fleet with which this operator shares the work: the name of the release; empty: it works alone."""
    pod_uid: str = ""
    """The UID of this pod, which owns the Lease of the member; empty: nothing owns it."""
    lease_seconds: int = 10
    """Duration of the Lease of a fleet member. If it is not renewed for that time, other members take over its shards."""
    upgrades: UpgradeSettings | None = None
    """The settings of upgrades; None: this operator always writes the newest state version that it reads, as in simulations."""
    reads: int = NEWEST
    """The newest state version that it reads. Simulations of upgrades have older operators."""
    release: str = __version__
    """Its release. Simulations of upgrades have earlier ones."""
    address: str = ""
    """The address in its Lease at which other members of the fleet reach this one: the IP address of this pod and, if it serves
    SDKs, the port of `peer_address`."""
    peer_address: str = ""
    """The address to listen on for RPCs that other members of the fleet forward, such as ``0.0.0.0:7234``; empty: none."""
    archiving: ArchiveSettings = field(default_factory=ArchiveSettings)
    """The settings of the archive, if there is one."""
    capacity: CapacitySettings = field(default_factory=CapacitySettings)
    """The limits of open runs and of memory."""
    hibernation: HibernationSettings = field(default_factory=HibernationSettings)
    """When runs that only wait are dropped from memory."""
    temporal_address: str = ""
    """The address to listen on for Temporal SDKs, such as ``0.0.0.0:7233``; empty: they are not served."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "OperatorOptions":
        """Read the options.

        Raises:
            ValueError: PERDURE_HTTP_PORT, PERDURE_WORKERS, PERDURE_POD_TTL_SECONDS, PERDURE_FINISHED_RUNS,
                PERDURE_FINISHED_MIB, PERDURE_ALL_FINISHED_RUNS, PERDURE_ALL_FINISHED_MIB, PERDURE_REVISION_HISTORY,
                PERDURE_UNUSED_REVISION_SECONDS, PERDURE_LEASE_SECONDS, PERDURE_UPGRADE_HOLD_BACK_SECONDS,
                PERDURE_ARCHIVE_HISTORY_MIB, PERDURE_ARCHIVE_RETENTION_DAYS, PERDURE_HIBERNATE_AFTER_SECONDS, PERDURE_OPEN_RUNS
                or PERDURE_RUN_AS_USER is not a number; PERDURE_ARCHIVE_ON_UNAVAILABLE is
                neither `Keep` nor `Delete`; PERDURE_FLEET and PERDURE_TEMPORAL_ADDRESS or PERDURE_FRONTEND_USER are set, and
                PERDURE_PEER_ADDRESS or POD_IP is not; or PERDURE_FRONTEND_USER is set, and PERDURE_FLEET is not.
        """
        fleet, temporal = environment.get("PERDURE_FLEET", ""), environment.get("PERDURE_TEMPORAL_ADDRESS", "")
        apart = bool(environment.get("PERDURE_FRONTEND_USER"))
        peer, address = "", environment.get("POD_IP", "")
        if apart and not fleet:
            raise ValueError("PERDURE_FRONTEND_USER requires PERDURE_FLEET: frontends find operators by their Leases")
        if fleet and (temporal or apart):
            peer = environment.get("PERDURE_PEER_ADDRESS", "")
            if not (peer and address):
                raise ValueError(
                    "PERDURE_FLEET with PERDURE_TEMPORAL_ADDRESS requires PERDURE_PEER_ADDRESS and POD_IP, to which other "
                    "operators forward RPCs"
                )
            address = f"[{address}]:{_port(peer)}" if ":" in address else f"{address}:{_port(peer)}"
        return cls(
            namespaces=_listed(environment.get("PERDURE_WATCH_NAMESPACES", "")),
            excluded=_listed(environment.get("PERDURE_EXCLUDE_NAMESPACES", "")),
            port=int(environment.get("PERDURE_HTTP_PORT") or 8080),
            log_level=environment.get("PERDURE_LOG_LEVEL") or "info",
            workers=int(environment.get("PERDURE_WORKERS") or 32),
            activity_identity=environment.get("PERDURE_ACTIVITY_SERVICE_ACCOUNT") or "perdure-activity",
            sidecar_image=environment.get("PERDURE_SIDECAR_IMAGE") or IMAGE,
            pull_secrets=_listed(environment.get("PERDURE_IMAGE_PULL_SECRETS", "")),
            without_failure_logs=_listed(environment.get("PERDURE_WITHOUT_FAILURE_LOGS", "")),
            run_as_user=_user(environment.get("PERDURE_RUN_AS_USER", "")),
            pod_ttl=timedelta(seconds=int(environment.get("PERDURE_POD_TTL_SECONDS") or 300)),
            instance=environment.get("POD_NAME") or socket.gethostname(),
            finished=Limits(
                runs=int(environment.get("PERDURE_FINISHED_RUNS") or Limits.runs),
                size=int(environment.get("PERDURE_FINISHED_MIB") or Limits.size // MIB) * MIB,
                all_runs=int(environment.get("PERDURE_ALL_FINISHED_RUNS") or Limits.all_runs),
                all_size=int(environment.get("PERDURE_ALL_FINISHED_MIB") or Limits.all_size // MIB) * MIB,
            ),
            revisions=RevisionRetention(
                history=int(environment.get("PERDURE_REVISION_HISTORY") or RevisionRetention().history),
                unused_for=timedelta(seconds=int(environment.get("PERDURE_UNUSED_REVISION_SECONDS") or 300)),
            ),
            routine_events=environment.get("PERDURE_ROUTINE_EVENTS") == "true",
            fleet=fleet,
            pod_uid=environment.get("POD_UID", ""),
            lease_seconds=int(environment.get("PERDURE_LEASE_SECONDS") or 10),
            upgrades=UpgradeSettings(
                record=environment.get("PERDURE_UPGRADE_RECORD") or "perdure-state-version",
                hold_back=timedelta(seconds=int(environment.get("PERDURE_UPGRADE_HOLD_BACK_SECONDS") or _HOLD_BACK)),
            ),
            address=address,
            archiving=_archiving(environment),
            hibernation=_hibernation(environment),
            capacity=CapacitySettings(
                open_runs=int(environment.get("PERDURE_OPEN_RUNS") or CapacitySettings().open_runs),
                memory_in_use=share_of_memory,
            ),
            peer_address=peer,
            temporal_address=temporal,
        )


def _shards(client: Client, options: OperatorOptions, recorder: Recorder) -> Shards:
    if not options.fleet:
        return AllShards()
    settings = MemberSettings(
        fleet=options.fleet,
        name=options.instance,
        pod_uid=options.pod_uid,
        address=options.address,
        seconds=options.lease_seconds,
    )
    return Membership(client, settings, recorder)


def _pod(client: Client, options: OperatorOptions) -> Object | None:
    """The pod of this process, for Events about it; None outside of a cluster."""
    if not options.pod_uid:
        return None
    meta = {"namespace": client.access.namespace, "name": options.instance, "uid": options.pod_uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def _user(text: str) -> int | None:
    return None if text == "None" else int(text or 65532)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _archiving(environment: Mapping[str, str]) -> ArchiveSettings:
    return ArchiveSettings(
        on_unavailable=OnUnavailable(environment.get("PERDURE_ARCHIVE_ON_UNAVAILABLE") or "Keep"),
        history_bytes=int(environment.get("PERDURE_ARCHIVE_HISTORY_MIB") or 32) * MIB,
        retention=timedelta(days=int(environment.get("PERDURE_ARCHIVE_RETENTION_DAYS") or 0)),
    )


def _hibernation(environment: Mapping[str, str]) -> HibernationSettings:
    after = int(environment.get("PERDURE_HIBERNATE_AFTER_SECONDS") or 60)
    return HibernationSettings(after=timedelta(seconds=after), shortest=5 * timedelta(seconds=after))


def assemble(client: Client, options: OperatorOptions, archive: Archive | None = None) -> tuple[Manager, Operations]:
    """Assemble the parts that do the work: each is created with the parts that it uses.

    A server for workers uses the manager, so it is created with that, and attached to it.

    Args:
        client: The client of the API server.
        options: The options from the environment.
        archive: Archives finished runs; None without an archive.

    Returns:
        The manager of runs and schedules, and the processor of Operations; neither is started.
    """
    writes = options.reads if options.upgrades is None else OLDEST
    state_versions.process.set(state_versions.StateVersions(options.reads, writes, options.release))
    recorder = Recorder(client, instance=options.instance, routine=options.routine_events)
    client.lists.skipped = Undecoded(recorder).report
    settings = PodSettings(
        run_as_user=options.run_as_user,
        service_account=options.activity_identity,
        sidecar_image=options.sidecar_image,
        pull_secrets=options.pull_secrets,
        without_logs=options.without_failure_logs,
        pod_ttl=options.pod_ttl,
    )
    services = Services(
        client=client,
        pods=Pods(client, ActivityIdentity(client, options.activity_identity), settings),
        definitions=Definitions(client),
        policies=Policies(client, recorder),
        letters=DeadLetters(client, recorder),
        limits=WorkflowLimits(client, recorder),
        recorder=recorder,
        blobs=Blobs(client),
        shards=_shards(client, options, recorder),
    )
    served = ServedNamespaces(options.namespaces, options.excluded)
    client.lists.serves = served.__contains__
    manager = Manager(
        services,
        served,
        workers=options.workers,
        finished=options.finished,
        upgrades=options.upgrades,
        revisions=options.revisions,
        archive=archive,
        archiving=options.archiving,
        pod=_pod(client, options),
        hibernation=options.hibernation,
        capacity=options.capacity,
    )
    operations = Operations(services, manager.runs, manager.schedules, manager.first_lists, served)
    return manager, operations
