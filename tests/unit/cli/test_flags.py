"""Options of kubectl that every verb accepts, completion, and the verbs of other tools."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from perdure.cli.app import OTHER_NAMES, VERBS, verb_first
from perdure.cli.flags import GLOBAL, extract, kubectl_arguments, overrides
from perdure.cli.verbs.schedules import OTHER_SCHEDULE_NAMES
from support.apiserver import ApiServer, items
from support.cli import RUNS, perdure


def test_global_flags_can_precede_the_verb() -> None:
    assert verb_first(["--as", "ada", "-n", "shop", "--server=http://a", "list", "-o", "json"]) == [
        *("list", "--as", "ada", "-n", "shop", "--server=http://a", "-o", "json")
    ]
    assert extract(["run", "--as", "ada", "--as-group=a", "--as-group", "b", "-o", "json", "--", "--as"]) == [
        *("run", "-o", "json", "--", "--as")
    ]
    assert overrides(None, None).impersonate == "ada"
    assert list(overrides(None, None).impersonate_groups) == ["a", "b"]
    extract([])
    assert overrides(None, None).impersonate is None


def test_kubectl_gets_the_options_that_concern_the_cluster() -> None:
    extract(["--insecure-skip-tls-verify", "--as-group=a", "--as-group=b", "-s", "http://a", "--request-timeout=5s"])
    assert kubectl_arguments("kind") == [
        *("--context=kind", "--as-group=a", "--as-group=b", "--insecure-skip-tls-verify", "--server=http://a")
    ]
    extract([])
    assert kubectl_arguments(None) == []


@pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("30", 30.0), ("1m30s", 90.0)])
def test_a_timeout_is_a_duration_or_seconds(text: str, seconds: float) -> None:
    extract(["--request-timeout", text])
    assert overrides(None, None).request_timeout == seconds


@pytest.mark.parametrize("arguments", [["--as"], ["--request-timeout", "soon"]])
def test_an_invalid_flag_is_named(arguments: list[str]) -> None:
    done = perdure("list", *arguments)
    assert (done.exit_code, arguments[0] in done.stderr) == (2, True)


def test_every_global_flag_is_listed_and_unique() -> None:
    listed = perdure("options").stdout
    assert all(f"{flag.name} {flag.metavar}".strip() in listed for flag in GLOBAL)


def test_a_kubeconfig_can_be_selected(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answers[RUNS] = items()
    chosen = os.environ["KUBECONFIG"]
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    assert perdure("list").exit_code == 2
    assert perdure("list", "--kubeconfig", chosen).exit_code == 0
    assert perdure("list", f"--kubeconfig={chosen}", "--context", "x").stderr.startswith(
        "Error: no access to a cluster: the kubeconfig has no context `x`; it has `c`"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--server", "http://a:port"], "`http://a:port` is not the address of an API server, such as"),
        (["--server", "http://a:70000"], "is not the address of an API server"),
        (["--server", "http://[::1"], "is not the address of an API server"),
        (["--server", "ftp://a"], "is not the address of an API server"),
        (["--server", "http://a/\u00fc"], "is not the address of an API server"),
        (["--namespace", "a/b"], "`a/b` is not the name of a namespace"),
        (["--namespace", "Shop"], "`Shop` is not the name of a namespace"),
        (["--token", "a\nb"], "the header Authorization of requests cannot contain control characters"),
        (["--as", "ada\udcff"], "the header Impersonate-User of requests cannot contain"),
        (["--as-group", "a\tb"], "the header Impersonate-Group of requests cannot contain"),
    ],
)
def test_what_no_request_can_contain_is_an_error(server: ApiServer, arguments: list[str], said: str) -> None:
    done = perdure("list", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ")
    assert said in done.stderr
    assert server.asked == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["history", "a\udcff"],
        ["pause", "a", "--reason", "\udcff"],
        ["list", "--selector", "\udcff=a"],
        ["migrate", "--from", "\udcff:7233"],
        ["migrate", "--from", "a:7233", "--from-namespace", "\udcff"],
        ["migrate", "--from", "a:7233", "--workflow-type", "\udcff", "--dry-run"],
    ],
)
def test_a_value_that_is_not_utf_8_is_an_error(server: ApiServer, arguments: list[str]) -> None:
    done = perdure(*arguments)
    assert (done.exit_code, done.stderr) == (2, "Error: a name or a value contains '\\udcff', which is not UTF-8\n")
    assert server.created == []


def test_an_api_key_that_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff")
    done = perdure("migrate", "--from", "a:7233", "--from-api-key-file", str(tmp_path / "key"))
    assert (done.exit_code, "is not UTF-8" in done.stderr) == (2, True)


def test_a_namespace_that_no_cluster_has_is_an_error_where_the_frontend_is_looked_up(server: ApiServer) -> None:
    server.answers[f"{RUNS}/a"] = {"metadata": {"name": "a", "uid": "u"}, "spec": {"type": "Order"}, "status": {}}
    done = perdure("update", "a", "add", "--system-namespace", "a=b")
    assert (done.exit_code, done.stderr) == (2, "Error: `a=b` is not the name of an object\n")


def test_closed_standard_input_is_empty() -> None:
    command = [sys.executable, "-c", "from perdure.cli.app import main; main()", "import", "argo", "-"]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *command], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.partition(";")[0]) == (2, "Error: the files contain nothing to convert")


def test_the_version_is_an_option_too() -> None:
    assert perdure("--version").stdout == perdure("version").stdout


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_verbs_of_other_tools_get_a_suggestion(name: str) -> None:
    assert name not in VERBS
    done = perdure(name, "x", program="kubectl perdure")
    assert done.exit_code == 2
    assert f"there is no command `{name}`; {OTHER_NAMES[name].format(program='kubectl perdure')}" in done.stderr


@pytest.mark.parametrize("name", OTHER_SCHEDULE_NAMES)
def test_names_of_schedule_commands_elsewhere_are_answered_with_the_command_to_use(name: str) -> None:
    done = perdure("schedule", name, "nightly", program="kubectl perdure")
    assert done.exit_code == 2
    advice = OTHER_SCHEDULE_NAMES[name].format(program="kubectl perdure")
    assert f"there is no command `{name}`; {advice}" in " ".join(done.stderr.split())


def test_a_misspelled_verb_gets_a_suggestion() -> None:
    assert "Did you mean 'describe'?" in perdure("descibe", "x").stderr


@pytest.mark.parametrize(
    ("shell", "part"),
    [
        ("bash", "complete -o default -F _perdure_completion perdure"),
        ("zsh", "#compdef perdure"),
        ("fish", "complete --command perdure"),
        ("powershell", "Register-ArgumentCompleter -Native -CommandName perdure"),
        ("kubectl", "#!/bin/sh"),
    ],
)
def test_completion_prints_the_script_of_a_shell(shell: str, part: str) -> None:
    assert part in perdure("completion", shell).stdout


def complete(words: str) -> list[str]:
    program = "import sys; sys.argv = ['perdure']; from perdure.cli.app import main; main()"
    split = words.split(" ")
    environment = {
        **os.environ,
        "_PERDURE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(split) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert not done.stderr, done.stderr
    return done.stdout.split()


def test_a_shell_completes_verbs_options_values_and_names(server: ApiServer) -> None:
    server.answers[RUNS] = items({"metadata": {"name": "order-1"}}, {"metadata": {"name": "other"}})
    server.answers["/apis/perdure.dev/v1alpha1/namespaces/shop/schedules"] = items({"metadata": {"name": "nightly"}})
    server.answers["/api/v1/namespaces"] = items({"metadata": {"name": "shop"}}, {"metadata": {"name": "bank"}})
    assert complete("perdure des") == ["describe"]
    assert complete("perdure describe or") == ["order-1"]
    assert complete("perdure schedule pause n") == ["nightly"]
    assert complete("perdure list -n b") == ["bank"]
    assert complete("perdure list --context ") == ["c"]
    assert complete("perdure list --output js") == ["json", "jsonpath="]
    assert complete("perdure describe --as") == ["--as", "--as-group", "--as-uid"]


def test_a_shell_completes_nothing_without_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(yaml.safe_dump({"clusters": []}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert complete("perdure describe or") == []
