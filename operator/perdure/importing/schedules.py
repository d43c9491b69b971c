"""Converts schedules of other systems: CronJob, CronWorkflow, and Temporal's schedules as JSON.

Fields without an equivalent are rejected by name, so that no schedule silently behaves differently.
"""

import base64
import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from perdure.api import labels
from perdure.api.kinds.schedule import Schedule
from perdure.api.kinds.workflow import Workflow
from perdure.api.labels import API_VERSION
from perdure.api.models import mistakes
from perdure.api.times import format_duration, parse_duration
from perdure.engine.payloads import plain
from perdure.importing.reader import Object
from perdure.language.containers import without_expressions
from perdure.schedule.calendar import InvalidTimesError
from perdure.schedule.times import Times

if TYPE_CHECKING:
    from collections.abc import Callable


class UnsupportedScheduleError(Exception):
    """A schedule has a part without an equivalent. The message is one sentence with the path of the part, and the fix."""


_MAX_INTEGER = 2**31 - 1
_DIGITS = re.compile("[0-9]{1,18}")
_PROTOBUF_SECONDS = re.compile(r"([0-9]{1,12})(?:\.[0-9]*)?s")
_SHOWN = 60
"""Characters of a value in a message."""


class _Source:
    """A map to convert: every field must be taken, so that none is lost unnoticed."""

    def __init__(self, data: Object, path: str) -> None:
        self.data = dict(data)
        self.path = path

    def take(self, name: str, default: Any = None) -> Any:
        """Take a field of any type."""
        value = self.data.pop(name, None)
        return default if value is None else value

    def text(self, name: str) -> str | None:
        """Take a text; None for an absent or empty one."""
        value = self.take(name, "")
        if not isinstance(value, str):
            raise self.refuse(name, f"must be a string, not {_shorten(value)}; write it in quotes")
        return value or None

    def required(self, name: str, remedy: str) -> str:
        """Take a required text."""
        value = self.text(name)
        if value is None:
            raise self.refuse(name, f"must be set; {remedy}")
        return value

    def number(self, name: str, default: int) -> int:
        """Take a nonnegative integer; 64-bit integers are text in the JSON of protobuf."""
        value = self.take(name, default)
        if isinstance(value, str) and _DIGITS.fullmatch(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_INTEGER:
            raise self.refuse(name, f"must be a whole number from 0 to {_MAX_INTEGER}, not {_shorten(value)}")
        return value

    def flag(self, name: str) -> bool:
        """Take a boolean; false if absent."""
        value = self.take(name, False)
        if not isinstance(value, bool):
            raise self.refuse(name, f"must be true or false, not {_shorten(value)}")
        return value

    def duration(self, name: str) -> str | None:
        """Take a duration in protobuf's format; return it in our format, in whole seconds as Temporal's server uses them."""
        value = self.text(name)
        if value is None:
            return None
        seconds = _PROTOBUF_SECONDS.fullmatch(value)
        try:
            return _format_seconds(int(seconds[1])) if seconds else format_duration(parse_duration(value))
        except ValueError:
            raise self.refuse(name, f"must be a duration in seconds, such as `3600s`, not {_shorten(value)}") from None

    def nonzero_duration(self, name: str) -> str | None:
        """Take a duration; None also for zero, which is the default."""
        length = self.duration(name)
        return None if length == "0s" else length

    def part(self, name: str) -> "_Source":
        """Take a map."""
        return self._below(name, name, self.take(name, {}))

    def parts(self, name: str) -> list["_Source"]:
        """Take a list of maps."""
        return [self._below(name, f"{name}[{i}]", each) for i, each in enumerate(self.items(name))]

    def texts(self, name: str) -> list[str]:
        """Take a list of texts."""
        found = self.items(name)
        if not all(isinstance(each, str) for each in found):
            raise self.refuse(name, f"must be a list of strings, not {_shorten(found)}; write each in quotes")
        return found

    def items(self, name: str) -> list[Any]:
        """Take a list."""
        value = self.take(name, [])
        if not isinstance(value, list):
            raise self.refuse(name, f"must be a list, not {_shorten(value)}; write it in brackets")
        return value

    def refuse(self, name: str, why: str) -> UnsupportedScheduleError:
        """Create the error about a field."""
        return UnsupportedScheduleError(f"{self.path_of(name)}: {why}")

    def done(self) -> None:
        """Check that every field was taken."""
        for name, value in self.data.items():
            if value not in (None, {}, [], "", False, 0):
                raise self.refuse(name, "has no equivalent; remove it, and see docs/schedules.md for alternatives")

    def _below(self, name: str, place: str, value: Any) -> "_Source":
        if not isinstance(value, dict):
            raise self.refuse(place, f"must be a map with the fields of `{name}`, not {_shorten(value)}")
        return _Source(value, self.path_of(place))

    def path_of(self, name: str) -> str:
        """The path of a field, for messages."""
        return f"{self.path}{'.' if ': ' in self.path else ': '}{name}"


def _shorten(value: Any) -> str:
    """Shorten a value for messages."""
    text = json.dumps(value, default=str) if isinstance(value, dict | list) else str(value)
    return f"`{text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}`"


def _format_seconds(number: int) -> str:
    """Format a duration for the API."""
    return format_duration(timedelta(seconds=number))


_CONCURRENCY = {"Allow": "AllowAll", "Forbid": "Skip", "Replace": "TerminateOther"}
_OVERLAP = {
    "SKIP": "Skip",
    "BUFFER_ONE": "BufferOne",
    "BUFFER_ALL": "BufferAll",
    "CANCEL_OTHER": "CancelOther",
    "TERMINATE_OTHER": "TerminateOther",
    "ALLOW_ALL": "AllowAll",
}
_WORDS = ", ".join(_OVERLAP)
_BY_WORD = {
    **{word.replace("_", ""): policy for word, policy in _OVERLAP.items()},
    **{str(number): policy for number, policy in enumerate(_OVERLAP.values(), 1)},
    **dict.fromkeys(("", "0", "UNSPECIFIED"), "Skip"),
}
"""The overlap policies by name and by number."""
_CALENDAR = {
    "dayOfMonth": (1, 31, "*"),
    "month": (1, 12, "*"),
    "dayOfWeek": (0, 6, "*"),
    "hour": (0, 23, "0"),
    "minute": (0, 59, "0"),
    "second": (0, 59, "0"),
}
"""The fields of a calendar except the year: the first value, the last value, and Temporal's default."""
_YEAR = 365 * 86_400
_FIRST_FAILURE = re.compile(r"\s*(cronworkflow\.)?failed\s*(>=\s*1|>\s*0)\s*")
"""An expression of Argo that is true once a run has failed."""


def convert(manifest: Object, source: str, name: str | None = None) -> list[Object]:
    """Convert a manifest of another system.

    Args:
        manifest: A CronJob, a CronWorkflow, or the output of `temporal schedule describe --output json`.
        source: The source of the manifest, for messages.
        name: Name of the Schedule; None for the name of the original.

    Returns:
        The Schedule, after its Workflow if it needs one.

    Raises:
        UnsupportedScheduleError: The manifest is of another kind, or has a field without an equivalent.
    """
    kind = manifest.get("kind")
    readers: dict[str, Callable[[_Source, str | None], list[Object]]] = {
        "CronJob": _cron_job,
        "CronWorkflow": _cron_workflow,
    }
    read = readers.get(str(kind)) or (_temporal if "schedule" in manifest else None)
    if read is None:
        raise UnsupportedScheduleError(
            f"{source}: must be a CronJob, a CronWorkflow, or the JSON of `temporal schedule describe`, not "
            f"{_shorten(kind)}"
        )
    made = read(_Source(manifest, source), name)
    for each in made:
        try:
            if each["kind"] == "Schedule":
                Times(Schedule.parse(each).spec)
            else:
                Workflow.parse(each)
        except ValidationError as error:
            raise UnsupportedScheduleError(f"{source}: {'; '.join(mistakes(error))}") from error
        except InvalidTimesError as error:
            raise UnsupportedScheduleError(f"{source}: {error.message}") from error
    return made


def _schedule(name: str, namespace: str | None, spec: Object) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    fields = {key: value for key, value in spec.items() if value not in (None, [], {})}
    return {"apiVersion": API_VERSION, "kind": "Schedule", "metadata": metadata, "spec": fields}


def _cron_job(source: _Source, new_name: str | None) -> list[Object]:
    name, namespace = _identity(source, new_name)
    spec = source.part("spec")
    job = spec.part("jobTemplate").part("spec")
    template = job.part("template")
    pod = template.part("spec")
    containers = _Source(pod.data, pod.path).parts("containers")
    if len(containers) != 1:
        message = "an activity has one container"
        if containers:
            message += "; make the others init containers with restartPolicy Always"
        raise pod.refuse("containers", message)
    metadata = template.part("metadata").data
    activity: Object = {
        "name": "job",
        "podTemplate": {
            **({"metadata": metadata} if metadata else {}),
            "spec": without_expressions(_as_in_a_job(pod.data)),
        },
        "scheduleToCloseTimeout": _format_seconds(job.number("activeDeadlineSeconds", 86_400)),
        "retryPolicy": {
            "exponential": {
                "initialInterval": "10s",
                "maximumInterval": "6m",
                "maximumAttempts": job.number("backoffLimit", 6) + 1,
            }
        },
    }
    run: Object = {"workflow": {"name": name}}
    if job.data.get("ttlSecondsAfterFinished") is not None:
        run["ttlSecondsAfterFinished"] = job.number("ttlSecondsAfterFinished", 0)
    for one in ("completions", "parallelism"):
        if job.number(one, 1) != 1:
            raise job.refuse(one, "an activity runs one pod at a time; use a step with forEach instead")
    job.take("completionMode")
    job.done()
    workflow = {
        "apiVersion": API_VERSION,
        "kind": "Workflow",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {"activities": [activity], "steps": [{"name": "job", "activity": {"name": "job"}}]},
    }
    made: Object = {
        "cron": _classic(spec, spec.take("schedule"), "schedule"),
        "timeZone": spec.text("timeZone"),
        **_cron_options(spec),
        "workflowRunTemplate": {"spec": run},
    }
    # A CronJob without a deadline starts the newest time that was missed, however old (kubernetes/kubernetes:
    # pkg/controller/cronjob/utils.go, mostRecentScheduleTime).
    made |= _newest_missed(spec.number("startingDeadlineSeconds", _YEAR))
    spec.done()
    return [workflow, _schedule(name, namespace, made)]


def _newest_missed(deadline: int) -> Object:
    """The catch-up of a CronJob and of a CronWorkflow: only the newest missed time starts (kestra#3000)."""
    return {"catchupWindow": _format_seconds(max(10, deadline)), "catchupPolicy": "Latest"}


def _as_in_a_job(pod: Object) -> Object:
    """Return the pod of a Job with the defaults of Kubernetes that differ for activities: the user of the image, and a token."""
    made = {key: value for key, value in pod.items() if key != "restartPolicy"}
    if not made.get("serviceAccountName") and not made.get("serviceAccount"):
        made.setdefault("automountServiceAccountToken", True)
    user = made.get("securityContext") or {}
    if not user.keys() & {"runAsUser", "runAsNonRoot"}:
        made["securityContext"] = {**user, "runAsNonRoot": False}
    return made


def _cron_workflow(source: _Source, new_name: str | None) -> list[Object]:
    name, namespace = _identity(source, new_name)
    spec = source.part("spec")
    workflow = spec.part("workflowSpec")
    reference = workflow.part("workflowTemplateRef")
    run = reference.text("name")
    if not run:
        raise spec.refuse(
            "workflowSpec",
            "Argo steps are not converted; write them as a Workflow, and name it in workflowTemplateRef",
        )
    arguments = workflow.part("arguments")
    input_ = _parameters(arguments)
    arguments.done()
    reference.done()
    for one in ("entrypoint", "serviceAccountName"):
        workflow.take(one)
    workflow.done()
    lines = spec.texts("schedules") or [spec.take("schedule")]
    made: Object = {
        "cron": [each for line in lines for each in _classic(spec, line, "schedules")],
        "timeZone": spec.text("timezone"),
        **_cron_options(spec),
        "workflowRunTemplate": {"spec": {"workflow": {"name": run}, **({"input": input_} if input_ else {})}},
    }
    made |= _newest_missed(spec.number("startingDeadlineSeconds", 0))
    if spec.take("when"):
        raise spec.refuse("when", "put the condition into the workflow, as `when` of its first step")
    spec.take("schedule")
    made |= _stop(spec, spec.part("stopStrategy"))
    spec.done()
    return [_schedule(name, namespace, made)]


def _parameters(arguments: _Source) -> Object:
    found: Object = {}
    for each in arguments.parts("parameters"):
        name = each.required("name", "name the parameter")
        value = each.take("value")
        found[name] = value.replace("${", "$${") if isinstance(value, str) else value
        each.done()
    return found


def _identity(source: _Source, new_name: str | None) -> tuple[str, str | None]:
    meta = source.part("metadata")
    name = new_name or meta.required("name", "set it, or use --name")
    return name, meta.text("namespace")


def _cron_options(spec: _Source) -> Object:
    policy = spec.text("concurrencyPolicy") or "Allow"
    if policy not in _CONCURRENCY:
        raise spec.refuse("concurrencyPolicy", f"must be Allow, Forbid or Replace, not {_shorten(policy)}")
    return {
        "overlapPolicy": _CONCURRENCY[policy],
        "paused": spec.flag("suspend"),
        "successfulRunsHistoryLimit": spec.number("successfulJobsHistoryLimit", 3),
        "failedRunsHistoryLimit": spec.number("failedJobsHistoryLimit", 1),
    }


def _classic(spec: _Source, line: Any, field: str) -> list[str]:
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


def _stop(spec: _Source, strategy: _Source) -> Object:
    """Convert Argo's stopStrategy if it stops after the first failure, as a pause does."""
    expression = strategy.text("expression") or strategy.text("condition")
    strategy.done()
    if expression is None:
        return {}
    if _FIRST_FAILURE.fullmatch(expression):
        return {"pauseOnFailure": True}
    raise spec.refuse(
        "stopStrategy",
        f"`{expression}` has no equivalent: `failed >= 1` becomes `pauseOnFailure: true`; to stop after a number of runs, set "
        "`remainingActions` in the new manifest",
    )


# Temporal


def _temporal(source: _Source, new_name: str | None) -> list[Object]:
    name = new_name or source.text("scheduleId") or source.text("schedule_id")
    if name is None:
        raise source.refuse(
            "scheduleId",
            "must be set, but the JSON of `temporal schedule describe` does not have it; set the name of the Schedule "
            "with --name",
        )
    schedule = source.part("schedule")
    spec, action = schedule.part("spec"), schedule.part("action")
    policies, state = schedule.part("policies"), schedule.part("state")
    workflow = action.part("startWorkflow")
    if not workflow.data:
        raise action.refuse("startWorkflow", "must be set: a Schedule can only start workflows")
    made = {
        **_temporal_times(spec),
        **_temporal_policies(policies, state),
        "workflowRunTemplate": {"spec": _temporal_run(workflow)},
    }
    annotations = {
        labels.START_ANNOTATION: _start_options(workflow),
        labels.CLIENT_ANNOTATION: {
            "memo": _payloads_by_name(source, "memo"),
            "searchAttributes": _search_attributes(source),
        },
    }
    for part in (spec, policies, state, workflow, action, schedule):
        part.done()
    converted = _schedule(_as_name(source, name), None, made)
    for annotation, options in annotations.items():
        kept = {key: value for key, value in options.items() if value}
        if kept:
            converted["metadata"].setdefault("annotations", {})[annotation] = json.dumps(kept, separators=(",", ":"))
    return [converted]


def _as_name(source: _Source, identity: str) -> str:
    """Convert a schedule ID to the name of an object: invalid characters become dashes."""
    name = re.sub("[^a-z0-9.-]+", "-", identity.lower()).strip("-.")
    if not name:
        raise source.refuse(
            "scheduleId", f"{_shorten(identity)} has no characters that are valid in a name; use --name"
        )
    return name


def _temporal_times(spec: _Source) -> Object:
    return {
        "cron": spec.texts("cronString"),
        "intervals": [_interval(each) for each in spec.parts("interval")],
        "calendars": _calendars(spec, "structuredCalendar", "calendar"),
        "exclude": _calendars(spec, "excludeStructuredCalendar", "excludeCalendar"),
        "startTime": spec.text("startTime"),
        "endTime": spec.text("endTime"),
        "jitter": spec.nonzero_duration("jitter"),
        "timeZone": spec.text("timezoneName"),
        "timeZoneData": spec.text("timezoneData"),
        "daylightSaving": {"skipped": "Skip", "repeated": "Both"},
    }


def _interval(interval: _Source) -> Object:
    every, offset = interval.duration("interval"), interval.nonzero_duration("phase")
    if every is None:
        raise interval.refuse("interval", "must be set; write a duration in seconds, such as `3600s`")
    interval.done()
    return {"every": every, **({"offset": offset} if offset else {})}


def _calendars(spec: _Source, structured: str, written: str) -> list[Object]:
    return [*map(_structured, spec.parts(structured)), *map(_text_calendar, spec.parts(written))]


def _structured(calendar: _Source) -> Object:
    """Convert a calendar of ranges, each with a start, an end, and a step. An empty list matches nothing, except for the year."""
    found: Object = _comment(calendar)
    for field, (low, high, _) in _CALENDAR.items():
        ranges = [_range(each) for each in calendar.parts(field)]
        if not ranges:
            written = f'[{{"start": {low}, "end": {high}}}]'
            raise calendar.refuse(field, f"is empty, which matches nothing in Temporal; to match all, write {written}")
        is_full = len(ranges) == 1 and ranges[0] == f"{low}-{high}"
        found[field] = "*" if is_full else ",".join(ranges)
    years = [_range(each) for each in calendar.parts("year")]
    calendar.done()
    return {**found, **({"year": ",".join(years)} if years else {})}


def _range(part: _Source) -> str:
    """Convert a range. Without an end, or with an end before its start, it is only the start."""
    start, end, step = part.number("start", 0), part.number("end", 0), part.number("step", 1) or 1
    part.done()
    if end <= start:
        return str(start)
    return f"{start}-{end}" if step == 1 else f"{start}-{end}/{step}"


def _text_calendar(calendar: _Source) -> Object:
    """Convert a calendar of texts, with Temporal's defaults expanded, because our exclusions have different defaults."""
    found: Object = _comment(calendar)
    for field, (_, _, default) in _CALENDAR.items():
        found[field] = calendar.text(field) or default
    year = calendar.text("year")
    calendar.done()
    return {**found, **({"year": year} if year else {})}


def _comment(calendar: _Source) -> Object:
    comment = calendar.text("comment")
    return {"comment": comment} if comment else {}


def _temporal_policies(policies: _Source, state: _Source) -> Object:
    policy = policies.take("overlapPolicy", "")
    word = str(policy).removeprefix("SCHEDULE_OVERLAP_POLICY_").upper().replace("_", "")
    policy = _BY_WORD.get(word)
    if policy is None:
        raise policies.refuse("overlapPolicy", f"{_shorten(policy)} is not supported; use one of {_WORDS}")
    policies.take("keepOriginalWorkflowId")
    limited, remaining = state.flag("limitedActions"), state.number("remainingActions", 0)
    return {
        "overlapPolicy": policy,
        "catchupWindow": policies.duration("catchupWindow") or _format_seconds(_YEAR),
        "pauseOnFailure": policies.flag("pauseOnFailure"),
        "paused": state.flag("paused"),
        "notes": state.text("notes"),
        "remainingActions": remaining if limited else None,
    }


def _temporal_run(workflow: _Source) -> Object:
    run: Object = {
        "workflow": {
            "type": workflow.part("workflowType").required("name", "name the type of the workflow"),
            "taskQueue": workflow.part("taskQueue").required("name", "name the queue that its workers poll"),
        }
    }
    identity = workflow.text("workflowId")
    if identity is not None:
        run["workflowId"] = identity
    for field, ours in (
        ("workflowExecutionTimeout", "executionTimeout"),
        ("workflowRunTimeout", "runTimeout"),
        ("workflowTaskTimeout", "taskTimeout"),
    ):
        value = workflow.nonzero_duration(field)
        if value is not None:
            run[ours] = value
    kept = _stored(_payloads(workflow))
    if kept is not None:
        run["input"] = kept
    attributes = _search_attributes(workflow)
    if attributes:
        run["searchAttributes"] = attributes
    workflow.take("workflowIdReusePolicy")
    return run


def _start_options(workflow: _Source) -> Object:
    """Convert the options of a start that a spec has no fields for (`StartExtras`)."""
    texts = workflow.part("userMetadata")
    metadata = {name: _stored([_payload(texts, name)]) for name in ("summary", "details") if name in texts.data}
    texts.done()
    return {
        "memo": _payloads_by_name(workflow, "memo"),
        "header": _payloads_by_name(workflow, "header"),
        "userMetadata": metadata,
        "priority": workflow.part("priority").data,
    }


def _payloads_by_name(source: _Source, name: str) -> Object:
    """Convert a memo or a header."""
    found = _entries(source, name, "fields")
    return {key: _stored([_payload(found, key)]) for key in list(found.data)}


def _entries(source: _Source, name: str, field: str) -> _Source:
    """Take a map of payloads, in the JSON of protobuf or in the short form, in which the values are JSON."""
    outer = source.part(name)
    return outer.part(field) if outer.data.keys() == {field} and isinstance(outer.data[field], dict) else outer


def _search_attributes(source: _Source) -> Object:
    attributes = _entries(source, "searchAttributes", "indexedFields")
    return {name: _attribute(attributes, name) for name in list(attributes.data)}


def _attribute(attributes: _Source, name: str) -> Any:
    """Convert a search attribute: a plain value if it implies its type, otherwise the value with its type."""
    kind, attribute = "", attributes.data[name]
    if _is_payload(attribute):
        kind = _metadata(_Source(attribute, f"{attributes.path}.{name}")).get("type", "")
    value = plain({"payloads": [_payload(attributes, name)]})
    if isinstance(value, float):
        return {"type": "Double", "value": str(value)}
    return {"type": kind, "value": value} if kind in {"Text", "Datetime", "Double"} else value


def _payloads(workflow: _Source) -> list[Any]:
    is_short = isinstance(workflow.data.get("input"), list)
    payloads = workflow.items("input") if is_short else workflow.part("input").items("payloads")
    named = _Source({f"payloads[{index}]": each for index, each in enumerate(payloads)}, f"{workflow.path}.input")
    return [_payload(named, name) for name in list(named.data)]


def _is_payload(value: Any) -> bool:
    """Whether a value is a payload in the JSON of protobuf; any other value is JSON that a payload contains."""
    return isinstance(value, dict) and "metadata" in value and value.keys() <= {"metadata", "data"}


def _payload(source: _Source, name: str) -> Object:
    """Take a payload, and convert it to the stored form: plain JSON as JSON, all others with their metadata in base64."""
    value = source.data.pop(name)
    if not _is_payload(value):
        return {"json": value}
    payload = _Source(value, source.path_of(name))
    metadata = _metadata(payload)
    if metadata == {"encoding": "json/plain"}:
        try:
            return {"json": json.loads(_decoded(payload, "data"))}
        except (ValueError, RecursionError) as error:
            raise payload.refuse("data", f"is not valid JSON: {error}; write it as JSON") from error
    data = payload.text("data")
    return {"metadata": metadata, **({"data": data} if data else {})}


def _metadata(payload: _Source) -> dict[str, str]:
    metadata = _Source(payload.data["metadata"], payload.path_of("metadata"))
    return {name: _decoded(metadata, name) for name in list(metadata.data)}


def _stored(payloads: list[Object]) -> Any:
    """Return payloads as a run has them: None for none, the value of one of plain JSON, otherwise all of them."""
    if not payloads:
        return None
    value = payloads[0].get("json")
    wrapped = isinstance(value, dict) and value.keys() == {"payloads"}
    return value if len(payloads) == 1 and value is not None and not wrapped else {"payloads": payloads}


def _decoded(source: _Source, field: str) -> str:
    """Decode the base64 text of a field."""
    try:
        return base64.b64decode(source.text(field) or "", validate=True).decode()
    except ValueError as error:
        raise source.refuse(field, f"is not valid base64: {error}; write the input as JSON") from error
