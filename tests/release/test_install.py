"""What `make release` builds, installed from the artifacts alone: a folder without the repository, a registry, a new cluster.

The registry requires a password, so the pull secrets are tried as well. `PERDURE_DIST=folder` uses artifacts that exist.
"""

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import debian, lifecycle
from cluster.docker import find_docker
from cluster.paths import REPOSITORY, Cache
from cluster.tools import DEFAULT_TOOLS, ensure_tools
from support.ports import free_port

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

CACHE = Cache.from_environment(os.environ)
NAME = "perdure-release"
USER, PASSWORD = "ours", "not-a-secret"
HASH = "$2y$05$abcdefghijklmnopqrstuuVPNOToLP9MHdthRCXkVoiIF0qNKnk2G"
"""bcrypt of the password, as the registry reads it."""
SECONDS = 600
RUN: dict[str, Any] = {
    "apiVersion": "perdure.dev/v1beta1",
    "kind": "WorkflowRun",
    "metadata": {"name": "hello", "namespace": "default"},
    "spec": {
        "inline": {
            "activities": [
                {
                    "name": "greet",
                    "startToCloseTimeout": "2m",
                    "container": {"command": ["python", "-c", "print('hello')"]},
                }
            ],
            "steps": [{"name": "greet", "activity": {"name": "greet"}}],
        }
    },
}


DEFAULTS = {
    "apiVersion": "perdure.dev/v1beta1",
    "kind": "WorkflowDefaults",
    "metadata": {"name": "default", "namespace": "default"},
    "spec": {"runMetadata": {"labels": {"team": "ours"}}},
}


def workflow(image: str) -> dict[str, Any]:
    """A Workflow whose activity has an image."""
    spec = json.loads(json.dumps(RUN["spec"]["inline"]))
    spec["activities"][0]["container"]["image"] = image
    meta = {"name": "greeting", "namespace": "default"}
    return {"apiVersion": "perdure.dev/v1beta1", "kind": "Workflow", "metadata": meta, "spec": spec}


def build(key: Path, target: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "hack" / "release"), "--key", str(key), "--out", str(target)]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=3 * SECONDS)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("key") / "release.pem"
    command = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    return file


@pytest.fixture(scope="module")
def dist(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifacts, in a folder outside of the repository."""
    target = tmp_path_factory.mktemp("release") / "dist"
    if built := os.environ.get("PERDURE_DIST"):
        shutil.copytree(built, target)
    else:
        build(key, target)
    return target


def version_of(dist: Path) -> str:
    (chart,) = dist.glob("perdure-*.tgz")
    return chart.name.removeprefix("perdure-").removesuffix(".tgz")


@dataclass(frozen=True)
class Installation:
    """A cluster and a registry, and commands in the folder of the artifacts."""

    dist: Path
    registry: str
    """Its address for the nodes and for this machine, with a folder."""
    environment: dict[str, str]

    def __call__(self, *command: str, text: str | None = None) -> str:
        done = subprocess.run(
            command,
            cwd=self.dist,
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            look = ("kubectl", "get", "events", "-A", "--field-selector=type=Warning")
            events = subprocess.run(look, env=self.environment, capture_output=True, text=True, check=False).stdout
            pytest.fail(f"{' '.join(command)}:\n{done.stdout}{done.stderr}\n{events}")
        return done.stdout

    @property
    def image(self) -> str:
        return f"{self.registry}/perdure:{version_of(self.dist)}"

    def use_the_other_kinds(self, folder: Path) -> None:
        """Run a Workflow with the defaults of its namespace, and a worker of an SDK, whose image needs a pull secret, too."""
        for manifest in (DEFAULTS, workflow(self.image)):
            self("kubectl", "apply", "-f", "-", text=json.dumps(manifest))
        self("kubectl", "perdure", "start", "greeting", "--name", "greeted")
        self("kubectl", "wait", "wfr/greeted", "--for=condition=Succeeded", "--timeout=3m")
        run = json.loads(self("kubectl", "get", "wfr", "greeted", "-o", "json"))
        assert run["metadata"]["labels"]["team"] == "ours", "from the WorkflowDefaults"
        of_workflow = ("-l", "perdure.dev/workflow=greeting", "-o", "json")
        (revision,) = json.loads(self("kubectl", "get", "workflowrevisions", *of_workflow))["items"]
        assert run["status"]["revision"] == {"name": revision["metadata"]["name"], "hash": revision["spec"]["hash"]}
        for file in (REPOSITORY / "examples" / "worker-deployment").iterdir():
            text = file.read_text().replace("localhost/perdure:dev", self.image)
            (folder / file.name).write_text(text)
        self("kubectl", "apply", "-k", str(folder))
        self("kubectl", "wait", "workerdeployment/greetings", "--for=condition=RolledOut", "--timeout=4m")
        hello = ("--type", "GreetingWorkflow", "--task-queue", "greetings", "--name", "hi")
        self("kubectl", "perdure", "start", *hello, "--input", '{"payloads": [{"json": "Ada"}]}')
        assert "Hello, Ada!" in self("kubectl", "perdure", "result", "hi")
        self("kubectl", "delete", "-k", str(folder))
        self("kubectl", "delete", "wfr,workflows,workflowdefaults", "--all")

    def run_a_workflow(self) -> None:
        """Start a run whose activity has the image of the release, and wait until it completes."""
        run = {**RUN, "spec": {"inline": workflow(self.image)["spec"]}}
        self("kubectl", "apply", "-f", "-", text=json.dumps(run))
        self("kubectl", "wait", "wfr/hello", "--for=condition=Succeeded", "--timeout=3m")
        self("kubectl", "delete", "wfr", "hello")


@contextmanager
def serving(folder: Path, port: int) -> Iterator[None]:
    """Run a registry that requires a password."""
    program = ensure_tools(CACHE, ("registry",)) / "registry"
    (folder / "htpasswd").write_text(f"{USER}:{HASH}\n")
    config = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"0.0.0.0:{port}"},
        "auth": {"htpasswd": {"realm": "ours", "path": str(folder / "htpasswd")}},
    }
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen([program, "serve", folder / "config.yml"], stdout=log, stderr=log)
    try:
        wait_until_it_answers(port, running, folder / "log")
        yield
    finally:
        running.terminate()
        running.wait(timeout=30)


def wait_until_it_answers(port: int, running: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline, log.read_text()
        assert running.poll() is None, log.read_text()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                break
        except OSError:
            time.sleep(0.1)
    with pytest.raises(urllib.error.HTTPError, match="401"):  # it requires the password
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5)


def cluster(verb: str, *arguments: str) -> None:
    """Run the cluster scripts: they may start a daemon that outlives them."""
    command = [sys.executable, str(REPOSITORY / "hack" / "cluster"), verb, f"--name={NAME}", *arguments]
    subprocess.run(command, check=True, timeout=3 * SECONDS)


@pytest.fixture(scope="module")
def installation(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A new cluster whose nodes reach a new registry, which has the image and the chart."""
    debian.require_packages({"skopeo": "skopeo"}, CACHE.logs / "apt.log")
    tools = ensure_tools(CACHE, DEFAULT_TOOLS)
    folder, port = tmp_path_factory.mktemp("registry"), free_port()
    cluster("up", "--workers=0")
    try:
        docker = find_docker(CACHE)
        assert docker is not None
        networks = json.loads(docker.run("network", "inspect", "kind"))[0]["IPAM"]["Config"]
        (gateway,) = [each["Gateway"] for each in networks if "." in each.get("Gateway", "")]
        address = f"{gateway}:{port}"
        for node in lifecycle.node_containers(docker, NAME):
            hosts = f"/etc/containerd/certs.d/{address}"
            docker.run("exec", node, "mkdir", "-p", hosts)
            docker.run("exec", node, "sh", "-c", f"echo 'server = \"http://{address}\"' > {hosts}/hosts.toml")
        environment = {
            "HOME": str(folder / "home"),
            "KUBECONFIG": str(CACHE.cluster(NAME).kubeconfig),
            "PATH": f"{folder / 'bin'}:{tools}:{os.environ['PATH']}",
            **{name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))},
        }
        (folder / "home").mkdir()
        (folder / "bin").mkdir()
        with serving(folder, port):
            found = Installation(dist, f"{address}/team", environment)
            push(found)
            yield found
    finally:
        cluster("down")


def push(found: Installation) -> None:
    """Push the image and the chart, as docs/releasing.md describes."""
    address, version = found.registry.partition("/")[0], version_of(found.dist)
    found(
        *("skopeo", "copy", "--all", "--dest-tls-verify=false", f"--dest-creds={USER}:{PASSWORD}", "--quiet"),
        *(f"oci-archive:perdure-image-{version}.tar", f"docker://{found.image}"),
    )
    found("helm", "registry", "login", address, "--plain-http", f"--username={USER}", f"--password={PASSWORD}")
    found("helm", "push", f"perdure-{version}.tgz", f"oci://{found.registry}/charts", "--plain-http")
    found("kubectl", "create", "namespace", "perdure-system")
    for namespace in ("perdure-system", "default"):
        found(
            *("kubectl", "create", "secret", "docker-registry", "pull", f"--namespace={namespace}"),
            *(f"--docker-server={address}", f"--docker-username={USER}", f"--docker-password={PASSWORD}"),
        )


def test_checksums_and_signatures_are_valid(dist: Path, tmp_path: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dist, check=True)
    listed = {line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()}
    proofs = {"SHA256SUMS", "SHA256SUMS.sig", "provenance.intoto.jsonl", "provenance.intoto.jsonl.sig", "release.pub"}
    assert listed | proofs == {each.name for each in dist.iterdir()}
    for name in ("SHA256SUMS", "provenance.intoto.jsonl"):
        (tmp_path / "signature").write_bytes(base64.b64decode((dist / f"{name}.sig").read_text()))
        command = ["openssl", "dgst", "-sha256", "-verify", "release.pub", "-signature", tmp_path / "signature", name]
        subprocess.run(command, cwd=dist, check=True, capture_output=True)


def test_two_builds_of_a_commit_have_equal_digests(dist: Path, key: Path, tmp_path: Path) -> None:
    build(key, tmp_path / "again")
    assert (tmp_path / "again" / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()


def test_the_wheel_for_activities_needs_nothing_else(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("perdure_activity-*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel]
    subprocess.run([python, *install], check=True)
    subprocess.run([python, "-c", "import perdure.activity"], check=True, cwd=tmp_path)


def test_the_wheel_brings_what_users_need(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("perdure-*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    programs = tmp_path / "venv" / "bin"
    subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", wheel], check=True, timeout=SECONDS)

    def output(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS)
        return done.stdout + done.stderr

    assert "simulate" in output(programs / "perdure", "--help")
    assert "2 as expected" in output(programs / "perdure", "test", REPOSITORY / "examples" / "order-flow")
    for command, extra in (("perdure", "console"), ("perdure-operator", "operator")):
        assert f"pip install 'perdure[{extra}]'" in output(programs / command, extra)
    flow = """
from datetime import date
import perdure.client, perdure.flow as pf
from etl import nightly
run = pf.LocalRun()
run.send_signal("approve", True)
print(perdure.client.Client.__name__, run.run(nightly, day=date(2026, 11, 27)))
"""
    shutil.copy(REPOSITORY / "examples" / "flow" / "etl.py", tmp_path)
    assert output(programs / "python", "-c", flow) == "Client 80\n"


def test_the_chart_installs_from_a_registry_with_a_password(installation: Installation, tmp_path: Path) -> None:
    version = version_of(installation.dist)
    with tarfile.open(installation.dist / f"kubectl-perdure-{version}.tar.gz") as archive:
        archive.extractall(Path(installation.environment["HOME"]).parent / "bin", filter="data")
    installation(
        *(
            "helm",
            "install",
            "perdure",
            f"oci://{installation.registry}/charts/perdure",
            f"--version={version}",
            "--plain-http",
        ),
        *("--namespace=perdure-system", f"--set=image.registry={installation.registry}"),
        *("--set=imagePullSecrets[0].name=pull", "--wait", "--timeout=5m"),
    )
    installation("helm", "test", "perdure", "--namespace=perdure-system", "--timeout=5m")
    installation.run_a_workflow()
    installation.use_the_other_kinds(tmp_path)
    assert installation("kubectl", "perdure", "version").splitlines()[0] == f"perdure {version}"
    checks = {each["check"]: each for each in json.loads(installation("kubectl", "perdure", "doctor", "-o", "json"))}
    assert checks["Versions"]["message"] == f"command {version}, operator {version}, CRDs {version}"
    assert [each for each in checks.values() if each["result"] == "Failed"] == []
    installation("helm", "uninstall", "perdure", "--namespace=perdure-system", "--wait")
    installation("kubectl", "delete", "-f", "crds.yaml", "--wait")


def test_the_manifests_install_without_helm(installation: Installation) -> None:
    for file in ("crds-minimal.yaml", "crds.yaml"):  # an annotation has each whole CRD once more
        installation("kubectl", "apply", "-f", file)
    installation("kubectl", "apply", "--server-side", "--force-conflicts", "-f", "crds.yaml")
    installation("kubectl", "wait", "--for=condition=Established", "-f", "crds.yaml", "--timeout=1m")
    text = (installation.dist / "install.yaml").read_text()
    text, images = re.subn(r"localhost/perdure:\S+", installation.image, text)
    assert images == 2, "the image, and that of the containers that the operator adds"
    installation("kubectl", "apply", "-f", "-", text=text)
    pull = json.dumps({"imagePullSecrets": [{"name": "pull"}]})
    system = "--namespace=perdure-system"
    installation("kubectl", "patch", "serviceaccount", "perdure", system, "--patch", pull)
    installation("kubectl", "set", "env", "deployment/perdure", system, "PERDURE_IMAGE_PULL_SECRETS=pull")
    installation("kubectl", "rollout", "status", "deployment/perdure", system, "--timeout=5m")
    installation.run_a_workflow()
    installation("kubectl", "delete", "-f", "-", text=text)
    manifests = list(yaml.load_all((installation.dist / "crds.yaml").read_text(), yaml.CSafeLoader))
    kinds = installation("kubectl", "get", "crds", "-o", "name").split()
    assert {each.partition("/")[2] for each in kinds if each.endswith(".perdure.dev")} == {
        each["metadata"]["name"] for each in manifests
    }, "the workflows outlive the operator"


def test_the_stored_version_can_be_migrated(installation: Installation) -> None:
    """As docs/versions.md describes, on a kind that has an object; and what a rollback of the CRDs would do."""
    manifests = list(yaml.load_all((installation.dist / "crds.yaml").read_text(), yaml.CSafeLoader))
    (crd,) = [each for each in manifests if each["metadata"]["name"] == "workflows.perdure.dev"]
    workflow = {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "nap", "namespace": "default"},
        "spec": {"steps": [{"name": "nap", "sleep": {"duration": "1s"}}]},
    }
    installation("kubectl", "apply", "-f", "-", text=json.dumps(workflow))
    apply = ("kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-")
    beta, alpha = crd["spec"]["versions"]
    only_alpha = crd | {"spec": crd["spec"] | {"versions": [alpha]}}
    installation(*apply, text=json.dumps(only_alpha))  # nothing is stored as v1beta1 yet
    moved = [beta | {"storage": True}, alpha | {"storage": False, "deprecated": True}]
    installation(*apply, text=json.dumps(crd | {"spec": crd["spec"] | {"versions": moved}}))
    stored = ("kubectl", "get", "crd", "workflows.perdure.dev", "-o", "jsonpath={.status.storedVersions[*]}")
    assert installation(*stored) == "v1alpha1 v1beta1"
    objects = installation("kubectl", "get", "workflows.perdure.dev", "-A", "-o", "json")
    installation("kubectl", "replace", "-f", "-", text=objects)
    installation(
        *("kubectl", "patch", "crd", "workflows.perdure.dev", "--subresource=status", "--type=merge"),
        *("-p", json.dumps({"status": {"storedVersions": ["v1beta1"]}})),
    )
    refused = subprocess.run(
        [*apply],
        env=installation.environment,
        input=json.dumps(only_alpha),
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0
    assert "status.storedVersions" in refused.stderr
    for version in ("v1alpha1", "v1beta1"):
        found = json.loads(installation("kubectl", "get", f"workflows.{version}.perdure.dev", "nap", "-o", "json"))
        assert found["apiVersion"] == f"perdure.dev/{version}"
        assert found["spec"]["steps"] == [{"name": "nap", "deadLetter": False, "sleep": {"duration": "1s"}}]
