"""What the sidecar of a simulated pod reports that uploads output artifacts: nothing is stored, and every run gets the same."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from perdure.api import labels
from perdure.api.names import LOG_ARTIFACT, RESULT_ARTIFACT, artifact_folder, log_key
from perdure.api.reserved import OUTPUTS
from perdure.runtime.pods import payloads
from perdure.simulation.cluster.storage import Object

_BYTES: Final = 1024


def upload_status(pod: Object, sizes: Mapping[str, int] | None, result: str, times: Mapping[str, Any]) -> Object | None:
    """The status of the sidecar after the container of the activity has succeeded; None if the pod has none.

    Args:
        pod: The pod.
        sizes: The artifacts that exist, with their bytes; None: all that the activity has.
        result: The result of the activity, which is uploaded if it is too large for a termination message.
        times: When it started and finished.
    """
    sidecars = [each for each in pod["spec"].get("initContainers") or () if each["name"] == OUTPUTS]
    if not sidecars:
        return None
    variables = {each["name"]: each.get("value", "") for each in sidecars[0]["env"]}
    wanted = json.loads(variables["PERDURE_OUTPUTS"].replace("$$", "$"))
    found = (
        {each["name"]: _BYTES for each in wanted if each["name"] != RESULT_ARTIFACT} if sizes is None else dict(sizes)
    )
    if len(result.encode()) >= payloads.TERMINATION_MESSAGE_LIMIT:
        found[RESULT_ARTIFACT] = len(result.encode())
    report = _report(pod, wanted, found, kept="PERDURE_KEPT" in variables)
    if "PERDURE_LOG_FOLDER" in variables and "error" not in report and (sizes is None or LOG_ARTIFACT in sizes):
        report["log"] = _log(pod, _BYTES if sizes is None else sizes[LOG_ARTIFACT])
    code = 1 if "error" in report else 0
    message = json.dumps(report)
    end = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message, **times}
    return {
        "name": OUTPUTS,
        "ready": False,
        "restartCount": 0,
        "image": "image",
        "imageID": "image",
        "state": {"terminated": end},
    }


def _log(pod: Object, size: int) -> list[Any]:
    notes, meta = pod["metadata"]["annotations"], pod["metadata"]
    attempt = notes[labels.SCHEDULED_EVENT_ANNOTATION], notes[labels.ATTEMPT_ANNOTATION]
    key = log_key(meta["namespace"], meta["labels"][labels.RUN_ID_LABEL], *attempt)
    return [key, size, hashlib.sha256(key.encode()).hexdigest()]


def _report(pod: Object, wanted: list[dict[str, Any]], found: Mapping[str, int], *, kept: bool) -> dict[str, Any]:
    meta = pod["metadata"]
    notes = meta["annotations"]
    attempt = f"{notes[labels.SCHEDULED_EVENT_ANNOTATION]}-{notes[labels.ATTEMPT_ANNOTATION]}"
    at = f"{artifact_folder(meta['namespace'], meta['labels'][labels.RUN_ID_LABEL], kept=kept)}/{attempt}"
    for each in wanted:
        if each["name"] not in found and not each.get("optional"):
            message = f"artifact `{each['name']}`: the container has ended, and `{each['path']}` does not exist"
            return {"error": {"type": "ArtifactMissing", "message": message}}
    names = [each["name"] for each in wanted if each["name"] in found]
    files = {name: [found[name], hashlib.sha256(f"{at}/{name}".encode()).hexdigest(), "None"] for name in names}
    return {"at": at, "files": files}
