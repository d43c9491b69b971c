"""Converts a CronJob, and what it has in common with the CronWorkflow of Argo: cron lines, policies, and missed times."""

from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError

from perdure.api.kinds.schedule import Schedule
from perdure.api.kinds.workflow import Workflow
from perdure.api.labels import API_VERSION
from perdure.api.models import mistakes
from perdure.api.names import MAX_RUN_NAME, is_name
from perdure.api.pod_fields import POD_SPEC, unknown_fields
from perdure.importing.durations import NO_LIMIT
from perdure.importing.reader import Object, Source, UnsupportedScheduleError, format_seconds, shorten
from perdure.language.containers import without_expressions
from perdure.schedule.calendar import InvalidTimesError
from perdure.schedule.times import Times

_CONCURRENCY = {"Allow": "AllowAll", "Forbid": "Skip", "Replace": "TerminateOther"}
YEAR = 365 * 86_400
"""Seconds of a year: how long times may have been missed if nothing limits that."""


def cron_job(source: Source, new_name: str | None) -> list[Object]:
    """Convert a CronJob to a Workflow and a Schedule.

    Args:
        source: The manifest.
        new_name: Name of both; None for the name of the original.

    Raises:
        UnsupportedScheduleError: A field has no equivalent.
    """
    metadata = identity(source, new_name)
    spec = source.part("spec")
    job_template = spec.part("jobTemplate")
    labels = _labels(job_template.part("metadata"))
    job = job_template.part("spec")
    job_template.done()
    template = job.part("template")
    pod = template.part("spec")
    containers = Source(pod.data, pod.path).parts("containers")
    if len(containers) != 1:
        message = "an activity has one container"
        if containers:
            message += "; make the others init containers with restartPolicy Always"
        raise pod.refuse("containers", message)
    if pod.data.get("restartPolicy") not in (None, "Never", "OnFailure"):
        raise pod.refuse("restartPolicy", f"must be Never or OnFailure, not {shorten(pod.data['restartPolicy'])}")
    for path, field, known in unknown_fields(POD_SPEC, pod.data):  # one of a newer version is kept
        if close := get_close_matches(field, known, n=1):
            raise pod.refuse(f"{path}{field}", f"is not a field of Kubernetes; did you mean `{close[0]}`?")
    of_pods = _labels(template.part("metadata"))
    template.done()
    if job.data.get("activeDeadlineSeconds") == 0:
        raise job.refuse("activeDeadlineSeconds", "ends a Job when it starts; remove it, or set a limit")
    deadline = job.number("activeDeadlineSeconds", 0)
    activity: Object = {
        "name": "job",
        "podTemplate": {
            **({"metadata": of_pods} if of_pods else {}),
            "spec": without_expressions(_as_in_a_job(pod)),
        },
        "scheduleToCloseTimeout": format_seconds(deadline) if deadline else NO_LIMIT,
        "retryPolicy": {
            "exponential": {
                "initialInterval": "10s",
                "maximumInterval": "6m",
                "maximumAttempts": job.number("backoffLimit", 6) + 1,
            }
        },
    }
    run: Object = {"workflow": {"name": metadata["name"]}}
    if job.data.get("ttlSecondsAfterFinished") is not None:
        run["ttlSecondsAfterFinished"] = job.number("ttlSecondsAfterFinished", 0)
    for one in ("completions", "parallelism"):
        if job.number(one, 1) != 1:
            raise job.refuse(one, "an activity runs one pod at a time; use a step with forEach instead")
    if job.text("completionMode") == "Indexed":
        raise job.refuse("completionMode", "the pods of an activity have no index; use a step with forEach instead")
    job.done()
    workflow = {
        "apiVersion": API_VERSION,
        "kind": "Workflow",
        "metadata": metadata,
        "spec": {"activities": [activity], "steps": [{"name": "job", "activity": {"name": "job"}}]},
    }
    made: Object = {
        "cron": classic_lines(spec, spec.take("schedule"), "schedule"),
        "timeZone": spec.text("timeZone"),
        **cron_options(spec),
        "workflowRunTemplate": {**({"metadata": labels} if labels else {}), "spec": run},
    }
    # A CronJob without a deadline starts the newest time that was missed, however old (kubernetes/kubernetes:
    # pkg/controller/cronjob/utils.go, mostRecentScheduleTime).
    made |= newest_missed(spec.number("startingDeadlineSeconds", YEAR))
    spec.done()
    source.done()
    return [workflow, schedule_manifest(metadata, made)]


def _as_in_a_job(pod: Source) -> Object:
    """Return the pod of a Job with the defaults of Kubernetes that differ for activities: the user of the image, and a token."""
    made = {key: value for key, value in pod.data.items() if key != "restartPolicy"}
    if not made.get("serviceAccountName") and not made.get("serviceAccount"):
        made.setdefault("automountServiceAccountToken", True)
    user = made.get("securityContext") or {}
    if not isinstance(user, dict):
        raise pod.refuse("securityContext", f"must be a map, not {shorten(user)}")
    if not user.keys() & {"runAsUser", "runAsNonRoot"}:
        made["securityContext"] = {**user, "runAsNonRoot": False}
    return made


# What both have in common


def newest_missed(deadline: int) -> Object:
    """The catch-up of a CronJob and of a CronWorkflow: only the newest missed time starts (kestra#3000)."""
    return {"catchupWindow": format_seconds(max(10, deadline)), "catchupPolicy": "Latest"}


_OF_SERVER: Final = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
"""What an API server writes into metadata."""
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def identity(source: Source, new_name: str | None) -> Object:
    """Take the metadata: the name, unless there is a new one, and the namespace, labels, and annotations, if it has them."""
    for each in ("apiVersion", "kind", "status"):
        source.take(each)
    meta = source.part("metadata")
    name = new_name or meta.required("name", "set it, or use --name")
    if not (is_name(name) and len(name) <= MAX_RUN_NAME):
        raise meta.refuse("name", f"`{name[:MAX_RUN_NAME]}` is not the name of an object of Kubernetes; use --name")
    namespace = meta.text("namespace")
    meta.take("name")
    return {"name": name, **({"namespace": namespace} if namespace else {}), **_labels(meta)}


def _labels(metadata: Source) -> Object:
    """Take the labels and annotations, without what an API server or kubectl writes."""
    for each in _OF_SERVER:
        metadata.take(each)
    found = {key: dict(metadata.part(key).data) for key in ("labels", "annotations")}
    found["annotations"].pop(_APPLIED, None)
    metadata.done()
    return {key: each for key, each in found.items() if each}


def cron_options(spec: Source) -> Object:
    """Take what happens if a run is still open, whether the schedule is suspended, and how many runs are kept."""
    policy = spec.text("concurrencyPolicy") or "Allow"
    if policy not in _CONCURRENCY:
        raise spec.refuse("concurrencyPolicy", f"must be Allow, Forbid or Replace, not {shorten(policy)}")
    return {
        "overlapPolicy": _CONCURRENCY[policy],
        "paused": spec.flag("suspend"),
        "successfulRunsHistoryLimit": spec.number("successfulJobsHistoryLimit", 3),
        "failedRunsHistoryLimit": spec.number("failedJobsHistoryLimit", 1),
    }


def classic_lines(spec: Source, line: Any, field: str) -> list[str]:
    """Convert a line of classic cron. If it restricts both the day of the month and the day of the week, return two lines.

    As in cron, either day may match, and a time that matches both counts once.
    """
    if not isinstance(line, str):
        raise spec.refuse(field, "must be a cron line, such as `30 2 * * *`")
    words = line.split()
    start = 1 if words and words[0].startswith(("TZ=", "CRON_TZ=")) else 0
    zone, fields = words[:start], words[start:]
    if len(fields) != 5 or _is_any(fields[2]) or _is_any(fields[4]):  # noqa: PLR2004 (minute to day of week)
        return [line]
    minute, hour, day_of_month, month, day_of_week = fields
    return [
        " ".join([*zone, minute, hour, day_of_month, month, "*"]),
        " ".join([*zone, minute, hour, "*", month, day_of_week]),
    ]


def _is_any(field: str) -> bool:
    """Whether a field of classic cron does not restrict the day: an item is a star that matches every value.

    As in robfig/cron, which both Kubernetes and Argo use (spec.go, parser.go): a star with a step restricts it.
    """
    return any(item in {"*", "?", "*/1", "?/1"} for item in field.split(","))


def schedule_manifest(metadata: Object, spec: Object) -> Object:
    """Build the manifest of a Schedule; fields of the spec without a value are left out."""
    fields = {key: value for key, value in spec.items() if value not in (None, [], {})}
    return {"apiVersion": API_VERSION, "kind": "Schedule", "metadata": metadata, "spec": fields}


def checked(manifests: list[Object], source: str) -> list[Object]:
    """Return converted manifests if they are valid.

    Args:
        manifests: Schedules and Workflows.
        source: The source of the original, for messages.

    Raises:
        UnsupportedScheduleError: A manifest is not valid, because a value of the original has no equivalent.
    """
    for each in manifests:
        try:
            if each["kind"] == "Schedule":
                Times(Schedule.parse(each).spec)
            else:
                Workflow.parse(each)
        except ValidationError as error:
            raise UnsupportedScheduleError(f"{source}: {'; '.join(mistakes(error))}") from error
        except InvalidTimesError as error:
            raise UnsupportedScheduleError(f"{source}: {error.message}") from error
    return manifests
