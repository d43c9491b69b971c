"""`make release`: the parts that need neither packages nor a cluster. tests/release builds and installs all of it."""

import base64
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from email.message import Message
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cluster.errors import ClusterError
from cluster.paths import REPOSITORY
from perdure.api.crdgen import KINDS
from release import chart, evidence, licenses, packages, plugin
from release.cli import check_places
from release.files import Entry, entries, sha256, write_tar_gz
from release.source import Source, export
from support.cluster.namespace import helm_program
from version import declared_version

EPOCH = 1_700_000_000
COMMIT = "c0ffee" * 6 + "c0ff"
AUTHOR = dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "nobody@example.com")
NAMES = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "Nobody")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    file = root / "operator" / "perdure" / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text((REPOSITORY / "operator" / "perdure" / "__init__.py").read_text())
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "start")
    return root


def git(root: Path, *arguments: str) -> str:
    environment = {**os.environ, **AUTHOR, **NAMES}
    done = subprocess.run(["git", *arguments], cwd=root, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def stamped(source: Source) -> str:
    """The version that the exported code states."""
    code = "import perdure; print(perdure.__version__, perdure.REVISION)"
    environment = {"PYTHONPATH": str(source.folder / "operator"), "PERDURE_REVISION": "of the environment"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


# --- The source -------------------------------------------------------------------------------------------------------


def test_a_release_states_its_version_and_commit(checkout: Path, tmp_path: Path) -> None:
    version, commit = declared_version(checkout), git(checkout, "rev-parse", "HEAD")
    source = export(checkout, version, tmp_path / "source")
    assert (source.version, source.python_version, source.commit) == (version, version, commit)
    assert source.epoch == int(git(checkout, "show", "-s", "--format=%ct"))
    assert stamped(source) == f"{version} {commit}"


def test_a_development_build_has_the_commit_and_uncommitted_changes(checkout: Path, tmp_path: Path) -> None:
    (checkout / "operator" / "perdure" / "new.py").write_text("")
    git(checkout, "add", ".")
    source = export(checkout, "", tmp_path / "source")
    commit = git(checkout, "rev-parse", "HEAD")
    assert source.version == f"{declared_version(checkout)}-dev.g{commit[:12]}"
    assert source.python_version == f"{declared_version(checkout)}.dev0+g{commit[:12]}"
    assert stamped(source) == f"{source.version} {commit}"
    assert (source.folder / "operator" / "perdure" / "new.py").exists()
    assert git(checkout, "status", "--porcelain") == "A  operator/perdure/new.py", "the checkout is as before"


@pytest.mark.parametrize(
    ("change", "version", "message"),
    [
        ("", "9.9.9", "Run `make version VERSION=9.9.9` and commit the result"),
        ("new", "", "these files differ from it:\n?? new"),
        ("tag", "", "is another commit"),
    ],
    ids=["another version", "a file that is not committed", "an earlier tag"],
)
def test_a_release_needs_its_release_commit(
    checkout: Path, tmp_path: Path, change: str, version: str, message: str
) -> None:
    version = version or declared_version(checkout)
    if change == "new":
        (checkout / "new").write_text("")
    if change == "tag":
        git(checkout, "tag", f"v{version}")
        git(checkout, "commit", "--quiet", "--allow-empty", "-m", "later")
    with pytest.raises(ClusterError, match=re.escape(message)):
        export(checkout, version, tmp_path / "source")
    if change == "tag":
        git(checkout, "checkout", "--quiet", f"v{version}")
        assert export(checkout, version, tmp_path / "tagged").version == version


@pytest.mark.parametrize(
    ("registry", "address", "message"),
    [
        ("localhost", "https://localhost/perdure", ""),
        ("registry.example.com:5000/team/tools", "http://10.0.0.1:8080/v0.1.0", ""),
        ("https://registry.example.com", "https://a", "REGISTRY=https://registry.example.com must be a registry"),
        ("registry.example.com/", "https://a", "must be a registry"),
        ("a b", "https://a", "must be a registry"),
        ("localhost", "downloads.example.com", "ADDRESS=downloads.example.com must be a URL"),
        ("localhost", "https://a/", "without a slash at its end"),
        ("localhost", "https://a/\nb", "must be a URL"),
    ],
)
def test_the_places_of_a_release_have_a_valid_form(registry: str, address: str, message: str) -> None:
    if not message:
        check_places(registry, address)
        return
    with pytest.raises(ClusterError, match=re.escape(message)):
        check_places(registry, address)


# --- Archives ---------------------------------------------------------------------------------------------------------


def test_archives_depend_on_nothing_but_their_content(tmp_path: Path) -> None:
    files = []
    for name, mode in (("one", 0o600), ("two", 0o644)):
        folder = tmp_path / name
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "file").write_text("content")
        (folder / "sub" / "file").chmod(mode)
        (folder / "link").symlink_to("sub/file")
        (folder / "run").write_text("")
        (folder / "run").chmod(mode | 0o100)
        os.utime(folder / "run", (mode, mode))
        files.append(tmp_path / f"{name}.tar.gz")
        digests = write_tar_gz(entries(folder, "a/b"), EPOCH, files[-1])
        content = files[-1].read_bytes()
        assert digests == (hashlib.sha256(gzip.decompress(content)).hexdigest(), hashlib.sha256(content).hexdigest())
    assert files[0].read_bytes() == files[1].read_bytes()
    with tarfile.open(files[0]) as archive:
        assert [(each.name, oct(each.mode), each.mtime, each.uid) for each in archive] == [
            ("a", "0o755", EPOCH, 0),
            ("a/b", "0o755", EPOCH, 0),
            ("a/b/link", "0o777", EPOCH, 0),
            ("a/b/run", "0o755", EPOCH, 0),
            ("a/b/sub", "0o755", EPOCH, 0),
            ("a/b/sub/file", "0o644", EPOCH, 0),
        ]


def test_the_last_entry_of_a_name_counts(tmp_path: Path) -> None:
    file = tmp_path / "a.tar.gz"
    write_tar_gz([Entry("etc/passwd", b"before"), Entry("etc/passwd", b"after")], EPOCH, file)
    with tarfile.open(file) as archive:
        assert archive.getnames() == ["etc/passwd"]
        content = archive.extractfile("etc/passwd")
        assert content is not None
        assert content.read() == b"after"


# --- Packages and licenses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("platform", packages.PLATFORMS, ids=lambda platform: platform.architecture)
def test_each_dependency_has_a_wheel_for_each_platform(platform: packages.Platform, tmp_path: Path) -> None:
    source = Source(REPOSITORY, "0.1.0", COMMIT, EPOCH)
    locked = packages.requirements(REPOSITORY, packages.OPERATOR_EXTRAS, tmp_path / "requirements.txt")
    found = {each.name: each for each in packages.locked(source, locked, platform)}
    assert found.keys() == {name for name, _ in packages.names_in(locked)}
    assert len(found) > 50
    assert platform.machine in found["orjson"].file
    assert "none-any" in found["kopf"].file
    assert all(re.fullmatch(r"[0-9a-f]{64}", each.sha256) for each in found.values())


def described(**fields: str) -> Message:
    message = Message()
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    return message


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (described(License_Expression="Apache-2.0 AND MIT", License="MIT"), "Apache-2.0 AND MIT"),
        (described(License="BSD 3-Clause"), "BSD-3-Clause"),
        (described(Classifier="License :: OSI Approved :: MIT License"), "MIT"),
        (described(License="All rights\nreserved"), "NOASSERTION"),
    ],
    ids=["an expression", "a common name", "a classifier", "none"],
)
def test_licenses_are_read_from_the_metadata(metadata: Message, expected: str) -> None:
    assert licenses.license_of(metadata) == expected


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only AND MIT", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("NOASSERTION", False),
    ],
)
def test_a_license_that_is_not_allowed_is_an_error(expression: str, *, allowed: bool) -> None:
    if allowed:
        licenses.check({"some": expression})
    else:
        with pytest.raises(ClusterError, match=re.escape(f"some: {expression}")):
            licenses.check({"other": "MIT", "some": expression})


# --- Chart and plugin -------------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A source with what the chart and the plugin are made of."""
    folder = tmp_path / "source"
    shutil.copytree(REPOSITORY / "charts", folder / "charts")
    for name in ("pyproject.toml", "uv.lock", "LICENSE", "README.md"):
        shutil.copy(REPOSITORY / name, folder)
    return Source(folder, "0.1.0", COMMIT, EPOCH)


def test_the_chart_and_the_manifests_install_the_released_image(source: Source, tmp_path: Path) -> None:
    target = tmp_path / "dist"
    target.mkdir()
    package = chart.package(source, "registry.example.com/team", target)
    assert package.name == "perdure-0.1.0.tgz"
    with tarfile.open(package) as archive:
        content = archive.extractfile("perdure/Chart.yaml")
        assert content is not None
        described = yaml.safe_load(content)
    assert (described["version"], described["appVersion"]) == ("0.1.0", "0.1.0")
    chart.write_manifests(Path(helm_program()), package, target)
    crds = list(yaml.load_all((target / "crds.yaml").read_text(), yaml.CSafeLoader))
    others = list(yaml.load_all((target / "install.yaml").read_text(), yaml.CSafeLoader))
    assert {each["kind"] for each in crds} == {"CustomResourceDefinition"}
    assert len(crds) == len(KINDS)
    assert others[0]["kind"] == "Namespace"
    assert "CustomResourceDefinition" not in {each["kind"] for each in others}
    images = re.findall(r"image: (\S+)", (target / "install.yaml").read_text())
    assert images == ["registry.example.com/team/perdure:0.1.0"]
    text = (target / "install.yaml").read_text() + (target / "crds.yaml").read_text()
    assert "helm.sh/" not in text
    assert "managed-by: Helm" not in text
    assert {each["metadata"]["labels"]["app.kubernetes.io/version"] for each in crds} == {"0.1.0"}


def test_the_plugin_manifest_names_its_archive(source: Source, tmp_path: Path) -> None:
    target = tmp_path / "dist"
    target.mkdir()
    wheel = target / "perdure-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    archive, manifest = plugin.write(source, wheel, "https://example.com/v0.1.0", target)
    described = yaml.safe_load(manifest.read_text())
    (platform,) = described["spec"]["platforms"]
    assert described["spec"]["version"] == "v0.1.0"
    assert platform["uri"] == f"https://example.com/v0.1.0/{archive.name}"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as content:
        assert sorted(content.getnames()) == sorted(each["from"] for each in platform["files"])
        assert content.getmember(platform["bin"]).mode == 0o755
        launcher = content.extractfile(platform["bin"])
        assert launcher is not None
        checked = subprocess.run(["sh", "-n"], input=launcher.read(), check=False)
    assert checked.returncode == 0


# --- Evidence ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key.pem"
    made = ec.generate_private_key(ec.SECP256R1())
    file.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return file


def test_openssl_verifies_the_signature_of_the_checksums(key: Path, tmp_path: Path) -> None:
    artifact = tmp_path / "artifact"
    artifact.write_text("content")
    sums = evidence.write_checksums({artifact.name: sha256(artifact)}, tmp_path)
    subprocess.run(["sha256sum", "--check", sums], cwd=tmp_path, check=True, capture_output=True)
    signer = evidence.Signer.load(key)
    evidence.write_signatures([sums], signer, tmp_path)
    signature = (tmp_path / "SHA256SUMS.sig").read_text()
    evidence.write_signatures([sums], signer, tmp_path)
    assert (tmp_path / "SHA256SUMS.sig").read_text() == signature, "the same bytes each time"
    (tmp_path / "der").write_bytes(base64.b64decode(signature))
    command = ["openssl", "dgst", "-sha256", "-verify", "release.pub", "-signature", "der", "SHA256SUMS"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    sums.write_text("forged")
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode != 0


def test_the_provenance_is_an_envelope_around_a_statement(key: Path, tmp_path: Path) -> None:
    artifact = tmp_path / "artifact"
    artifact.write_text("content")
    source = Source(tmp_path, "0.1.0", COMMIT, EPOCH)
    statement = evidence.statement(source, [], {artifact.name: sha256(artifact)}, {"version": "0.1.0"})
    file = evidence.write_provenance(statement, evidence.Signer.load(key), tmp_path)
    envelope = json.loads(file.read_text())
    payload = base64.b64decode(envelope["payload"])
    found = json.loads(payload)
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    assert found["subject"] == [{"name": "artifact", "digest": {"sha256": hashlib.sha256(b"content").hexdigest()}}]
    (git_source,) = found["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert git_source["digest"] == {"gitCommit": COMMIT}
    signed = f"DSSEv1 28 application/vnd.in-toto+json {len(payload)} ".encode() + payload
    assert envelope["signatures"] == [{"sig": evidence.Signer.load(key).sign(signed)}]
    assert json.loads(evidence.write_provenance(statement, None, tmp_path).read_text()) == found


def test_a_key_that_cannot_sign_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text("no key")
    with pytest.raises(ClusterError, match="cannot be read as a private key"):
        evidence.Signer.load(file)
    made = rsa.generate_private_key(65537, 2048)
    file.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(ClusterError, match="openssl ecparam -name prime256v1"):
        evidence.Signer.load(file)
