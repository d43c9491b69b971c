"""The rendered objects of the chart, for various values."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml

from perdure.api import labels
from perdure.frontend.settings import Settings
from perdure.runtime.pods.artifacts import STORE
from support.cluster.releases import CLUSTER_WIDE
from unit.chart.manifests import (
    CHART,
    EVERYTHING,
    NAMESPACED,
    REPOSITORY,
    Helm,
    Manifest,
    Render,
    granted,
    named,
    of_kind,
    operator_container,
    rules,
)

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("settings", [(), EVERYTHING, (NAMESPACED, *EVERYTHING)], ids=["default", "all", "ns"])
def test_helm_lint_passes(helm: Helm, settings: Sequence[str]) -> None:
    done = helm("lint", "--strict", str(CHART), *[x for s in settings for x in ("--set-json", s)])
    assert done.returncode == 0, done.stdout + done.stderr


# --- The operator's pod -----------------------------------------------------------------------------------------------


def test_the_pod_meets_the_restricted_pod_security_standard(render: Render) -> None:
    manifests = render(*EVERYTHING)
    pod = named(manifests, "Deployment", "perdure")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert [set(x) - {"name"} for x in pod["volumes"]] == [{"emptyDir"}, {"projected"}]
    context = operator_container(manifests)["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}


def test_the_archive_gets_its_address_and_certificates_from_a_secret(render: Render) -> None:
    manifests = render("archive.enabled=true", 'archive.secretName="runs"', 'archive.onUnavailable="Delete"')
    container = operator_container(manifests)
    env = {each["name"]: each for each in container["env"]}
    assert env["PERDURE_ARCHIVE_URL"]["valueFrom"] == {"secretKeyRef": {"name": "runs", "key": "url"}}
    assert env["PGSSLMODE"]["value"] == "verify-full"
    assert env["PERDURE_ARCHIVE_ON_UNAVAILABLE"]["value"] == "Delete"
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert env["PGSSLROOTCERT"]["value"] == f"{mounted['archive']}/ca.crt"
    pod = named(manifests, "Deployment", "perdure")["spec"]["template"]["spec"]
    assert {"name": "archive", "secret": {"secretName": "runs", "defaultMode": 0o440}} in pod["volumes"]


def test_an_archive_of_files_gets_its_bucket_from_a_secret_like_that_of_artifacts(render: Render) -> None:
    manifests = render("archive.enabled=true", 'archive.form="Files"', 'archive.secretName="runs"')
    env = {each["name"]: each for each in operator_container(manifests)["env"]}
    assert env["PERDURE_STORE_BUCKET"]["valueFrom"] == {"secretKeyRef": {"name": "runs", "key": "bucket"}}
    optional = {name: each["valueFrom"]["secretKeyRef"] for name, each in env.items() if "PERDURE_STORE_" in name}
    del optional["PERDURE_STORE_BUCKET"]
    assert {name.removeprefix("PERDURE_STORE_"): each["key"] for name, each in optional.items()} == STORE
    assert all(each["optional"] for each in optional.values())
    assert "PERDURE_ARCHIVE_URL" not in env
    assert env["PERDURE_ARCHIVE_RETENTION_DAYS"]["value"] == "0"
    pod = named(manifests, "Deployment", "perdure")["spec"]["template"]["spec"]
    assert "archive" not in [each["name"] for each in pod["volumes"]]
    assert named(manifests, "Service", "perdure-temporal")["metadata"]["annotations"] == {
        "perdure.dev/archive": "Files"
    }


def test_without_an_archive_nothing_refers_to_its_secret(render: Render) -> None:
    assert "perdure-archive" not in json.dumps(operator_container(render())["env"])


def test_routine_events_can_be_enabled(render: Render) -> None:
    env = {x["name"]: x.get("value") for x in operator_container(render("routineEvents=true"))["env"]}
    assert env["PERDURE_ROUTINE_EVENTS"] == "true"


def test_the_operator_gets_its_settings_as_environment_variables(render: Render) -> None:
    container = operator_container(render('logLevel="debug"', 'activity.serviceAccountName="beat"'))
    env = {x["name"]: x.get("value", x.get("valueFrom")) for x in container["env"]}
    assert env == {
        "PERDURE_NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        "POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "POD_UID": {"fieldRef": {"fieldPath": "metadata.uid"}},
        "PERDURE_FLEET": "perdure",
        "PERDURE_LEASE_SECONDS": "10",
        "PERDURE_UPGRADE_RECORD": "perdure-state-version",
        "PERDURE_UPGRADE_HOLD_BACK_SECONDS": "86400",
        "PERDURE_REVISION_HISTORY": "10",
        "PERDURE_UNUSED_REVISION_SECONDS": "300",
        "PERDURE_PEER_ADDRESS": "[::]:7234",
        "PERDURE_PEER_TOKEN": "/peer-token/token",
        "PERDURE_WATCH_NAMESPACES": "",
        "PERDURE_EXCLUDE_NAMESPACES": "",
        "PERDURE_LOG_LEVEL": "debug",
        "PERDURE_HTTP_PORT": "8080",
        "PERDURE_WORKERS": "32",
        "PERDURE_FINISHED_RUNS": "10000",
        "PERDURE_FINISHED_MIB": "256",
        "PERDURE_ALL_FINISHED_RUNS": "50000",
        "PERDURE_ALL_FINISHED_MIB": "1024",
        "PERDURE_OPEN_RUNS": "20000",
        "PERDURE_ACTIVITY_SERVICE_ACCOUNT": "beat",
        "PERDURE_POD_TTL_SECONDS": "300",
        "PERDURE_TEMPORAL_ADDRESS": "[::]:7233",
        "PERDURE_LINGER_SECONDS": "6",
        "PERDURE_TEMPORAL_HTTP_ADDRESS": "[::]:7243",
        "PERDURE_TEMPORAL_MAX_CONNECTIONS": "1000",
        "PERDURE_TEMPORAL_AUDIENCE": "perdure.dev/temporal",
        "PERDURE_TEMPORAL_TLS_SECRET": "perdure-temporal-tls",
        "PERDURE_TEMPORAL_TLS_NAMES": "perdure-temporal,perdure-temporal.perdure-system,perdure-temporal.perdure-system.svc,"
        "perdure-temporal.perdure-system.svc.cluster.local,localhost,127.0.0.1,::1",
        "PERDURE_TEMPORAL_CA_CONFIGMAP": "perdure-temporal-ca",
        "PERDURE_SIDECAR_IMAGE": container["image"],
    }
    probes = {x: container[x]["httpGet"]["path"] for x in container if x.endswith("Probe")}
    assert probes == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}


def test_the_frontend_and_tls_are_enabled_by_default(render: Render) -> None:
    def env(*settings: str) -> dict[str, str]:
        return {x["name"]: x.get("value", "") for x in operator_container(render(*settings))["env"]}

    assert "PERDURE_TEMPORAL_TLS_CERT" not in env()
    files = env('temporal.tls.secretName="cert"')
    assert files["PERDURE_TEMPORAL_TLS_CERT"] == "/temporal-tls/tls.crt"
    assert "PERDURE_TEMPORAL_TLS_SECRET" not in files
    clear = env("temporal.tls.enabled=false")
    assert clear["PERDURE_TEMPORAL_TLS"] == "None"
    assert not {name for name in clear if name.startswith(("PERDURE_TEMPORAL_TLS_", "PERDURE_TEMPORAL_CA"))}
    tokens = env("temporal.authentication.acceptClusterTokens=true", 'temporal.authentication.audience="ours"')
    assert tokens["PERDURE_TEMPORAL_ACCEPT_CLUSTER_TOKENS"] == "true"
    assert tokens["PERDURE_TEMPORAL_AUDIENCE"] == "ours"
    assert "PERDURE_TEMPORAL_ACCEPT_CLUSTER_TOKENS" not in env()
    assert "PERDURE_TEMPORAL_ADDRESS" not in env("temporal.enabled=false")
    assert [x["metadata"]["name"] for x in of_kind(render(), "Service")] == ["perdure", "perdure-temporal"]
    assert [x["metadata"]["name"] for x in of_kind(render("temporal.enabled=false"), "Service")] == ["perdure"]


def test_the_http_api_has_a_port_unless_disabled(render: Render) -> None:
    def ports(*settings: str) -> tuple[list[str], list[str], list[str], bool]:
        manifests = render("networkPolicy.enabled=true", *settings)
        service = named(manifests, "Service", "perdure-temporal")["spec"]["ports"]
        container = operator_container(manifests)
        policy = named(manifests, "NetworkPolicy", "perdure")["spec"]["ingress"][1]["ports"]
        env = {x["name"] for x in container["env"]}
        return (
            [x["targetPort"] for x in service],
            [x["name"] for x in container["ports"] if x["name"].startswith("temporal")],
            [x["port"] for x in policy],
            "PERDURE_TEMPORAL_HTTP_ADDRESS" in env,
        )

    both = ["temporal", "temporal-http"]
    assert ports() == (both, both, both, True)
    assert ports("temporal.httpApi.enabled=false") == (["temporal"], ["temporal"], ["temporal"], False)


def test_only_a_generated_certificate_has_an_empty_secret(render: Render) -> None:
    manifests = render()
    assert "data" not in named(manifests, "Secret", "perdure-temporal-tls")
    assert "data" not in named(manifests, "ConfigMap", "perdure-temporal-ca")
    for settings in (("temporal.enabled=false",), ("temporal.tls.enabled=false",), ('temporal.tls.secretName="cert"',)):
        assert not of_kind(render(*settings), "Secret")
        assert not any("secrets" in rule["resources"] for _, rule in rules(render(*settings)))


def test_cert_manager_can_issue_the_certificate(helm: Helm, render: Render) -> None:
    wanted = ("temporal.tls.certManager.enabled=true", 'temporal.tls.names=["flows.example.com"]')
    manifests = render(*wanted, 'temporal.tls.certManager.issuerRef={"name": "ours", "kind": "ClusterIssuer"}')
    certificate = named(manifests, "Certificate", "perdure-temporal")["spec"]
    assert certificate["issuerRef"] == {"name": "ours", "kind": "ClusterIssuer"}
    assert {"perdure-temporal.perdure-system", "localhost", "flows.example.com"} <= set(certificate["dnsNames"])
    volumes = named(manifests, "Deployment", "perdure")["spec"]["template"]["spec"]["volumes"]
    assert {"secretName": certificate["secretName"], "defaultMode": 288} in [x.get("secret") for x in volumes]
    done = helm("template", "perdure", str(CHART), *[x for s in wanted for x in ("--set-json", s)])
    assert "issuerRef must name an issuer" in done.stderr


def test_client_certificates_are_required_if_a_client_ca_is_set(render: Render) -> None:
    manifests = render('temporal.tls.clientCASecretName="clients"')
    env = {x["name"]: x.get("value", "") for x in operator_container(manifests)["env"]}
    assert env["PERDURE_TEMPORAL_TLS_CLIENT_CA"] == "/temporal-client-ca/ca.crt"
    mounts = {x["name"]: x["mountPath"] for x in operator_container(manifests)["volumeMounts"]}
    assert mounts["temporal-client-ca"] == "/temporal-client-ca"


def test_the_api_server_records_the_creator_where_it_supports_mutating_policies(helm: Helm, render: Render) -> None:
    def kinds(*arguments: str) -> set[str]:
        done = helm("template", "perdure", str(CHART), *arguments)
        assert done.returncode == 0, done.stderr
        found = [x for x in yaml.safe_load_all(done.stdout) if x and x["metadata"]["name"] == "perdure-attribution"]
        return {x["kind"] for x in found}

    fence = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert kinds() == fence
    able = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
    assert kinds(able) == fence | {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    assert kinds(able, "--set=attribution.enabled=false") == set()
    policy = named(render('serviceAccount.name="op"'), "ValidatingAdmissionPolicy", "perdure-attribution")["spec"]
    assert "'system:serviceaccount:perdure-system:op'" in policy["matchConditions"][0]["expression"]
    assert labels.CREATED_BY_ANNOTATION in policy["validations"][0]["expression"]
    binding = named(render(NAMESPACED), "ValidatingAdmissionPolicyBinding", "perdure-attribution")["spec"]
    assert binding["matchResources"]["namespaceSelector"]["matchExpressions"][0]["values"] == ["team-a", "team-b"]


def test_a_single_operator_with_a_frontend_is_recreated(render: Render) -> None:
    def strategy(*settings: str) -> str:
        [deployment] = of_kind(render(*settings), "Deployment")
        return str(deployment["spec"]["strategy"]["type"])

    assert strategy("replicas=1") == "Recreate"
    assert strategy() == "RollingUpdate"
    assert strategy("temporal.enabled=false", "replicas=1") == "RollingUpdate"


def test_a_single_operator_with_a_frontend_never_has_two_pods_of_its_template(
    render: Render,
) -> None:
    template = named(render("replicas=1"), "Deployment", "perdure")["spec"]["template"]
    (term,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/os", "all nodes that can run it have the same value"
    assert term["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert term["matchLabelKeys"] == ["pod-template-hash"], "pods of the next template are not kept from running"


def test_a_stopping_operator_rejects_connections_until_its_endpoint_is_removed(render: Render) -> None:
    manifests = render()
    pod = named(manifests, "Deployment", "perdure")["spec"]["template"]["spec"]
    container = operator_container(manifests)
    (linger,) = [float(each["value"]) for each in container["env"] if each["name"] == "PERDURE_LINGER_SECONDS"]
    probe = container["readinessProbe"]
    unready = probe["periodSeconds"] * probe["failureThreshold"]
    nodes = 2  # until kube-proxy has changed its rules
    assert unready + nodes < linger < pod["terminationGracePeriodSeconds"] / 2


def test_operators_of_a_fleet_reach_each_other_with_a_token(render: Render) -> None:
    manifests = render("replicas=3", "networkPolicy.enabled=true")
    pod = named(manifests, "Deployment", "perdure")["spec"]["template"]
    container = operator_container(manifests)
    env = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
    assert env["PERDURE_FLEET"] == "perdure"
    assert env["PERDURE_PEER_ADDRESS"] == "[::]:7234"
    assert env["POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert env["POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    (mount,) = [each for each in container["volumeMounts"] if env["PERDURE_PEER_TOKEN"].startswith(each["mountPath"])]
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == mount["name"]]
    (source,) = volume["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == Settings().peer_audience
    assert f"{mount['mountPath']}/{source['serviceAccountToken']['path']}" == env["PERDURE_PEER_TOKEN"]
    assert {each["name"]: each["containerPort"] for each in container["ports"]}["peers"] == 7234
    policy = named(manifests, "NetworkPolicy", "perdure")["spec"]
    for direction, side in (("ingress", "from"), ("egress", "to")):
        (rule,) = [each for each in policy[direction] if {"port": "peers", "protocol": "TCP"} in each["ports"]]
        (peers,) = rule[side]
        assert peers["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    alone = render("networkPolicy.enabled=true", "replicas=1")
    assert "PERDURE_PEER_ADDRESS" not in {each["name"] for each in operator_container(alone)["env"]}
    assert "peers" not in json.dumps(named(alone, "NetworkPolicy", "perdure"))


@pytest.mark.parametrize(
    "settings", [(), ("replicas=null",), ("temporal.enabled=false",)], ids=["SDKs", "null", "no SDKs"]
)
def test_two_operators_share_the_work_by_default(render: Render, settings: tuple[str, ...]) -> None:
    manifests = render(*settings)
    spec = named(manifests, "Deployment", "perdure")["spec"]
    pod = spec["template"]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (2, "RollingUpdate")
    env = {each["name"]: each.get("value") for each in operator_container(manifests)["env"]}
    assert (env["PERDURE_FLEET"], env["PERDURE_LEASE_SECONDS"]) == ("perdure", "10")
    assert {each["topologyKey"] for each in pod["topologySpreadConstraints"]} == {
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
    }
    assert pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert {each["key"]: each["tolerationSeconds"] for each in pod["tolerations"]} == {
        "node.kubernetes.io/not-ready": 5,
        "node.kubernetes.io/unreachable": 5,
    }
    assert named(manifests, "PodDisruptionBudget", "perdure")["spec"]["maxUnavailable"] == 1
    role = named(manifests, "Role", "perdure-fleet")
    assert role["metadata"]["namespace"] == "perdure-system"
    assert granted(role, "coordination.k8s.io") == {"leases": {"get", "list", "create", "patch", "delete"}}
    assert granted(role, "events.k8s.io") == {"events": {"create"}}


@pytest.mark.parametrize("settings", [("replicas=1",), ("temporal.enabled=false", "replicas=1"), ("replicas=0",)])
def test_a_single_operator_does_not_join_a_fleet(render: Render, settings: tuple[str, ...]) -> None:
    manifests = render(*settings)
    assert "PERDURE_FLEET" not in {each["name"] for each in operator_container(manifests)["env"]}
    pod = named(manifests, "Deployment", "perdure")["spec"]["template"]["spec"]
    assert not {"tolerations", "topologySpreadConstraints"} & {*pod}
    assert ("affinity" in pod) == ("temporal.enabled=false" not in settings)
    assert "perdure-fleet" not in {each["metadata"]["name"] for each in of_kind(manifests, "Role", "RoleBinding")}


def test_affinity_and_tolerations_of_a_fleet_are_configurable(render: Render) -> None:
    chosen = {"nodeAffinity": {}}
    toleration = {"key": "operators", "operator": "Exists"}
    settings = (f"affinity={json.dumps(chosen)}", f"tolerations={json.dumps([toleration])}")
    pod = named(render(*settings), "Deployment", "perdure")["spec"]["template"]["spec"]
    assert pod["affinity"] == chosen
    assert toleration in pod["tolerations"]
    assert len(pod["tolerations"]) == 3


def test_the_image_tag_defaults_to_the_chart_version(render: Render) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    digest = "sha256:" + "0" * 64
    assert operator_container(render())["image"] == f"localhost/perdure:{version}"
    assert operator_container(render('image.tag="dev"'))["image"] == "localhost/perdure:dev"
    assert operator_container(render(f'image.digest="{digest}"'))["image"] == f"localhost/perdure@{digest}"


@pytest.mark.parametrize(
    ("settings", "operator", "ui"),
    [
        ((), "localhost/perdure:", "docker.io/temporalio/ui:"),
        (
            ('image.registry="registry.example:5000/team"',),
            "registry.example:5000/team/perdure:",
            "docker.io/temporalio/ui:",
        ),
        (('imageRegistry="mirror.example/all/"',), "mirror.example/all/perdure:", "mirror.example/all/temporalio/ui:"),
        (
            ('image.repository="registry.example/flow"', 'imageRegistry="mirror.example"'),
            "registry.example/flow:",
            "mirror.example/temporalio/ui:",
        ),
        (('image.registry=""', 'image.repository="flow"'), "flow:", "docker.io/temporalio/ui:"),
    ],
    ids=["defaults", "the image's own registry", "one for all images", "a whole name", "no registry"],
)
def test_images_come_from_the_registry_in_the_values(
    render: Render, settings: tuple[str, ...], operator: str, ui: str
) -> None:
    manifests = render("ui.enabled=true", "console.enabled=true", *settings)
    images = {
        name: named(manifests, "Deployment", name)["spec"]["template"]["spec"]["containers"][0]["image"]
        for name in ("perdure", "perdure-console", "perdure-ui")
    }
    assert images["perdure"].rpartition(":")[0] + ":" == operator
    assert images["perdure-console"] == images["perdure"]
    assert images["perdure-ui"].rpartition(":")[0] + ":" == ui


def test_one_value_has_the_registry_of_every_image(render: Render) -> None:
    mirrored = 'imageRegistry="mirror.example"'
    manifests = render(*EVERYTHING, "ui.enabled=true", "console.enabled=true", mirrored, tests=True)
    images = {image for each in manifests if each["kind"] != "CustomResourceDefinition" for image in images_in(each)}
    assert {image.partition(":")[0] for image in images} == {"mirror.example/perdure", "mirror.example/temporalio/ui"}


def images_in(value: Any) -> Iterator[str]:
    """The images that a manifest names, in containers and in the settings of the operator."""
    if isinstance(value, dict):
        is_setting = str(value.get("name")).endswith("_IMAGE")
        yield from (found for key, found in value.items() if key == "image" or (is_setting and key == "value"))
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from images_in(each)


def test_all_pods_use_the_pull_secrets_in_the_values(render: Render) -> None:
    secrets = [{"name": "one"}, {"name": "two"}]
    manifests = render("ui.enabled=true", "console.enabled=true", f"imagePullSecrets={json.dumps(secrets)}", tests=True)
    pods = [each["spec"]["template"]["spec"] for each in of_kind(manifests, "Deployment")]
    pods += [each["spec"] for each in of_kind(manifests, "Pod")]
    assert [pod["imagePullSecrets"] for pod in pods] == [secrets] * 4
    env = {each["name"]: each.get("value") for each in operator_container(manifests)["env"]}
    assert env["PERDURE_IMAGE_PULL_SECRETS"] == "one,two"


def test_the_platform_can_choose_the_user(render: Render) -> None:
    manifests = render("ui.enabled=true", "console.enabled=true", "runAsUser=null", tests=True)
    pods = [each["spec"]["template"]["spec"] for each in of_kind(manifests, "Deployment")]
    pods += [each["spec"] for each in of_kind(manifests, "Pod")]
    contexts = [pod["securityContext"] for pod in pods]
    assert contexts == [{"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}] * 4
    env = {each["name"]: each.get("value") for each in operator_container(manifests)["env"]}
    assert env["PERDURE_RUN_AS_USER"] == "None"


def test_the_network_policy_lists_callers_of_each_port(render: Render) -> None:
    def callers(*settings: str) -> dict[str, Any]:
        policy = named(render("networkPolicy.enabled=true", "replicas=1", *settings), "NetworkPolicy", "perdure")
        return {port["port"]: rule.get("from") for rule in policy["spec"]["ingress"] for port in rule["ports"]}

    pods = [{"namespaceSelector": {}}]
    assert callers() == {"http": None, "temporal": pods, "temporal-http": pods}
    some, others = [{"podSelector": {"matchLabels": {"a": "b"}}}], [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    settings = (
        f"networkPolicy.ingressFrom={json.dumps(some)}",
        f"networkPolicy.temporalIngressFrom={json.dumps(others)}",
    )
    assert callers(*settings) == {"http": some, "temporal": others, "temporal-http": others}
    assert callers(*settings, "temporal.enabled=false") == {"http": some}


def test_extras_are_disabled_by_default(render: Render) -> None:
    extras = ("PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor")
    assert not of_kind(render("replicas=1"), *extras)
    assert [each["metadata"]["name"] for each in of_kind(render(), "Deployment")] == ["perdure"]
    assert {x["kind"] for x in of_kind(render(*EVERYTHING), *extras)} == set(extras)


def test_common_labels_are_on_every_object_and_cannot_break_the_selector(render: Render) -> None:
    manifests = render(*EVERYTHING, 'commonLabels={"team": "flow", "app.kubernetes.io/name": "other"}')
    for manifest in manifests:
        if manifest["kind"] != "CustomResourceDefinition":
            assert manifest["metadata"]["labels"]["team"] == "flow", manifest["kind"]
    deployment = named(manifests, "Deployment", "perdure")["spec"]
    selector = deployment["selector"]["matchLabels"].items()
    assert selector <= deployment["template"]["metadata"]["labels"].items()


def test_extra_objects_are_templates_as_objects_or_strings(render: Render) -> None:
    objects = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": '{{ include "perdure.fullname" . }}-extra'},
            "data": {"replicas": "{{ .Values.replicas }}"},
        },
        "apiVersion: v1\nkind: Secret\nmetadata: {name: {{ .Release.Name }}-key}\n",
    ]
    manifests = render(f"extraObjects={json.dumps(objects)}")
    assert named(manifests, "ConfigMap", "perdure-extra")["data"] == {"replicas": "2"}
    assert named(manifests, "Secret", "perdure-key")
    assert len(manifests) == len(render()) + 2


def test_notes_contain_three_commands(helm: Helm) -> None:
    done = helm("install", "perdure", str(CHART), "--namespace", "perdure-system", "--dry-run=client")
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:\n")[2]
    assert [x.split()[3] for x in notes.splitlines() if x.startswith("kubectl ")] == ["rollout", "apply", "wait"]
    manifest = notes.partition("<<'RUN'\n")[2].partition("\nRUN\n")[0]
    assert yaml.safe_load(manifest)["kind"] == "WorkflowRun"


# --- Values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "want_place", "want_message"),
    [
        ("replica=2", r"''|\(root\)", r"additional propert(ies 'replica'|y replica is) not allowed"),
        ('image.tga="x"', "'/image'|image", r"additional propert(ies 'tga'|y tga is) not allowed"),
        ('logLevel="loud"', "'/logLevel'|logLevel", r"must be one of.*'debug', 'info', 'warning', 'error'"),
        ('excludeNamespaces=["*"]', r"'/excludeNamespaces/0'|excludeNamespaces\.0", "does not match pattern"),
        ('watchNamespaces=["Team_A"]', r"'/watchNamespaces/0'|watchNamespaces\.0", "does not match pattern"),
        ('image.digest="sha256:1"', r"'/image/digest'|image\.digest", "does not match pattern"),
        (
            'temporal.httpApi.nexusHeaders=["x-tenant", "x-forwarded-access-token"]',
            r"'/temporal/httpApi/nexusHeaders/1'|temporal\.httpApi\.nexusHeaders\.1",
            "not",
        ),
        ('replicas="two"', "'/replicas'|replicas", r"want (null or )?integer|expected: .*integer"),
    ],
)
def test_an_invalid_value_is_rejected_with_its_path(
    helm: Helm, setting: str, want_place: str, want_message: str
) -> None:
    """With the message of helm 4 or helm 3."""
    done = helm("template", "perdure", str(CHART), "--set-json", setting)
    assert done.returncode != 0
    said = done.stderr.replace('"', "'")
    assert re.search(rf"^- (at )?({want_place}): .*({want_message})", said, re.MULTILINE | re.IGNORECASE), said


def test_further_headers_of_nexus_handlers_are_passed_to_the_operator(render: Render) -> None:
    def headers(*settings: str) -> str | None:
        [deployment] = [each for each in render(*settings) if each["kind"] == "Deployment"]
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        return {each["name"]: each.get("value") for each in container["env"]}.get("PERDURE_NEXUS_HEADERS")

    assert headers() is None
    assert headers('temporal.httpApi.nexusHeaders=["x-tenant", "x-region"]') == "x-tenant,x-region"


def test_an_existing_service_account_must_be_named(helm: Helm) -> None:
    done = helm("template", "perdure", str(CHART), "--set-json", "serviceAccount.create=false")
    assert "serviceAccount.name must be set where serviceAccount.create is false" in done.stderr


def test_two_releases_have_different_cluster_wide_names(helm: Helm, render: Render) -> None:
    settings = ('watchNamespaces=["team-c"]', "crds.enabled=false", "activity.createClusterRole=false")
    flags = [part for setting in settings for part in ("--set-json", setting)]
    second = [x for x in yaml.load_all(helm("template", "second", str(CHART), *flags).stdout, yaml.CSafeLoader) if x]
    cluster_wide = {(x["kind"], x["metadata"]["name"]) for x in second if "namespace" not in x["metadata"]}
    assert cluster_wide
    assert not cluster_wide & {(x["kind"], x["metadata"]["name"]) for x in render(NAMESPACED)}


def test_with_the_documented_values_all_objects_have_a_namespace(render: Render) -> None:
    text = (REPOSITORY / "docs" / "installing.md").read_text(encoding="utf-8")
    listed = text.partition("only namespaced objects, set these values to false: ")[2].partition(". An")[0]
    values = re.findall(r"`([\w.]+)`", listed)
    assert tuple(values) == CLUSTER_WIDE
    found = render(NAMESPACED, *(f"{each}=false" for each in values), tests=True)
    assert [each["kind"] for each in found if "namespace" not in each["metadata"]] == []
    assert "attribution.enabled" in values, "the policies of later versions of Kubernetes than that of this test"


def test_the_schema_describes_exactly_the_values() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())

    def check(path: str, schema: Manifest, value: Any) -> None:
        assert schema.get("description"), path
        if "properties" not in schema:
            return
        assert schema["additionalProperties"] is False, path
        if isinstance(value, dict) and not path.endswith(".resources"):
            assert set(value) == set(schema["properties"]) - {"global"}, path
        for name, inner in schema["properties"].items():
            check(f"{path}.{name}", inner, value.get(name) if isinstance(value, dict) else None)

    check("", json.loads((CHART / "values.schema.json").read_text()), defaults)


# --- CustomResourceDefinitions ----------------------------------------------------------------------------------------


def test_the_crds_of_the_chart_are_those_of_the_repository(render: Render) -> None:
    want = {}
    for path in sorted((REPOSITORY / "crds").glob("*.yaml")):
        for crd in yaml.load_all(path.read_text(), yaml.CSafeLoader):
            want[crd["metadata"]["name"]] = crd["spec"]
    found = of_kind(render(), "CustomResourceDefinition")
    assert want
    assert {x["metadata"]["name"]: x["spec"] for x in found} == want
    assert {x["metadata"]["annotations"]["helm.sh/resource-policy"] for x in found} == {"keep"}
    for crd in of_kind(render("crds.keep=false"), "CustomResourceDefinition"):
        assert "helm.sh/resource-policy" not in crd["metadata"].get("annotations", {})
    assert not of_kind(render("crds.enabled=false"), "CustomResourceDefinition")


def test_the_crds_of_the_chart_can_serve_one_version_alone(render: Render) -> None:
    for crd in of_kind(render("crds.v1beta1=false"), "CustomResourceDefinition"):
        assert {each["name"]: each["served"] for each in crd["spec"]["versions"]} == {
            "v1beta1": False,
            "v1alpha1": True,
        }


def test_by_default_a_network_policy_restricts_the_port_of_operators_and_nothing_else(render: Render) -> None:
    (policy,) = of_kind(render("console.enabled=true", "ui.enabled=true"), "NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    everyone, operators = policy["spec"]["ingress"]
    ports = operator_container(render())["ports"]
    assert {each["port"] for each in everyone["ports"]} == {each["name"] for each in ports} - {"peers"}
    assert "from" not in everyone
    assert [each["port"] for each in operators["ports"]] == ["peers"]
    assert operators["from"] == [{"podSelector": policy["spec"]["podSelector"]}]
    for settings in (["replicas=1"], ["networkPolicy.fleet=false"], ["temporal.enabled=false"]):
        assert not of_kind(render(*settings), "NetworkPolicy")
