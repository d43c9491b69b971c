"""A load of shards: by a run, through artifacts and through a workspace, and by bare pods with the same store and volume."""

import time
from collections.abc import Iterator
from typing import Final

from bench.costs import operator_cpu
from bench.definitions import RESTRICTED
from bench.results import Result
from support.cluster.artifacts import store
from support.cluster.namespace import IMAGE, Cluster, Json
from support.cluster.volumes import local_volume
from support.sdk.server import Operator

_SHARDS: Final = 100
_BYTES: Final = 10_000_000
_PARALLEL: Final = 10
"""How many pods run at the same time, of a run and of bare pods."""
_SECONDS: Final = 1200
_FOLDER: Final = "/shards"
_CLAIM: Final = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
_RESOURCES: Final = {"requests": {"cpu": "5m", "memory": "16Mi"}}
_WRITE: Final = f"head -c {_BYTES} /dev/urandom >"
_OPEN: Final = """
import os, sys, obstore
from obstore.store import S3Store
secret = os.environ
store = S3Store(
    secret["bucket"], prefix=secret["prefix"], endpoint=secret["endpoint"], region=secret["region"],
    access_key_id=secret["accessKeyId"], secret_access_key=secret["secretAccessKey"], client_options={"allow_http": True},
)
"""
_UPLOAD: Final = f"""{_OPEN}
with open("/tmp/shard", "rb") as shard:
    obstore.put(store, f"bare/{{sys.argv[1]}}", shard)
"""
_DOWNLOAD: Final = f"""{_OPEN}
total = 0
for number in range({_SHARDS}):
    with open("/tmp/shard", "wb") as file:
        for piece in obstore.get(store, f"bare/{{number}}").stream():
            total += file.write(piece)
assert total == {_SHARDS * _BYTES}
"""


def measure_etl(operator: Operator) -> list[Result]:
    """Write 100 shards of 10 MB in as many pods, and read them all in another one."""
    return [*_measure_artifacts(operator), *_measure_workspace(operator)]


def _measure_artifacts(operator: Operator) -> list[Result]:
    store(operator.cluster)
    took, cpu = _measure_run(operator, "artifacts", _through_artifacts())
    alone = _measure_bare(operator.cluster, "stored", _stored_by_bare_pods())
    return [
        Result(f"{_SHARDS} shards of 10 MB through artifacts", "s", took, "bare pods", alone),
        Result("CPU of the operator for each shard", "ms", cpu / _SHARDS),
    ]


def _measure_workspace(operator: Operator) -> list[Result]:
    namespace = operator.cluster
    name = f"shards-{namespace.namespace}"
    with local_volume(namespace, name, "2Gi"):
        took, cpu = _measure_run(operator, "workspace", _through_workspace())
    with local_volume(namespace, f"{name}-bare", "2Gi"):
        claim: Json = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "bare"},
            "spec": _CLAIM,
        }
        namespace.apply(claim)
        alone = _measure_bare(namespace, "written", _written_by_bare_pods())
    return [
        Result(f"{_SHARDS} shards of 10 MB through a workspace", "s", took, "bare pods with a claim", alone),
        Result("CPU of the operator for each shard", "ms", cpu / _SHARDS),
    ]


def _measure_run(operator: Operator, name: str, spec: Json) -> tuple[float, float]:
    """Seconds until a run has ended, and CPU time of the operator meanwhile in ms."""
    cpu, began = operator_cpu(operator), time.perf_counter()
    operator.cluster.start(name, spec)
    status = operator.cluster.closed(name, seconds=_SECONDS)
    assert (status["phase"], status.get("output")) == ("Completed", _SHARDS * _BYTES), status
    return time.perf_counter() - began, operator_cpu(operator) - cpu


def _through_artifacts() -> Json:
    outputs = {"outputs": [{"name": "shard", "path": "/out/shard"}]}
    inputs = {"inputs": [{"name": "shards", "path": "/in/shards", "from": "${input}"}]}
    write = {"artifacts": outputs, **_shell(f"{_WRITE} /out/shard")}
    read = {"artifacts": inputs, **_shell("cat /in/shards/* | wc -c > /dev/termination-log")}
    return _run(write, read, "${steps.shards.artifacts.map(each, each.shard)}")


def _through_workspace() -> Json:
    mounted = {"workspaces": [{"name": "shards", "mountPath": _FOLDER}]}
    write = {**mounted, **_shell(f"{_WRITE} {_FOLDER}/$0", "${input}")}
    read = {**mounted, **_shell(f"cat {_FOLDER}/* | wc -c > /dev/termination-log")}
    run = _run(write, read, None)
    run["inline"]["workspaces"] = [{"name": "shards", "volumeClaimTemplate": {"spec": _CLAIM}}]
    return run


def _run(write: Json, read: Json, shards: str | None) -> Json:
    common = {"startToCloseTimeout": "20m", "podRetention": {"onSuccess": "Delete"}}
    activities = [{"name": "write", **write, **common}, {"name": "read", **read, **common}]
    loop = {"items": f"${{lists.range({_SHARDS})}}", "maxConcurrency": _PARALLEL}
    steps = [
        {"name": "shards", "forEach": loop, "activity": {"name": "write", "input": "${item}"}},
        {"name": "read", "activity": {"name": "read", "input": shards}},
    ]
    return {"inline": {"activities": activities, "steps": steps, "output": "${steps.read.output}"}}


def _shell(program: str, *arguments: str) -> Json:
    command = ["sh", "-ec", program]
    return {"container": {"image": IMAGE, "command": command, "args": [*arguments], "resources": _RESOURCES}}


def _measure_bare(namespace: Cluster, group: str, parts: tuple[list[Json], Json]) -> float:
    """Seconds until bare pods have written all shards, and one more has read them."""
    began = time.perf_counter()
    write, read = parts
    _pods(namespace, f"{group}-write", iter(write))
    _pods(namespace, f"{group}-read", iter([read]))
    return time.perf_counter() - began


def _stored_by_bare_pods() -> tuple[list[Json], Json]:
    upload = f'{_WRITE} /tmp/shard; exec python -c "$0" "$1"'
    write = [_pod([upload, _UPLOAD, str(number)]) for number in range(_SHARDS)]
    return write, _pod(['exec python -c "$0"', _DOWNLOAD])


def _written_by_bare_pods() -> tuple[list[Json], Json]:
    read = f'test "$(cat {_FOLDER}/* | wc -c)" = {_SHARDS * _BYTES}'
    spec = {
        "securityContext": {"fsGroup": 65_532},
        "volumes": [{"name": "shards", "persistentVolumeClaim": {"claimName": "bare"}}],
    }
    mounted = [{"name": "shards", "mountPath": _FOLDER}]
    pods = [_pod([program], mounted, **spec) for program in [f"{_WRITE} {_FOLDER}/$HOSTNAME"] * _SHARDS + [read]]
    return pods[:-1], pods[-1]


def _pods(namespace: Cluster, group: str, specs: Iterator[Json]) -> None:
    """Run pods, some at the same time, until all have succeeded."""
    made, ended = 0, 0
    more = True
    deadline = time.monotonic() + _SECONDS
    while more or ended < made:
        while more and made - ended < _PARALLEL:
            spec = next(specs, None)
            more = spec is not None
            if spec is not None:
                metadata = {"name": f"{group}-{made}", "labels": {"group": group}}
                namespace.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
                made += 1
        pods = namespace.list("pods", f"-l=group={group}")
        assert not [pod for pod in pods if pod["status"]["phase"] == "Failed"]
        ended = sum(pod["status"]["phase"] == "Succeeded" for pod in pods)
        assert time.monotonic() < deadline, f"{ended} of {made} pods have succeeded"
        time.sleep(0.1)


def _pod(arguments: list[str], mounted: list[Json] | None = None, **spec: Json | list[Json]) -> Json:
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-ec", *arguments],
        "resources": _RESOURCES,
        "securityContext": RESTRICTED,
    }
    container |= {"volumeMounts": mounted} if mounted else {"envFrom": [{"secretRef": {"name": "perdure-artifacts"}}]}
    return {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container], **spec}
