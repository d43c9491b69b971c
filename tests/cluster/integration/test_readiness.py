"""The condition `Ready` of a Workflow and its Event."""

from typing import Any

import pytest

from support.cluster.namespace import Cluster, python

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
CALL = {"name": "only", "activity": {"name": "work"}}


def workflow(*steps: Json, **container: Any) -> Json:
    """A Workflow with one activity; it does nothing here."""
    work = python("")
    work["container"] |= container
    spec = {"activities": [work], "steps": list(steps or (CALL,))}
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "order"}, "spec": spec}


def condition_of(scene: Cluster) -> Json:
    """The condition for the current generation of the Workflow."""

    def look() -> Json | None:
        found = scene.get("workflow", "order")
        assert found is not None
        conditions = found.get("status", {}).get("conditions", [])
        now = [each for each in conditions if each["observedGeneration"] == found["metadata"]["generation"]]
        return next((each for each in now if each["type"] == "Ready"), None)

    result: Json = scene.wait("the Workflow to be looked at", look)
    return result


def warned(scene: Cluster, reason: str) -> str:
    """The note of the Event with that reason, once it exists."""

    def look() -> list[str]:
        events = scene.list("events.v1.events.k8s.io")
        return [e["note"] for e in events if e["regarding"]["name"] == "order" and e["reason"] == reason]

    notes: list[str] = scene.wait(f"an Event {reason}", look)
    assert len(notes) == 1
    return notes[0]


def test_the_condition_of_a_workflow_follows_its_changes(namespace: Cluster) -> None:
    namespace.apply(workflow())
    first = condition_of(namespace)
    assert (first["status"], first["reason"], first["message"]) == ("True", "Accepted", "")

    namespace.apply(workflow({"name": "only", "activity": {"name": "wrok"}}))
    wrong = condition_of(namespace)
    assert (wrong["status"], wrong["reason"]) == ("False", "InvalidSpec")
    sentence = "spec.steps[0].activity.name: activity `wrok` is not defined in `activities`; defined: work"
    assert sentence in wrong["message"]
    assert sentence in warned(namespace, "InvalidSpec")

    namespace.apply(workflow())
    fixed = condition_of(namespace)
    assert (fixed["status"], fixed["reason"]) == ("True", "Accepted")
    assert fixed["lastTransitionTime"] >= wrong["lastTransitionTime"]
    assert namespace("get", "workflow", "order", "--no-headers").split()[1] == "True"


def test_an_invalid_pod_is_reported_before_the_first_run(namespace: Cluster) -> None:
    namespace.apply(workflow(imagePullPolicy="Sometimes"))
    refused = condition_of(namespace)
    assert (refused["status"], refused["reason"]) == ("False", "PodRefused")
    assert refused["message"].startswith("spec.activities[0].container: ")
    assert "imagePullPolicy" in refused["message"]
    assert "imagePullPolicy" in warned(namespace, "PodRefused")

    namespace.apply(workflow(imagePullPolicy="IfNotPresent"))
    assert condition_of(namespace)["reason"] == "Accepted"


def test_a_pod_that_violates_a_policy_of_the_namespace_is_reported(namespace: Cluster) -> None:
    namespace.apply(workflow(securityContext={"privileged": True}))
    refused = condition_of(namespace)
    assert (refused["status"], refused["reason"]) == ("False", "PodRefused")
    assert "restricted" in refused["message"]


def test_a_schema_that_expands_too_far_is_reported(namespace: Cluster) -> None:
    schema: Json = {"$defs": {"d30": {"type": "string"}}, "$ref": "#/$defs/d0"}
    for i in range(30):
        schema["$defs"][f"d{i}"] = {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
    hostile = workflow()
    hostile["spec"]["input"] = {"schema": schema}
    namespace.apply(hostile)
    assert condition_of(namespace)["reason"] == "InvalidSpec"
    assert "spec.input.schema" in condition_of(namespace)["message"]


def test_a_workflow_is_not_ready_until_its_retry_policies_exist(namespace: Cluster) -> None:
    named = workflow()
    named["spec"]["activities"][0]["retryPolicy"] = {"name": "standard"}
    namespace.apply(named)
    missing = condition_of(namespace)
    assert (missing["status"], missing["reason"]) == ("False", "RetryPolicyNotFound")
    assert "spec.activities[0].retryPolicy.name: there is no valid RetryPolicy `standard`" in missing["message"]
    policy = {"exponential": {"maximumAttempts": 3}}
    namespace.apply(
        {"apiVersion": "perdure.dev/v1alpha1", "kind": "RetryPolicy", "metadata": {"name": "standard"}, "spec": policy}
    )
    namespace.wait("the Workflow to be accepted", lambda: condition_of(namespace)["reason"] == "Accepted")
    namespace.delete("retrypolicy", "standard")
    namespace.wait("the Workflow to wait again", lambda: condition_of(namespace)["reason"] == "RetryPolicyNotFound")
