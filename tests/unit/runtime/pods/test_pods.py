"""From an attempt to its pod."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from perdure.api import labels
from perdure.runtime.attempts import AttemptRefusedError, InvalidDefinitionError, PayloadTooLargeError, PodSettings
from perdure.runtime.pods.builder import build_pod, retention_of
from perdure.runtime.pods.payloads import ANNOTATIONS_LIMIT


def build(make: Any, definition: Any = None, settings: PodSettings | None = None, **attempt: Any) -> dict[str, Any]:
    return build_pod(make.run, make.with_attempt(**attempt), definition or make.activity(), settings or PodSettings())


def environment(pod: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in pod["spec"]["containers"][0]["env"]}


def template(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"podTemplate": {"metadata": metadata, "spec": spec}}


def test_the_pod_has_labels_and_owner_of_its_run(make: Any) -> None:
    metadata = build(make)["metadata"]
    assert metadata["name"] == "order-42-5-2"
    assert metadata["namespace"] == "shop"
    assert metadata["finalizers"] == ["perdure.dev/outcome"]
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "WorkflowRun",
            "name": "order-42",
            "uid": make.run.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]
    assert metadata["labels"] == {
        "perdure.dev/run": "order-42",
        "perdure.dev/run-id": make.run.uid,
        "perdure.dev/activity": "charge",
    }
    assert metadata["annotations"] == {
        "kubectl.kubernetes.io/default-container": "activity",
        "perdure.dev/run": "order-42",
        "perdure.dev/scheduled-event-id": "5",
        "perdure.dev/attempt": "2",
        "perdure.dev/input": '{"amount":12}',
    }


def test_the_pod_names_the_user_that_created_its_run_and_no_other(make: Any) -> None:
    forged = template({"containers": [{"image": "i"}]}, annotations={labels.CREATED_BY_ANNOTATION: "someone else"})
    definition = make.activity(**forged)
    named = build_pod(replace(make.run, created_by="ada"), make.attempt, definition, PodSettings())
    assert named["metadata"]["annotations"][labels.CREATED_BY_ANNOTATION] == "ada"
    unknown = build_pod(make.run, make.attempt, definition, PodSettings())
    assert labels.CREATED_BY_ANNOTATION not in unknown["metadata"]["annotations"]


def test_building_a_pod_is_deterministic(make: Any) -> None:
    definition = make.activity(container={"image": "a", "env": [{"name": "X", "value": "1"}]})
    assert build(make, definition) == build(make, definition)


def test_the_container_gets_variables_describing_the_attempt(make: Any) -> None:
    pod = build(make, heartbeat_timeout=timedelta(seconds=1.5), last_heartbeat_details={"done": 3})
    known = environment(pod)
    assert known == {
        "PERDURE_RUN": "order-42",
        "PERDURE_RUN_ID": make.run.uid,
        "PERDURE_NAMESPACE": "shop",
        "PERDURE_WORKFLOW_ID": "order-42",
        "PERDURE_ACTIVITY": "charge",
        "PERDURE_ACTIVITY_ID": "5",
        "PERDURE_ATTEMPT": "2",
        "PERDURE_START_TO_CLOSE_TIMEOUT": "300",
        "PERDURE_HEARTBEAT_TIMEOUT": "1.5",
        "PERDURE_LEASE": "order-42-5-2",
        "PERDURE_RESULT_SIZE": "Small",
        "PERDURE_RESULT_LIMIT": "4095",
        "PERDURE_MESSAGE_LIMIT": "4095",
        "PERDURE_HEARTBEAT_DETAILS_LIMIT": "16384",
        "PERDURE_TERMINATION_LOG": "/dev/termination-log",
        "PERDURE_INPUT_FILE": "/perdure/input.json",
        "PERDURE_LAST_HEARTBEAT_DETAILS_FILE": "/perdure/last-heartbeat-details.json",
        "PERDURE_INPUT": {"fieldRef": {"fieldPath": "metadata.annotations['perdure.dev/input']"}},
        "PERDURE_LAST_HEARTBEAT_DETAILS": {
            "fieldRef": {"fieldPath": "metadata.annotations['perdure.dev/last-heartbeat-details']"}
        },
    }
    (volume,) = pod["spec"]["volumes"]
    assert [item["path"] for item in volume["downwardAPI"]["items"]] == ["input.json", "last-heartbeat-details.json"]
    assert pod["spec"]["containers"][0]["volumeMounts"] == [
        {"name": "perdure", "mountPath": "/perdure", "readOnly": True}
    ]


def test_without_heartbeat_details_there_is_no_file_or_variable_for_them(make: Any) -> None:
    pod = build(make)
    assert not any("DETAILS" in name and "LIMIT" not in name for name in environment(pod))
    assert [item["path"] for item in pod["spec"]["volumes"][0]["downwardAPI"]["items"]] == ["input.json"]


@pytest.mark.parametrize(
    ("size", "want"),
    [
        pytest.param(32 * 1024 - 2, True, id="an input of 32 KiB is also a variable"),
        pytest.param(32 * 1024 - 1, False, id="a larger one is only a file"),
    ],
)
def test_large_inputs_are_not_passed_as_variables(make: Any, size: int, want: bool) -> None:
    assert ("PERDURE_INPUT" in environment(build(make, input="x" * size))) is want


def test_dollar_signs_are_escaped(make: Any) -> None:
    assert environment(build(make, activity_id="a$(PERDURE_RUN)"))["PERDURE_ACTIVITY_ID"] == "a$$(PERDURE_RUN)"


def test_users_can_refer_to_perdures_variables_but_not_replace_them(make: Any) -> None:
    env = [{"name": "MY_RUN", "value": "$(PERDURE_RUN)"}, {"name": "PERDURE_ATTEMPT", "value": "99"}]
    pod = build(make, make.activity(container={"image": "a", "env": env}))
    names = [item["name"] for item in pod["spec"]["containers"][0]["env"]]
    assert names.index("PERDURE_RUN") < names.index("MY_RUN")
    assert names.count("PERDURE_ATTEMPT") == 1
    assert environment(pod)["PERDURE_ATTEMPT"] == "2"


def test_labels_and_annotations_of_users_are_kept(make: Any) -> None:
    definition = make.activity(
        **template(
            {"containers": [{"name": "main", "image": "a"}]},
            labels={"team": "shop", "perdure.dev/run-id": "stolen"},
            annotations={"note": "x", "perdure.dev/attempt": "99", "perdure.dev/last-heartbeat-details": "forged"},
        )
    )
    metadata = build(make, definition)["metadata"]
    assert metadata["labels"]["team"] == "shop"
    assert metadata["labels"]["perdure.dev/run-id"] == make.run.uid
    assert metadata["annotations"]["note"] == "x"
    assert metadata["annotations"]["perdure.dev/attempt"] == "2"
    assert "perdure.dev/last-heartbeat-details" not in metadata["annotations"]
    assert metadata["annotations"]["kubectl.kubernetes.io/default-container"] == "main"


def test_the_activity_is_never_restarted(make: Any) -> None:
    spec = {
        "restartPolicy": "Always",
        "containers": [
            {"name": "main", "image": "a", "restartPolicy": "OnFailure", "restartPolicyRules": [{"action": "Restart"}]}
        ],
        "initContainers": [{"name": "proxy", "image": "b", "restartPolicy": "Always"}],
    }
    built = build(make, make.activity(**template(spec)))["spec"]
    assert built["restartPolicy"] == "Never"
    assert not {"restartPolicy", "restartPolicyRules"} & built["containers"][0].keys()
    assert built["initContainers"][0]["restartPolicy"] == "Always", "a sidecar stays one"


# --- Room for results -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("containers", "init", "large", "want"),
    [
        pytest.param(1, 0, False, ("4095", "4095"), id="one container has the whole termination message"),
        pytest.param(3, 0, False, ("4095", "4095"), id="three still have"),
        pytest.param(3, 1, False, ("3071", "3071"), id="four share twelve KiB"),
        pytest.param(4, 8, False, ("1023", "1023"), id="twelve have one KiB each"),
        pytest.param(1, 0, True, ("258048", "4095"), id="a large result goes to the Lease"),
    ],
)
def test_the_container_gets_the_size_limit_of_its_result(
    make: Any, containers: int, init: int, large: bool, want: tuple[str, str]
) -> None:
    spec = {
        "containers": [{"name": f"c{n}", "image": "a"} for n in range(containers)],
        "initContainers": [{"name": f"i{n}", "image": "a"} for n in range(init)],
    }
    known = environment(build(make, make.activity(**template(spec)), large_result=large))
    assert (known["PERDURE_RESULT_LIMIT"], known["PERDURE_MESSAGE_LIMIT"]) == want


def test_the_path_of_the_termination_message_is_configurable(make: Any) -> None:
    pod = build(make, make.activity(container={"image": "a", "terminationMessagePath": "/tmp/last-words"}))
    assert environment(pod)["PERDURE_TERMINATION_LOG"] == "/tmp/last-words"


def test_containers_fall_back_to_their_log_unless_the_user_sets_a_policy(make: Any) -> None:
    spec = {
        "containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "b", "terminationMessagePolicy": "File"}],
        "initContainers": [{"name": "c", "image": "c"}],
    }
    built = build(make, make.activity(**template(spec)))["spec"]
    policies = [c["terminationMessagePolicy"] for c in (*built["containers"], *built["initContainers"])]
    assert policies == ["FallbackToLogsOnError", "File", "FallbackToLogsOnError"]


@pytest.mark.parametrize(("excluded", "policy"), [("sh*p", "File"), ("other", "FallbackToLogsOnError")])
def test_termination_messages_contain_no_log_where_failures_must_not(make: Any, excluded: str, policy: str) -> None:
    logs = {"containers": [{"image": "i", "terminationMessagePolicy": "FallbackToLogsOnError"}]}
    built = build(make, make.activity(**template(logs)), PodSettings(without_logs=(excluded,)))
    assert built["spec"]["containers"][0]["terminationMessagePolicy"] == policy


def test_an_input_at_the_size_limit_is_accepted_and_a_larger_one_rejected(make: Any) -> None:
    annotations = build(make, input="")["metadata"]["annotations"]
    room = ANNOTATIONS_LIMIT - sum(len(name) + len(value) for name, value in annotations.items())
    build(make, input="x" * room)
    with pytest.raises(PayloadTooLargeError) as caught:
        build(make, input="x" * (room + 1))
    assert caught.value.failure.type == "PayloadTooLarge"
    assert caught.value.failure.non_retryable
    assert f"would take {ANNOTATIONS_LIMIT + 1} (input {room + 3} bytes)" in caught.value.failure.message


def test_the_size_limit_counts_bytes_and_includes_heartbeat_details(make: Any) -> None:
    with pytest.raises(PayloadTooLargeError, match=r"input 180002 bytes, last-heartbeat-details 90002 bytes"):
        build(make, input="é" * 90_000, last_heartbeat_details="é" * 45_000)


# --- Security ---------------------------------------------------------------------------------------------------------


def test_a_pod_is_restricted_by_default(make: Any) -> None:
    spec = build(make)["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["containers"][0]["securityContext"] == {
        "runAsUser": 65532,
        "capabilities": {"drop": ["ALL"]},
        "allowPrivilegeEscalation": False,
    }


@pytest.mark.parametrize(
    ("pod", "container", "want_pod", "want_container"),
    [
        pytest.param(
            {"runAsUser": 1000},
            {},
            {"runAsUser": 1000, "runAsNonRoot": True},
            {},
            id="the user of the pod applies to all containers",
        ),
        pytest.param(
            {}, {"runAsUser": 1000}, {"runAsNonRoot": True}, {"runAsUser": 1000}, id="the user of a container is kept"
        ),
        pytest.param(
            {},
            {"runAsUser": 0},
            {"runAsNonRoot": True},
            {"runAsUser": 0, "runAsNonRoot": False},
            id="a container that requests root gets it",
        ),
        pytest.param({"runAsUser": 0}, {}, {"runAsUser": 0}, {}, id="so does a pod"),
        pytest.param(
            {"runAsNonRoot": False},
            {},
            {"runAsNonRoot": False},
            {},
            id="runAsNonRoot: false keeps the user of the image",
        ),
        pytest.param(
            {},
            {"runAsNonRoot": False},
            {"runAsNonRoot": True},
            {"runAsNonRoot": False},
            id="also for one container",
        ),
        pytest.param(
            {"runAsNonRoot": True},
            {"runAsUser": 0},
            {"runAsNonRoot": True},
            {"runAsUser": 0},
            id="a contradiction of the user is kept",
        ),
    ],
)
def test_run_as_user_settings_are_kept(
    make: Any,
    pod: dict[str, Any],
    container: dict[str, Any],
    want_pod: dict[str, Any],
    want_container: dict[str, Any],
) -> None:
    spec = {"securityContext": pod, "containers": [{"name": "a", "image": "a", "securityContext": container}]}
    built = build(make, make.activity(**template(spec)))["spec"]
    rest_pod = {k: v for k, v in built["securityContext"].items() if k != "seccompProfile"}
    rest = {k: v for k, v in built["containers"][0]["securityContext"].items() if k.startswith("runAs")}
    assert (rest_pod, rest) == (want_pod, want_container)


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        pytest.param(
            {"capabilities": {"add": ["NET_BIND_SERVICE"]}},
            {"capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}, "allowPrivilegeEscalation": False},
            id="capabilities that are added come on top of none",
        ),
        pytest.param(
            {"capabilities": {"drop": ["NET_RAW"]}},
            {"capabilities": {"drop": ["NET_RAW"]}, "allowPrivilegeEscalation": False},
            id="dropped capabilities are not extended",
        ),
        pytest.param({"privileged": True}, {"privileged": True}, id="a privileged container cannot be restricted"),
        pytest.param(
            {"capabilities": {"add": ["SYS_ADMIN"], "drop": []}},
            {"capabilities": {"add": ["SYS_ADMIN"], "drop": []}},
            id="nor one with SYS_ADMIN",
        ),
        pytest.param(
            {"allowPrivilegeEscalation": True},
            {"allowPrivilegeEscalation": True, "capabilities": {"drop": ["ALL"]}},
            id="escalation stays allowed where the user allows it",
        ),
    ],
)
def test_security_context_settings_are_kept(make: Any, settings: dict[str, Any], want: dict[str, Any]) -> None:
    pod = build(make, make.activity(container={"image": "a", "securityContext": settings}))
    context = pod["spec"]["containers"][0]["securityContext"]
    assert {k: v for k, v in context.items() if k != "runAsUser"} == want


def test_windows_pods_get_only_supported_settings(make: Any) -> None:
    spec = {"os": {"name": "windows"}, "containers": [{"name": "a", "image": "a"}]}
    built = build(make, make.activity(**template(spec)))["spec"]
    assert built["securityContext"] == {"runAsNonRoot": True}
    assert "securityContext" not in built["containers"][0]


def test_the_user_can_be_left_to_the_image(make: Any) -> None:
    context = build(make, settings=PodSettings(run_as_user=None))["spec"]["containers"][0]["securityContext"]
    assert "runAsUser" not in context


# --- Identity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "attempt", "want"),
    [
        pytest.param({}, {}, (None, False), id="no Lease, no token"),
        pytest.param({}, {"heartbeat_timeout": timedelta(seconds=5)}, ("perdure-activity", True), id="heartbeats"),
        pytest.param({}, {"large_result": True}, ("perdure-activity", True), id="a large result"),
        pytest.param(
            {"serviceAccountName": "mine"},
            {"large_result": True},
            ("mine", None),
            id="the user's own account, as Kubernetes mounts it",
        ),
        pytest.param({"serviceAccountName": "mine"}, {}, ("mine", None), id="also without a Lease"),
        pytest.param({"automountServiceAccountToken": True}, {}, (None, True), id="a token requested by the user"),
        pytest.param(
            {"automountServiceAccountToken": False},
            {"large_result": True},
            ("perdure-activity", False),
            id="a token disabled by the user",
        ),
    ],
)
def test_a_service_account_token_is_mounted_only_for_a_lease(
    make: Any, spec: dict[str, Any], attempt: dict[str, Any], want: tuple[str | None, bool | None]
) -> None:
    definition = make.activity(**template({"containers": [{"name": "a", "image": "a"}], **spec}))
    built = build(make, definition, **attempt)["spec"]
    assert (built.get("serviceAccountName"), built.get("automountServiceAccountToken")) == want


# --- Deadline ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start_to_close", "deadline", "want"),
    [
        pytest.param(timedelta(minutes=5), None, 600, id="five minutes beyond start-to-close"),
        pytest.param(timedelta(seconds=0.5), None, 301, id="rounded up"),
        pytest.param(None, None, None, id="none without start-to-close"),
        pytest.param(timedelta(days=30_000), None, None, id="none where Kubernetes could not count that far"),
        pytest.param(timedelta(minutes=5), 7, 7, id="the deadline of the user is kept"),
    ],
)
def test_the_active_deadline_is_slightly_after_the_timeout(
    make: Any, start_to_close: timedelta | None, deadline: int | None, want: int | None
) -> None:
    spec = {"containers": [{"name": "a", "image": "a"}], "activeDeadlineSeconds": deadline}
    built = build(make, make.activity(**template(spec)), start_to_close=start_to_close)["spec"]
    assert built.get("activeDeadlineSeconds") == want


def test_the_active_deadline_includes_schedule_to_start(make: Any) -> None:
    built = build(make, make.activity(), start_to_close=timedelta(minutes=5), schedule_to_start=timedelta(hours=1))
    assert built["spec"]["activeDeadlineSeconds"] == 3900


# --- Invalid definitions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "definition",
    [
        pytest.param({"worker": {"taskQueue": "q"}}, id="an activity of a worker has no pod"),
        pytest.param({"container": {"image": "a", "env": "x"}}, id="env that is no list"),
        pytest.param({"container": {"image": "a", "env": ["x"]}}, id="variables that are no objects"),
        pytest.param({"container": {"image": "a", "securityContext": []}}, id="a security context that is a list"),
        pytest.param(template({"containers": [{"name": "a"}], "volumes": {}}), id="volumes that are an object"),
        pytest.param(template({"containers": [{"name": "a"}], "initContainers": [1]}), id="numbers for containers"),
        pytest.param(template({"containers": [{"name": "a"}], "os": "windows"}), id="a text for an object"),
    ],
)
def test_a_malformed_definition_is_rejected_with_a_failure(make: Any, definition: dict[str, Any]) -> None:
    with pytest.raises(InvalidDefinitionError) as caught:
        build(make, make.activity(**definition))
    assert isinstance(caught.value, AttemptRefusedError)
    assert caught.value.failure.type == "InvalidActivityDefinition"
    assert caught.value.failure.non_retryable


def test_the_pod_is_json(make: Any) -> None:
    pod = build(make, input={"name": "Zoë", "n": [1, None, True]})
    assert json.loads(json.dumps(pod)) == pod
    assert json.loads(pod["metadata"]["annotations"]["perdure.dev/input"]) == {"name": "Zoë", "n": [1, None, True]}


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (None, ("Expire", "Keep")),
        ({}, ("Expire", "Keep")),
        ({"onSuccess": "Keep"}, ("Keep", "Keep")),
        ({"onFailure": "Delete"}, ("Expire", "Delete")),
        ({"onSuccess": "Delete", "onFailure": "Expire"}, ("Delete", "Expire")),
    ],
)
def test_the_retention_policy_is_recorded_on_the_pod(
    make: Any, policy: dict[str, str] | None, kept: tuple[str, str]
) -> None:
    pod = build(make, make.activity(**({"podRetention": policy} if policy is not None else {})))
    assert (retention_of(pod, succeeded=True), retention_of(pod, succeeded=False)) == kept
    assert retention_of({"metadata": {}}, succeeded=False) == "Keep"
    unknown = {"metadata": {"annotations": {"perdure.dev/pod-retention": "Later/Never"}}}
    assert retention_of(unknown, succeeded=True) == "Delete"


def test_only_the_sidecar_has_the_token(make: Any) -> None:
    definition = make.activity(sidecar={"autoHeartbeat": True, "resources": {"limits": {"memory": "64Mi"}}})
    spec = build(make, definition, sidecar=True, heartbeat_timeout=timedelta(seconds=30))["spec"]
    (main,), (sidecar,) = spec["containers"], spec["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["resources"] == {"limits": {"memory": "64Mi"}}
    assert sidecar["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["serviceAccountName"] == "perdure-activity"
    assert spec["automountServiceAccountToken"] is False
    mounts = {container["name"]: {m["name"] for m in container["volumeMounts"]} for container in (main, sidecar)}
    assert mounts["activity"] == {"perdure", "perdure-sidecar"}
    assert mounts["perdure-sidecar"] == {"perdure", "perdure-sidecar", "perdure-account"}
    environment = {variable["name"]: variable.get("value") for variable in sidecar["env"]}
    assert environment["PERDURE_LEASE"] == "order-42-5-2"
    assert environment["PERDURE_AUTO_HEARTBEAT"] == "true"
    assert {"name": "PERDURE_FILES", "value": "/perdure-files"} in main["env"]


@pytest.mark.parametrize(
    ("image", "command"),
    [
        ({}, ["env", "--block-signal=TERM", "python", "-m", "perdure.activity.sidecar"]),
        ({"image": "mine"}, ["python", "-m", "perdure.activity.sidecar"]),
    ],
)
def test_the_sidecar_of_the_operator_cannot_miss_its_stop(make: Any, image: dict[str, str], command: list[str]) -> None:
    (sidecar,) = build(make, make.activity(sidecar=image), sidecar=True)["spec"]["initContainers"]
    assert sidecar["command"] == command


def test_a_sidecar_runs_as_the_user_of_the_activity(make: Any) -> None:
    def user(**container: Any) -> Any:
        definition = make.activity(container={"image": "i", **container}, sidecar={"image": "mine"})
        (sidecar,) = build(make, definition, sidecar=True)["spec"]["initContainers"]
        assert sidecar["image"] == "mine"
        return sidecar["securityContext"].get("runAsUser")

    assert user() == 65532
    assert user(securityContext={"runAsUser": 1000}) == 1000
