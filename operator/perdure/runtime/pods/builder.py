"""The Pod of an attempt: the user's container or template, completed with what an activity needs.

An activity with `http` or `resource` gets a container of Perdure's runner. A retry can prefer other nodes.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from perdure.api import labels
from perdure.api.kinds.workflow import Activity, PodRetention, Retention
from perdure.api.labels import API_VERSION
from perdure.api.names import label_value, pod_name
from perdure.api.pod_patches import patched
from perdure.api.pods import DEFAULT_CONTAINER, FILES_PATH, MOUNT_PATH, SCRIPT_PATH, VOLUME, WORK_PATH
from perdure.runtime.attempts import (
    Attempt,
    InvalidDefinitionError,
    KubeObject,
    PayloadTooLargeError,
    PodSettings,
    RunRef,
    add_pull_secrets,
    without_reserved,
)
from perdure.runtime.pods import payloads
from perdure.runtime.pods.commands import order_containers, script_container
from perdure.runtime.pods.services import service_label
from perdure.runtime.pods.sidecar import mount_files, sidecar_container

INPUT_FILE: Final = f"{MOUNT_PATH}/input.json"
"""The input of the activity, as JSON."""

LAST_HEARTBEAT_DETAILS_FILE: Final = f"{MOUNT_PATH}/last-heartbeat-details.json"
"""The heartbeat details of an earlier attempt, JSON; the file does not exist if there are none."""

DEFAULT_TERMINATION_LOG: Final = "/dev/termination-log"
"""The file from which Kubernetes reads the termination message of a container."""

LONGEST_DEADLINE: Final = 2**31 - 1
"""Seconds; the maximum of `activeDeadlineSeconds` and `leaseDurationSeconds`."""

_NO_RUN: Final = "00000000-0000-0000-0000-000000000000"

_OURS: Final = f"{labels.GROUP}/"

_RUNNER_RESOURCES: Final = {"requests": {"cpu": "10m", "memory": "64Mi"}}
DEFAULT_CONTAINER_ANNOTATION: Final = "kubectl.kubernetes.io/default-container"
"""The container that `kubectl logs` shows: the activity's own, unless the template sets another one."""


def main_container_name(definition: Activity) -> str:
    """Return the name of the container that is the activity.

    Readers find it by this name, not by its position, because webhooks may inject sidecars before it.

    Args:
        definition: The activity's definition.

    Returns:
        The name of the first container of the definition.
    """
    if definition.pod_template is not None:
        name = _containers(definition.pod_template.spec.dump())[0].get("name")
    else:
        container = definition.container or definition.script
        name = container.dump().get("name") if container is not None else None
    return str(name or DEFAULT_CONTAINER)


def build_pod(run: RunRef, attempt: Attempt, definition: Activity, settings: PodSettings) -> KubeObject:
    """Build the Pod of one attempt. The same arguments always give the same Pod.

    It keeps the settings of the user, except for those of an attempt: the pod never restarts, it has our name, labels,
    annotations, owner, and finalizer, and the `PERDURE_` variables listed here are ours.

    Args:
        run: The run that the attempt belongs to.
        attempt: The attempt.
        definition: The activity's definition; not modified.
        settings: The operator's settings.

    Returns:
        A v1 Pod to create.

    Raises:
        PayloadTooLargeError: Input and heartbeat details are too large for the pod's annotations.
        InvalidDefinitionError: The definition is not a valid pod.
    """
    spec = _pod_spec(definition, settings)
    main = _containers(spec)[0]
    main["name"] = main.get("name") or DEFAULT_CONTAINER
    if definition.pod_spec_patch is not None:
        spec = patched(spec, definition.pod_spec_patch)
    containers = _containers(spec)
    main = containers[0]
    needs = order_containers(spec)
    grouped = [each for each in containers if each is main or each.get("name") in needs]
    # One attempt is one start of its containers; a restart in place would make two attempts look like one.
    spec["restartPolicy"] = "Never"
    for container in grouped:
        container.pop("restartPolicy", None)
        container.pop("restartPolicyRules", None)

    if definition.services:
        services = [service_container(each.dump()) for each in definition.services]
        spec["initContainers"] = [*services, *_sequence(spec, "initContainers")]
    if definition.sidecar is not None:
        spec["initContainers"] = [*_sequence(spec, "initContainers"), sidecar_container(definition.sidecar, settings)]
    texts = _payload_texts(attempt, definition)
    group = {labels.NEEDS_ANNOTATION: payloads.encode(needs)} if needs else {}
    metadata = _metadata(run, attempt, definition, main["name"], {**texts, **group})
    init_containers = _sequence(spec, "initContainers")
    _mount_payloads(spec, grouped, texts)
    for container in grouped:
        ours = _environment(run, attempt, container, texts, len(containers) + len(init_containers))
        if definition.sidecar is not None and container is main:
            mount_files(spec, main, init_containers[-1], ours, definition.sidecar)
            ours = [*ours, {"name": "PERDURE_FILES", "value": FILES_PATH}]
        _set_variables(container, ours)
    for container in (*containers, *init_containers):
        if settings.keeps_logs(run.namespace):
            # If a container fails without a message, the end of its log explains why.
            container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
        else:
            container["terminationMessagePolicy"] = "File"
    _restrict(spec, [*containers, *init_containers], settings)
    _set_identity(spec, attempt, settings)
    add_pull_secrets(spec, settings)
    deadline = _deadline(attempt, settings)
    if deadline is not None:
        spec.setdefault("activeDeadlineSeconds", deadline)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def retention_of(pod: KubeObject, *, succeeded: bool) -> Retention:
    """Return the retention of a pod after its attempt has ended, according to the activity's `podRetention`.

    Args:
        pod: The Pod; an annotation contains the retention unless it is the default.
        succeeded: Whether the attempt succeeded.
    """
    notes = pod["metadata"].get("annotations") or {}
    parts = str(notes.get(labels.POD_RETENTION_ANNOTATION, _retention(PodRetention()))).partition("/")
    wanted = parts[0] if succeeded else parts[2]
    return next((each for each in Retention if each == wanted), Retention.DELETE)


def _retention(retention: PodRetention) -> str:
    return f"{retention.on_success}/{retention.on_failure}"


def build_trial(namespace: str, definition: Activity, settings: PodSettings) -> KubeObject:
    """Build a Pod like those of an activity's attempts, to check with a dry run whether the API server accepts them.

    It belongs to no run and does not have the identity of activities with heartbeats, which is created with the first one.

    Args:
        namespace: The namespace in which the activity will run.
        definition: The activity's definition; not modified.
        settings: The operator's settings.

    Returns:
        A v1 Pod.

    Raises:
        InvalidDefinitionError: The definition is not a valid pod.
    """
    name = f"trial-{label_value(definition.name)[:40]}".rstrip("-.")
    run = RunRef(namespace=namespace, name=name, uid=_NO_RUN, workflow_id=name)
    close = definition.start_to_close_timeout or definition.schedule_to_close_timeout
    attempt = Attempt(
        scheduled_event_id=1, attempt=1, activity_id=name, activity_type=definition.name, start_to_close=close
    )
    pod = build_pod(run, attempt, definition, settings)
    del pod["metadata"]["ownerReferences"], pod["metadata"]["finalizers"]
    for label in attempt_labels(run, attempt):
        del pod["metadata"]["labels"][label]
    return pod


def attempt_labels(run: RunRef, attempt: Attempt) -> dict[str, str]:
    """Return the labels of an attempt's Pod and Lease.

    Args:
        run: The run.
        attempt: The attempt.

    Returns:
        Names and values.
    """
    return {
        labels.RUN_LABEL: label_value(run.name),
        labels.RUN_ID_LABEL: run.uid,
        labels.ACTIVITY_LABEL: label_value(attempt.activity_type),
    }


def attempt_annotations(run: RunRef, attempt: Attempt) -> dict[str, str]:
    """Return the annotations that identify the attempt of a Pod or Lease.

    Args:
        run: The run.
        attempt: The attempt.

    Returns:
        Names and values.
    """
    return {
        labels.RUN_ANNOTATION: run.name,
        labels.SCHEDULED_EVENT_ANNOTATION: str(attempt.scheduled_event_id),
        labels.ATTEMPT_ANNOTATION: str(attempt.attempt),
    }


def _payload_texts(attempt: Attempt, definition: Activity) -> dict[str, str]:
    """Return the texts that the pod reads as files, by the annotation that contains them."""
    texts = {labels.INPUT_ANNOTATION: payloads.encode(attempt.input)}
    if definition.script is not None:
        texts[labels.SCRIPT_ANNOTATION] = definition.script.source
    if definition.http is not None or definition.resource is not None:
        texts[labels.WORK_ANNOTATION] = payloads.encode(work_of(definition))
    if attempt.last_heartbeat_details is not None:
        texts[labels.LAST_HEARTBEAT_DETAILS_ANNOTATION] = payloads.encode(attempt.last_heartbeat_details)
    return texts


def _metadata(run: RunRef, attempt: Attempt, definition: Activity, main: str, texts: dict[str, str]) -> KubeObject:
    template = definition.pod_template.metadata if definition.pod_template is not None else definition.pod_metadata
    annotations = {
        DEFAULT_CONTAINER_ANNOTATION: main,
        **(without_reserved(template.annotations) if template is not None else {}),
        **attempt_annotations(run, attempt),
        **texts,
    }
    if run.created_by:
        annotations[labels.CREATED_BY_ANNOTATION] = run.created_by
    if definition.pod_retention is not None:
        annotations[labels.POD_RETENTION_ANNOTATION] = _retention(definition.pod_retention)
    total = sum(payloads.size(name) + payloads.size(value) for name, value in annotations.items())
    if total > payloads.ANNOTATIONS_LIMIT:
        sizes = ", ".join(
            f"{name.removeprefix(_OURS)} {payloads.size(text)} bytes" for name, text in sorted(texts.items())
        )
        raise PayloadTooLargeError(
            f"activity {attempt.activity_type} cannot be started: a pod's annotations hold at most "
            f"{payloads.ANNOTATIONS_LIMIT} bytes and would take {total} ({sizes}). Pass a reference to the data instead"
        )
    return {
        "name": pod_name(run.name, attempt.scheduled_event_id, attempt.attempt),
        "namespace": run.namespace,
        "labels": {
            **(without_reserved(template.labels) if template is not None else {}),
            **attempt_labels(run, attempt),
            **service_label(run, attempt),
        },
        "annotations": annotations,
        "finalizers": [labels.POD_FINALIZER],
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "WorkflowRun",
                "name": run.name,
                "uid": run.uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }


def _set_variables(container: KubeObject, ours: list[KubeObject]) -> None:
    names = {variable["name"] for variable in ours}
    # Ours first: a variable can refer to earlier ones, so users can write $(PERDURE_RUN) in theirs.
    container["env"] = ours + [
        variable for variable in _sequence(container, "env") if variable.get("name") not in names
    ]


def _mount_payloads(spec: KubeObject, containers: list[KubeObject], texts: dict[str, str]) -> None:
    files = {
        labels.INPUT_ANNOTATION: INPUT_FILE,
        labels.SCRIPT_ANNOTATION: SCRIPT_PATH,
        labels.WORK_ANNOTATION: WORK_PATH,
        labels.LAST_HEARTBEAT_DETAILS_ANNOTATION: LAST_HEARTBEAT_DETAILS_FILE,
    }
    items = [
        {"path": files[name].removeprefix(f"{MOUNT_PATH}/"), "fieldRef": {"fieldPath": _annotation_path(name)}}
        for name in texts
    ]
    spec["volumes"] = [
        *_sequence(spec, "volumes"),
        {"name": VOLUME, "downwardAPI": {"items": items, "defaultMode": 0o444}},
    ]
    for container in containers:
        container["volumeMounts"] = [
            *_sequence(container, "volumeMounts"),
            {"name": VOLUME, "mountPath": MOUNT_PATH, "readOnly": True},
        ]


def _environment(
    run: RunRef, attempt: Attempt, main: KubeObject, texts: dict[str, str], containers: int
) -> list[KubeObject]:
    lease = pod_name(run.name, attempt.scheduled_event_id, attempt.attempt) if attempt.needs_lease else None
    # One byte below the kubelet's limit: readers consider a message of exactly the limit truncated.
    limit = payloads.termination_message_limit(containers) - 1
    plain = {
        "PERDURE_RUN": run.name,
        "PERDURE_RUN_ID": run.uid,
        "PERDURE_NAMESPACE": run.namespace,
        "PERDURE_WORKFLOW_ID": run.workflow_id,
        "PERDURE_ACTIVITY": attempt.activity_type,
        "PERDURE_ACTIVITY_ID": attempt.activity_id,
        "PERDURE_ATTEMPT": str(attempt.attempt),
        "PERDURE_START_TO_CLOSE_TIMEOUT": _seconds(attempt.start_to_close),
        "PERDURE_HEARTBEAT_TIMEOUT": _seconds(attempt.heartbeat_timeout),
        "PERDURE_LEASE": lease,
        "PERDURE_RESULT_SIZE": "Large" if attempt.large_result else "Small",
        "PERDURE_RESULT_LIMIT": str(payloads.LARGE_RESULT_LIMIT if attempt.large_result else limit),
        "PERDURE_MESSAGE_LIMIT": str(limit),
        "PERDURE_HEARTBEAT_DETAILS_LIMIT": str(payloads.HEARTBEAT_DETAILS_LIMIT),
        "PERDURE_TERMINATION_LOG": str(main.get("terminationMessagePath") or DEFAULT_TERMINATION_LOG),
        "PERDURE_INPUT_FILE": INPUT_FILE,
    }
    if labels.LAST_HEARTBEAT_DETAILS_ANNOTATION in texts:
        plain["PERDURE_LAST_HEARTBEAT_DETAILS_FILE"] = LAST_HEARTBEAT_DETAILS_FILE
    variables: list[KubeObject] = [
        {"name": name, "value": _literal(value)} for name, value in plain.items() if value is not None
    ]
    # A reference to the annotation, not a value: Kubernetes would expand $(NAME) in a value.
    references = {
        "PERDURE_INPUT": labels.INPUT_ANNOTATION,
        "PERDURE_LAST_HEARTBEAT_DETAILS": labels.LAST_HEARTBEAT_DETAILS_ANNOTATION,
    }
    variables += [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": _annotation_path(annotation)}}}
        for name, annotation in references.items()
        if annotation in texts and payloads.size(texts[annotation]) <= payloads.ENVIRONMENT_LIMIT
    ]
    return variables


def _annotation_path(name: str) -> str:
    return f"metadata.annotations['{name}']"


def _literal(text: str) -> str:
    """Escape a value so that Kubernetes does not expand it: `$$` is a dollar sign."""
    return text.replace("$", "$$")


def _seconds(duration: timedelta | None) -> str | None:
    if duration is None:
        return None
    return f"{duration.total_seconds():.3f}".rstrip("0").rstrip(".")


def _restrict(spec: KubeObject, containers: list[KubeObject], settings: PodSettings) -> None:
    """Set unset fields to the values that the `restricted` level of Pod Security requires."""
    pod_context = _mapping(spec, "securityContext")
    spec["securityContext"] = pod_context
    user_set = pod_context.keys() & {"runAsUser", "runAsNonRoot"}
    linux = _mapping(spec, "os").get("name") != "windows"
    non_root_is_ours = "runAsNonRoot" not in pod_context and pod_context.get("runAsUser") != 0
    if non_root_is_ours:
        pod_context["runAsNonRoot"] = True
    if not linux:
        return  # the rest does not apply to Windows, and the API server rejects it
    pod_context.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    for container in containers:
        context = _mapping(container, "securityContext")
        container["securityContext"] = context
        if settings.run_as_user is not None and not user_set and not context.keys() & {"runAsUser", "runAsNonRoot"}:
            context["runAsUser"] = settings.run_as_user
        if context.get("runAsUser") == 0 and non_root_is_ours:
            context.setdefault(
                "runAsNonRoot", False
            )  # the user requests root here, which the default of the pod would forbid
        _restrict_rights(context)


def _restrict_rights(context: KubeObject) -> None:
    if context.get("privileged") is True:
        return  # the API server rejects a privileged container that must not escalate
    capabilities = _mapping(context, "capabilities")
    context["capabilities"] = capabilities
    capabilities.setdefault("drop", ["ALL"])
    if not {"SYS_ADMIN", "CAP_SYS_ADMIN"} & set(map(str, capabilities.get("add") or ())):
        context.setdefault("allowPrivilegeEscalation", False)


def _set_identity(spec: KubeObject, attempt: Attempt, settings: PodSettings) -> None:
    """Mount a token only if it is needed to patch the attempt's own Lease.

    A user who names a ServiceAccount wants its permissions, so its token is left to Kubernetes' default.
    """
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        return
    if attempt.needs_lease:
        spec["serviceAccountName"] = settings.service_account
    # A sidecar has a token of its own.
    spec.setdefault("automountServiceAccountToken", attempt.needs_lease and not attempt.sidecar)


def _deadline(attempt: Attempt, settings: PodSettings) -> int | None:
    """Return the seconds after which the node stops the pod, even if no operator is running."""
    if attempt.start_to_close is None:
        return None
    # The node's deadline starts before the activity: time allowed by schedule-to-start must not reduce start-to-close.
    waiting = max(settings.deadline_margin, attempt.schedule_to_start or timedelta(0))
    seconds = math.ceil((attempt.start_to_close + waiting).total_seconds())
    return max(seconds, 1) if seconds <= LONGEST_DEADLINE else None


def _pod_spec(definition: Activity, settings: PodSettings) -> KubeObject:
    """Return a copy of the pod spec in the definition, which may be modified."""
    if definition.pod_template is not None:
        return definition.pod_template.spec.dump()
    if definition.container is not None:
        return {"containers": [definition.container.dump()]}
    if definition.script is not None:
        return {"containers": [script_container(definition.script)]}
    if definition.http is not None or definition.resource is not None:
        return runner_pod(definition, settings)
    raise InvalidDefinitionError("a worker runs the activity: it has no pod")


def _containers(spec: KubeObject) -> list[KubeObject]:
    containers = _sequence(spec, "containers")
    if not containers:
        raise InvalidDefinitionError("`podTemplate.spec.containers` must name at least one container")
    return containers


def _mapping(parent: dict[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidDefinitionError(f"`{key}` must be an object")
    return value


def _sequence(parent: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidDefinitionError(f"`{key}` must be a list of objects")
    return value


_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT: Final = 100
"""The highest weight. It is a preference: with one node, or if all others are full, the pod still runs."""


def avoid_nodes(pod: KubeObject, nodes: Sequence[str]) -> KubeObject:
    """Return the pod with a preference for nodes other than the given ones.

    Args:
        pod: A v1 Pod to create; not changed.
        nodes: Names of nodes.
    """
    if not nodes:
        return pod
    # A field selector of a node takes one value; the requirements of a term all apply.
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    term: dict[str, Any] = {"weight": _WEIGHT, "preference": {"matchFields": fields}}
    affinity = pod["spec"].get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    preferred = [*(of_nodes.get(_PREFERRED) or ()), term]
    spec = {**pod["spec"], "affinity": {**affinity, "nodeAffinity": {**of_nodes, _PREFERRED: preferred}}}
    return {**pod, "spec": spec}


def work_of(definition: Activity) -> dict[str, Any]:
    """Return the work of the pod, for its file: the value of `http` or `resource`, whose expressions are evaluated.

    Args:
        definition: The activity.
    """
    if definition.http is not None:
        fields = definition.http.dump()
    else:
        assert definition.resource is not None, "the caller has checked it"
        fields = definition.resource.dump()
    fields.pop("resources", None)
    return {definition.work: fields}


def runner_pod(definition: Activity, settings: PodSettings) -> KubeObject:
    """Build the spec of the pod.

    Args:
        definition: The activity, with `http` or `resource`.
        settings: The operator's settings.
    """
    work = definition.http or definition.resource
    assert work is not None, "the caller has checked it"
    container: KubeObject = {
        "image": settings.sidecar_image,
        "command": ["python", "-m", "perdure.runner"],
        "env": [{"name": "PERDURE_WORK_FILE", "value": WORK_PATH}, *_secrets(definition)],
        "resources": work.resources or _RUNNER_RESOURCES,
    }
    if definition.resource is None:
        return {"containers": [container]}
    return {"serviceAccountName": definition.resource.service_account_name, "containers": [container]}


def _secrets(definition: Activity) -> list[KubeObject]:
    """Return variables with values from Secrets and ConfigMaps for the request; only the pod can read the values."""
    http = definition.http
    if http is None:
        return []
    variables: list[KubeObject] = [
        {"name": f"PERDURE_HEADER_{i}", "valueFrom": {"secretKeyRef": header.secret.dump()}}
        for i, header in enumerate(http.headers)
        if header.secret is not None
    ]
    if http.ca is not None:
        variables.append({"name": "PERDURE_CA", "valueFrom": {"configMapKeyRef": http.ca.dump()}})
    return variables


_PROBE_SECONDS: Final = 1
_MAX_PROBES: Final = 3_600
"""How often the probe of a service may fail: one that is not ready within an hour restarts."""


def service_container(service: Mapping[str, Any]) -> KubeObject:
    """Build the container of a service: a native sidecar of Kubernetes.

    It starts before the other containers, restarts when it ends, and stops after the others
    (https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/). The other containers wait for its startup
    probe, not for its readiness probe. Therefore, without a startup probe of its own, it gets its readiness probe as one, tried
    every second.

    Args:
        service: The service in the definition of the activity, whose expressions are evaluated.
    """
    container: KubeObject = {**service, "restartPolicy": "Always"}
    readiness = container.get("readinessProbe")
    if isinstance(readiness, dict) and container.get("startupProbe") is None:
        action = {key: value for key, value in readiness.items() if key != "successThreshold"}
        container["startupProbe"] = {**action, "periodSeconds": _PROBE_SECONDS, "failureThreshold": _MAX_PROBES}
    return container
