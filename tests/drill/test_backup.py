"""`make drill`: restores under runs of every kind, on a cluster of its own.

It prints what continued, what was reported, and what ran twice; docs/backup.md says what to expect. There are two disasters. etcd
is restored from a snapshot; and a namespace is restored from its objects as Velero does it: they get new UIDs and no owners, and
the statuses of runs are written afterwards.
"""

import json
from collections import Counter

import pytest

from cluster.tools import DEFAULT_TOOLS, ensure_tools
from drill.stand import CACHE, COPIES, EFFECT, IMAGE, Drill, await_stage, finish, signal, twice
from support.cluster.artifacts import store
from support.cluster.namespace import Cluster, Json
from support.cluster.stages import KINDS, Kind, begin, in_flight, signals, worker

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

SAVE = """
cd /etc/kubernetes/pki/etcd
etcdctl --endpoints=https://127.0.0.1:2379 --cacert=ca.crt --cert=server.crt --key=server.key snapshot save /root/snapshot.db
"""
RESTORE = """
cd /etc/kubernetes/manifests
flags=$(sed -n 's/.*- \\(--name=\\|--initial-advertise-peer-urls=\\|--initial-cluster=\\)/\\1/p' etcd.yaml)
mv etcd.yaml kube-apiserver.yaml /root/
while crictl ps --quiet --name '^(etcd|kube-apiserver)$' | grep -q .; do sleep 1; done
rm -rf /var/lib/etcd/member /root/restored
etcdutl snapshot restore /root/snapshot.db --data-dir /root/restored --bump-revision 1000000000 --mark-compacted $flags
mv /root/restored/member /var/lib/etcd/
mv /root/etcd.yaml /root/kube-apiserver.yaml .
"""
"""As the documentation of Kubernetes says; the API server does not run in the meantime."""

RESTORED = ("workflows", "workflowrevisions", "workflowlimits", "payloads", "workflowruns", "schedules")
"""The kinds of docs/backup.md, in the order in which Velero creates them again."""


def at_work(namespace: Cluster) -> dict[str, Kind]:
    """Start runs of every kind, and return them when all are in their second stage."""
    runs = begin(namespace, IMAGE, copies=COPIES, effect=EFFECT)
    await_stage(namespace, runs, 0)
    signal(namespace, 1, runs)
    namespace.wait("work", lambda: in_flight(namespace, runs)["pod"]["Activities"] == COPIES)
    return runs


def reported(namespace: Cluster, runs: dict[str, Kind]) -> dict[str, str]:
    """The message about each run whose status is not trusted."""
    found = {}
    for run in namespace.list("workflowruns"):
        for each in (run.get("status") or {}).get("conditions") or ():
            if each["reason"] == "StateDamaged" and run["metadata"]["name"] in runs:
                found[run["metadata"]["name"]] = each["message"]
    return found


def show(title: str, before: dict[str, Counter[str]], after: dict[str, Json]) -> None:
    """Print a row for each kind of run."""
    print(f"\n{title}\nkind | before | reported | at the end | ran twice")
    for kind in KINDS:
        rows = [row for name, row in after.items() if name.rpartition("-")[0] == kind]
        doing = ", ".join(f"{number} {what}" for what, number in before.get(kind, Counter()).items())
        ends = ", ".join(f"{number} {what}" for what, number in Counter(row["phase"] for row in rows).items())
        again = ", ".join(sorted({each for row in rows for each in row["twice"]})) or "nothing"
        print(f"{kind} | {doing} | {sum(row['reported'] for row in rows)} | {ends} | {again}")


def test_runs_continue_after_a_restore_of_etcd(drill: Drill, namespace: Cluster) -> None:
    runs = at_work(namespace)
    before = in_flight(namespace, runs)
    folder = ensure_tools(CACHE, (*DEFAULT_TOOLS, "etcdctl", "etcdutl"))
    for tool in ("etcdctl", "etcdutl"):
        drill.docker.run("cp", "--follow-link", str(folder / tool), f"{drill.name}-control-plane:/usr/local/bin/{tool}")
    drill.on_node(SAVE)
    # What happens from here on is lost, with all that it has done.
    signal(namespace, 2, runs)
    await_stage(namespace, runs, 1)
    # A worker that keeps running remembers workflows as they are now.
    namespace("scale", "deployment/orders-worker", "--replicas=0")
    namespace.wait("the worker to stop", lambda: not namespace.list("pods", "-l=app=orders-worker"))
    drill.on_node(RESTORE)
    namespace.wait("the API server", lambda: namespace.run("get", "--raw", "/readyz").returncode == 0)
    drill.system("rollout", "restart", "deployment/perdure")
    drill.system("rollout", "status", "deployment/perdure", "--timeout=5m")
    assert all(signals(namespace, name) == 1 for name in runs)
    damaged = reported(namespace, runs)
    phases = finish(namespace, runs, stage=2)
    again = twice(drill, namespace, runs)
    rows = {name: {"phase": phases[name], "reported": name in damaged, "twice": again[name]} for name in runs}
    show("etcd, restored from a snapshot:", before, rows)
    assert set(phases.values()) == {"Completed"}
    assert damaged == {}
    for name, activities in again.items():
        # What the snapshot has as done does not run again, and what had not begun before the restore runs once.
        assert not any("work-0" in each or "work-3" in each or "work-4" in each for each in activities), name


def backup(namespace: Cluster) -> dict[str, list[Json]]:
    return {kind: json.loads(namespace("get", kind, "--output=json"))["items"] for kind in RESTORED}


def restore(namespace: Cluster, saved: dict[str, list[Json]]) -> None:
    """Create objects again as Velero does."""
    labels = {"velero.io/backup-name": "drill", "velero.io/restore-name": "drill"}
    for kind, objects in saved.items():
        created = []
        for each in objects:
            meta = {key: each["metadata"][key] for key in ("name", "annotations") if key in each["metadata"]}
            meta["labels"] = {**each["metadata"].get("labels", {}), **labels}
            created.append({**each, "metadata": meta})
        send_all(namespace, "create", [{key: each[key] for key in each if key != "status"} for each in created])
        if kind == "workflowruns":
            send_all(namespace, "replace", [each for each in created if "status" in each], "--subresource=status")


def send_all(namespace: Cluster, verb: str, objects: list[Json], *options: str) -> None:
    if not objects:
        return
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    namespace(verb, "--filename=-", *options, stdin=text)


def accept(namespace: Cluster, messages: dict[str, str]) -> None:
    for name, message in messages.items():
        value = message.rsplit("`", 2)[1]
        namespace("annotate", "workflowrun", name, f"perdure.dev/accept-state={value}")


def test_runs_continue_after_their_objects_were_created_again(drill: Drill, namespace: Cluster) -> None:
    runs = at_work(namespace)
    before = in_flight(namespace, runs)
    saved = backup(namespace)
    # The operator releases the pods of activities; then it must not see what is restored halfway.
    namespace("delete", "namespace", namespace.namespace, "--wait=true", "--timeout=5m")
    drill.scale(0)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace.namespace, "labels": labels}}
    )
    worker(namespace, IMAGE)
    store(namespace, IMAGE)
    restore(namespace, saved)
    done = drill.ledger(namespace)
    drill.scale(1)
    namespace.wait("reports", lambda: len(reported(namespace, runs)) == len(runs))
    damaged = reported(namespace, runs)
    assert drill.ledger(namespace) == done, "nothing starts before it is accepted"
    children = [each["metadata"]["name"] for each in saved["workflowruns"] if each["metadata"]["name"] not in runs]
    accept(namespace, damaged)
    phases = finish(namespace, runs, stage=2)
    again = twice(drill, namespace, runs)
    rows = {name: {"phase": phases[name], "reported": name in damaged, "twice": again[name]} for name in runs}
    show("Objects, created again with their statuses:", before, rows)
    print(f"{len(children)} other runs (children and runs of the Schedule) were restored as well")
    # The child that a run waits for does not exist any more: another run has its name.
    assert phases == {name: "Failed" if name.startswith("child") else "Completed" for name in runs}
    for name, activities in again.items():
        assert all("work-1" in each for each in activities), name
