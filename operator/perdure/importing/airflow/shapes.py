"""Checks the fields of serialized DAGs that the import reads, so that one of another form is reported at its place."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from perdure.importing.reader import Fields, format_value

_PAIR: Final = 2
_LONGEST: Final = 1e11
"""Maximum of a time and of a duration, in seconds."""


def seconds(value: Any) -> float | None:
    """Return a time or a duration in seconds, which Airflow writes as a number with or without its type; None if it is none."""
    number = value.get("__var") if isinstance(value, dict) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= _LONGEST:
        return None
    return float(number)


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _are_params(value: Any) -> bool:
    pairs = list(value.items()) if isinstance(value, dict) else value
    return isinstance(pairs, list) and all(
        isinstance(each, list | tuple) and len(each) == _PAIR and isinstance(each[0], str) and each[0] for each in pairs
    )


_Shape = tuple[str, Callable[[Any], bool]]
_TEXT: Final[_Shape] = ("a string", _is(str))
_NUMBER: Final[_Shape] = ("a whole number", _is(int))
_MAP: Final[_Shape] = ("a map", _is(dict))
_LIST: Final[_Shape] = ("a list", _is(list))
_TEXTS: Final[_Shape] = (
    "a list of strings",
    lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
)
_SECONDS: Final[_Shape] = ("a number of seconds", lambda value: seconds(value) is not None)
_OF_KUBERNETES: Final[_Shape] = ("a list, a map, or a text of Python", _is(list, dict, str))
OF_DAG: Final[Mapping[str, _Shape]] = {
    **dict.fromkeys(("dag_id", "_dag_id"), _TEXT),
    **dict.fromkeys(("max_active_runs", "max_active_tasks", "_max_active_tasks"), _NUMBER),
    **dict.fromkeys(("dagrun_timeout", "start_date", "end_date"), _SECONDS),
    "params": ("a list of names and values", _are_params),
    "tasks": _LIST,
    "timetable": _MAP,
}
"""The fields of a DAG."""
OF_TASK: Final[Mapping[str, _Shape]] = {
    **dict.fromkeys(("image", "trigger_rule", "task_type", "_task_type"), _TEXT),
    **dict.fromkeys(("cmds", "arguments", "configmaps", "downstream_task_ids", "_downstream_task_ids"), _TEXTS),
    **dict.fromkeys(("labels", "annotations", "node_selector", "partial_kwargs", "expand_input"), _MAP),
    **dict.fromkeys(("retry_delay", "max_retry_delay", "execution_timeout"), _SECONDS),
    **dict.fromkeys(("env_vars", "env_from", "volumes", "volume_mounts", "container_resources"), _OF_KUBERNETES),
    "retries": _NUMBER,
    "retry_exponential_backoff": ("true, false, or a number", lambda value: isinstance(value, bool | int | float)),
}
"""The fields of a task."""


def check(fields: Fields, shapes: Mapping[str, _Shape]) -> None:
    """Take the fields that have another form than Airflow writes, and report each."""
    for name, (expected, fits) in shapes.items():
        value = fields.data.get(name)
        if value is not None and not fits(value):
            fields.gap(name, f"must be {expected}, not {format_value(value)}")
            fields.drop(name)
