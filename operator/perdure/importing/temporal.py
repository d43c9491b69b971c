"""Converts a schedule of Temporal, as the JSON of `temporal schedule describe`."""

import base64
import json
import re
from typing import Any

from perdure.api import labels
from perdure.engine.payloads import plain
from perdure.importing.cron import YEAR, schedule_manifest
from perdure.importing.reader import Object, Source, format_seconds, shorten

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


def temporal_schedule(source: Source, new_name: str | None) -> list[Object]:
    """Convert a schedule of Temporal to a Schedule.

    Args:
        source: The JSON of `temporal schedule describe`.
        new_name: Name of the Schedule; None for the ID of the original.

    Raises:
        UnsupportedScheduleError: A field has no equivalent, or the name is missing.
    """
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
        **_times(spec),
        **_policies(policies, state),
        "workflowRunTemplate": {"spec": _run(workflow)},
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
    converted = schedule_manifest({"name": _as_name(source, name)}, made)
    for annotation, options in annotations.items():
        kept = {key: value for key, value in options.items() if value}
        if kept:
            converted["metadata"].setdefault("annotations", {})[annotation] = json.dumps(kept, separators=(",", ":"))
    return [converted]


def _as_name(source: Source, identity: str) -> str:
    """Convert a schedule ID to the name of an object: invalid characters become dashes."""
    name = re.sub("[^a-z0-9.-]+", "-", identity.lower()).strip("-.")
    if not name:
        raise source.refuse("scheduleId", f"{shorten(identity)} has no characters that are valid in a name; use --name")
    return name


def _times(spec: Source) -> Object:
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


def _interval(interval: Source) -> Object:
    every, offset = interval.duration("interval"), interval.nonzero_duration("phase")
    if every is None:
        raise interval.refuse("interval", "must be set; write a duration in seconds, such as `3600s`")
    interval.done()
    return {"every": every, **({"offset": offset} if offset else {})}


def _calendars(spec: Source, structured: str, written: str) -> list[Object]:
    return [*map(_structured, spec.parts(structured)), *map(_text_calendar, spec.parts(written))]


def _structured(calendar: Source) -> Object:
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


def _range(part: Source) -> str:
    """Convert a range. Without an end, or with an end before its start, it is only the start."""
    start, end, step = part.number("start", 0), part.number("end", 0), part.number("step", 1) or 1
    part.done()
    if end <= start:
        return str(start)
    return f"{start}-{end}" if step == 1 else f"{start}-{end}/{step}"


def _text_calendar(calendar: Source) -> Object:
    """Convert a calendar of texts, with Temporal's defaults expanded, because our exclusions have different defaults."""
    found: Object = _comment(calendar)
    for field, (_, _, default) in _CALENDAR.items():
        found[field] = calendar.text(field) or default
    year = calendar.text("year")
    calendar.done()
    return {**found, **({"year": year} if year else {})}


def _comment(calendar: Source) -> Object:
    comment = calendar.text("comment")
    return {"comment": comment} if comment else {}


def _policies(policies: Source, state: Source) -> Object:
    policy = policies.take("overlapPolicy", "")
    word = str(policy).removeprefix("SCHEDULE_OVERLAP_POLICY_").upper().replace("_", "")
    policy = _BY_WORD.get(word)
    if policy is None:
        raise policies.refuse("overlapPolicy", f"{shorten(policy)} is not supported; use one of {_WORDS}")
    policies.take("keepOriginalWorkflowId")
    limited, remaining = state.flag("limitedActions"), state.number("remainingActions", 0)
    return {
        "overlapPolicy": policy,
        "catchupWindow": policies.duration("catchupWindow") or format_seconds(YEAR),
        "pauseOnFailure": policies.flag("pauseOnFailure"),
        "paused": state.flag("paused"),
        "notes": state.text("notes"),
        "remainingActions": remaining if limited else None,
    }


def _run(workflow: Source) -> Object:
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


def _start_options(workflow: Source) -> Object:
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


def _payloads_by_name(source: Source, name: str) -> Object:
    """Convert a memo or a header."""
    found = _entries(source, name, "fields")
    return {key: _stored([_payload(found, key)]) for key in list(found.data)}


def _entries(source: Source, name: str, field: str) -> Source:
    """Take a map of payloads, in the JSON of protobuf or in the short form, in which the values are JSON."""
    outer = source.part(name)
    return outer.part(field) if outer.data.keys() == {field} and isinstance(outer.data[field], dict) else outer


def _search_attributes(source: Source) -> Object:
    attributes = _entries(source, "searchAttributes", "indexedFields")
    return {name: _attribute(attributes, name) for name in list(attributes.data)}


def _attribute(attributes: Source, name: str) -> Any:
    """Convert a search attribute: a plain value if it implies its type, otherwise the value with its type."""
    kind, attribute = "", attributes.data[name]
    if _is_payload(attribute):
        kind = _metadata(Source(attribute, f"{attributes.path}.{name}")).get("type", "")
    value = plain({"payloads": [_payload(attributes, name)]})
    if isinstance(value, float):
        return {"type": "Double", "value": str(value)}
    return {"type": kind, "value": value} if kind in {"Text", "Datetime", "Double"} else value


def _payloads(workflow: Source) -> list[Any]:
    is_short = isinstance(workflow.data.get("input"), list)
    payloads = workflow.items("input") if is_short else workflow.part("input").items("payloads")
    named = Source({f"payloads[{index}]": each for index, each in enumerate(payloads)}, f"{workflow.path}.input")
    return [_payload(named, name) for name in list(named.data)]


def _is_payload(value: Any) -> bool:
    """Whether a value is a payload in the JSON of protobuf; any other value is JSON that a payload contains."""
    return isinstance(value, dict) and "metadata" in value and value.keys() <= {"metadata", "data"}


def _payload(source: Source, name: str) -> Object:
    """Take a payload, and convert it to the stored form: plain JSON as JSON, all others with their metadata in base64."""
    value = source.data.pop(name)
    if not _is_payload(value):
        return {"json": value}
    payload = Source(value, source.path_of(name))
    metadata = _metadata(payload)
    if metadata == {"encoding": "json/plain"}:
        try:
            return {"json": json.loads(_decoded(payload, "data"))}
        except (ValueError, RecursionError) as error:
            raise payload.refuse("data", f"is not valid JSON: {error}; write it as JSON") from error
    data = payload.text("data")
    return {"metadata": metadata, **({"data": data} if data else {})}


def _metadata(payload: Source) -> dict[str, str]:
    metadata = Source(payload.data["metadata"], payload.path_of("metadata"))
    return {name: _decoded(metadata, name) for name in list(metadata.data)}


def _stored(payloads: list[Object]) -> Any:
    """Return payloads as a run has them: None for none, the value of one of plain JSON, otherwise all of them."""
    if not payloads:
        return None
    value = payloads[0].get("json")
    wrapped = isinstance(value, dict) and value.keys() == {"payloads"}
    return value if len(payloads) == 1 and value is not None and not wrapped else {"payloads": payloads}


def _decoded(source: Source, field: str) -> str:
    """Decode the base64 text of a field."""
    try:
        return base64.b64decode(source.text(field) or "", validate=True).decode()
    except ValueError as error:
        raise source.refuse(field, f"is not valid base64: {error}; write the input as JSON") from error
