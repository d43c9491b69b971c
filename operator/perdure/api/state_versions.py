"""State versions: they count the changes of the form in which operators store objects, not releases.

Everything that an operator stores carries the version of its form. An operator reads all versions up to its newest one, and does
nothing with an object of a higher one. A fleet writes the lowest version that all of its operators read, so that `helm rollback`
right after an upgrade is safe (`controller/upgrades.py`). To change a stored form, add a version here: a field that an
operator does not know is as unreadable for it as a higher version. tests/golden/forms has objects of each version.

| state version | since | change |
| --- | --- | --- |
| 1 | before 0.1.0 | objects do not carry a version |
| 2 | 0.1.0 | `stateVersion` in objects and messages; the digest of a status covers it |
| 3 | 0.2.0 | WorkflowRevisions; `continuedFailure` in the options of a start; loads of task queues; WorkerDeployments; names of |
|   |       | Workflows in other namespaces; services of steps; progress of backfills; rates that count attempts |

What users write into a spec is stored with the run, too. A new field there is refused as any other. A new value of a field that
an older operator knows is not: it takes the run for damaged. So a run with such a value is stored in the version that knows it
(`needed`), and the hold-back does not apply to it.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from perdure.api.json_values import mapping

OLDEST: Final = 1
"""The oldest version that this operator reads."""
NEWEST: Final = 3
"""The newest version that this operator reads and writes."""
REVISIONS: Final = 3
"""From this version on, runs refer to WorkflowRevisions."""
CONTINUED_FAILURES: Final = 3
"""From this version on, the options of a start have a place for `continuedFailure`."""
QUEUE_LOADS: Final = 3
"""From this version on, a member tells others the loads of its task queues."""
BACKFILLS: Final = 3
"""From this version on, a Schedule has the progress of its backfills, and a pause holds them."""
SERVICES: Final = 3
"""From this version on, definitions can have services of steps, and the state of a run has their addresses."""
ATTEMPT_RATES: Final = 3
"""From this version on, the status of a WorkflowLimit has the attempts that its rate counts."""
FOREIGN_WORKFLOWS: Final = 3
"""From this version on, `workflow.name` of a run and of a child workflow can name a Workflow of another namespace."""
FIELD: Final = "stateVersion"
"""The field with the version, in the status of an object, or in the spec of one that only operators write."""
_FIRST_WITH_FIELD: Final = 2
_UNKNOWN: Final = NEWEST + 1
"""What a version that is not valid counts as: no known operator has written it."""
_FORM: Final = re.compile(r"\d{1,3}", re.ASCII)
"""The form of a version. One with more digits would take more changes than there will ever be."""


def version_of(part: Mapping[str, Any]) -> int:
    """The version of a status or a spec. One that is not valid counts as newer than all known ones."""
    found = part.get(FIELD, OLDEST)
    is_valid = isinstance(found, int) and not isinstance(found, bool) and found >= OLDEST
    return found if is_valid else _UNKNOWN


def parse_version(text: str | None) -> int:
    """Read the version that operators have agreed on, or that one of them reads; 1 if it is missing or not valid."""
    return max(int(text), OLDEST) if text and _FORM.fullmatch(text) else OLDEST


def version_in(text: str | None) -> int:
    """Read the version of some content from an annotation or a header, as `version_of` does from a field."""
    return parse_version(text) if not text or _FORM.fullmatch(text) else _UNKNOWN


def unreadable(version: int, reads: int) -> str:
    """Say why an operator that reads versions up to `reads` cannot read one; empty if it can."""
    return "" if version <= reads else f"state version {version}, and this operator reads versions {OLDEST} to {reads}"


def unknown_in(part: Mapping[str, Any], known: Collection[str], at: str = "spec") -> str:
    """Name a field of a stored part that this version does not know; empty if it knows all of them."""
    unknown = sorted(set(part) - set(known))
    return f"unknown field `{at}.{unknown[0]}`" if unknown else ""


def needed(spec: Mapping[str, Any], definition: Any) -> int:
    """The lowest version whose operators know all values in the spec of a run and in the definition that its status has."""
    parts = [spec.get("inline"), definition]
    is_foreign = _names_foreign(spec.get("workflow")) or _has_foreign_child([parts])
    has_services = any(map(_has_services, parts))
    return max(FOREIGN_WORKFLOWS if is_foreign else OLDEST, SERVICES if has_services else OLDEST)


def _has_services(definition: Any) -> bool:
    blocks = mapping(definition).get("blocks")
    lists = [definition, *(blocks if isinstance(blocks, list) else ())]
    return any(mapping(each).get("services") for each in lists)


def _names_foreign(workflow: Any) -> bool:
    return "/" in str(mapping(workflow).get("name") or "")


def _has_foreign_child(parts: list[Any]) -> bool:
    while parts:  # iterative, because values can nest deeply
        level = [each for part in parts for each in (part.values() if isinstance(part, dict) else part)]
        parts = [each for each in level if isinstance(each, dict | list)]
        if any(_names_foreign(mapping(mapping(each).get("childWorkflow")).get("workflow")) for each in parts):
            return True
    return False


def range_text(reads: int) -> str:
    """The versions that an operator reads, such as `1-2`, as its Lease names them."""
    return f"{OLDEST}-{reads}"


def newest_in(versions: str) -> int:
    """The newest version of such a range; 1 if it is missing or not valid."""
    return parse_version(versions.rpartition("-")[2])


def stamped(part: Mapping[str, Any], version: int) -> dict[str, Any]:
    """A status or a spec with its version; one of version 1 has no field for it."""
    rest = {key: value for key, value in part.items() if key != FIELD}
    return rest if version < _FIRST_WITH_FIELD else {**rest, FIELD: version}
