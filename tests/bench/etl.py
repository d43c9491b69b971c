"""A load of shards: by a run, through artifacts, and by bare pods with the same store."""

import time
from collections.abc import Iterator
from typing import Final

from artifacts.in_cluster import store
from bench.costs import operator_cpu
from bench.definitions import RESTRICTED
from bench.results import Result
from kube import IMAGE, Cluster, Json
from temporal.server import Operator

_SHARDS: Final = 100
_BYTES: Final = 10_000_000
_PARALLEL: Final = 10
"""How many pods run at the same time, of a run and of bare pods."""
_SECONDS: Final = 1200
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
    namespace = operator.cluster
    store(namespace)
    cpu, began = operator_cpu(operator), time.perf_counter()
    namespace.start("etl", _run())
    status = namespace.closed("etl", seconds=_SECONDS)
    assert (status["phase"], status.get("output")) == ("Completed", _SHARDS * _BYTES), status
    took, cpu = time.perf_counter() - began, operator_cpu(operator) - cpu
    began = time.perf_counter()
    _bare(namespace)
    alone = time.perf_counter() - began
    return [
        Result(f"{_SHARDS} shards of 10 MB through artifacts", "s", took, "bare pods", alone),
        Result("CPU of the operator for each shard", "ms", cpu / _SHARDS),
    ]


def _run() -> Json:
    common = {"startToCloseTimeout": "20m", "podRetention": {"onSuccess": "Delete"}}
    outputs = {"outputs": [{"name": "shard", "path": "/out/shard"}]}
    inputs = {"inputs": [{"name": "shards", "path": "/in/shards", "from": "${input}"}]}
    write = {"name": "write", "artifacts": outputs, **_shell(f"{_WRITE} /out/shard"), **common}
    count = _shell("cat /in/shards/* | wc -c > /dev/termination-log")
    read = {"name": "read", "artifacts": inputs, **count, **common}
    loop = {"items": f"${{lists.range({_SHARDS})}}", "maxConcurrency": _PARALLEL}
    shards = "${steps.shards.artifacts.map(each, each.shard)}"
    steps = [
        {"name": "shards", "forEach": loop, "activity": {"name": "write"}},
        {"name": "read", "activity": {"name": "read", "input": shards}},
    ]
    return {"inline": {"activities": [write, read], "steps": steps, "output": "${steps.read.output}"}}


def _shell(program: str) -> Json:
    return {"container": {"image": IMAGE, "command": ["sh", "-ec"], "args": [program], "resources": _RESOURCES}}


def _bare(namespace: Cluster) -> None:
    upload = f'{_WRITE} /tmp/shard; exec python -c "$0" "$1"'
    _pods(namespace, "upload", ([upload, _UPLOAD, str(number)] for number in range(_SHARDS)))
    _pods(namespace, "download", iter([['exec python -c "$0"', _DOWNLOAD]]))


def _pods(namespace: Cluster, group: str, programs: Iterator[list[str]]) -> None:
    """Run pods with shell programs, some at the same time, until all have succeeded."""
    made, ended = 0, 0
    more = True
    deadline = time.monotonic() + _SECONDS
    while more or ended < made:
        while more and made - ended < _PARALLEL:
            arguments = next(programs, None)
            more = arguments is not None
            if arguments is not None:
                namespace.create(_pod(f"{group}-{made}", group, arguments))
                made += 1
        pods = namespace.list("pods", f"-l=group={group}")
        assert not [pod for pod in pods if pod["status"]["phase"] == "Failed"]
        ended = sum(pod["status"]["phase"] == "Succeeded" for pod in pods)
        assert time.monotonic() < deadline, f"{ended} of {made} pods have succeeded"
        time.sleep(0.1)


def _pod(name: str, group: str, arguments: list[str]) -> Json:
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-ec", *arguments],
        "envFrom": [{"secretRef": {"name": "perdure-artifacts"}}],
        "resources": _RESOURCES,
        "securityContext": RESTRICTED,
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    metadata = {"name": name, "labels": {"group": group}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
