"""Schedules made from those of others: CronJob, CronWorkflow, and Temporal's schedules as JSON.

What has no equivalent is refused with the name of the field: a schedule that silently does something else is worse than none.
"""

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from perdure.api.common import mistakes
from perdure.api.durations import format_duration
from perdure.api.schedule import Schedule
from perdure.api.workflow import Workflow
from perdure.cli.errors import CliError
from perdure.cli.scenarios import read_documents
from perdure.schedule.errors import InvalidTimesError
from perdure.schedule.times import Times
from perdure.simulation.cast import BadFileError

if TYPE_CHECKING:
    from collections.abc import Callable

Object = dict[str, Any]

_API_VERSION = "perdure.dev/v1alpha1"
_CONCURRENCY = {"Allow": "AllowAll", "Forbid": "Skip", "Replace": "TerminateOther"}
_OVERLAP = {
    "SKIP": "Skip",
    "BUFFER_ONE": "BufferOne",
    "BUFFER_ALL": "BufferAll",
    "CANCEL_OTHER": "CancelOther",
    "TERMINATE_OTHER": "TerminateOther",
    "ALLOW_ALL": "AllowAll",
}
_NUMBERED = ("", *_OVERLAP)
_YEAR = 365 * 86_400
_FIRST_FAILURE = re.compile(r"\s*(cronworkflow\.)?failed\s*(>=\s*1|>\s*0)\s*")
"""An expression of Argo that holds once a run has failed."""


def read_foreign(file: str) -> list[Object]:
    """The manifests of a file; those in a List each.

    Raises:
        CliError: It cannot be read, or has none.
    """
    try:
        found = read_documents(file)
    except BadFileError as error:
        raise CliError(str(error)) from error
    manifests = [item for each in found if isinstance(each, dict) for item in each.get("items") or [each]]
    if not manifests:
        raise CliError(f"{file}: has no manifests")
    return manifests


def lacks_id(manifest: Object) -> bool:
    """Whether it is a schedule of Temporal without its id, as `temporal schedule describe --output json` prints it."""
    return "schedule" in manifest and not (manifest.get("scheduleId") or manifest.get("schedule_id"))


def convert(manifest: Object, source: str, name: str | None = None) -> list[Object]:
    """Make manifests of one of somebody else's.

    Args:
        manifest: A CronJob, a CronWorkflow, or what `temporal schedule describe --output json` prints.
        source: Where it comes from, for messages.
        name: Name of what is made; None for that of the original.

    Returns:
        A Schedule, and before it the Workflow that it runs where one is needed.

    Raises:
        CliError: It is nothing of that sort, or has something for which there is no equivalent.
    """
    kind = manifest.get("kind")
    readers: dict[Any, Callable[[_Source], list[Object]]] = {"CronJob": _cron_job, "CronWorkflow": _cron_workflow}
    read = readers.get(kind) or (_temporal if "schedule" in manifest else None)
    if read is None:
        raise CliError(
            f"{source}: must be a CronJob, a CronWorkflow, or the JSON of `temporal schedule describe`, not `{kind}`"
        )
    made = read(_Source(manifest if name is None else _named(manifest, name), source))
    for each in made:
        try:
            if each["kind"] == "Schedule":
                Times(Schedule.parse(each).spec)
            else:
                Workflow.parse(each)
        except ValidationError as error:
            raise CliError(f"{source}: {'; '.join(mistakes(error))}") from error
        except InvalidTimesError as error:
            raise CliError(f"{source}: {error.message}") from error
    return made


class _Source:
    """What is converted: every field has to be asked for, so that none is lost unseen."""

    def __init__(self, data: Object, path: str) -> None:
        self.data = dict(data)
        self.path = path

    def take(self, name: str, default: Any = None) -> Any:
        """Take a field."""
        value = self.data.pop(name, None)
        return default if value is None else value

    def part(self, name: str) -> "_Source":
        """Take a field that has fields."""
        return _Source(self.take(name, {}), f"{self.path}: {name}" if ": " not in self.path else f"{self.path}.{name}")

    def refuse(self, name: str, why: str) -> CliError:
        """What to raise about a field."""
        return CliError(f"{self.path}{'.' if ': ' in self.path else ': '}{name}: {why}")

    def done(self) -> None:
        """Nothing may be left."""
        for name, value in self.data.items():
            if value not in (None, {}, [], "", False, 0):
                raise self.refuse(
                    name, "has no equivalent here; leave it out, and see docs/schedules.md for what to use instead"
                )


def _named(manifest: Object, name: str) -> Object:
    """The same by another name: one of Temporal's has an id, all others have metadata."""
    if "kind" not in manifest:
        return {**manifest, "scheduleId": name}
    return {**manifest, "metadata": {**(manifest.get("metadata") or {}), "name": name}}


def _schedule(name: str, namespace: str | None, spec: Object) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    given = {key: value for key, value in spec.items() if value not in (None, [], {})}
    return {"apiVersion": _API_VERSION, "kind": "Schedule", "metadata": metadata, "spec": given}


def _cron_job(source: _Source) -> list[Object]:
    name, namespace = _identity(source)
    spec = source.part("spec")
    job = spec.part("jobTemplate").part("spec")
    template = job.take("template", {})
    pod = template.get("spec") or {}
    if len(pod.get("containers") or ()) > 1:
        message = "an activity is one container; make the others init containers with restartPolicy Always"
        raise job.refuse("template.spec.containers", message)
    activity: Object = {
        "name": "job",
        "podTemplate": {
            **({"metadata": template["metadata"]} if template.get("metadata") else {}),
            "spec": {key: value for key, value in pod.items() if key != "restartPolicy"},
        },
        "scheduleToCloseTimeout": _seconds(job.take("activeDeadlineSeconds", 86_400)),
        "retryPolicy": {
            "exponential": {
                "initialInterval": "10s",
                "maximumInterval": "6m",
                "maximumAttempts": int(job.take("backoffLimit", 6)) + 1,
            }
        },
    }
    run: Object = {"workflow": {"name": name}}
    ttl = job.take("ttlSecondsAfterFinished")
    if ttl is not None:
        run["ttlSecondsAfterFinished"] = ttl
    for one in ("completions", "parallelism"):
        if job.take(one, 1) != 1:
            raise job.refuse(one, "a run here is one pod at a time; use a step with forEach instead")
    job.take("completionMode")
    job.done()
    workflow = {
        "apiVersion": _API_VERSION,
        "kind": "Workflow",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {"activities": [activity], "steps": [{"name": "job", "activity": {"name": "job"}}]},
    }
    made: Object = {
        "cron": _classic(spec, spec.take("schedule"), "schedule"),
        "timeZone": spec.take("timeZone"),
        **_cron_options(spec),
        "workflowRunTemplate": {"spec": run},
    }
    deadline = spec.take("startingDeadlineSeconds")
    # A CronJob without a deadline starts the newest time that was missed, however old.
    made["catchupWindow"] = _seconds(max(10, int(deadline)) if deadline is not None else _YEAR)
    spec.done()
    return [workflow, _schedule(name, namespace, made)]


def _cron_workflow(source: _Source) -> list[Object]:
    name, namespace = _identity(source)
    spec = source.part("spec")
    workflow = spec.part("workflowSpec")
    reference = workflow.part("workflowTemplateRef")
    run = reference.take("name")
    if not run:
        raise spec.refuse(
            "workflowSpec",
            "steps of Argo are not translated; write them as a Workflow, and name it in workflowTemplateRef",
        )
    arguments = workflow.part("arguments")
    parameters = arguments.take("parameters", [])
    arguments.done()
    reference.done()
    for one in ("entrypoint", "serviceAccountName"):
        workflow.take(one)
    workflow.done()
    lines = spec.take("schedules", []) or [spec.take("schedule")]
    made: Object = {
        "cron": [each for line in lines for each in _classic(spec, line, "schedules")],
        "timeZone": spec.take("timezone"),
        **_cron_options(spec),
        "workflowRunTemplate": {
            "spec": {
                "workflow": {"name": run},
                **({"input": {each["name"]: each.get("value") for each in parameters}} if parameters else {}),
            }
        },
    }
    made["catchupWindow"] = _seconds(max(10, int(spec.take("startingDeadlineSeconds", 0))))
    if spec.take("when"):
        raise spec.refuse("when", "put the condition into the workflow, as `when` of its first step")
    spec.take("schedule")
    made |= _stop(spec, spec.part("stopStrategy"))
    spec.done()
    return [_schedule(name, namespace, made)]


def _identity(source: _Source) -> tuple[str, str | None]:
    meta = source.take("metadata", {})
    return str(meta.get("name")), meta.get("namespace")


def _cron_options(spec: _Source) -> Object:
    policy = spec.take("concurrencyPolicy", "Allow")
    if policy not in _CONCURRENCY:
        raise spec.refuse("concurrencyPolicy", f"must be Allow, Forbid or Replace, not `{policy}`")
    return {
        "overlapPolicy": _CONCURRENCY[policy],
        "paused": bool(spec.take("suspend", False)),
        "successfulRunsHistoryLimit": spec.take("successfulJobsHistoryLimit", 3),
        "failedRunsHistoryLimit": spec.take("failedJobsHistoryLimit", 1),
    }


def _classic(spec: _Source, line: Any, field: str) -> list[str]:
    """A line of classic cron, in which the day of the month or that of the week is enough: where it names both, two lines.

    A time that both name counts once, as it does there.
    """
    if not isinstance(line, str):
        raise spec.refuse(field, "must be a cron line")
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
    """Whether a field of classic cron says nothing of the day: one of its items is a star that takes every value.

    As robfig/cron, which both Kubernetes and Argo use (spec.go, parser.go): a star with a step says something.
    """
    return any(item in {"*", "?", "*/1", "?/1"} for item in field.split(","))


def _stop(spec: _Source, strategy: _Source) -> Object:
    """Argo's stopStrategy, as far as a pause is the same: after the first failure."""
    told = strategy.take("expression") or strategy.take("condition")
    strategy.done()
    if told is None:
        return {}
    if _FIRST_FAILURE.fullmatch(str(told)):
        return {"pauseOnFailure": True}
    raise spec.refuse(
        "stopStrategy",
        f"`{told}` has no equivalent: `failed >= 1` becomes `pauseOnFailure: true`; to stop after a number of runs set "
        "`remainingActions` in what is made",
    )


def _seconds(number: int) -> str:
    return format_duration(timedelta(seconds=number))


# Temporal


def _length(text: str) -> str:
    """A duration as protobuf writes it, in seconds: one of ours, in whole seconds, as Temporal's server takes them."""
    number = str(text).removesuffix("s").partition(".")[0]
    return _seconds(int(number)) if number.isdecimal() else text


def _unless_zero(text: str | None) -> str | None:
    """The same; None for none, and for one of no length, which is the default of what it is of."""
    length = _length(text) if text else None
    return None if length == "0s" else length


def _temporal(source: _Source) -> list[Object]:
    name = source.take("scheduleId") or source.take("schedule_id")
    schedule = source.part("schedule")
    spec, action = schedule.part("spec"), schedule.part("action")
    policies, state = schedule.part("policies"), schedule.part("state")
    workflow = action.part("startWorkflow")
    if not workflow.data:
        raise action.refuse("startWorkflow", "must be there: starting a workflow is all that a schedule does")
    made = {
        **_temporal_times(spec),
        **_temporal_policies(policies, state),
        "workflowRunTemplate": {"spec": _temporal_run(workflow)},
    }
    for part in (spec, policies, state, workflow):
        part.done()
    return [_schedule(_as_name(str(name or made["workflowRunTemplate"]["spec"]["workflowId"])), None, made)]


def _as_name(identity: str) -> str:
    """A schedule id as the name of an object: what such a name cannot have becomes a dash."""
    return re.sub("[^a-z0-9.-]+", "-", identity.lower()).strip("-.")


def _temporal_times(spec: _Source) -> Object:
    intervals = [
        {
            "every": _length(each.get("interval", "0s")),
            **({"offset": offset} if (offset := _unless_zero(each.get("phase"))) else {}),
        }
        for each in spec.take("interval", [])
    ]
    calendars = [_structured(each) for each in spec.take("structuredCalendar", [])]
    calendars += spec.take("calendar", [])
    excluded = [_structured(each) for each in spec.take("excludeStructuredCalendar", [])]
    excluded += spec.take("excludeCalendar", [])
    return {
        "cron": spec.take("cronString", []),
        "intervals": intervals,
        "calendars": calendars,
        "exclude": excluded,
        "startTime": spec.take("startTime"),
        "endTime": spec.take("endTime"),
        "jitter": _unless_zero(spec.take("jitter")),
        "timeZone": spec.take("timezoneName"),
        "timeZoneData": spec.take("timezoneData"),
        "daylightSaving": {"skipped": "Skip", "repeated": "Both"},
    }


def _structured(calendar: Object) -> Object:
    """A calendar of ranges, each a start, an end and a step; an empty list matches nothing, but for the year."""
    found: Object = {"comment": calendar["comment"]} if calendar.get("comment") else {}
    whole = {
        "dayOfMonth": (1, 31),
        "month": (1, 12),
        "dayOfWeek": (0, 6),
        "hour": (0, 23),
        "minute": (0, 59),
        "second": (0, 59),
    }
    for field in (*whole, "year"):
        ranges = calendar.get(field) or ([] if field == "year" else [{"start": 0}])
        if field in {"dayOfMonth", "month"} and not calendar.get(field):
            raise CliError(f"structuredCalendar.{field}: is empty, which matches nothing")
        told = [_range(each) for each in ranges]
        if field in whole and [(e.get("start", 0), e.get("end", 0), e.get("step", 1) or 1) for e in ranges] == [
            (*whole[field], 1)
        ]:
            told = ["*"]
        if told:
            found[field] = ",".join(told)
    return found


def _range(part: Object) -> str:
    start, end, step = part.get("start", 0), part.get("end", 0), part.get("step", 1) or 1
    text = str(start) if end <= start else f"{start}-{end}"
    return text if step == 1 else f"{text}/{step}"


def _temporal_policies(policies: _Source, state: _Source) -> Object:
    overlap = str(policies.take("overlapPolicy", "SKIP")).removeprefix("SCHEDULE_OVERLAP_POLICY_").upper()
    if overlap.isdecimal() and int(overlap) < len(_NUMBERED):
        overlap = _NUMBERED[int(overlap)]
    known = {each.replace("_", ""): policy for each, policy in _OVERLAP.items()}
    policy = known.get(overlap.replace("_", "") or "SKIP", "Skip" if overlap in {"", "UNSPECIFIED"} else None)
    if policy is None:
        raise policies.refuse("overlapPolicy", f"`{overlap}` is none that is known here")
    policies.take("keepOriginalWorkflowId")
    limited = state.take("limitedActions", False)
    remaining = int(state.take("remainingActions", 0))
    return {
        "overlapPolicy": policy,
        "catchupWindow": _length(policies.take("catchupWindow", "31536000s")),
        "pauseOnFailure": policies.take("pauseOnFailure", False),
        "paused": state.take("paused", False),
        "notes": state.take("notes"),
        "remainingActions": remaining if limited else None,
    }


def _temporal_run(workflow: _Source) -> Object:
    kind, queue = workflow.take("workflowType", {}), workflow.take("taskQueue", {})
    run: Object = {
        "workflow": {"type": kind.get("name"), "taskQueue": queue.get("name")},
        "workflowId": workflow.take("workflowId"),
    }
    for field, ours in (
        ("workflowExecutionTimeout", "executionTimeout"),
        ("workflowRunTimeout", "runTimeout"),
        ("workflowTaskTimeout", "taskTimeout"),
    ):
        value = _unless_zero(workflow.take(field))
        if value is not None:
            run[ours] = value
    payloads = workflow.take("input", [])
    payloads = payloads.get("payloads", []) if isinstance(payloads, dict) else payloads
    if len(payloads) > 1:
        raise workflow.refuse("input", "a run has one input; hand the arguments on as fields of one object")
    if payloads:
        run["input"] = _payload(workflow, payloads[0])
    workflow.take("workflowIdReusePolicy")
    return run


def _payload(workflow: _Source, payload: Any) -> Any:
    if not isinstance(payload, dict) or "data" not in payload:
        return payload
    import base64  # noqa: PLC0415 - few have one

    try:
        encoding = base64.b64decode((payload.get("metadata") or {}).get("encoding", "")).decode()
        if encoding == "json/plain":
            return json.loads(base64.b64decode(payload["data"]))
    except ValueError as error:
        raise workflow.refuse("input", f"cannot be read: {error}") from error
    raise workflow.refuse("input", f"the encoding `{encoding}` is not known here; write the input as JSON")
