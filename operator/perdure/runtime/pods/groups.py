"""Several containers of one pod that are an activity together, some of which wait for others.

Kubernetes starts all containers of a pod together. So a shell in each of them waits for the containers that it needs, starts the
command of its own, and leaves a file in a shared folder when the command has ended. If a container dies without leaving a file,
the operator sees that and stops the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from perdure.api import labels
from perdure.api.pods import NEEDS, ORDER, ORDER_PATH, ContainerOrderError, needs_of
from perdure.runtime.attempts import InvalidDefinitionError, KubeObject
from perdure.runtime.pods import payloads
from perdure.runtime.pods.commands import SIGNALS, command_runner, wrap
from perdure.runtime.pods.status import EndedContainer, PodStatus

_SIZE: Final = "1Mi"
_NOT_NEEDED: Final = 1
_STOPPED: Final = 143
"""Exit codes of a container that does not start its command, because another one has failed, or because the pod is stopped."""
_WAITING: Final = f"""perdure_state={ORDER_PATH}/$0
trap 'exit {_STOPPED}' {SIGNALS}
if [ "$1" ] && ! command -v sleep >/dev/null 2>&1; then
  echo >"$perdure_state.failed"
  echo "container $0 cannot wait for others, because its image has no program named sleep" >&2
  exit 127
fi
for perdure_name in $1; do
  until [ -e {ORDER_PATH}/"$perdure_name".succeeded ]; do
    if [ -e {ORDER_PATH}/"$perdure_name".failed ]; then
      echo >"$perdure_state.failed"
      echo "container $perdure_name failed, so container $0 did not start its command" >&2
      exit {_NOT_NEEDED}
    fi
    sleep 0.5 2>/dev/null || sleep 1
  done
done
shift
{command_runner()}if [ "$perdure_code" = 0 ]; then echo >"$perdure_state.succeeded"; else echo >"$perdure_state.failed"; fi
exit "$perdure_code"
"""
"""Waits for the containers in the first argument, and runs the other arguments. The name of the script is the container's own."""


@dataclass(frozen=True, slots=True)
class ContainerGroup:
    """The containers that are the activity of a pod: usually one."""

    main: str
    """The container that returns the result."""
    needs: Mapping[str, Sequence[str]]
    """All of them, with the containers that each one needs."""

    @classmethod
    def of(cls, pod: KubeObject, main: str) -> "ContainerGroup":
        """Return the group of a pod.

        Args:
            pod: A Pod as the API server returned it.
            main: Name of the container that returns the result.
        """
        note = ((pod.get("metadata") or {}).get("annotations") or {}).get(labels.NEEDS_ANNOTATION)
        needs, _ = payloads.decode(note or "")
        if not isinstance(needs, dict) or main not in needs:
            return cls(main, {main: ()})
        return cls(main, {name: others if isinstance(others, list) else () for name, others in needs.items()})

    def ended(self, status: PodStatus) -> EndedContainer | None:
        """Return how the activity ended: the end of a container that failed, or that of the main container if all have succeeded.

        A container whose shell reports the failure of another one is not the one that failed. But one can fail while it waits,
        for example because its image has no shell. Of those that ended in the same second, the API server does not tell which
        was first; one that did not wait was.

        Args:
            status: The status of the pod.

        Returns:
            The end; None if the activity has not ended.
        """
        ends = {name: status.ended(name) for name in self.needs}
        succeeded = {name for name, end in ends.items() if end is not None and end.exit_code == 0}
        waited = {name for name, others in self.needs.items() if not succeeded.issuperset(others)}
        failed = [
            (end.finished is None, end.finished, name in waited, end)
            for name, end in ends.items()
            if end is not None
            and end.exit_code != 0
            and (end.exit_code not in {_NOT_NEEDED, _STOPPED} or name not in waited)
        ]
        if failed:
            *_, first = min(failed, key=lambda each: each[:3])
            return first
        return ends[self.main] if len(succeeded) == len(ends) else None

    def all_ended(self, status: PodStatus) -> bool:
        """Whether none of its containers runs or will run any more.

        Args:
            status: The status of the pod.
        """
        return all(status.ended(name) is not None for name in self.needs)

    def at_work(self, status: PodStatus) -> tuple[str, ...]:
        """Return its containers that run, and do not wait for others any more.

        Args:
            status: The status of the pod.
        """
        return tuple(
            name
            for name, others in self.needs.items()
            if status.started(name) is not None
            and status.ended(name) is None
            and all(status.ended(other) is not None for other in others)
        )

    def running_since(self, status: PodStatus) -> datetime | None:
        """Return when the activity started, if it is running: when the last of its containers started.

        Args:
            status: The status of the pod.

        Returns:
            The time; None if a container has not started, or the activity has ended.
        """
        if self.ended(status) is not None:
            return None
        starts = [status.started(name) for name in self.needs]
        return None if None in starts else max(start for start in starts if start is not None)


def order_containers(spec: KubeObject) -> Mapping[str, Sequence[str]]:
    """Make the containers of a pod wait for those in their `needs`.

    Args:
        spec: The spec of the pod, modified in place.

    Returns:
        The containers that are the activity together, with the containers that each one needs; empty if there is only one.

    Raises:
        InvalidDefinitionError: The containers have no valid order.
    """
    containers: list[dict[str, Any]] = spec["containers"]
    try:
        needs = needs_of(containers)
    except ContainerOrderError as error:
        raise InvalidDefinitionError(f"`{error.field}`: {error.message}") from error
    needed = {other for others in needs.values() for other in others}
    for container in containers:
        container.pop(NEEDS, None)
        name = container.get("name")
        if name in needed or needs.get(str(name)):
            wrap(container, _WAITING, str(name), " ".join(needs[str(name)]))
            mounts = [*(container.get("volumeMounts") or []), {"name": ORDER, "mountPath": ORDER_PATH}]
            container["volumeMounts"] = mounts
    if needed:
        spec["volumes"] = [*(spec.get("volumes") or []), {"name": ORDER, "emptyDir": {"sizeLimit": _SIZE}}]
    return needs
