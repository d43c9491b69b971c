"""The roles of the chart: permissions of the operator, activities, users, workers, and Temporal clients."""

from collections.abc import Sequence

import pytest

from perdure.frontend.nexus.endpoints import CONFIG_MAP
from perdure.kube.paths import PLURALS
from unit.chart.manifests import (
    CHART,
    EVERYTHING,
    NAMESPACED,
    Helm,
    Render,
    granted,
    named,
    of_kind,
    operator_container,
    rules,
)

pytestmark = pytest.mark.cluster


# --- Rights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [EVERYTHING, (NAMESPACED,)], ids=["cluster", "namespaces"])
def test_no_role_has_a_wildcard_or_reads_other_secrets(render: Render, settings: Sequence[str]) -> None:
    secret = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "update"]}
    certificate = {**secret, "resourceNames": ["perdure-temporal-tls"]}
    for name, rule in rules(render(*settings)):
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], name
        assert "secrets" not in rule["resources"] or (name == "perdure-temporal-tls" and rule == certificate), name
        assert not {"escalate", "impersonate"} & set(rule["verbs"]), name


def test_the_operator_has_its_permissions_and_cannot_watch_leases(render: Render) -> None:
    operator = named(render(), "ClusterRole", "perdure")
    permissions = granted(operator, "perdure.dev")
    assert permissions == {
        "workflows": {"get", "list", "watch"},
        "retrypolicies": {"get", "list", "watch"},
        "retrypolicies/status": {"update"},
        "workflowlimits": {"get", "list", "watch"},
        "workflowdefaults": {"get", "list", "watch", "create", "patch"},
        "workflowdefaults/status": {"update"},
        "workflowlimits/status": {"update"},
        "webhooks": {"get", "list", "watch"},
        "webhooks/status": {"update"},
        "workerdeployments": {"get", "list", "watch"},
        "workerdeployments/status": {"update"},
        "operations": {"get", "list", "watch", "create", "delete"},
        "operations/status": {"update"},
        "schedules": {"get", "list", "watch", "create", "update", "delete"},
        "schedules/status": {"update"},
        "workflowruns": {"get", "list", "watch", "create", "patch", "delete"},
        "workflowruns/status": {"update"},
        "deadletters": {"get", "list", "create"},
        "deadletters/status": {"update"},
        "historysegments": {"get", "create"},
        "payloads": {"get", "list", "create", "patch", "delete"},
        "artifactsets": {"get", "list", "create", "patch", "delete"},
        "workflowrevisions": {"get", "list", "create", "patch", "delete"},
        "cachedresults": {"get", "list", "create", "delete"},
        "workflows/status": {"update"},
    }
    assert granted(operator, "")["pods/log"] == {"get"}
    assert granted(operator, "")["persistentvolumeclaims"] == {"get", "list", "create", "patch", "delete"}
    assert granted(operator, "coordination.k8s.io") == {"leases": {"get", "create", "patch"}}
    assert granted(operator, "apps") == {"deployments": {"list", "create", "patch", "delete"}}


@pytest.mark.parametrize("setting", ["workerDeployments.enabled=false", "temporal.enabled=false"])
def test_an_operator_that_runs_no_workers_has_no_rights_to_deployments(render: Render, setting: str) -> None:
    manifests = render(setting)
    assert granted(named(manifests, "ClusterRole", "perdure"), "apps") == {}
    policies = [each["metadata"]["name"] for each in of_kind(manifests, "ValidatingAdmissionPolicy")]
    assert not {"perdure-workers", "perdure-worker-templates"} & set(policies)


def test_the_operator_can_bind_only_the_activity_role(render: Render) -> None:
    operator = named(render(), "ClusterRole", "perdure")
    assert [x["resourceNames"] for x in operator["rules"] if "bind" in x["verbs"]] == [["perdure-activity"]]
    assert granted(operator, "rbac.authorization.k8s.io") == {
        "rolebindings": {"create"},
        "clusterroles": {"bind"},
    }
    assert granted(operator, "")["serviceaccounts"] == {"create"}
    assert granted(operator, "")["services"] == {"get", "create", "delete"}


def test_account_binding_and_role_of_activities_have_the_same_name(render: Render) -> None:
    manifests = render('activity.serviceAccountName="beat"')
    named(manifests, "ClusterRole", "beat")
    operator = named(manifests, "ClusterRole", "perdure")
    assert {x for rule in operator["rules"] for x in rule.get("resourceNames", ())} == {
        "beat",
        "perdure-search-attributes",
        "perdure-task-queues",
        "perdure-temporal-ca",
        "perdure-worker-deployments",
    }
    account = {"name": "PERDURE_ACTIVITY_SERVICE_ACCOUNT", "value": "beat"}
    assert account in operator_container(manifests)["env"]


def test_activities_can_only_renew_leases(render: Render) -> None:
    role = named(render(), "ClusterRole", "perdure-activity")
    assert granted(role, "coordination.k8s.io") == {"leases": {"get", "patch"}}
    assert granted(role, "perdure.dev") == {"activities": {"heartbeat"}}
    assert len(role["rules"]) == 2


def test_the_default_user_roles_include_perdures_kinds(render: Render) -> None:
    manifests = render()
    view = granted(named(manifests, "ClusterRole", "perdure-view"), "perdure.dev")
    edit = granted(named(manifests, "ClusterRole", "perdure-edit"), "perdure.dev")
    assert set(view) == PLURALS
    assert all(verbs == {"get", "list", "watch"} for verbs in view.values())
    of_frontend = {f"{each}/temporal" for each in ("workerdeployments", "taskqueues", "searchattributes")}
    of_operators = {"historysegments", "payloads", "artifactsets", "workflowrevisions"}
    assert set(edit) == PLURALS - of_operators | of_frontend | {"workflowruns/tasks", "workerdeployments/scale"}
    assert edit["deadletters"] == edit["cachedresults"] == {"delete", "deletecollection"}
    left = [x["metadata"]["name"] for x in of_kind(render("rbac.aggregate=false", "rbac.onCall=false"), "ClusterRole")]
    of_temporal = [f"perdure-temporal{role}" for role in ("", "-client", "-maintainer", "-nexus-admin", "-worker")]
    assert sorted(left) == ["perdure", "perdure-activity", *of_temporal]


def test_the_on_call_role_reads_everything_and_writes_only_operations(render: Render) -> None:
    role = named(render("rbac.aggregate=false"), "ClusterRole", "perdure-on-call")
    assert not [key for key in role["metadata"]["labels"] if "aggregate" in key]
    may = granted(role, "perdure.dev")
    assert set(may) == PLURALS
    assert may.pop("operations") == {"get", "list", "watch", "create", "delete"}
    assert all(verbs == {"get", "list", "watch"} for verbs in may.values())


def test_namespaced_mode_has_only_access_reviews_as_cluster_wide_permissions(helm: Helm, render: Render) -> None:
    manifests = render(NAMESPACED)
    (binding,) = of_kind(manifests, "ClusterRoleBinding")
    reviews = named(manifests, "ClusterRole", binding["roleRef"]["name"])
    assert granted(reviews, "authentication.k8s.io") == {"tokenreviews": {"create"}}
    assert granted(reviews, "authorization.k8s.io") == {"subjectaccessreviews": {"create"}}
    assert len(reviews["rules"]) == 2
    roles = [role for role in of_kind(manifests, "Role") if role["metadata"]["name"] == "perdure"]
    assert [granted(role, "")["namespaces"] for role in roles] == [{"get"}, {"get"}]
    everywhere = named(render(), "ClusterRole", "perdure-temporal")
    assert granted(everywhere, "")["namespaces"] == {"get", "list"}
    assert "namespaces" not in granted(named(render(), "ClusterRole", "perdure"), "")

    def notes(*settings: str) -> str:
        flags = [part for setting in settings for part in ("--set-json", setting)]
        return helm(
            "install", "perdure", str(CHART), "--dry-run=client", "--namespace", "perdure-system", *flags
        ).stdout

    assert "has one ClusterRole, perdure-temporal" in notes(NAMESPACED)
    assert "ClusterRole, perdure-temporal" not in notes()
    assert "ClusterRole, perdure-temporal" not in notes(NAMESPACED, "temporal.enabled=false")


def test_the_operator_may_write_only_its_own_record_of_upgrades(render: Render) -> None:
    role = named(render(), "Role", "perdure-upgrades")
    assert role["metadata"]["namespace"] == "perdure-system"
    named_only = [each for each in role["rules"] if each.get("resourceNames")]
    assert named_only == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["perdure-state-version"],
            "verbs": ["get", "update"],
        }
    ]


def test_namespaced_mode_without_a_frontend_has_no_cluster_wide_permissions(render: Render) -> None:
    alone = ("temporal.enabled=false",)
    manifests = render(NAMESPACED, *alone)
    assert not of_kind(manifests, "ClusterRoleBinding")
    assert "perdure" not in [x["metadata"]["name"] for x in of_kind(manifests, "ClusterRole")]
    roles, bindings = of_kind(manifests, "Role"), of_kind(manifests, "RoleBinding")
    assert [x["metadata"]["namespace"] for x in roles] == ["perdure-system", "perdure-system", "team-a", "team-b"]
    assert [x["metadata"]["namespace"] for x in bindings] == ["perdure-system", "perdure-system", "team-a", "team-b"]
    roles = [x for x in roles if x["metadata"]["name"] not in {"perdure-fleet", "perdure-upgrades"}]
    (cluster_role,) = [x for x in of_kind(render(*alone), "ClusterRole") if x["metadata"]["name"] == "perdure"]
    assert all(x["rules"] == cluster_role["rules"] for x in roles)
    assert all(x["subjects"][0]["namespace"] == "perdure-system" for x in bindings)
    env = {x["name"]: x.get("value") for x in operator_container(manifests)["env"]}
    assert env["PERDURE_WATCH_NAMESPACES"] == "team-a,team-b"


def test_the_worker_role_allows_only_polling_and_reading(render: Render) -> None:
    worker = granted(named(render(), "ClusterRole", "perdure-temporal-worker"), "perdure.dev")
    assert worker == {"workflowruns/tasks": {"update"}, "workflowruns": {"get"}}


def test_the_maintainer_role_allows_no_config_map(render: Render) -> None:
    role = named(render(), "ClusterRole", "perdure-temporal-maintainer")
    resources = ("workerdeployments", "taskqueues", "searchattributes")
    assert granted(role, "perdure.dev") == {
        **{f"{each}/temporal": {"update", "delete"} for each in resources},
        "workflowdefaults/temporal": {"update"},
    }
    assert {group for rule in role["rules"] for group in rule["apiGroups"]} == {"perdure.dev"}


def test_the_client_role_writes_only_through_the_frontend(render: Render) -> None:
    client = granted(named(render(), "ClusterRole", "perdure-temporal-client"), "perdure.dev")
    assert client == {
        "workflowruns": {"get", "list"},
        "schedules": {"get", "list"},
        "workflowruns/temporal": {"create"},
        "operations/temporal": {"create"},
        "schedules/temporal": {"create", "update", "delete"},
    }


def test_only_the_operator_and_administrators_write_nexus_endpoints(render: Render) -> None:
    manifests = render()
    operator = named(manifests, "Role", "perdure-temporal-nexus")
    (rule,) = operator["rules"]
    assert (rule["resourceNames"], set(rule["verbs"])) == ([CONFIG_MAP], {"get", "update"})
    assert named(manifests, "ConfigMap", CONFIG_MAP)["metadata"]["namespace"] == operator["metadata"]["namespace"]
    admin = granted(named(manifests, "ClusterRole", "perdure-temporal-nexus-admin"), "perdure.dev")
    assert admin == {"nexusendpoints": {"get", "list", "create", "update", "delete"}}
    assert not [each for each in render("temporal.enabled=false") if "nexus" in each["metadata"]["name"]]
