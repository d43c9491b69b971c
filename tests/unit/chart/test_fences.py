"""The admission policies of the chart, as far as they can be read without an API server."""

import json
import re

import pytest

from perdure.api import labels
from perdure.language.checks.texts import KNOWN
from perdure.runtime.pods import payloads
from unit.chart.manifests import CHART, NAMESPACED, Helm, Render, named, of_kind, operator_container

pytestmark = pytest.mark.cluster

WARNS = "perdure-expressions"
OF_THE_OPERATOR = "perdure-workers"
"""Restricts nobody but the operator of this release, and so in all namespaces."""


def test_the_lease_policy_uses_the_label_of_the_operator(render: Render) -> None:
    policy = named(render(), "ValidatingAdmissionPolicy", "perdure-leases")
    (selector,) = policy["spec"]["matchConstraints"]["objectSelector"]["matchExpressions"]
    assert selector == {"key": labels.RUN_ID_LABEL, "operator": "Exists"}
    text = json.dumps(policy)
    assert labels.HEARTBEAT_DETAILS_ANNOTATION in text
    assert labels.RESULT_ANNOTATION in text
    assert f"size() <= {payloads.HEARTBEAT_DETAILS_LIMIT}" in text
    assert f"size() <= {payloads.LARGE_RESULT_LIMIT}" in text
    other = named(render(), "ValidatingAdmissionPolicy", "perdure-other-leases")
    assert f"'{labels.RUN_ID_LABEL}' in oldObject" in other["spec"]["matchConditions"][0]["expression"]


def test_the_lease_policy_trusts_the_operator_of_the_release(render: Render) -> None:
    policy = named(render('serviceAccount.name="op"'), "ValidatingAdmissionPolicy", "perdure-leases")
    (trusted,) = [x["expression"] for x in policy["spec"]["variables"] if x["name"] == "isTrusted"]
    assert "== 'system:serviceaccount:perdure-system:op'" in trusted


def test_the_fleet_policy_allows_only_operators_of_the_release(render: Render) -> None:
    manifests = render("replicas=3", 'serviceAccount.name="op"', NAMESPACED)
    policy = named(manifests, "ValidatingAdmissionPolicy", "perdure-fleet")["spec"]
    env = {each["name"]: each.get("value") for each in operator_container(manifests)["env"]}
    constraints = policy["matchConstraints"]
    assert constraints["objectSelector"]["matchLabels"] == {labels.FLEET_LABEL: env["PERDURE_FLEET"]}
    assert constraints["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "perdure-system"}
    assert policy["matchConditions"][0]["expression"].endswith("!= 'system:serviceaccount:perdure-system:op'")
    assert "matchResources" not in named(manifests, "ValidatingAdmissionPolicyBinding", "perdure-fleet")["spec"]
    alone = of_kind(render("replicas=1"), "ValidatingAdmissionPolicy")
    assert "perdure-fleet" not in {each["metadata"]["name"] for each in alone}


def test_the_pod_policy_trusts_the_operator_and_selects_by_its_label(render: Render) -> None:
    policy = named(render('serviceAccount.name="op"'), "ValidatingAdmissionPolicy", "perdure-pods")
    (selector,) = policy["spec"]["matchConstraints"]["objectSelector"]["matchExpressions"]
    assert selector == {"key": labels.RUN_ID_LABEL, "operator": "Exists"}
    assert policy["spec"]["matchConditions"][0]["expression"].endswith("!= 'system:serviceaccount:perdure-system:op'")


def test_pods_that_delete_artifacts_are_protected_in_the_same_way(render: Render) -> None:
    policies = [named(render(), "ValidatingAdmissionPolicy", f"perdure-{name}") for name in ("pods", "deletion-pods")]
    (selector,) = policies[1]["spec"]["matchConstraints"]["objectSelector"]["matchExpressions"]
    assert selector == {"key": labels.ARTIFACT_STORE_LABEL, "operator": "Exists"}
    binding = named(render(), "ValidatingAdmissionPolicyBinding", "perdure-deletion-pods")
    assert binding["spec"]["policyName"] == "perdure-deletion-pods"
    rules = [policy["spec"]["validations"][1:] for policy in policies]
    assert rules[0] == rules[1]


def test_the_run_policy_trusts_the_operator_and_protects_its_labels(render: Render) -> None:
    policy = named(render('serviceAccount.name="op"'), "ValidatingAdmissionPolicy", "perdure-runs")
    assert policy["spec"]["matchConditions"][0]["expression"].endswith("!= 'system:serviceaccount:perdure-system:op'")
    validation, owners = policy["spec"]["validations"]
    marks = (
        labels.PARENT_ANNOTATION,
        labels.CONTINUES_ANNOTATION,
        labels.START_SIGNAL_ANNOTATION,
        labels.PARENT_RUN_LABEL,
    )
    assert all(mark.startswith("perdure.dev/") for mark in marks)
    assert validation["expression"].count("!k.startsWith('perdure.dev/')") == 2
    assert "variables.newOwners == variables.oldOwners" in owners["expression"]


def fenced(*settings: str, render: Render) -> list[str]:
    """The namespaces in which nothing that starts runs is admitted."""
    policies = of_kind(render(*settings), "ValidatingAdmissionPolicy")
    found = [each["spec"] for each in policies if each["metadata"]["name"] == "perdure-namespaces"]
    return [
        name
        for policy in found
        for name in policy["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]["values"]
    ]


def test_namespaces_of_system_components_and_of_the_operator_are_fenced(render: Render) -> None:
    system = ["kube-system", "kube-public", "kube-node-lease", "perdure-system"]
    assert fenced(render=render) == system
    assert fenced('watchNamespaces=["perdure-system", "shop"]', render=render) == []
    assert fenced("namespaceFence.namespaces=[]", render=render) == ["perdure-system"]
    assert fenced("namespaceFence.enabled=false", render=render) == []
    (run,) = of_kind(render("helmTest.enabled=true", tests=True), "Workflow")
    assert run["metadata"]["namespace"] not in system


def test_the_spec_of_a_run_is_compared_only_on_updates_of_the_run(render: Render) -> None:
    policy = named(render(), "ValidatingAdmissionPolicy", "perdure-run-specs")["spec"]
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["workflowruns"], ["UPDATE"])
    assert "matchConditions" not in policy
    (validation,) = policy["validations"]
    assert validation["message"].startswith("spec: `spec` must not change, except `ttlSecondsAfterFinished`")


def test_the_definition_policy_trusts_the_operator_and_checks_permission_to_create_pods(render: Render) -> None:
    policy = named(render('serviceAccount.name="op"'), "ValidatingAdmissionPolicy", "perdure-definitions")["spec"]
    assert policy["failurePolicy"] == "Fail"
    (condition,) = policy["matchConditions"]
    assert condition["expression"].endswith("!= 'system:serviceaccount:perdure-system:op'")
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert rule["resources"] == [
        "workflows",
        "workflowdefaults",
        "workflowrevisions",
        "workflowruns",
        "workflowruns/status",
        "schedules",
        "deadletters",
    ]
    assert rule["operations"] == ["CREATE", "UPDATE"]
    may_create = "|| authorizer.group('').resource('{}').namespace(request.namespace).check('create').allowed()"
    for validation, resource in zip(policy["validations"], ("pods", "pods", "persistentvolumeclaims"), strict=True):
        assert validation["expression"].endswith(may_create.format(resource))


def test_the_policy_about_expressions_only_warns_and_knows_the_names(render: Render) -> None:
    policy = named(render('serviceAccount.name="op"'), "ValidatingAdmissionPolicy", WARNS)["spec"]
    assert policy["failurePolicy"] == "Ignore"
    (condition,) = policy["matchConditions"]
    assert condition["expression"].endswith("!= 'system:serviceaccount:perdure-system:op'")
    binding = named(render(), "ValidatingAdmissionPolicyBinding", WARNS)["spec"]
    assert binding["validationActions"] == ["Warn"]
    (pattern,) = [each["expression"] for each in policy["variables"] if each["name"] == "expression"]
    (names,) = re.findall(r"\(([a-z|]+)\)", pattern)
    assert set(names.split("|")) == KNOWN
    assert WARNS not in [
        each["metadata"]["name"]
        for each in of_kind(render("expressionWarnings.enabled=false"), "ValidatingAdmissionPolicy")
    ]


def test_only_users_who_can_delete_runs_can_create_operations_that_delete_them(render: Render) -> None:
    """People on call may create Operations, but not delete runs."""
    policy = named(render(), "ValidatingAdmissionPolicy", "perdure-deletions")["spec"]
    assert policy["failurePolicy"] == "Fail"
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["operations"], ["CREATE"])
    (condition,) = policy["matchConditions"]
    assert condition["expression"] == "has(dyn(object).spec.delete)"
    (validation,) = policy["validations"]
    assert "resource('workflowruns')" in validation["expression"]
    assert validation["expression"].endswith(".check('delete').allowed()")


def test_inline_definitions_can_be_denied_only_with_the_definition_policy(helm: Helm, render: Render) -> None:
    deny = 'definitionFence.inlineDefinitions="Deny"'
    name = "perdure-inline-definitions"
    assert name not in [x["metadata"]["name"] for x in of_kind(render(), "ValidatingAdmissionPolicy")]
    policy = named(render(deny), "ValidatingAdmissionPolicy", name)["spec"]
    (condition,) = policy["matchConditions"]
    for key in (labels.CONTINUES_ANNOTATION, labels.RESET_ANNOTATION, labels.DEAD_LETTER_ANNOTATION):
        assert f"'{key}'" in condition["expression"]
    assert named(render(deny), "ValidatingAdmissionPolicyBinding", name)["spec"]["policyName"] == name
    flags = ("--set-json", deny, "--set-json", "definitionFence.enabled=false")
    assert "requires definitionFence.enabled: true" in helm("template", "perdure", str(CHART), *flags).stderr


def test_the_policies_apply_to_the_namespaces_of_the_operator(render: Render) -> None:
    bindings = of_kind(render(), "ValidatingAdmissionPolicyBinding")
    assert [x["spec"]["policyName"] for x in bindings] == [x["metadata"]["name"] for x in bindings]
    assert all(x["spec"]["validationActions"] == ["Deny"] for x in bindings if x["spec"]["policyName"] != WARNS)
    assert not any("matchResources" in x["spec"] for x in bindings)
    for binding in of_kind(render(NAMESPACED, "replicas=1"), "ValidatingAdmissionPolicyBinding"):
        if binding["spec"]["policyName"] == OF_THE_OPERATOR:
            continue
        (selector,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert selector["values"] == ["team-a", "team-b"]


def test_the_policies_do_not_apply_to_excluded_namespaces(render: Render) -> None:
    manifests = render('excludeNamespaces=["team-*", "bank"]', "replicas=1")
    assert {"name": "PERDURE_EXCLUDE_NAMESPACES", "value": "team-*,bank"} in operator_container(manifests)["env"]
    policies = [*of_kind(manifests, "ValidatingAdmissionPolicy"), *of_kind(manifests, "MutatingAdmissionPolicy")]
    assert len(policies) > 5
    for policy in policies:
        if policy["metadata"]["name"] == OF_THE_OPERATOR:
            continue
        first = policy["spec"]["matchConditions"][0]
        assert first["expression"] == "!request.namespace.matches('^(team-.*|bank)$')"


def test_the_policies_can_be_disabled(render: Render) -> None:
    without = [
        f"{fence}Fence.enabled=false" for fence in ("lease", "pod", "run", "definition", "deletion", "namespace")
    ]
    left = render("attribution.enabled=false", "expressionWarnings.enabled=false", *without)
    assert not [x for x in left if x["kind"].startswith("ValidatingAdmission")]
