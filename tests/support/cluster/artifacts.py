"""An S3 server in a pod, for tests on a real cluster."""

import base64

from support.artifacts.gateway import BUCKET, program
from support.cluster.namespace import IMAGE, Cluster

_STORE = f"""
until [ -x /tmp/versitygw ]; do sleep 0.2; done
mkdir -p /tmp/objects/{BUCKET} /tmp/metadata
exec /tmp/versitygw --access ours --secret not-a-secret --port :8000 --quiet posix --sidecar /tmp/metadata /tmp/objects
"""


def start(namespace: Cluster, name: str, command: list[str], image: str = IMAGE) -> None:
    """Start a pod that serves at port 8000."""
    context = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "main",
        "image": image,
        "command": command,
        "securityContext": context,
        "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
    }
    namespace.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
    )


def url_of(namespace: Cluster, name: str) -> str:
    """Wait until a pod serves, and return its URL."""
    namespace("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=120s")
    address: str = (namespace.get("pod", name) or {})["status"]["podIP"]
    return f"http://{address}:8000"


def store(namespace: Cluster, image: str = IMAGE, **changed: str) -> None:
    """Start an S3 server in a pod of an image with a shell, and create the Secret of the artifact store."""
    start(namespace, "store", ["sh", "-c", _STORE], image)
    namespace("wait", "pod/store", "--for=jsonpath={.status.phase}=Running", "--timeout=120s")
    copy = "base64 -d > /tmp/part && chmod 755 /tmp/part && mv /tmp/part /tmp/versitygw"
    namespace("exec", "-i", "store", "--", "sh", "-c", copy, stdin=base64.b64encode(program().read_bytes()).decode())
    settings = {"bucket": BUCKET, "endpoint": url_of(namespace, "store"), "region": "us-east-1", "prefix": "team"}
    settings |= {"accessKeyId": "ours", "secretAccessKey": "not-a-secret", **changed}
    namespace.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "perdure-artifacts"}, "stringData": settings}
    )
