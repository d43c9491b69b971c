import json
from pathlib import Path

import pytest

from cluster import runc_wrapper

PROCESS = {
    "args": ["/sbin/init"],
    "capabilities": {
        "bounding": ["CAP_SYS_ADMIN", "CAP_SYS_RESOURCE"],
        "effective": ["CAP_SYS_RESOURCE"],
        "ambient": None,
    },
    "oomScoreAdj": -500,
    "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1048576, "soft": 1048576}],
}


def test_only_settings_that_need_the_missing_capability_are_removed() -> None:
    assert runc_wrapper.without_privilege(PROCESS, oom_score=0) == {
        "args": ["/sbin/init"],
        "capabilities": {"bounding": ["CAP_SYS_ADMIN"], "effective": []},
        "oomScoreAdj": 0,
    }


def test_a_process_without_such_settings_is_unchanged() -> None:
    assert runc_wrapper.without_privilege({"args": ["true"]}, oom_score=0) == {"args": ["true"]}


def test_an_oom_score_can_still_be_raised() -> None:
    assert runc_wrapper.without_privilege({"oomScoreAdj": 900}, oom_score=100) == {"oomScoreAdj": 900}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--root", "/r", "create", "--bundle", "{}", "id"],
        ["create", "--bundle={}", "id"],
        ["run", "-b", "{}", "id"],
    ],
)
def test_the_bundle_of_a_new_container_is_rewritten(tmp_path: Path, arguments: list[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"process": PROCESS, "hostname": "node"}))
    runc_wrapper.rewrite([argument.format(tmp_path) for argument in arguments], oom_score=5)
    rewritten = json.loads(config.read_text())
    assert rewritten == {"process": runc_wrapper.without_privilege(PROCESS, 5), "hostname": "node"}


@pytest.mark.parametrize("option", [["--process", "{}"], ["--process={}"], ["-p", "{}"]])
def test_the_process_file_of_an_exec_is_rewritten(tmp_path: Path, option: list[str]) -> None:
    file = tmp_path / "process.json"
    file.write_text(json.dumps(PROCESS))
    runc_wrapper.rewrite(["exec", *(part.format(file) for part in option), "id"], oom_score=5)
    assert json.loads(file.read_text()) == runc_wrapper.without_privilege(PROCESS, 5)


@pytest.mark.parametrize("arguments", [["state", "id"], ["kill", "--all", "id", "9"], ["exec", "id", "true"], []])
def test_other_commands_change_no_file(arguments: list[str]) -> None:
    runc_wrapper.rewrite(arguments, oom_score=0)


def test_the_wrapper_imports_only_the_standard_library() -> None:
    assert "cluster" not in {
        line.split()[1].split(".")[0]
        for line in Path(runc_wrapper.__file__).read_text().splitlines()
        if line.startswith(("import ", "from "))
    }
