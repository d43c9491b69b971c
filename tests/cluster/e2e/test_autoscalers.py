"""An autoscaler owns the number of worker pods: Kubernetes' HorizontalPodAutoscaler, by the backlog that the operators report.

In place of prometheus-adapter, a pod of the test serves the external metrics API from the metrics of the operators. The manifest
is that of docs/workers.md.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import trustme
import yaml

from bench.definitions import RESTRICTED
from support.cluster.command import perdure
from support.cluster.namespace import IMAGE, Cluster
from support.manuals import REPOSITORY

pytestmark = [pytest.mark.cluster, pytest.mark.alone]  # the cluster has one API of external metrics

FLOW: Final = """
import perdure.flow as pf

shop = pf.Environment("shop", cpu="10m", memory="64Mi")


@shop.flow
async def order(name: str) -> str:
    return name
"""
ADAPTER: Final = """
import json, os, re, ssl, urllib.request
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

GROUP = "external.metrics.k8s.io/v1beta1"


def total(name, wanted):
    found = 0.0
    for address in os.environ["OPERATORS"].split(","):
        try:
            with urllib.request.urlopen(f"http://{address}:8080/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            continue  # an operator that an earlier test has replaced
        for line in lines:
            if line.startswith(name + "{"):
                labels = dict(re.findall(r'(\\w+)="([^"]*)"', line))
                if wanted.items() <= labels.items():
                    found += float(line.rpartition(" ")[2])
    return found


class Adapter(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlsplit(self.path)
        if "/namespaces/" in url.path:
            namespace, name = url.path.split("/namespaces/")[1].split("/")
            selector = parse_qs(url.query).get("labelSelector", [""])[0]
            wanted = dict(each.split("=", 1) for each in selector.split(",") if each)
            value = str(int(total(name, {"namespace": namespace, **wanted})))
            now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            item = {"metricName": name, "metricLabels": wanted, "timestamp": now, "value": value}
            told = {"kind": "ExternalMetricValueList", "apiVersion": GROUP, "metadata": {}, "items": [item]}
        else:
            kind = {"name": "perdure_task_queue_backlog", "namespaced": True, "kind": "ExternalMetricValueList"}
            kind |= {"singularName": "", "verbs": ["get"]}
            told = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP, "resources": [kind]}
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("", 8443), Adapter)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
METRICS: Final = "v1beta1.external.metrics.k8s.io"


def autoscaler() -> dict[str, Any]:
    """The HorizontalPodAutoscaler of the page."""
    page = (REPOSITORY / "docs" / "workers.md").read_text(encoding="utf-8")
    (found,) = [
        document
        for block in page.split("```yaml\n")[1:]
        for document in yaml.safe_load_all(block.split("```")[0])
        if document["kind"] == "HorizontalPodAutoscaler"
    ]
    return dict(found)


@pytest.fixture
def external_metrics(namespace: Cluster) -> Iterator[None]:
    """The API of external metrics, served by a pod from the metrics of the operators."""
    authority = trustme.CA()
    certificate = authority.issue_cert(f"metrics.{namespace.namespace}.svc")
    tls = {
        "tls.crt": b"".join(each.bytes() for each in certificate.cert_chain_pems),
        "tls.key": certificate.private_key_pem.bytes(),
    }
    operators = (
        "-n",
        "perdure-system",
        "-l=app.kubernetes.io/component=operator",
        "--field-selector=status.phase=Running",
    )
    addresses = namespace("get", "pods", *operators, "-o", "jsonpath={.items[*].status.podIP}").split()
    labels = {"app": "metrics"}
    container = {
        "name": "metrics",
        "image": IMAGE,
        "command": ["python", "-c", ADAPTER],
        "env": [{"name": "OPERATORS", "value": ",".join(addresses)}],
        "ports": [{"containerPort": 8443}],
        "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
        "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
        "securityContext": RESTRICTED,
    }
    namespace.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "metrics"},
            "data": {name: base64.b64encode(data).decode() for name, data in tls.items()},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "metrics", "labels": labels},
            "spec": {
                "containers": [container],
                "volumes": [{"name": "tls", "secret": {"secretName": "metrics"}}],
                "terminationGracePeriodSeconds": 0,
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "metrics"},
            "spec": {"selector": labels, "ports": [{"port": 443, "targetPort": 8443}]},
        },
    )
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": METRICS},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "service": {"name": "metrics", "namespace": namespace.namespace},
            "caBundle": base64.b64encode(authority.cert_pem.bytes()).decode(),
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }
    namespace("apply", "-f", "-", stdin=yaml.safe_dump(service))
    try:
        namespace("wait", "--for=condition=Available", "apiservice", METRICS, "--timeout=120s")
        yield
    finally:
        namespace("delete", "apiservice", METRICS)


@pytest.mark.usefixtures("external_metrics")
def test_a_horizontal_pod_autoscaler_scales_workers_by_the_backlog(namespace: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(FLOW)
    perdure(namespace, "deploy", str(file), "--image", IMAGE, "--mount")
    namespace("patch", "workerdeployment", "shop", "--type=merge", "-p", '{"spec": {"replicas": 1}}')

    def replicas() -> int:
        found = (namespace.get("workerdeployment", "shop") or {}).get("status") or {}
        return int(found.get("replicas") or 0) if found.get("currentBuildId") else 0

    namespace.wait("one worker", lambda: replicas() == 1, seconds=240)
    manifest = autoscaler()
    manifest["spec"]["scaleTargetRef"]["name"] = "shop"
    manifest["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    (metric,) = manifest["spec"]["metrics"]
    metric["external"]["metric"]["selector"]["matchLabels"]["task_queue"] = "stuck"  # which no worker polls
    namespace.apply(manifest)
    runs = [f"waiting-{number}" for number in range(25)]
    for name in runs:
        namespace.start(name, {"workflow": {"type": "order", "taskQueue": "stuck"}, "input": {"name": name}})
    namespace.wait("three workers for 25 tasks, ten for each", lambda: replicas() == 3, seconds=300)
    for name in runs:
        namespace.delete("workflowrun", name)
    namespace.wait("one worker again", lambda: replicas() == 1, seconds=300)
    namespace("scale", "workerdeployment", "shop", "--replicas=2")
