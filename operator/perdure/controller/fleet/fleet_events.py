"""The Events that report who joins a fleet, and who is lost. They are about the Lease of the member."""

from perdure.api.reasons import EventReason
from perdure.controller.fleet.member_lease import MemberLease
from perdure.controller.fleet.rendezvous import SHARDS
from perdure.kube import client as kube
from perdure.kube.events import Recorder


class FleetEvents:
    """Records the Events of a fleet."""

    def __init__(self, recorder: Recorder, namespace: str) -> None:
        """`namespace` has the Leases."""
        self._recorder = recorder
        self._namespace = namespace

    def joined(self, member: str, uid: str, shards: int, members: int) -> None:
        """Record that a member owns shards now.

        Args:
            member: Its name.
            uid: The UID of its Lease.
            shards: How many shards it owns.
            members: How many members there are.
        """
        note = f"{member} owns {shards} of {SHARDS} shards; the fleet has {members} operators"
        about, reason = self._about(member, uid), EventReason.OPERATOR_JOINED
        self._recorder.record(about, kind="Normal", reason=reason, note=note, action="Join")

    def lost(self, lost: MemberLease) -> None:
        """Record that the Lease of a member has expired."""
        note = f"{lost.member} has not renewed its Lease for {lost.seconds:.0f} s: other operators own its shards"
        about, reason = self._about(lost.member, lost.uid), EventReason.OPERATOR_LOST
        self._recorder.record(about, kind="Warning", reason=reason, note=note, action="TakeOver")

    def _about(self, member: str, uid: str) -> kube.Object:
        meta = {"name": member, "namespace": self._namespace, "uid": uid}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
