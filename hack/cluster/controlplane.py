"""A control plane alone: etcd and kube-apiserver as processes of this machine, without nodes, in a few seconds.

It stores, validates, and converts objects as a whole cluster does, with the admission policies, but nothing runs in it.
"""

import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster import commands
from cluster.errors import ClusterError
from cluster.gobuild import GoProgram, build
from cluster.paths import Cache
from cluster.store import locked

_START_SECONDS = 120.0


@contextmanager
def control_plane(cache: Cache, kubernetes: GoProgram) -> Iterator[Path]:
    """Run a control plane of a version of Kubernetes; the value is the kubeconfig of an administrator.

    Raises:
        ClusterError: It does not start.
    """
    with locked(cache.locks / f"build-{kubernetes.name}-{kubernetes.modules}"):
        binary = build(cache, kubernetes) / "kubernetes"
    with TemporaryDirectory(prefix="control-plane-") as name, ExitStack() as running:
        folder = Path(name)
        etcd, peers, port = _free_ports(3)
        clients = f"http://127.0.0.1:{etcd}"
        _start(
            running,
            folder,
            binary,
            "etcd",
            f"--data-dir={folder / 'data'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            "--unsafe-no-fsync",
        )
        key, token = folder / "key.pem", secrets.token_hex(16)
        commands.capture(["openssl", "genrsa", "-out", str(key), "2048"])
        (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
        server = _start(
            running,
            folder,
            binary,
            "kube-apiserver",
            f"--etcd-servers={clients}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder / 'certificates'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            # Its controller, which creates the ServiceAccounts of pods, does not run here.
            "--disable-admission-plugins=ServiceAccount",
            "--allow-privileged",
        )
        address, authority = f"https://127.0.0.1:{port}", folder / "certificates" / "apiserver.crt"
        _wait(address, token, authority, server, folder / "kube-apiserver.log")
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(_KUBECONFIG.format(server=address, token=token, authority=authority))
        yield kubeconfig


_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters:
- name: alone
  cluster: {{server: "{server}", certificate-authority: "{authority}"}}
users:
- name: admin
  user: {{token: "{token}"}}
contexts:
- name: alone
  context: {{cluster: alone, user: admin}}
current-context: alone
"""


def _start(running: ExitStack, folder: Path, binary: Path, name: str, *flags: str) -> subprocess.Popen[bytes]:
    """Start a component, which ends with the stack; its name tells the binary which component it is."""
    link = folder / name
    link.symlink_to(binary)
    log = running.enter_context((folder / f"{name}.log").open("wb"))
    process = subprocess.Popen([*commands.DIE_WITH_ME, str(link), *flags], stdout=log, stderr=log)

    def stop() -> None:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    running.callback(stop)
    return process


def _free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that are free, chosen at the same time so that they differ."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _wait(address: str, token: str, authority: Path, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the API server is ready. It makes its certificate, and that of its authority, when it starts."""
    request = urllib.request.Request(f"{address}/readyz", headers={"Authorization": f"Bearer {token}"})  # noqa: S310
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            trusted = ssl.create_default_context(cafile=authority)
            with urllib.request.urlopen(request, timeout=5, context=trusted):  # noqa: S310
                return
        except (OSError, urllib.error.URLError) as error:
            if server.poll() is not None or time.monotonic() > deadline:
                text = commands.tail(log.read_text(errors="replace"))
                raise ClusterError(f"kube-apiserver does not start ({error}):\n{text}") from error
        time.sleep(0.1)
