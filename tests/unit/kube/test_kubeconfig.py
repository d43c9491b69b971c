"""Kubeconfig files, read as kubectl reads them."""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.kube.access import Access, InvalidKubeconfigError, NoAccessError, Overrides, load_kubeconfig


def config(name: str = "a", **user: Any) -> dict[str, Any]:
    return {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443"}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}],
        "current-context": name,
    }


def read(folder: Path, *configs: dict[str, Any], **overrides: Any) -> Access:
    files = []
    for index, content in enumerate(configs):
        files.append(folder / f"config-{index}")
        files[-1].write_text(yaml.safe_dump(content))
    environment = {**os.environ, "KUBECONFIG": os.pathsep.join(map(str, files))}
    return load_kubeconfig(Overrides(environment=environment, **overrides))


def test_the_current_context_of_the_first_file_is_used(tmp_path: Path) -> None:
    access = read(tmp_path, config("a", token="t"), config("b"))
    assert (access.server, access.namespace, access.bearer()) == ("https://a:6443", "ns-a", "t")
    assert read(tmp_path, config("a"), config("b"), context="b").server == "https://b:6443"


def test_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    first = config("a", **{"client-certificate": "crt/c.pem", "client-key": "/k.pem"})
    first["clusters"][0]["cluster"]["certificate-authority"] = "ca.pem"
    access = read(tmp_path, first)
    assert (access.ca_file, access.client_cert_file) == (str(tmp_path / "ca.pem"), str(tmp_path / "crt/c.pem"))
    assert access.client_key_file == "/k.pem"


def test_inline_data_is_decoded(tmp_path: Path) -> None:
    access = read(tmp_path, config("a", **{"client-certificate-data": base64.b64encode(b"PEM").decode()}))
    assert access.client_cert_data == "PEM"


def test_a_token_file_is_read_for_each_request(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    access = read(tmp_path, config("a", tokenFile="token"))
    assert access.bearer() == "one"
    (tmp_path / "token").write_text("two\n")
    assert access.bearer() == "two"


def test_options_override_the_file(tmp_path: Path) -> None:
    access = read(
        tmp_path,
        config("a", token="t"),
        server="https://other",
        token="mine",
        namespace="n",
        impersonate="ada",
        impersonate_groups=["g", "h"],
        insecure_skip_tls_verify=True,
        request_timeout=3.0,
    )
    assert (access.server, access.bearer(), access.namespace) == ("https://other", "mine", "n")
    assert access.headers == (("Impersonate-User", "ada"), ("Impersonate-Group", "g"), ("Impersonate-Group", "h"))
    assert (access.verify, access.timeout) == (False, 3.0)


def test_a_password_is_sent(tmp_path: Path) -> None:
    access = read(tmp_path, config("a", username="ada", password="secret"))
    assert access.headers == (("Authorization", f"Basic {base64.b64encode(b'ada:secret').decode()}"),)


def plugin(folder: Path, program: str, **more: Any) -> dict[str, Any]:
    (folder / "plugin.py").write_text(program)
    version = "client.authentication.k8s.io/v1"
    return {"apiVersion": version, "command": sys.executable, "args": [str(folder / "plugin.py")], **more}


def test_a_credential_plugin_gets_the_cluster_and_returns_a_token(tmp_path: Path) -> None:
    program = (
        "import json, os\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "token = os.environ['WHO'] + '@' + info['spec']['cluster']['server']\n"
        "print(json.dumps({'kind': 'ExecCredential', 'status': {'token': token}}))"
    )
    env = [{"name": "WHO", "value": "ada"}]
    access = read(tmp_path, config("a", exec=plugin(tmp_path, program, env=env, provideClusterInfo=True)))
    assert access.bearer() == "ada@https://a:6443"


@pytest.mark.parametrize(
    ("program", "message"), [("exit(3)", "failed: .* exit status 3"), ("print('no')", "printed no credentials")]
)
def test_a_failing_credential_plugin_is_named(tmp_path: Path, program: str, message: str) -> None:
    with pytest.raises(NoAccessError, match=message):
        read(tmp_path, config("a", exec=plugin(tmp_path, program)))


def test_a_missing_plugin_shows_its_hint(tmp_path: Path) -> None:
    missing = {"command": "no-such-plugin", "installHint": "brew install\n it"}
    with pytest.raises(NoAccessError, match="`no-such-plugin` of the kubeconfig was not found; brew install it"):
        read(tmp_path, config("a", exec=missing))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"context": "x"}, "the kubeconfig has no context `x`; it has `a`"),
        ({"cluster": "x"}, "the kubeconfig has no cluster `x`"),
        ({"user": "x"}, "the kubeconfig has no user `x`"),
        ({"kubeconfig": "/no/such/file"}, "the kubeconfig /no/such/file does not exist"),
    ],
)
def test_a_missing_context_cluster_or_user_is_named(tmp_path: Path, overrides: dict[str, str], message: str) -> None:
    with pytest.raises(NoAccessError, match=message):
        read(tmp_path, config("a"), **overrides)


def test_without_a_kubeconfig_there_is_no_access() -> None:
    with pytest.raises(NoAccessError, match="there is no kubeconfig; set KUBECONFIG"):
        load_kubeconfig(Overrides(environment={"KUBECONFIG": "/no/such/file"}))


@pytest.mark.parametrize("content", ["- a", "{", "clusters: [{cluster: {}}]", "users: [{name: a, user: 1}]"])
def test_an_invalid_kubeconfig_is_rejected(tmp_path: Path, content: str) -> None:
    (tmp_path / "config").write_text(content)
    with pytest.raises(InvalidKubeconfigError, match="config"):
        load_kubeconfig(Overrides(kubeconfig=str(tmp_path / "config")))


def test_a_kubeconfig_as_json_is_read(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(json.dumps(config("a")))
    assert load_kubeconfig(Overrides(kubeconfig=str(tmp_path / "config"))).server == "https://a:6443"
