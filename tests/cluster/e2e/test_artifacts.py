"""Artifacts on a real cluster: servers in pods, and activities that find files and leave others."""

from typing import Any

import pytest
import yaml

from support.cluster.artifacts import start, store, url_of
from support.cluster.namespace import IMAGE, Cluster, run_manifest
from support.manuals import REPOSITORY

pytestmark = pytest.mark.cluster

_SERVER = """
import http.server, io, os, tarfile
os.chdir("/tmp")
with tarfile.open("code.tgz", "w:gz") as tar:
    for name, text in (("src/greeting", b"hello"), ("src/deep/name", b"Ada")):
        member = tarfile.TarInfo(name)
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
http.server.ThreadingHTTPServer(("", 8000), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def serve(namespace: Cluster) -> str:
    """Start an HTTP server with files, and return its URL."""
    start(namespace, "server", ["python", "-c", _SERVER])
    return url_of(namespace, "server")


def activity(program: str, *inputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "work",
        "startToCloseTimeout": "2m",
        "retryPolicy": {"exponential": {"initialInterval": "1s", "maximumAttempts": 1}},
        "artifacts": {"inputs": list(inputs), "sizeLimit": "10Mi"},
        "container": {"image": IMAGE, "command": ["sh", "-ec", program]},
    }


def test_an_activity_finds_its_artifacts_when_it_starts(namespace: Cluster) -> None:
    url = serve(namespace)
    code = {"name": "code", "path": "/code", "http": {"url": "${input.url}/code.tgz"}, "archive": "Tar"}
    config = {"name": "config", "path": "/etc/app.conf", "raw": {"data": "sign=${input.sign}"}}
    program = (
        ". /etc/app.conf; if touch /code/mine; then exit 1; fi; "
        'printf "\\"%s, %s%s\\"" "$(cat /code/src/greeting)" "$(cat /code/src/deep/name)" "$sign" > /dev/termination-log'
    )
    steps = [{"name": "work", "activity": {"name": "work", "input": "${input}"}}]
    input_ = {"url": url, "sign": "!"}
    namespace.apply(
        run_manifest(
            "good", {"inline": {"activities": [activity(program, code, config)], "steps": steps}, "input": input_}
        )
    )
    missing = {"name": "gone", "path": "/gone", "http": {"url": "${input.url}/gone"}}
    namespace.apply(
        run_manifest("bad", {"inline": {"activities": [activity("true", missing)], "steps": steps}, "input": input_})
    )
    status = namespace.closed("good")
    assert (status["phase"], status["output"]) == ("Completed", "hello, Ada!"), status
    failure = namespace.closed("bad")["failure"]
    assert failure["cause"]["type"] == "InitContainerFailed", failure
    assert "artifact `gone`" in failure["cause"]["message"]
    assert "HTTP status 404" in failure["cause"]["message"]


def example(namespace: Cluster, name: str) -> dict[str, Any]:
    """Run the example, and return the status of the run."""
    for manifest in ("workflow", "run"):
        workflow = yaml.safe_load((REPOSITORY / f"examples/artifacts/{manifest}.yaml").read_text())
        if manifest == "run":
            workflow["metadata"]["name"] = name
        for activity_ in workflow["spec"].get("activities", ()):
            activity_["container"]["image"] = IMAGE
            activity_["retryPolicy"] = {"exponential": {"initialInterval": "1s", "maximumAttempts": 2}}
        namespace.apply(workflow)
    return namespace.closed(name)


def test_artifacts_of_parallel_activities_are_passed_on_through_a_bucket(namespace: Cluster) -> None:
    store(namespace)
    status = example(namespace, "good")
    assert (status["phase"], status["output"]) == ("Completed", "lines: 600"), status
    stored = namespace("exec", "store", "--", "sh", "-c", "cd /tmp/objects/*/team/* && find . -type f").split()
    kept = [path for path in stored if path.startswith("./kept/")]
    assert [path.rpartition("/")[2] for path in kept] == ["total"]
    with_run = [path for path in stored if path not in kept]
    names = sorted(path.rpartition("/")[2] for path in with_run)
    assert names == ["log.gz"] * 3 + ["log.tar.gz"] * 3 + ["numbers"] * 3
    assert len({path.split("/")[1] for path in with_run}) == 1, "all are below the run"


def test_a_deleted_pod_uploads_what_its_container_has_written_at_the_end(namespace: Cluster) -> None:
    store(namespace)
    write = (
        "trap 'sleep 5; echo whole > /out/report; exit 0' TERM; echo part > /out/report; echo ready; "
        "while :; do sleep 0.1; done"
    )
    read = 'printf "\\"%s\\"" "$(cat /in/report)" > /dev/termination-log'
    passed = {"name": "report", "path": "/in/report", "from": "${input}"}
    activities = [
        {**activity(write), "artifacts": {"outputs": [{"name": "report", "path": "/out/report"}]}, "name": "write"},
        {**activity(read, passed), "name": "read"},
    ]
    steps = [
        {"name": "write", "activity": {"name": "write"}},
        {"name": "read", "activity": {"name": "read", "input": "${steps.write.artifacts.report}"}},
    ]
    inline = {"activities": activities, "steps": steps, "output": "${steps.read.output}"}
    namespace.apply(run_manifest("deleted", {"inline": inline}))
    (pod,) = namespace.wait("the pod exists", lambda: namespace.list("pods", "-l", "perdure.dev/run=deleted"))
    name = pod["metadata"]["name"]
    namespace.pod(name, "Running")
    namespace.wait("the container writes", lambda: "ready" in namespace("logs", name, "-c", "activity"))
    namespace("delete", "pod", name, "--wait=false")
    status = namespace.closed("deleted")
    assert (status["phase"], status["output"]) == ("Completed", "whole"), status


def test_wrong_credentials_fail_the_activity_with_the_reason(namespace: Cluster) -> None:
    store(namespace, secretAccessKey="wrong")
    failure = example(namespace, "bad")["failure"]
    assert failure["cause"]["type"] == "ArtifactStoreFailed", failure
    assert "the artifact store rejected" in failure["cause"]["message"]
    assert "wrong" not in failure["cause"]["message"]


def test_an_activity_that_does_not_write_its_artifact_fails(namespace: Cluster) -> None:
    store(namespace)
    work = {
        "name": "work",
        "startToCloseTimeout": "2m",
        "retryPolicy": {"exponential": {"initialInterval": "1s", "maximumAttempts": 1}},
        "artifacts": {"outputs": [{"name": "report", "path": "/out/report"}]},
        "container": {"image": IMAGE, "command": ["true"]},
    }
    steps = [{"name": "work", "activity": {"name": "work"}}]
    namespace.apply(run_manifest("none", {"inline": {"activities": [work], "steps": steps}}))
    failure = namespace.closed("none")["failure"]
    assert failure["cause"]["type"] == "ArtifactMissing", failure
    assert "`/out/report` does not exist" in failure["cause"]["message"]
