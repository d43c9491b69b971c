"""Input artifacts on a real cluster: a server in a pod, and activities that find its files."""

from typing import Any

import pytest

from kube import IMAGE, Cluster, run_manifest

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
    """Start a server in the namespace; gives its URL."""
    context = {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["python", "-c", _SERVER],
        "securityContext": context,
        "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
    }
    namespace.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "server"}, "spec": {"containers": [container]}}
    )
    namespace("wait", "pod/server", "--for=condition=Ready", "--timeout=120s")
    address: str = (namespace.get("pod", "server") or {})["status"]["podIP"]
    return f"http://{address}:8000"


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
    given = {"url": url, "sign": "!"}
    namespace.apply(
        run_manifest(
            "good", {"inline": {"activities": [activity(program, code, config)], "steps": steps}, "input": given}
        )
    )
    missing = {"name": "gone", "path": "/gone", "http": {"url": "${input.url}/gone"}}
    namespace.apply(
        run_manifest("bad", {"inline": {"activities": [activity("true", missing)], "steps": steps}, "input": given})
    )
    status = namespace.closed("good")
    assert (status["phase"], status["output"]) == ("Completed", "hello, Ada!"), status
    failure = namespace.closed("bad")["failure"]
    assert failure["cause"]["type"] == "InitContainerFailed", failure
    assert "artifact `gone`" in failure["cause"]["message"]
    assert "HTTP status 404" in failure["cause"]["message"]
