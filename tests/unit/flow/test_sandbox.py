"""What a local run refuses as a cluster does: results that are too large, and flows that a replay would change."""

import subprocess
import sys
import textwrap
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

import perdure.flow as pf
from support import sandboxed_flows as flows
from support.manuals import REPOSITORY


@pytest.mark.parametrize(
    ("flow", "name", "instead"),
    [
        (flows.clock, "time.time", "`pf.now()`"),
        (flows.today, "datetime.datetime.now", "`pf.now()`"),
        (flows.chance, "random.random", "`workflow.random()`"),
        (flows.identity, "uuid.uuid4", "`workflow.uuid4()`"),
        (flows.reading, "pathlib.Path.read_text", "in an activity"),
    ],
)
def test_a_flow_that_a_replay_would_change_is_refused(flow: Any, name: str, instead: str) -> None:
    with pytest.raises(pf.SandboxError, match=rf"sandboxed_flows.py:\d+: a flow must not use {name}, .*: ") as caught:
        flow.run_local()
    assert instead in str(caught.value)


def test_a_flow_has_any_name() -> None:
    assert flows.named.run_local() == 1


def test_a_run_without_the_sandbox() -> None:
    run = pf.LocalRun()
    run.sandbox = False
    assert run.run(flows.clock) > 0


def test_runs_share_no_state_and_leave_the_process_unchanged() -> None:
    assert [flows.remembering.run_local(), flows.calling.run_local(), len(flows.imports)] == [1, 1, 0]
    assert pf.LocalRun().run(flows.sized, 5, large=False) == 5
    run = pf.LocalRun()
    run.replace(flows.big, lambda size: "y" * 2 * size)
    assert run.run(flows.sized, 5, large=False) == 10, "the activities are those of this process"


def test_a_result_that_does_not_fit_fails_and_is_not_repeated() -> None:
    assert flows.sized.run_local(4093, large=False) == 4093
    run = pf.LocalRun()
    with pytest.raises(ActivityError) as caught:
        run.run(flows.sized, 4094, large=False)
    cause = caught.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == "PayloadTooLarge"
    assert "4096 bytes, but the limit is 4095: in a flow in Python, return a `pf.File`" in str(cause)
    assert len(run.calls) == 1
    assert flows.sized.run_local(100_000, large=True) == 100_000
    with pytest.raises(ActivityError):
        flows.sized.run_local(260_000, large=True)


def test_a_script_starts_a_local_run_only_as_the_main_program(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    code = "import perdure.flow as pf\ne = pf.Environment('e')\n@e.flow\nasync def f() -> int:\n    return 7\n"

    def output(end: str) -> str:
        script.write_text(code + end)
        environment = {"PYTHONPATH": str(REPOSITORY / "operator")}
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=environment)
        return done.stdout + done.stderr

    assert output("if __name__ == '__main__':\n    print(f.run_local())\n") == "7\n"
    assert 'put that below `if __name__ == "__main__":`' in output("print(f.run_local())\n")


def test_packages_in_a_virtual_environment_beside_the_flow_are_not_imported_again(tmp_path: Path) -> None:
    packages = tmp_path / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "perdure").symlink_to(REPOSITORY / "operator" / "perdure")
    (packages / "library.py").write_text("used = []\n")
    (tmp_path / "ours.py").write_text("used = []\n")
    code = """
        import library, ours
        import perdure.flow as pf
        e = pf.Environment("e")
        @e.flow
        async def f() -> list[int]:
            library.used.append(1)
            ours.used.append(1)
            return [len(library.used), len(ours.used)]
    """
    for place in (tmp_path, packages):  # beside the environment, and installed in it
        (place / "shop.py").write_text(textwrap.dedent(code))
        done = subprocess.run(
            [sys.executable, "-c", "import shop; print(shop.f.run_local(), shop.f.run_local())"],
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONPATH": f"{place}:{packages}:{tmp_path}"},
        )
        want_ours = [1, 1] if place == tmp_path else [1, 2]
        assert done.stdout == f"[1, {want_ours[0]}] [2, {want_ours[1]}]\n", done.stderr


def test_a_flow_has_time_zones() -> None:
    run = pf.LocalRun(start=datetime(2026, 11, 26, 23, 30, tzinfo=UTC))
    assert run.run(flows.zoned, "Europe/Berlin") == ["2026-11-27", "2026-11-27T02:00:00+01:00"]


here = pf.Environment("here")


@here.activity()
def note(what: str) -> str:
    return what


@here.flow
async def callee(limit: int) -> int:
    await pf.sleep("1h")
    return limit


def flows_without_a_module(kind: str) -> Any:
    """A flow inside of a function, as one in a notebook, that a sandbox cannot import again."""
    count = iter(range(10))

    async def decide() -> Any:
        match kind:
            case "activity":
                return await note(str(uuid.uuid4()))
            case "timer":
                return await pf.sleep(timedelta(seconds=next(count) + 1))
            case "child":
                return await callee(time.time_ns())
            case "result":
                return next(count)
            case "order":
                if next(count):
                    await note("again")
                return await pf.gather(pf.sleep("1h"), note("a"))
            case "failure":
                raise ValueError(f"at {time.time_ns()}")
            case _:
                print("once")
                await pf.sleep("1h")
                return [pf.now().isoformat(), workflow.random().random(), str(workflow.uuid4()), await note("a")]

    return pf.Flow(here, f"local-{kind}", decide)


@pytest.mark.parametrize(
    ("kind", "difference"),
    [
        ("activity", r"the activity note\[what=.*\] \(.*\), and then the activity note"),
        ("timer", "a timer of 0:00:01, and then a timer of 0:00:02"),
        ("child", r"the child .*/callee \(.*\), and then the child"),
        ("result", r"the result \(0\), and then the result \(1\)"),
        ("order", "a timer of 1:00:00, and then the activity note"),
    ],
)
def test_a_flow_without_a_module_must_decide_the_same_when_it_is_replayed(kind: str, difference: str) -> None:
    flow = flows_without_a_module(kind)
    with pytest.raises(
        pf.SandboxError, match=f"the flow local-{kind} decides differently when it is replayed: {difference}"
    ):
        flow.run_local()


def test_a_flow_without_a_module_that_decides_the_same_is_repeated_unnoticed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = pf.LocalRun()
    assert len(run.run(flows_without_a_module("same"))) == 4
    assert [call.id for call in run.calls] == ["note[what=a]"]
    assert capsys.readouterr().out == "once\n"
    with pytest.raises(ApplicationError, match="at "):
        flows_without_a_module("failure").run_local()
    free = pf.LocalRun()
    free.sandbox = False
    assert free.run(flows_without_a_module("result")) == 0
