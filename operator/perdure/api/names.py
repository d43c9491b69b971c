"""Deterministic names: of runs, of pods (and of their Leases, which have the same name), and label values.

A deterministic name is a lock: the same attempt always gets the same name, so that a second create finds the first. Hence two
different attempts must never share a name, and a name must depend on nothing but the arguments.
"""

import base64
import hashlib
import re
from typing import Final

NAME_LIMIT: Final = 63
"""Maximum length of a DNS-1123 label, and of a label value. The name of a pod becomes its hostname, which is such a label."""

_DNS_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_NOT_DNS: Final = re.compile(r"[^a-z0-9]+")
_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_HASHED: Final = re.compile("h[a-z2-7]{5}")
_NOT_LABEL: Final = re.compile(r"[^-A-Za-z0-9_.]+")


DEFAULTS_NAME: Final = "default"
"""The name of the WorkflowDefaults of a namespace."""


def _digest(text: str, length: int = 10) -> str:
    """Return a letter and `length` characters of a hash, of five bits each."""
    words = base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().lower()
    return "h" + words[:length]


def pod_name(run: str, scheduled_event_id: int, attempt: int) -> str:
    """Name the pod, and the Lease, of one attempt: ``<run>-<event>-<attempt>``.

    Names of this form cannot collide: the numbers contain no dash, so the last two dashes mark the end of the run's name
    (``a-1`` event 2 attempt 3 is ``a-1-2-3``; for the run ``a`` that would need three numbers).

    A run whose name is too long or not a DNS label (run names can contain dots) gets
    ``<start of it>-<event>-<attempt>-h<hash of the name>``. The hash is last and begins with a letter, where the first form has
    a number, so no name matches both forms. Within the second form, the hash prevents collisions.

    Args:
        run: Name of the WorkflowRun.
        scheduled_event_id: ID of the ActivityTaskScheduled event.
        attempt: Number of the attempt; the first is 1.

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


def service_name(run: str, service: str, scheduled_event_id: int) -> str:
    """Name the Kubernetes Service of a service of steps: ``<run>-<service>-<event>``.

    Names of services in Kubernetes begin with a letter. If the name of the run does not, contains dots, or is too long, a hash of
    it comes first.

    Args:
        run: Name of the WorkflowRun.
        service: Name of the service.
        scheduled_event_id: ID of the ActivityTaskScheduled event of its pod.

    Returns:
        A DNS-1035 label of at most 63 characters, always the same for the same arguments.
    """
    ending = f"-{service}-{scheduled_event_id}"
    plain = run + ending
    if len(plain) <= NAME_LIMIT and _DNS_LABEL.fullmatch(plain) and plain[0].isalpha():
        return plain
    readable = _NOT_DNS.sub("-", run.lower())[: NAME_LIMIT - len(ending) - len(_digest(run)) - 1].strip("-")
    return f"{_digest(run)}-{readable}{ending}" if readable else f"{_digest(run)}{ending}"


MAX_WORKFLOW_ID: Final = 1000
"""Maximum length of a workflow ID, as in Temporal."""

MAX_RUN_NAME: Final = 253
"""Maximum length of the name of a WorkflowRun."""


def child_name(parent: str, initiated_event_id: int) -> str:
    """Name the run of a child: ``<parent>-<event>``, with a hash if the name of the parent is too long."""
    return _numbered(parent, f"-{initiated_event_id}")


_WORKFLOW_ID_HEAD: Final = 200
"""How many characters of a workflow ID to keep if it must be shortened: enough to recognize the parent."""


def child_workflow_id(parent: str, run_id: str, step: str) -> str:
    """Return the default workflow ID of a child: ``<parent>/<run id>/<step>``.

    The IDs grow with each level of children. One that would be too long becomes ``<its start>/<hash of it>``.

    Args:
        parent: Workflow ID of the parent.
        run_id: Run ID of the parent, because each run of a chain has its own children.
        step: Path of the step, unique in that run.

    Returns:
        At most 1,000 characters, always the same for the same arguments.
    """
    full = f"{parent}/{run_id}/{step}"
    if len(full) <= MAX_WORKFLOW_ID:
        return full
    return f"{full[:_WORKFLOW_ID_HEAD]}/{_digest(full, 20)}"


def successor_name(name: str, uid: str) -> str:
    """Name the run that continues or retries another: ``<name>-<number>-<hash>``, with the number of `name` plus one.

    Args:
        name: Name of the previous run: the first of a chain, or a name from this function.
        uid: UID of the previous run. Its hash prevents collisions with names from users.
    """
    base, _, ending = name.rpartition("-")
    stem, _, number = base.rpartition("-")
    chained = stem and _HASHED.fullmatch(ending) and number.isdecimal()
    root, count = (stem, int(number) + 1) if chained else (name, 2)
    return _numbered(root, f"-{count}-{_digest(uid)[:6]}")


def dead_letter_name(run: str, uid: str, event_id: int) -> str:
    """Name a DeadLetter: ``<run>-<event>-<hash>``, with a hash of the run's UID, because names of runs are reused."""
    return _numbered(run, f"-{event_id}-{_digest(uid)[:6]}")


def claim_name(run: str, uid: str, workspace: str) -> str:
    """Name the PersistentVolumeClaim of a workspace: ``<run>-<workspace>-<hash>``.

    The hash is of the run's UID, because names of runs are reused, and of the workspace, because both names can contain dashes.
    """
    return _numbered(run, f"-{workspace}-{_digest(f'{uid}/{workspace}')[:6]}")


def redrive_name(letter: str, number: int) -> str:
    """Name the run of the `number`-th re-drive of a DeadLetter: ``<letter>-redrive-<number>``."""
    return _numbered(letter, f"-redrive-{number}")


def _readable(text: str, otherwise: str, hashed: str) -> str:
    """Return the valid characters of a text (`otherwise` if there are none), and a hash that makes it unique."""
    ending = f"-{_digest(hashed)}"
    return (_NOT_DNS.sub("-", text.lower())[: NAME_LIMIT - len(ending)].strip("-") or otherwise) + ending


def started_name(workflow_id: str, operation_uid: str) -> str:
    """Name the run that an Operation starts: ``<valid characters of the workflow ID>-<hash>``.

    Args:
        workflow_id: Its workflow ID, any text.
        operation_uid: UID of the Operation. Its hash makes the name a lock.

    Returns:
        A DNS-1123 label of at most 63 characters.
    """
    return _readable(workflow_id, "run", operation_uid)


def delivery_name(webhook: str, uid: str, delivery_id: str) -> str:
    """Name the run or the Operation that a request to a Webhook creates: ``<webhook>-<hash>``.

    Args:
        webhook: Name of the Webhook.
        uid: Its UID.
        delivery_id: ID of the request. Its hash makes the name a lock.

    Returns:
        A DNS-1123 label of at most 63 characters.
    """
    return _readable(webhook, "webhook", f"{uid}/{delivery_id}")


_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


def is_name(text: str) -> bool:
    """Whether a text is a valid object name (a DNS-1123 subdomain), of any length."""
    return _SUBDOMAIN.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Whether a text is a valid label value."""
    return len(text) <= NAME_LIMIT and _LABEL_VALUE.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Whether a text is a valid label key: a name of at most 63 characters, optionally with a DNS subdomain as prefix."""
    prefix, slash, name = text.rpartition("/")
    if slash and not (is_name(prefix) and len(prefix) <= MAX_RUN_NAME):
        return False
    return bool(name) and is_label_value(name)


MAX_SCHEDULE_NAME: Final = 220
"""Maximum length of the name of a Schedule, because its runs append their time."""


def schedule_name(schedule_id: str) -> str:
    """Name the Schedule with an ID from a Temporal client: the ID if it is a valid name, otherwise with a hash of it.

    The name of a Schedule names itself.
    """
    if len(schedule_id) <= MAX_SCHEDULE_NAME and is_name(schedule_id):
        return schedule_id
    return _readable(schedule_id, "schedule", schedule_id)


def batch_operation_name(job_id: str, run_id: str) -> str:
    """Name the Operation of one run of a batch. The name is a lock: a batch that is requested twice applies once to each run.

    Args:
        job_id: The job ID from the client, any text.
        run_id: UID of the WorkflowRun.
    """
    return f"batch-{_digest(job_id)}-{_digest(run_id)}"


def segment_name(run: str, uid: str, index: int) -> str:
    """Name the HistorySegment of a run: ``<run>-<hash>-<index>``.

    The hash is of the run's UID: if a run is deleted and re-created with the same name, its segments do not collide with those
    of the deleted run, which are garbage-collected later.

    Args:
        run: Name of the WorkflowRun.
        uid: Its UID.
        index: Number of the segment; the first is 0.
    """
    return _numbered(run, f"-{_digest(uid)}-{index:04}")


def reset_name(name: str, operation_uid: str, word: str = "reset") -> str:
    """Name the run that a reset or a retry creates: ``<name>-reset-<hash>``.

    Args:
        name: Name of the run that is reset; the suffix of an earlier reset or retry is removed.
        operation_uid: UID of the Operation that requests it.
        word: The word before the hash: ``reset`` or ``retry``.
    """
    base, _, ending = name.rpartition("-")
    stem, _, before = base.rpartition("-")
    root = stem if stem and before in {"reset", "retry"} and _HASHED.fullmatch(ending) else name
    return _numbered(root, f"-{word}-{_digest(operation_uid)[:6]}")


def _numbered(name: str, suffix: str) -> str:
    if len(name) + len(suffix) <= MAX_RUN_NAME:
        return f"{name}{suffix}"
    suffix = f"-{_digest(name)}{suffix}"
    return f"{name[: MAX_RUN_NAME - len(suffix)].rstrip('-.')}{suffix}"


def label_value(text: str) -> str:
    """Convert any text to a valid label value; a valid one stays the same.

    Labels are for selectors. To compare two texts reliably, use the annotation or the UID that accompanies the label.

    Args:
        text: Such as the name of a run, up to 253 characters.

    Returns:
        At most 63 characters; ends with a hash of the whole text if characters were removed.
    """
    if len(text) <= NAME_LIMIT and _LABEL_VALUE.fullmatch(text):
        return text
    ending = f"-{_digest(text)}"
    readable = _NOT_LABEL.sub("-", text)[: NAME_LIMIT - len(ending)].strip("-_.")
    return f"{readable}{ending}".lstrip("-")


def artifact_file(name: str, archive: str) -> str:
    """The end of the key of an output artifact in its store.

    Args:
        name: Name of the artifact.
        archive: How it is packed, `Tar` or `None`.
    """
    return f"{name}.tar.gz" if archive == "Tar" else name


def artifact_folder(namespace: str, run_id: str, *, kept: bool = False) -> str:
    """The beginning of the keys of all output artifacts of a run in their store. Kept ones are not deleted with the run.

    Args:
        namespace: Namespace of the WorkflowRun.
        run_id: Its UID.
        kept: Whether it is the folder of the kept artifacts.
    """
    return f"{namespace}/kept/{run_id}" if kept else f"{namespace}/{run_id}"


RESULT_ARTIFACT: Final = "result.json"
"""The name of a large result among the artifacts of an attempt."""
LOG_ARTIFACT: Final = "log.gz"
"""The name of an archived log among the artifacts of an attempt. Names of output artifacts have no dots."""
ARTIFACT_FIELD: Final = "perdure.dev/artifact"
"""The field of an object in a result that names an output artifact: the operator replaces it by the fields of its reference."""
FILES_FIELD: Final = "perdure.dev/files"
"""The field of the arguments of an activity of a flow with the references to the files in them, which are its input artifacts."""


def log_key(namespace: str, run_id: str, scheduled_event_id: int | str, attempt: int | str) -> str:
    """The key of the archived log of an attempt in its store.

    Args:
        namespace: Namespace of the WorkflowRun.
        run_id: Its UID.
        scheduled_event_id: ID of the ActivityTaskScheduled event.
        attempt: Number of the attempt.
    """
    return f"{artifact_folder(namespace, run_id)}/{scheduled_event_id}-{attempt}/{LOG_ARTIFACT}"


_ATTEMPT_OF_POD: Final = re.compile(r".*-(\d+)-(\d+)(?:-h[a-z2-7]{10})?")


def attempt_in(pod: str) -> tuple[int, int]:
    """Return the ID of the ActivityTaskScheduled event and the number of the attempt in the name of a pod.

    Args:
        pod: A name from `pod_name`.
    """
    found = _ATTEMPT_OF_POD.fullmatch(pod)
    assert found is not None, "it is the name of a pod of an attempt"
    return int(found[1]), int(found[2])


def artifact_set_name(run_id: str) -> str:
    """Name the ArtifactSet of a run.

    Args:
        run_id: UID of the WorkflowRun.
    """
    return f"artifacts-{run_id}"


def revision_name(workflow: str | None, content_hash: str) -> str:
    """Name a WorkflowRevision: ``<workflow>-<start of the hash>``.

    Args:
        workflow: Name of the Workflow; None for a definition of a run that has its own.
        content_hash: SHA-256 of the content, which includes the name of the Workflow, in hexadecimal digits.
    """
    ending = f"-{content_hash[:12]}"
    readable = (workflow or "inline").replace("/", ".")[: MAX_RUN_NAME - len(ending)].rstrip("-.")
    return f"{readable}{ending}"


def cached_result_name(activity: str, definition_hash: str, key: str) -> str:
    """Name the CachedResult of an activity: ``<activity>-<hash>``.

    Args:
        activity: Name of the activity.
        definition_hash: Hash of its work.
        key: Value of its key.
    """
    return _readable(activity, "result", f"{activity}/{definition_hash}/{key}")


def deletion_pod_name(unique: str) -> str:
    """Name a pod that deletes artifacts.

    Args:
        unique: A text that nobody can guess, so that no other pod takes the name first.
    """
    return f"perdure-artifact-deletion-{_digest(unique)}"


def worker_version_name(name: str, build_id: str) -> str:
    """Name the Deployment of a version of a WorkerDeployment: ``<name>-<valid characters of the build ID>-<hash>``.

    Args:
        name: Name of the WorkerDeployment, at most 63 characters.
        build_id: The build ID. Its hash makes the name unique, because build IDs can contain dots and capital letters.

    Returns:
        A DNS-1123 label of at most 53 characters, so that the names of its pods are complete.
    """
    ending = f"-{_digest(build_id)[:6]}"
    readable = f"{name[:_WORKERS_HEAD].strip('-')}-{_NOT_DNS.sub('-', build_id.lower())}"
    ending = ending if len(name) <= _WORKERS_HEAD else f"-{_digest(f'{name}/{build_id}')}"
    return readable[: _WORKERS_LIMIT - len(ending)].strip("-") + ending


_WORKERS_LIMIT: Final = 53
_WORKERS_HEAD: Final = 32

SYSTEM_NAMESPACE = "perdure-system"
"""The default namespace of the operators."""

FRONTEND_SERVICE = "perdure-temporal"
"""The default Service of the Temporal frontend."""

FRONTEND_AUDIENCE = "perdure.dev/temporal"
"""The default audience of tokens for the frontend."""
