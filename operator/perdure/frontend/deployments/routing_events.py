"""Record Events about the routing of new and upgrading workflows to versions of worker deployments."""

from perdure.api.reasons import EventReason
from perdure.frontend.deployments.rules import Deployments, WorkerDeployment
from perdure.kube import client as kube
from perdure.kube.events import Recorder


def report(recorder: Recorder, config_map: kube.Object, before: Deployments, after: Deployments) -> None:
    """Record each change of a current or ramping version.

    Args:
        recorder: Records Events.
        config_map: The ConfigMap of the deployments, as stored.
        before: The deployments before the change.
        after: The deployments now.
    """
    about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": config_map["metadata"]}
    for name, now in after.items():
        was = before.get(name, WorkerDeployment(create_time=now.create_time))
        if now.current != was.current:
            note = f"Worker deployment `{name}`: the current version is {_version(now.current)}, was {_version(was.current)}"
            reason = EventReason.CURRENT_VERSION_CHANGED
            recorder.record(about, kind="Normal", reason=reason, note=note, action="SetCurrentVersion")
        if (now.ramping, now.percentage) != (was.ramping, was.percentage):
            note = f"Worker deployment `{name}`: {_ramp(now)}, was: {_ramp(was)}"
            reason = EventReason.RAMPING_VERSION_CHANGED
            recorder.record(about, kind="Normal", reason=reason, note=note, action="SetRampingVersion")


def _version(build_id: str) -> str:
    return f"`{build_id}`" if build_id else "unversioned"


def _ramp(deployment: WorkerDeployment) -> str:
    if deployment.ramping is None:
        return "no version is ramping"
    return f"{deployment.percentage:g}% go to {_version(deployment.ramping)}"
