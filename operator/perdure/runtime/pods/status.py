"""The containers of a pod as its status reports them, parsed once."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from perdure.api.times import read_kubernetes_time
from perdure.runtime.attempts import KubeObject

SIGNALS: Final = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
"""Linux signal numbers, whatever system the operator runs on."""

_DEFAULT_GRACE: Final = 30
"""Seconds that Kubernetes gives containers to stop unless the pod's spec sets a grace period."""

BY_SIGNAL: Final = 128
"""The exit code of a process that a signal ended is this plus the signal's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedContainer:
    """A container that has ended."""

    name: str
    exit_code: int
    reason: str
    """Kubernetes' reason: `Completed`, `Error`, `OOMKilled`, `StartError`, …; empty if there is none."""
    message: str
    """The termination message from the container, or the end of its log if it failed without writing one."""
    signal: str | None
    """The signal that ended it, by name."""
    started: datetime | None
    finished: datetime | None

    @property
    def status_unknown(self) -> bool:
        """Whether the node does not know how the container ended.

        The kubelet (137), or containerd after a reboot (255), then invents the exit code.
        """
        return self.reason in {"ContainerStatusUnknown", "Unknown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStatus:
    """The parsed status of a pod."""

    name: str
    uid: str
    node: str | None
    phase: str
    reason: str
    """Why the pod as a whole failed: `Evicted`, `DeadlineExceeded`, `OutOfcpu`, …; mostly empty."""
    message: str
    conditions: tuple[dict[str, Any], ...]
    containers: tuple[dict[str, Any], ...]
    init_containers: tuple[dict[str, Any], ...]
    container_count: int
    """Number of containers of all kinds; they share the space for termination messages."""
    sidecars: frozenset[str]
    """Init containers that run alongside the others; their end does not affect the outcome."""
    delete_requested: datetime | None
    """When the deletion of the pod was first requested; None if it was not."""
    delete_deadline: datetime | None
    """When the containers' grace period ends."""
    active_deadline: datetime | None
    """When the node stops the pod by itself."""

    @classmethod
    def of(cls, pod: KubeObject) -> "PodStatus":
        """Read a pod.

        Args:
            pod: A Pod as the API server returned it.

        Returns:
            Its status.
        """
        metadata, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
        deadline = read_kubernetes_time(metadata.get("deletionTimestamp"))
        # The kubelet's own delete, after the last container ended, sets the period to 0 and moves the time stamp to that
        # moment if it comes early. Then only the pod's usual grace period says how long before it began.
        grace = metadata.get("deletionGracePeriodSeconds") or spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
        init = spec.get("initContainers") or ()
        counted = (spec.get("containers") or (), init, spec.get("ephemeralContainers") or ())
        return cls(
            name=str(metadata.get("name")),
            uid=str(metadata.get("uid")),
            node=spec.get("nodeName"),
            phase=str(status.get("phase") or "Pending"),
            reason=str(status.get("reason") or ""),
            message=str(status.get("message") or ""),
            conditions=tuple(status.get("conditions") or ()),
            containers=tuple(status.get("containerStatuses") or ()),
            init_containers=tuple(status.get("initContainerStatuses") or ()),
            container_count=sum(map(len, counted)),
            sidecars=frozenset(str(item.get("name")) for item in init if item.get("restartPolicy") == "Always"),
            delete_requested=None if deadline is None else deadline - timedelta(seconds=grace),
            delete_deadline=deadline,
            active_deadline=_plus(read_kubernetes_time(status.get("startTime")), spec.get("activeDeadlineSeconds")),
        )

    def condition(self, kind: str) -> dict[str, Any] | None:
        """Find a condition.

        Args:
            kind: The type of the condition.

        Returns:
            The condition; None if the pod has none of that type.
        """
        return next((item for item in self.conditions if item.get("type") == kind), None)

    def running_since(self, container: str) -> datetime | None:
        """Return when a container started, if it is running.

        Args:
            container: The name of the container.

        Returns:
            The time; None if it does not run.
        """
        running = _state(self.containers, container).get("running")
        return None if running is None else read_kubernetes_time(running.get("startedAt"))

    def started(self, container: str) -> datetime | None:
        """Return when a container started, whether it still runs or not.

        Args:
            container: The name of the container.

        Returns:
            The time; None if it has not started.
        """
        ended = self.ended(container)
        return self.running_since(container) if ended is None else ended.started

    def ended(self, container: str) -> EndedContainer | None:
        """Return how a container ended.

        Args:
            container: The name of the container.

        Returns:
            Its end; None if it has not started, or runs.
        """
        terminated = _state(self.containers, container).get("terminated")
        return None if terminated is None else _ended(container, terminated)

    def ended_sidecar(self, container: str) -> EndedContainer | None:
        """Return how a sidecar ended.

        Args:
            container: The name of the container.

        Returns:
            Its end; None if it has not started, or runs.
        """
        terminated = _state(self.init_containers, container).get("terminated")
        return None if terminated is None else _ended(container, terminated)

    def failed_init_container(self) -> EndedContainer | None:
        """Find the init container that kept the others from starting.

        Returns:
            The first with a nonzero exit code; None if all have succeeded so far.
        """
        for status in self.init_containers:
            terminated = (status.get("state") or {}).get("terminated")
            if terminated is not None and terminated.get("exitCode") != 0 and status.get("name") not in self.sidecars:
                return _ended(str(status.get("name")), terminated)
        return None

    def has_run(self) -> bool:
        """Return whether any container was ever started.

        Returns:
            False if the pod has only waited: for a node, volumes, or images.
        """
        states = [status.get("state") or {} for status in (*self.containers, *self.init_containers)]
        return any(
            "running" in state or read_kubernetes_time((state.get("terminated") or {}).get("startedAt")) is not None
            for state in states
        )


def _plus(time: datetime | None, seconds: int | None) -> datetime | None:
    return None if time is None or seconds is None else time + timedelta(seconds=seconds)


def _state(statuses: tuple[dict[str, Any], ...], container: str) -> dict[str, Any]:
    found = next((item for item in statuses if item.get("name") == container), {})
    state: dict[str, Any] = found.get("state") or {}
    return state


def _ended(name: str, terminated: dict[str, Any]) -> EndedContainer:
    # A missing exit code does not prove success: Kubernetes always writes it, even if it is 0.
    exit_code = terminated.get("exitCode")
    code = exit_code if isinstance(exit_code, int) else -1
    return EndedContainer(
        name=name,
        exit_code=code,
        reason=str(terminated.get("reason") or ""),
        message=str(terminated.get("message") or ""),
        signal=SIGNALS.get(terminated.get("signal") or code - BY_SIGNAL),
        started=read_kubernetes_time(terminated.get("startedAt")),
        finished=read_kubernetes_time(terminated.get("finishedAt")),
    )
