"""The chart as it is installed, with the example's worker as a Deployment: it shows its token, by TLS."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme
import yaml

from support.cluster.namespace import IMAGE, SYSTEM, Cluster, Json, cache_folder
from support.manuals import REPOSITORY

pytestmark = [pytest.mark.cluster, pytest.mark.alone]

EXAMPLE = REPOSITORY / "examples" / "temporal"
HOST = f"perdure-temporal.{SYSTEM}"


def manifests(name: str) -> list[Json]:
    return list(yaml.safe_load_all((EXAMPLE / name).read_text(encoding="utf-8")))


def deploy(namespace: Cluster) -> None:
    """The worker of the example, with its code."""
    namespace("create", "configmap", "orders-app", f"--from-file={EXAMPLE}")
    documents = manifests("worker.yaml")
    for each in documents:
        if each["kind"] == "Deployment":
            (container,) = each["spec"]["template"]["spec"]["containers"]
            container["image"] = IMAGE
    namespace.apply(*documents)


def published(namespace: Cluster) -> str:
    """The authority that workers of a namespace trust."""
    found = namespace.get("configmap", "perdure-temporal-ca") or {}
    return str((found.get("data") or {}).get("ca.crt", ""))


def check_an_order_completes(namespace: Cluster) -> None:
    namespace.apply(*manifests("run.yaml"))
    status = namespace.closed("order-17")
    assert status["phase"] == "Completed", status.get("failure")
    assert status["output"] == "payment-17, parcel-17"


def test_a_worker_in_the_cluster_uses_its_token_and_the_certificate_authority_of_the_operator(
    namespace: Cluster,
) -> None:
    deploy(namespace)
    check_an_order_completes(namespace)


def test_a_worker_in_the_cluster_trusts_a_certificate_supplied_by_the_administrator(
    namespace: Cluster, tmp_path: Path
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert(HOST)
    key, chain, root = (tmp_path / name for name in ("tls.key", "tls.crt", "ca.crt"))
    certificate.private_key_pem.write_to_path(key)
    for part in certificate.cert_chain_pems:
        part.write_to_path(chain, append=True)
    authority.cert_pem.write_to_path(root)
    system = Cluster(namespace.kubectl, namespace.kubeconfig, SYSTEM)
    files = [f"--from-file={file}" for file in (key, chain, root)]
    system("create", "secret", "generic", namespace.namespace, "--type=kubernetes.io/tls", *files)
    try:
        with installed_with(system, f"temporal.tls.secretName={namespace.namespace}"):
            wanted = root.read_text(encoding="ascii")
            namespace.wait("the authority to be published", lambda: published(namespace) == wanted)
            deploy(namespace)
            check_an_order_completes(namespace)
    finally:
        system("delete", "secret", namespace.namespace)


@contextmanager
def installed_with(system: Cluster, *values: str) -> Iterator[None]:
    """Change values of the chart for the length of the block."""
    helm = shutil.which("helm", path=cache_folder() / "bin") or shutil.which("helm")
    assert helm is not None

    def upgrade(*arguments: str) -> None:
        command = [helm, "upgrade", "perdure", str(REPOSITORY / "charts" / "perdure"), "--namespace", SYSTEM, "--wait"]
        command += ["--kubeconfig", str(system.kubeconfig), *arguments]
        subprocess.run(command, check=True, capture_output=True, text=True)

    upgrade("--reset-then-reuse-values", *(f"--set={value}" for value in values))
    try:
        yield
    finally:
        upgrade("--reset-then-reuse-values", *(f"--set={value.partition('=')[0]}=" for value in values))
