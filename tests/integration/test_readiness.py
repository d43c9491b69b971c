"""The condition `Ready` of a Workflow, as the operator writes it, and the Event that goes with it."""

from typing import Any

import pytest

from kube import Cluster, python

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
CALL = {"name": "only", "activity": {"name": "work"}}


def workflow(*steps: Json, **container: Any) -> Json:
    """A Workflow with one activity; it does nothing here."""
    work = python("")
    work["container"] |= container
    spec = {"activities": [work], "steps": list(steps or (CALL,))}
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "order"}, "spec": spec}


def told(scene: Cluster) -> Json:
    """What is said of the Workflow as it is now."""

    def look() -> Json | None:
        found = scene.get("workflow", "order")
        assert found is not None
        conditions = found.get("status", {}).get("conditions", [])
        now = [each for each in conditions if each["observedGeneration"] == found["metadata"]["generation"]]
        return next((each for each in now if each["type"] == "Ready"), None)

    result: Json = scene.wait("the Workflow to be looked at", look)
    return result


def warned(scene: Cluster, reason: str) -> str:
    """The note of the Event with that reason, once it is there."""

    def look() -> list[str]:
        events = scene.list("events.v1.events.k8s.io")
        return [e["note"] for e in events if e["regarding"]["name"] == "order" and e["reason"] == reason]

    notes: list[str] = scene.wait(f"an Event {reason}", look)
    assert len(notes) == 1
    return notes[0]


def test_a_workflow_says_whether_it_can_be_run_each_time_it_is_changed(namespace: Cluster) -> None:
    namespace.apply(workflow())
    first = told(namespace)
    assert (first["status"], first["reason"], first["message"]) == ("True", "Accepted", "")

    namespace.apply(workflow({"name": "only", "activity": {"name": "wrok"}}))
    wrong = told(namespace)
    assert (wrong["status"], wrong["reason"]) == ("False", "InvalidSpec")
    sentence = "spec.steps[0].activity.name: activity `wrok` is not defined in `activities`; defined: work"
    assert sentence in wrong["message"]
    assert sentence in warned(namespace, "InvalidSpec")

    namespace.apply(workflow())
    mended = told(namespace)
    assert (mended["status"], mended["reason"]) == ("True", "Accepted")
    assert mended["lastTransitionTime"] >= wrong["lastTransitionTime"]
    assert namespace("get", "workflow", "order", "--no-headers").split()[1] == "True"


def test_a_pod_that_the_api_server_would_refuse_is_told_before_anyone_runs_it(namespace: Cluster) -> None:
    namespace.apply(workflow(imagePullPolicy="Sometimes"))
    refused = told(namespace)
    assert (refused["status"], refused["reason"]) == ("False", "PodRefused")
    assert refused["message"].startswith("spec.activities[0].container: ")
    assert "imagePullPolicy" in refused["message"]
    assert "imagePullPolicy" in warned(namespace, "PodRefused")

    namespace.apply(workflow(imagePullPolicy="IfNotPresent"))
    assert told(namespace)["reason"] == "Accepted"


def test_what_a_policy_of_the_namespace_refuses_is_told_too(namespace: Cluster) -> None:
    namespace.apply(workflow(securityContext={"privileged": True}))
    refused = told(namespace)
    assert (refused["status"], refused["reason"]) == ("False", "PodRefused")
    assert "restricted" in refused["message"]


def test_a_schema_that_is_too_large_written_out_is_told(namespace: Cluster) -> None:
    schema: Json = {"$defs": {"d30": {"type": "string"}}, "$ref": "#/$defs/d0"}
    for i in range(30):
        schema["$defs"][f"d{i}"] = {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
    hostile = workflow()
    hostile["spec"]["input"] = {"schema": schema}
    namespace.apply(hostile)
    assert told(namespace)["reason"] == "InvalidSpec"
    assert "spec.input.schema" in told(namespace)["message"]


def test_a_workflow_waits_for_the_retry_policies_that_it_names(namespace: Cluster) -> None:
    named = workflow()
    named["spec"]["activities"][0]["retryPolicy"] = {"name": "standard"}
    namespace.apply(named)
    missing = told(namespace)
    assert (missing["status"], missing["reason"]) == ("False", "RetryPolicyNotFound")
    assert "spec.activities[0].retryPolicy.name: there is no valid RetryPolicy `standard`" in missing["message"]
    policy = {"exponential": {"maximumAttempts": 3}}
    namespace.apply(
        {"apiVersion": "perdure.dev/v1alpha1", "kind": "RetryPolicy", "metadata": {"name": "standard"}, "spec": policy}
    )
    namespace.wait("the Workflow to be accepted", lambda: told(namespace)["reason"] == "Accepted")
    namespace.delete("retrypolicy", "standard")
    namespace.wait("the Workflow to wait again", lambda: told(namespace)["reason"] == "RetryPolicyNotFound")
