"""The known pods of one run's attempts, and those to release."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from perdure.api.kinds.workflow import Retention
from perdure.controller.pods import attempt_pods as api_pods
from perdure.controller.pods.attempt_pods import PodKey, key_of
from perdure.engine.ledger import AttemptOutcome
from perdure.engine.state import RunState
from perdure.kube import client as kube
from perdure.runtime.attempts import RunRef
from perdure.runtime.pods.builder import retention_of

_LEAVE_POD: Final = {
    AttemptOutcome.COMPLETED,
    AttemptOutcome.FAILED,
    AttemptOutcome.TIMED_OUT,
    AttemptOutcome.LOST,
}
"""Outcomes after which the pod is kept for its log, unless the activity specifies otherwise."""


@dataclass(slots=True)
class PodRelease:
    """A pod to release."""

    pod: kube.Object
    keep: Retention | None
    """How long it stays; None: this depends on its end, so it is read first."""
    due: datetime | None = None
    """When to try again unless it ends before, because its containers are being stopped; None: immediately."""

    def wait(self, until: datetime) -> None:
        """Wait for the end of its containers, unless it was seen in the meantime."""
        if not self._is_over:
            self.due = until

    def update(self, pod: kube.Object) -> bool:
        """Process the pod from a watch or from the API server; return whether its containers have ended."""
        if _is_older(pod, self.pod):
            return False
        self.pod = pod
        if self._is_over:
            self.due = None
        return api_pods.has_ended(pod)

    @property
    def _is_over(self) -> bool:
        return api_pods.has_ended(self.pod) or bool(self.pod["metadata"].get("deletionTimestamp"))


class HeldPods:
    """The pods that, according to this process, a run still holds."""

    def __init__(
        self,
        run: RunRef,
        dropped: Callable[[PodKey, kube.Object | None], None],
        ended: Callable[[PodKey], None],
    ) -> None:
        """Create it without pods.

        Args:
            run: The run.
            dropped: Called with an attempt that the run no longer waits for, and its pod, if it has one.
            ended: Called with an attempt whose released pod has ended or disappeared.
        """
        self._run = run
        self._dropped = dropped
        self._ended = ended
        self.pods: dict[PodKey, kube.Object | None] = {}
        """The last seen pod by attempt; None if it has disappeared."""
        self.unread: set[PodKey] = set()
        """The attempts whose pods have changed since they were last read."""
        self.to_release: dict[str, PodRelease] = {}
        """The pods to release by UID."""
        self._released: set[str] = set()  # UIDs of released pods, until they have disappeared

    @property
    def settled(self) -> bool:
        """Whether no pod is left to read or to release."""
        return not self.to_release and not self.pods

    def update(self, pod: kube.Object) -> None:
        """Process a pod from a watch or from the API server.

        A watch may lag behind a read: an earlier version is ignored, because a pod that still ran in it would be stopped, and
        so is an earlier pod of the attempt, because its deletion would count as that of the current one.
        """
        key, uid = key_of(pod), pod["metadata"]["uid"]
        if key is None or not api_pods.is_of(pod, self._run):
            return
        if (release := self.to_release.get(uid)) is not None:
            if release.update(pod):
                self._ended(key)
            return
        if uid in self._released:
            if api_pods.has_ended(pod):
                self._ended(key)
            return
        known = self.pods.get(key)
        if known is None or not _is_older(pod, known):
            self.pods[key] = pod
            self.unread.add(key)

    def delete(self, pod: kube.Object) -> None:
        """Process the deletion of a pod."""
        key, uid = key_of(pod), pod["metadata"]["uid"]
        self.to_release.pop(uid, None)
        self._released.discard(uid)
        if key is None:
            return
        known = self.pods.get(key)
        if known is not None and known["metadata"]["uid"] == uid:
            self.miss(key)
        elif api_pods.is_of(pod, self._run):
            self._ended(key)

    def miss(self, key: PodKey) -> None:
        """Record that the pod of an attempt has disappeared."""
        self.pods[key] = None
        self.unread.add(key)

    def adopt(self, key: PodKey, pod: kube.Object) -> None:
        """Record the pod of an attempt that was started."""
        if self.pods.setdefault(key, pod) is pod and (pod.get("status") or {}).get("phase") != "Pending":
            self.unread.add(key)  # another client created it: it may have ended already

    def recheck(self) -> None:
        """Mark all pods as unread."""
        self.unread |= set(self.pods)

    # Release

    def retire(self, key: PodKey, outcome: AttemptOutcome) -> None:
        """Release the pod of an attempt whose end was recorded."""
        pod = self._drop(key)
        if pod is not None:
            succeeded = outcome is AttemptOutcome.COMPLETED
            self._release(pod, retention_of(pod, succeeded=succeeded) if outcome in _LEAVE_POD else Retention.DELETE)

    def superfluous(self, state: RunState) -> list[PodKey]:
        """The pods that no attempt of this state needs: superseded ones, and all pods of a closed run.

        Such a pod may also belong to a newer state that another operator has committed, so confirm this state before
        `release_unneeded`.
        """
        return [key for key, pod in self.pods.items() if key.due(state) is None and _is_to_be_released(pod)]

    def release_unneeded(self, state: RunState, superfluous: list[PodKey]) -> None:
        """Release pods that no attempt needs, and drop pods without pending work.

        Args:
            state: The state.
            superfluous: Pods that were seen before the state was confirmed to be current. Later ones may be newer than it.
        """
        for key in [key for key in self.pods if key.due(state) is None]:
            held = _is_to_be_released(self.pods[key])
            if held and key not in superfluous:
                continue
            pod = self._drop(key)
            if pod is not None and held:
                self._release(pod, None)

    def release_all(self) -> None:
        """Release all pods of a deleted run."""
        for release in self.to_release.values():
            release.keep, release.due = Retention.DELETE, None
        for pod in self.pods.values():
            if pod is not None:
                self._release(pod, Retention.DELETE)
        self.pods.clear()
        self.unread.clear()

    def next_releases(self) -> list[datetime]:
        """When to try again to release pods that are being stopped, unless they end before."""
        return [each.due for each in self.to_release.values() if each.due is not None]

    def released(self, uid: str) -> None:
        """Record that a pod was released."""
        if self.to_release.pop(uid, None) is not None:
            self._released.add(uid)

    def _drop(self, key: PodKey) -> kube.Object | None:
        self.unread.discard(key)
        pod = self.pods.pop(key, None)
        self._dropped(key, pod)
        return pod

    def _release(self, pod: kube.Object, keep: Retention | None) -> None:
        self.to_release[pod["metadata"]["uid"]] = PodRelease(pod, keep)


def _is_to_be_released(pod: kube.Object | None) -> bool:
    """Whether a pod that no attempt needs must still be released."""
    return pod is not None and (api_pods.held(pod) or not api_pods.has_ended(pod))


def _is_older(pod: kube.Object, known: kube.Object) -> bool:
    return kube.older(pod["metadata"]["resourceVersion"], known["metadata"]["resourceVersion"])
