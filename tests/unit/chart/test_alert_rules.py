"""The alerts, evaluated by Prometheus' own promtool on recorded series: what fires, when, and with which words."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from unit.chart.manifests import Render, named

pytestmark = [pytest.mark.cluster, pytest.mark.bench, pytest.mark.timeout(600)]

JOB = 'job="perdure"'
QUEUE = f'{{{JOB}, exported_namespace="shop", task_queue="orders", kind="activity"}}'


@pytest.fixture(scope="session")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The promtool of this machine, or that of Debian's package, which is unpacked but not installed."""
    if found := shutil.which("promtool"):
        return found
    folder = tmp_path_factory.mktemp("prometheus")
    for command in (["apt-get", "update", "-qq"], ["apt-get", "download", "-qq", "prometheus"]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    [package] = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, folder], check=True, timeout=60)
    return str(folder / "usr/bin/promtool")


def alert(name: str, minute: int, *expected: dict[str, str], **series: str) -> dict[str, Any]:
    """A case: which labels an alert has after some minutes.

    Args:
        name: The alert.
        minute: When it is evaluated.
        expected: The labels of each alert that fires; none: it must not fire.
        series: Values a minute by series, in promtool's notation.
    """
    return {
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "alert_rule_test": [
            {"alertname": name, "eval_time": f"{minute}m", "exp_alerts": [{"exp_labels": one} for one in expected]}
        ],
    }


def rpcs(code: str) -> str:
    return f'perdure_temporal_rpcs_total{{{JOB}, rpc="StartWorkflowExecution", code="{code}"}}'


def waits(bound: str) -> str:
    kind = "bucket" if bound else "count"
    label = f', le="{bound}"' if bound else ""
    return f'perdure_queue_wait_seconds_{kind}{{{JOB}, queue="runs"{label}}}'


WARNING, CRITICAL = {"severity": "warning"}, {"severity": "critical"}
OF_QUEUE = {"exported_namespace": "shop", "task_queue": "orders", "kind": "activity"}
BACKLOG, POLLERS = f"perdure_task_queue_backlog{QUEUE}", f"perdure_task_queue_pollers{QUEUE}"
AGE = f"perdure_task_queue_backlog_age_seconds{QUEUE}"
EXPIRY = f"perdure_temporal_certificate_expiry_timestamp_seconds{{{JOB}}}"
USED = f"perdure_finished_runs_limit_used_ratio{{{JOB}}}"
NEAR = f'perdure_runs_near_limit{{{JOB}, exported_namespace="shop"}}'
OPEN = f'perdure_open_runs{{{JOB}, exported_namespace="shop", workflow="order"}}'
MOST_OPEN = f"perdure_open_runs_limit{{{JOB}}}"
MEMORY = f'perdure_runs_waiting_for_capacity{{{JOB}, cause="Memory"}}'
UP, HAS_ARCHIVE = f"perdure_archive_up{{{JOB}}}", f"perdure_archive_enabled{{{JOB}}}"
LOST = f'perdure_archive_deleted_unarchived_runs_total{{{JOB}, exported_namespace="shop"}}'
ETCD = 'apiserver_storage_size_bytes{job="apiserver", instance="a"}'
API_SERVER = (
    'container_memory_working_set_bytes{namespace="kube-system", pod="kube-apiserver-a", container="kube-apiserver"}'
)
PLACE = 'kube_pod_info{namespace="kube-system", pod="kube-apiserver-a", node="a"}'
NODE = 'kube_node_status_allocatable{resource="memory", node="a"}'
CASES = {
    "etcd nearly full": alert("PerdureEtcdNearQuota", 20, CRITICAL, **{ETCD: "1700000000x30"}),
    "room in etcd": alert("PerdureEtcdNearQuota", 20, **{ETCD: "1500000000x30"}),
    "an API server without memory": alert(
        "PerdureApiServerMemory", 20, {**WARNING, "node": "a"}, **{API_SERVER: "75x30", PLACE: "1x30", NODE: "100x30"}
    ),
    "an API server with memory": alert(
        "PerdureApiServerMemory", 20, **{API_SERVER: "65x30", PLACE: "1x30", NODE: "100x30"}
    ),
    "the archive is down": alert("PerdureArchiveUnavailable", 8, WARNING, **{UP: "0x10", HAS_ARCHIVE: "1x10"}),
    "the archive was down": alert("PerdureArchiveUnavailable", 8, **{UP: "0x4 1x6", HAS_ARCHIVE: "1x10"}),
    "no archive": alert("PerdureArchiveUnavailable", 8, **{UP: "0x10", HAS_ARCHIVE: "0x10"}),
    "runs were lost": alert(
        "PerdureRunsLostForArchive", 10, {**CRITICAL, "exported_namespace": "shop"}, **{LOST: "2x4 3x10"}
    ),
    "the first runs were lost": alert(
        "PerdureRunsLostForArchive", 10, {**CRITICAL, "exported_namespace": "shop"}, **{LOST: "_x4 3x10"}
    ),
    "runs were lost hours ago": alert("PerdureRunsLostForArchive", 190, **{LOST: "_x4 3x200"}),
    "nobody polls": alert("PerdureNoWorker", 8, {**WARNING, **OF_QUEUE}, **{BACKLOG: "3x10", POLLERS: "0x10"}),
    "nobody polls yet": alert("PerdureNoWorker", 4, **{BACKLOG: "3x10", POLLERS: "0x10"}),
    "a worker polls": alert("PerdureNoWorker", 8, **{BACKLOG: "3x10", POLLERS: "1x10"}),
    "workers behind": alert("PerdureWorkersBehind", 20, {**WARNING, **OF_QUEUE}, **{AGE: "0+60x30", POLLERS: "1x30"}),
    "workers keep up": alert("PerdureWorkersBehind", 20, **{AGE: "30x30", POLLERS: "1x30"}),
    "near the limit": alert("PerdureRunsNearLimit", 20, {**WARNING, "exported_namespace": "shop"}, **{NEAR: "2x30"}),
    "nearly too many finished runs": alert("PerdureFinishedRunsNearLimit", 20, WARNING, **{USED: "0.9x30"}),
    "room for finished runs": alert("PerdureFinishedRunsNearLimit", 20, **{USED: "0.7x30"}),
    "nearly too many open runs": alert(
        "PerdureOpenRunsNearLimit",
        20,
        {**WARNING, "exported_namespace": "shop"},
        **{OPEN: "90x30", MOST_OPEN: "100x30"},
    ),
    "room for open runs": alert("PerdureOpenRunsNearLimit", 20, **{OPEN: "70x30", MOST_OPEN: "100x30"}),
    "no limit of open runs": alert("PerdureOpenRunsNearLimit", 20, **{OPEN: "70x30", MOST_OPEN: "0x30"}),
    "runs wait for memory": alert("PerdureRunsWaitForMemory", 5, CRITICAL, **{MEMORY: "3x10"}),
    "runs wait for others": alert("PerdureRunsWaitForMemory", 5, **{MEMORY: "0x10"}),
    "expires in a week": alert("PerdureCertificateExpires", 70, CRITICAL, **{EXPIRY: f"{7 * 86_400}x80"}),
    "expires in a month": alert("PerdureCertificateExpires", 70, **{EXPIRY: f"{30 * 86_400}x80"}),
    "one RPC in ten fails": alert(
        "PerdureRpcBudgetBurnsFast", 70, CRITICAL, **{rpcs("OK"): "0+90x80", rpcs("UNAVAILABLE"): "0+10x80"}
    ),
    "an hour ago": alert(
        "PerdureRpcBudgetBurnsFast", 70, **{rpcs("OK"): "0+90x80", rpcs("UNAVAILABLE"): "0+10x40 400x40"}
    ),
    "clients are wrong": alert(
        "PerdureRpcBudgetBurnsFast", 70, **{rpcs("OK"): "0+90x80", rpcs("NOT_FOUND"): "0+10x80"}
    ),
    "one RPC in a hundred": alert(
        "PerdureRpcBudgetBurns", 380, WARNING, **{rpcs("OK"): "0+99x400", rpcs("INTERNAL"): "0+1x400"}
    ),
    "decisions late": alert(
        "PerdureDecisionBudgetBurnsFast", 70, CRITICAL, **{waits("1.0"): "0+70x80", waits(""): "0+100x80"}
    ),
    "decisions in time": alert(
        "PerdureDecisionBudgetBurns", 380, **{waits("1.0"): "0+100x400", waits(""): "0+100x400"}
    ),
}


def test_alerts_fire_when_they_should(promtool: str, render: Render, tmp_path: Path) -> None:
    spec = named(render('prometheusRule={"enabled": true}'), "PrometheusRule", "perdure")["spec"]
    for group in spec["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]  # promtool would compare all words
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    cases = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": list(CASES.values())}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    for arguments in (["check", "rules", "rules.yaml"], ["test", "rules", "cases.yaml"]):
        done = subprocess.run(
            [promtool, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
