"""Names that Perdure derives: of pods (and of their Leases, which are called like the pod), and for label values.

A derived name is a lock: the same attempt gets the same name at every try, so that a second create finds the first. Hence
two different attempts must never share a name, and nothing but the arguments may go into it.
"""

import base64
import hashlib
import re
from typing import Final

NAME_LIMIT: Final = 63
"""Characters of a DNS-1123 label, and of a label value. A pod's name becomes its hostname, which is such a label."""

_DNS_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_NOT_DNS: Final = re.compile(r"[^a-z0-9]+")
_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_HASHED: Final = re.compile("h[a-z2-7]{5}")
_NOT_LABEL: Final = re.compile(r"[^-A-Za-z0-9_.]+")


def _digest(text: str, length: int = 10) -> str:
    """A letter and so many characters of a hash, of five bits each."""
    words = base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().lower()
    return "h" + words[:length]


def pod_name(run: str, scheduled_event_id: int, attempt: int) -> str:
    """Name the pod, and the Lease, of one attempt: ``<run>-<event>-<attempt>``.

    That form cannot collide, whatever runs are called: the two numbers hold no dash, so the last two dashes of the name
    say where the run's name ends (``a-1`` event 2 attempt 3 is ``a-1-2-3``; for the run ``a`` it would take four numbers).

    A run whose name is too long, or is no DNS label (run names may hold dots), gets
    ``<what fits of it>-<event>-<attempt>-h<hash of the name>``. The hash stands at the end and starts with a letter, where
    the first form has a number: no name of the one form is ever one of the other, and within the second the hash decides.

    Args:
        run: Name of the WorkflowRun.
        scheduled_event_id: Id of the ActivityTaskScheduled event.
        attempt: Number of the attempt, from 1.

    Returns:
        A DNS-1123 label of at most 63 characters, always the same for the same arguments.
    """
    numbers = f"-{scheduled_event_id}-{attempt}"
    plain = run + numbers
    if len(plain) <= NAME_LIMIT and _DNS_LABEL.fullmatch(plain):
        return plain
    ending = f"{numbers}-{_digest(run)}"
    readable = _NOT_DNS.sub("-", run.lower())[: NAME_LIMIT - len(ending)].strip("-")
    return f"{readable or 'run'}{ending}"


MAX_WORKFLOW_ID: Final = 1000
"""Characters of a workflow id, as in Temporal."""

MAX_RUN_NAME: Final = 253
"""Characters of a WorkflowRun's name."""


def child_name(parent: str, initiated_event_id: int) -> str:
    """Name the run of a child: ``<parent>-<event>``, with a hash where the parent's name leaves no room."""
    return _numbered(parent, f"-{initiated_event_id}")


_WORKFLOW_ID_HEAD: Final = 200
"""Characters that a workflow id begins with where it has to be shortened: enough to see where a child comes from."""


def child_workflow_id(parent: str, run_id: str, step: str) -> str:
    """Make the workflow id of a child that is given none: ``<parent>/<run id>/<step>``.

    The ids of children of children grow with each level. One that would be too long becomes ``<its beginning>/<hash of it>``,
    from which the next levels grow anew.

    Args:
        parent: Workflow id of the parent.
        run_id: Of the parent's run: each run of a chain has children of its own.
        step: Path of the step, unique in that run.

    Returns:
        At most 1,000 characters, always the same for the same arguments.
    """
    whole = f"{parent}/{run_id}/{step}"
    if len(whole) <= MAX_WORKFLOW_ID:
        return whole
    return f"{whole[:_WORKFLOW_ID_HEAD]}/{_digest(whole, 20)}"


def successor_name(name: str, uid: str) -> str:
    """Name the run that continues or retries another: ``<name>-<number>-<hash>``, the number one more than that of `name`.

    Args:
        name: Name of the run before, the first of a chain or one that was named here.
        uid: UID of the run before: the hash of it keeps the name apart from all that users give.
    """
    base, _, ending = name.rpartition("-")
    stem, _, number = base.rpartition("-")
    chained = stem and _HASHED.fullmatch(ending) and number.isdecimal()
    root, count = (stem, int(number) + 1) if chained else (name, 2)
    return _numbered(root, f"-{count}-{_digest(uid)[:6]}")


def dead_letter_name(run: str, uid: str, event_id: int) -> str:
    """Name a DeadLetter: ``<run>-<event>-<hash>``; the hash of the run's UID tells runs of one name apart."""
    return _numbered(run, f"-{event_id}-{_digest(uid)[:6]}")


def redrive_name(letter: str, number: int) -> str:
    """Name the run of the `number`-th re-drive of a DeadLetter: ``<letter>-redrive-<number>``."""
    return _numbered(letter, f"-redrive-{number}")


def _readable(text: str, otherwise: str, hashed: str) -> str:
    """What a label can hold of a text, or the other one where that is nothing, and the hash of what makes it unique."""
    ending = f"-{_digest(hashed)}"
    return (_NOT_DNS.sub("-", text.lower())[: NAME_LIMIT - len(ending)].strip("-") or otherwise) + ending


def started_name(workflow_id: str, operation_uid: str) -> str:
    """Name the run that an Operation starts: ``<what a name can hold of the workflow id>-<hash>``.

    Args:
        workflow_id: Its workflow id, any text.
        operation_uid: UID of the Operation: the hash of it makes the name a lock.

    Returns:
        A DNS-1123 label of at most 63 characters.
    """
    return _readable(workflow_id, "run", operation_uid)


_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


def is_name(text: str) -> bool:
    """Whether an object may be called so, but for the length: a DNS-1123 subdomain."""
    return _SUBDOMAIN.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Whether a text can be the value of a label."""
    return len(text) <= NAME_LIMIT and _LABEL_VALUE.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Whether a text can be the name of a label: a name of at most 63 characters, perhaps with a DNS subdomain before it."""
    prefix, slash, name = text.rpartition("/")
    if slash and not (is_name(prefix) and len(prefix) <= MAX_RUN_NAME):
        return False
    return bool(name) and is_label_value(name)


def schedule_name(schedule_id: str, longest: int) -> str:
    """Name the Schedule that a Temporal client knows by an id: the id itself where it is a name, else with a hash of it.

    Args:
        schedule_id: Any text.
        longest: Characters that the name may have.
    """
    if len(schedule_id) <= longest and is_name(schedule_id):
        return schedule_id
    return _readable(schedule_id, "schedule", schedule_id)


def batch_operation_name(job_id: str, run_id: str) -> str:
    """Name the Operation of one run of a batch: a lock, so that a batch that is asked for again asks each run once.

    Args:
        job_id: What the client calls the batch, any text.
        run_id: UID of the WorkflowRun.
    """
    return f"batch-{_digest(job_id)}-{_digest(run_id)}"


def segment_name(run: str, uid: str, index: int) -> str:
    """Name the HistorySegment of a run: ``<run>-<hash>-<index>``.

    The hash is of the run's UID: a run that was deleted and made anew under its name does not meet the segments of the one
    before, which are removed only after a while.

    Args:
        run: Name of the WorkflowRun.
        uid: Its UID.
        index: Number of the segment, from 0.
    """
    return _numbered(run, f"-{_digest(uid)}-{index:04}")


def reset_name(name: str, operation_uid: str, word: str = "reset") -> str:
    """Name the run that a reset or a retry makes of another: ``<name>-reset-<hash>``.

    Args:
        name: Name of the run that is reset; what an earlier reset or retry has added to it is left out.
        operation_uid: UID of the Operation that asks for it.
        word: What stands before the hash: ``reset`` or ``retry``.
    """
    base, _, ending = name.rpartition("-")
    stem, _, before = base.rpartition("-")
    root = stem if stem and before in {"reset", "retry"} and _HASHED.fullmatch(ending) else name
    return _numbered(root, f"-{word}-{_digest(operation_uid)[:6]}")


def _numbered(name: str, ending: str) -> str:
    if len(name) + len(ending) <= MAX_RUN_NAME:
        return f"{name}{ending}"
    ending = f"-{_digest(name)}{ending}"
    return f"{name[: MAX_RUN_NAME - len(ending)].rstrip('-.')}{ending}"


def label_value(text: str) -> str:
    """Make a valid label value of any text, the text itself where it is one.

    Labels are for selecting: where two texts must never be confused, compare the annotation or the UID beside the label.

    Args:
        text: For instance the name of a run, up to 253 characters.

    Returns:
        At most 63 characters; where something had to go, the ending is a hash of the whole text.
    """
    if len(text) <= NAME_LIMIT and _LABEL_VALUE.fullmatch(text):
        return text
    ending = f"-{_digest(text)}"
    readable = _NOT_LABEL.sub("-", text)[: NAME_LIMIT - len(ending)].strip("-_.")
    return f"{readable}{ending}".lstrip("-")
