"""The defaults of a namespace: what a definition takes from them, and what takes precedence."""

from datetime import timedelta
from typing import Any

import pytest

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.api.kinds.workflowrun import WorkflowRunSpec
from perdure.language.checks import check, default_mistakes
from perdure.language.defaults import (
    NamespaceDefaults,
    completed,
    is_of_defaults,
    run_marks,
    with_handlers,
    with_run_defaults,
)
from perdure.language.reuse import Composition, Library, compose_all

STEPS = [{"name": "one", "activity": {"name": "work"}}]
LIBRARY = {
    "activities": [{"name": "post", "startToCloseTimeout": "1m", "container": {"image": "post"}}],
    "blocks": [
        {"name": "notify", "steps": [{"name": "post", "activity": {"name": "post", "input": "${params.text}"}}]}
    ],
}
NOTIFY = {"workflow": "library", "block": "notify", "input": {"text": "${run.name}: ${error.message}"}, "timeout": "5m"}


def definition(**activity: Any) -> dict[str, Any]:
    work = {"name": "work", "startToCloseTimeout": "1m", "container": {"image": "work"}, **activity}
    return {"activities": [{key: value for key, value in work.items() if value is not None}], "steps": STEPS}


def complete(written: dict[str, Any], spec: dict[str, Any]) -> Composition:
    defaults = NamespaceDefaults(spec, 3)
    handled = with_handlers(written, spec)
    return completed(compose_all(handled.definition, {"library": Library(LIBRARY)}), handled, defaults)


def work_of(written: dict[str, Any], **activities: Any) -> dict[str, Any]:
    """The first activity of a definition with defaults for activities; it must be valid."""
    done = complete(written, {"activities": activities})
    WorkflowSpec.parse(done.definition)
    found: dict[str, Any] = done.definition["activities"][0]
    return found


def test_a_definition_without_a_handler_gets_the_default_with_what_that_calls() -> None:
    done = complete(definition(), {"onFailure": NOTIFY})
    assert done.definition["onFailure"] == {"block": "default-onfailure", "input": NOTIFY["input"], "timeout": "5m"}
    assert [each["name"] for each in done.definition["blocks"]] == ["default-onfailure"]
    assert [each["name"] for each in done.definition["activities"]] == ["work", "post"]
    assert not check(WorkflowSpec.parse(done.definition)).errors
    library, defaults = done.sources
    assert library["blocks"] == {"default-onfailure": "notify"}
    assert defaults == {"workflowDefaults": "default", "generation": 3, "fields": ["onFailure"]}


def test_the_handler_and_the_policy_of_a_definition_take_precedence() -> None:
    own = {
        **definition(retryPolicy={"name": "own"}),
        "blocks": [{"name": "mine", "steps": []}],
        "onFailure": {"block": "mine"},
        "stepsTimeout": "1h",
    }
    spec = {
        "onFailure": NOTIFY,
        "stepsTimeout": "2h",
        "failurePolicy": "Continue",
        "activities": {"retryPolicy": {"name": "shared"}, "scheduleToStartTimeout": "9m"},
    }
    done = complete(own, spec)
    assert done.definition["onFailure"] == {"block": "mine"}
    assert (done.definition["stepsTimeout"], done.definition["failurePolicy"]) == ("1h", "Continue")
    (work,) = done.definition["activities"]
    assert (work["retryPolicy"], work["scheduleToStartTimeout"]) == ({"name": "own"}, "9m")
    assert done.sources == (
        {
            "workflowDefaults": "default",
            "generation": 3,
            "fields": ["failurePolicy"],
            "activityFields": {"work": ["scheduleToStartTimeout"]},
        },
    )


def test_copied_activities_and_those_of_the_handler_get_the_defaults_as_well() -> None:
    written = {"activities": [{"name": "send", "from": {"workflow": "library", "activity": "post"}}], "steps": []}
    written["steps"] = [{"name": "one", "activity": {"name": "send"}}]
    done = complete(written, {"onFailure": NOTIFY, "activities": {"retryPolicy": {"name": "shared"}}})
    assert {each["name"]: each["retryPolicy"] for each in done.definition["activities"]} == {"send": {"name": "shared"}}
    assert done.definition["blocks"][0]["steps"][0]["activity"]["name"] == "send"


def test_nothing_is_taken_from_empty_defaults() -> None:
    written = definition()
    done = complete(written, {})
    assert (done.definition, done.sources) == (written, ())


def test_a_worker_takes_nothing_that_needs_a_pod() -> None:
    policy = {"exponential": {"maximumAttempts": 3}, "maximumLosses": 2}
    template = {"metadata": {"labels": {"team": "a"}}, "spec": {"nodeSelector": {"pool": "batch"}}}
    work = work_of(
        definition(container=None, worker={"taskQueue": "q"}),
        retryPolicy=policy,
        podRetention={"onSuccess": "Delete"},
        podTemplate=template,
    )
    assert work["retryPolicy"] == {"exponential": {"maximumAttempts": 3}}
    assert work.keys() == {"name", "startToCloseTimeout", "worker", "retryPolicy"}


SPEC = {
    "nodeSelector": {"pool": "batch"},
    "serviceAccountName": "batch",
    "containers": [
        {"name": "activity", "resources": {"requests": {"cpu": "1"}}, "env": [{"name": "A", "value": "default"}]},
        {"name": "proxy", "image": "proxy"},
    ],
}
TEMPLATE = {"metadata": {"labels": {"team": "a", "tier": "low"}}, "spec": SPEC}


@pytest.mark.parametrize(
    "kind", [{"container": {"image": "work"}}, {"container": None, "script": {"image": "sh", "source": "true"}}]
)
def test_a_container_keeps_its_fields_and_gets_those_that_it_does_not_have(kind: dict[str, Any]) -> None:
    name = next(each for each, value in kind.items() if value)
    own = {**kind[name], "env": [{"name": "A", "value": "own"}], "resources": {"requests": {"memory": "1Gi"}}}
    written = definition(**{**kind, name: own}, podMetadata={"labels": {"tier": "high"}}, podSpecPatch={"priority": 1})
    work = work_of(written, podTemplate=TEMPLATE)
    assert work[name]["env"] == [{"name": "A", "value": "own"}]
    assert work[name]["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}}
    assert work["podMetadata"]["labels"] == {"team": "a", "tier": "high"}
    assert work["podSpecPatch"] == {
        "nodeSelector": {"pool": "batch"},
        "serviceAccountName": "batch",
        "containers": [{"name": "proxy", "image": "proxy"}],
        "priority": 1,
    }


def test_a_pod_template_keeps_its_fields_and_its_first_container() -> None:
    own = {
        "metadata": {"labels": {"tier": "high"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "containers": [{"name": "main", "image": "work"}, {"name": "proxy", "image": "own"}],
        },
    }
    work = work_of(definition(container=None, podTemplate=own), podTemplate=TEMPLATE)
    template = work["podTemplate"]
    assert template["metadata"]["labels"] == {"team": "a", "tier": "high"}
    assert template["spec"]["nodeSelector"] == {"pool": "batch", "disk": "ssd"}
    main, proxy = template["spec"]["containers"]
    assert (main["name"], main["image"], main["resources"]) == ("main", "work", {"requests": {"cpu": "1"}})
    assert proxy == {"name": "proxy", "image": "own"}
    assert "podMetadata" not in work
    assert "podSpecPatch" not in work


def test_the_service_account_of_a_resource_stays_its_own() -> None:
    resource = {"action": "Get", "manifest": {"kind": "Pod"}, "serviceAccountName": "reader", "resources": {}}
    work = work_of(definition(container=None, resource=resource), podTemplate=TEMPLATE)
    assert "serviceAccountName" not in work["podSpecPatch"]
    main = work["podSpecPatch"]["containers"][0]
    assert main == {"name": "activity", "env": [{"name": "A", "value": "default"}]}


def test_a_mistake_in_a_handler_names_the_defaults() -> None:
    missing = complete(definition(), {"onFailure": {**NOTIFY, "workflow": "nowhere"}}).missing
    assert [each.path for each in missing] == ["WorkflowDefaults `default`: spec.onFailure.workflow"]
    wrong = complete(definition(), {"finally": {**NOTIFY, "block": "notfy"}})
    (finding,) = wrong.findings
    assert is_of_defaults(finding.path)
    assert str(finding) == (
        "WorkflowDefaults `default`: spec.finally.block: Workflow `library` has no block `notfy`; did you mean `notify`?"
    )
    handler = {**NOTIFY, "input": "${nothing.at.all}"}
    done = complete(definition(), {"onFailure": handler})
    checked = check(WorkflowSpec.parse(done.definition))
    assert [each.path for each in done.located(checked.errors)] == ["WorkflowDefaults `default`: spec.onFailure.input"]


def test_a_run_takes_the_timeout_and_the_labels_that_it_does_not_have() -> None:
    defaults = NamespaceDefaults(
        {"runTimeout": "1d", "runMetadata": {"labels": {"team": "a", "perdure.dev/x": "no"}, "annotations": {"b": "c"}}}
    )
    plain = WorkflowRunSpec.parse({"workflow": {"name": "w"}})
    assert with_run_defaults(plain, defaults).run_timeout == timedelta(days=1)
    for own in ({"runTimeout": "2d"}, {"executionTimeout": "3d"}):
        spec = WorkflowRunSpec.parse({"workflow": {"name": "w"}, **own})
        assert with_run_defaults(spec, defaults) == spec
    assert run_marks({"metadata": {}}, defaults) == ({"team": "a"}, {"b": "c"})
    assert run_marks({"metadata": {"labels": {"team": "b"}}}, defaults)[0] == {}


def test_labels_that_no_object_can_have_are_reported() -> None:
    found = default_mistakes(
        {"runMetadata": {"labels": {"a b": "x"}}, "activities": {"podTemplate": {"metadata": {"labels": {"a": "!"}}}}}
    )
    assert [each.path for each in found] == ["spec.runMetadata.labels", "spec.activities.podTemplate.metadata.labels"]
    assert [each.path for each in default_mistakes({"onFailure": {"block": "b"}})] == ["spec.onFailure.workflow"]
