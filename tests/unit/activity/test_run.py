"""Entry points: a function becomes a process that reads, reports, and exits as the operator expects."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import activity
from perdure.activity._run import execute


def fails(_order: Any) -> None:
    raise activity.ApplicationError("no funds", type="CardRefused", details={"code": 7}, non_retryable=True)


async def coroutine(order: Any) -> Any:
    await asyncio.sleep(0)
    return {"charged": order["amount"]}


@pytest.mark.parametrize(
    ("function", "want"),
    [
        pytest.param(lambda order: {"charged": order["amount"]}, {"charged": 12}, id="a function of the input"),
        pytest.param(lambda: "done", "done", id="one that takes nothing"),
        pytest.param(lambda *, rate=2: rate, 2, id="one that takes only options"),
        pytest.param(coroutine, {"charged": 12}, id="a coroutine function"),
        pytest.param(len, 1, id="a built-in function"),
        pytest.param(lambda _order: None, None, id="one that returns nothing"),
    ],
)
def test_the_return_value_is_the_result(pod: Any, function: Callable[..., Any], want: Any) -> None:
    assert execute(function, pod.context()) == 0
    assert pod.message == want


@pytest.mark.parametrize(
    ("function", "want"),
    [
        pytest.param(
            fails, {"type": "CardRefused", "message": "no funds", "nonRetryable": True}, id="an application error"
        ),
        pytest.param(lambda order: order["x"], {"type": "KeyError", "message": "'x'"}, id="any exception"),
        pytest.param(
            lambda _order: "x" * 4094, {"type": "PayloadTooLarge", "nonRetryable": True}, id="too large a result"
        ),
        pytest.param(lambda _order: {1, 2}, {"type": "TypeError"}, id="a result that is no JSON"),
        pytest.param(lambda _order: float("nan"), {"type": "ValueError"}, id="a result that is not a number"),
        pytest.param(lambda _order: 2**64, {"type": "ValueError"}, id="an integer that would lose digits"),
        pytest.param(lambda _a, _b: None, {"type": "TypeError"}, id="a function of two arguments"),
    ],
)
def test_an_exception_is_the_failure(pod: Any, capsys: Any, function: Callable[..., Any], want: dict[str, Any]) -> None:
    assert execute(function, pod.context()) == 1
    got = pod.message["error"]
    assert {key: got.get(key) for key in want} == want
    assert "Traceback" in capsys.readouterr().err, "people read logs"


def test_a_cancellation_that_propagates_is_reported(api: Any, pod: Any, capsys: Any) -> None:
    api.annotations["perdure.dev/cancel-requested"] = "asked by ann"
    context = pod.with_lease().context()
    assert execute(lambda _order: context.heartbeats.beat(1), context) == 1
    assert pod.message["error"]["cancelled"] is True
    assert capsys.readouterr().err


def test_the_exit_code_of_the_function_is_kept(pod: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        execute(lambda: sys.exit(64), pod.context())
    assert caught.value.code == 64
    assert not pod.message_file.exists()


def test_a_long_input_is_read_from_its_file(pod: Any) -> None:
    file = pod.folder / "input.json"
    file.write_text(json.dumps({"amount": "x" * 50_000}))
    del pod.environ["PERDURE_INPUT"]
    context = pod.context(PERDURE_INPUT_FILE=str(file))
    assert context.payload("PERDURE_INPUT") == {"amount": "x" * 50_000}
    assert context.payload("PERDURE_LAST_HEARTBEAT_DETAILS") is None


def test_an_input_that_is_not_json_is_passed_as_text(pod: Any) -> None:
    assert pod.context(PERDURE_INPUT="half {").payload("PERDURE_INPUT") == "half {"


# --- As processes -----------------------------------------------------------------------------------------------------

IMAGE = """
@activity.defn
def charge(order):
    return {"charged": order["amount"], "attempt": activity.info().attempt}

@activity.defn(name="refund")
def give_back(order):
    activity.fail("not today", type="Closed", next_retry_delay=60)

activity.main()
"""


@pytest.mark.parametrize(
    ("name", "code", "want"),
    [
        pytest.param("charge", 0, {"charged": 12, "attempt": 2}, id="the function of that name"),
        pytest.param("refund", 1, "Closed", id="the function with that name"),
        pytest.param("give-back", 1, "ActivityNotFound", id="no function of that name"),
    ],
)
def test_an_image_can_contain_several_activities(pod: Any, name: str, code: int, want: Any) -> None:
    done = pod.run(IMAGE, PERDURE_ACTIVITY=name)
    assert done.returncode == code, done.stderr
    assert (pod.message if code == 0 else pod.message["error"]["type"]) == want


def test_underscores_in_function_names_match_dashes_in_activity_names(pod: Any) -> None:
    done = pod.run("activity.main({'reserve_hotel': lambda: 1})", PERDURE_ACTIVITY="reserve-hotel")
    assert (done.returncode, pod.message) == (0, 1), done.stderr


def test_a_script_can_use_the_functions_without_main(api: Any, pod: Any) -> None:
    script = """
assert activity.last_heartbeat_details() == {"done": 1}
activity.heartbeat({"done": 2})
assert not activity.cancelled()
activity.complete(activity.input()["amount"] + activity.info().attempt)
"""
    done = pod.with_lease().run(script, PERDURE_LAST_HEARTBEAT_DETAILS='{"done": 1}')
    assert (done.returncode, pod.message) == (0, 14), done.stderr
    assert api.annotations["perdure.dev/heartbeat-details"] == '{"done":2}'


def test_the_last_details_are_sent_before_the_process_ends(api: Any, pod: Any) -> None:
    done = pod.with_lease().run("for n in range(5): activity.heartbeat(n)\nraise SystemExit(3)")
    assert done.returncode == 3, done.stderr
    assert api.annotations["perdure.dev/heartbeat-details"] == "4"
    assert len(api.requests) == 2


def test_the_helper_works_outside_of_a_pod(pod: Any) -> None:
    pod.environ.clear()
    done = pod.run("activity.heartbeat(1)\nactivity.run(lambda given: [given, activity.info().attempt])")
    assert (done.returncode, done.stdout) == (0, "[null,1]\n"), done.stderr


SYNCHRONOUS = """
import time
def work():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        print("cleaned up", flush=True)
activity.run(work)
"""
ASYNCHRONOUS = """
import asyncio
async def work():
    try:
        print("ready", flush=True)
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0)
        print("cleaned up", flush=True)
activity.run(work)
"""
STUBBORN = """
import time
def work():
    try:
        print("ready", flush=True)
        time.sleep(60)
    except activity.CancelledError:
        assert activity.cancelled()
        print("cleaned up", flush=True)
        return "done all the same"
activity.run(work)
"""


@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param(SYNCHRONOUS, 1, id="a function"),
        pytest.param(ASYNCHRONOUS, 1, id="a coroutine function"),
        pytest.param(STUBBORN, 0, id="a function that finishes its work"),
    ],
)
def test_a_function_can_clean_up_after_sigterm(pod: Any, script: str, code: int) -> None:
    process = pod.start(script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "cleaned up\n"), err
    if code:
        assert pod.message["error"]["cancelled"] is True
        assert "SIGTERM" in pod.message["error"]["message"]
    else:
        assert pod.message == "done all the same"


# --- Heartbeats by themselves ---------------------------------------------------------------------------------------------

HANGING = """
import time
def work():
    activity.heartbeat({"done": 1}) if DETAILS else None
    print("ready", flush=True)
    time.sleep(60)
activity.run(work, auto_heartbeat=True)
"""
WAITING = """
import asyncio
async def work():
    activity.heartbeat({"done": 1}) if DETAILS else None
    print("ready", flush=True)
    await asyncio.sleep(60)
activity.run(work, auto_heartbeat=True)
"""


@pytest.mark.parametrize("script", [HANGING, WAITING], ids=["a function", "a coroutine function"])
def test_automatic_heartbeats_continue_until_a_cancellation_request(api: Any, pod: Any, script: str) -> None:
    process = pod.with_lease(0.4).start(script.replace("DETAILS", "True"))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    api.wait_for(lambda: len(api.requests) >= 4)
    assert api.annotations["perdure.dev/heartbeat-details"] == '{"done":1}'
    with api.changed:
        api.annotations["perdure.dev/cancel-requested"] = "asked by ann"
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert pod.message["error"]["cancelled"] is True
    assert pod.message["error"]["message"] == "asked by ann"


def test_automatic_heartbeats_keep_the_details_of_an_earlier_attempt(api: Any, pod: Any) -> None:
    pod.environ["PERDURE_LAST_HEARTBEAT_DETAILS"] = '{"done": 7}'
    process = pod.with_lease(0.4).start(HANGING.replace("DETAILS", "False"))
    api.wait_for(lambda: len(api.requests) >= 2)
    process.kill()
    process.communicate()
    assert json.loads(api.annotations["perdure.dev/heartbeat-details"]) == {"done": 7}


def test_automatic_heartbeats_can_be_limited_to_a_block(api: Any, pod: Any) -> None:
    script = """
import time
with activity.auto_heartbeat():
    while not activity.cancelled():
        time.sleep(0.01)
print("canceled", flush=True)
"""
    api.annotations["perdure.dev/cancel-requested"] = "asked by ann"
    done = pod.with_lease(0.4).run(script)
    assert (done.returncode, done.stdout) == (0, "canceled\n"), done.stderr


def test_a_heartbeat_in_an_event_loop_does_not_wait_for_the_api_server(api: Any, pod: Any) -> None:
    script = """
import asyncio, threading
async def work():
    activity.heartbeat(1)
    return [thread.name for thread in threading.enumerate() if thread.name == "perdure-heartbeats"]
activity.run(work)
"""
    done = pod.with_lease(60).run(script)
    assert done.returncode == 0, done.stderr
    assert pod.message == ["perdure-heartbeats"]
    assert len(api.requests) == 1


# --- What it needs ----------------------------------------------------------------------------------------------------


def test_the_package_works_as_a_copied_folder(tmp_path: Path) -> None:
    shutil.copytree(Path(activity.__file__).parent, tmp_path / "perdure_activity")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import perdure_activity as a; a.run(lambda: 1)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], env={}, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "1\n"


def test_importing_the_package_loads_no_slow_modules(pod: Any) -> None:
    slow = "asyncio http http.client ssl urllib inspect logging dataclasses pathlib traceback pydantic perdure.api"
    done = pod.run(f"print([m for m in {slow.split()!r} if m in sys.modules])")
    assert done.stdout == "[]\n", done.stderr


def test_the_public_names_are_those_documented() -> None:
    public = {
        name
        for name, value in vars(activity).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("perdure.activity")
    }
    assert public - {"read_input", "current"} == set(activity.__all__)
