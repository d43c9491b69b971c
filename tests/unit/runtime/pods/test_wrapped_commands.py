"""The shell programs around commands of containers, run by each shell of this machine: nothing but the output may change."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from select import select
from typing import IO, Any

import pytest

from perdure.api.pods import LOG_PATH, ORDER_PATH
from perdure.runtime.pods.commands import SIGNALS, copy_log, order_containers

_SECONDS = 60
_SHELLS = tuple(name for name in ("dash", "bash", "busybox") if shutil.which(name))
_BUILTINS = (":", "[", "echo", "eval", "exec", "kill", "test", "wait")
_IGNORING = f"trap '' {SIGNALS}; for each in {SIGNALS}; do kill -s $each 0; done; echo end; exit 3"
_COUNTING = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
for number in range(4):
    os.write(1, b"%d\\n" % number)
    if number < 3:
        signal.sigwait({signal.SIGTERM})
os._exit(int(sys.argv[1]))
"""

_INTERRUPTED = """
import os, signal, sys
signal.signal(int(sys.argv[1]), lambda *_: os._exit(4))
received, wakeup = os.pipe()
os.set_blocking(wakeup, False)
signal.set_wakeup_fd(wakeup)
os.write(1, b"waits\\n")
os.read(received, 1)
"""
"""`signal.pause` may block although a signal has arrived right before it: Python runs handlers only after it has returned."""


class Shell:
    """A folder with a shell whose name is `sh`, and with the files of a pod."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.bin = folder / "bin"
        self.state = folder / "state"
        self.program = folder / "shell" / "sh"
        for each in (self.bin, self.state, self.program.parent):
            each.mkdir()
        self.program.symlink_to(str(shutil.which(name)))
        (self.bin / "sh").symlink_to(self.program)
        self.path = f"{self.bin}:{os.environ['PATH']}"
        self._started: list[subprocess.Popen[str]] = []

    def add(self, name: str, program: str) -> None:
        """Add a program to the image."""
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(f"#!/bin/sh\n{program}")
        (self.bin / name).chmod(0o755)

    def start(self, container: dict[str, Any]) -> subprocess.Popen[str]:
        """Start the command of a container, in a process group of its own."""
        words = [word.replace("$$", "$") for word in container["command"]]
        words = [word.replace(LOG_PATH, str(self.state)).replace(ORDER_PATH, str(self.state)) for word in words]
        started = subprocess.Popen(
            [str(self.program), *words[1:]],
            env={"PATH": self.path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.append(started)
        return started

    def close(self) -> None:
        for each in self._started:
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.communicate()


@pytest.fixture(autouse=True)
def default_signals() -> Iterator[None]:
    """Start processes with the signals of a container: what a shell starts in the background ignores SIGINT and SIGQUIT."""
    passed_on = [signal.Signals[f"SIG{name}"] for name in SIGNALS.split()]
    ignored = [number for number in passed_on if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(params=_SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    made = Shell(request.param, tmp_path)
    yield made
    made.close()


def logged(*command: str) -> dict[str, Any]:
    """A container whose log is archived."""
    container: dict[str, Any] = {"name": "own", "command": list(command)}
    copy_log("work", {}, container)
    return container


def needed(*command: str) -> dict[str, Any]:
    """A container that another one waits for."""
    return grouped({"name": "own", "command": list(command)})[0]


def both(*command: str) -> dict[str, Any]:
    """A container whose log is archived and that another one waits for."""
    return grouped(logged(*command))[0]


def grouped(container: dict[str, Any]) -> list[dict[str, Any]]:
    spec: dict[str, Any] = {"containers": [container, {"name": "next", "command": ["true"], "needs": ["own"]}]}
    order_containers(spec)
    containers: list[dict[str, Any]] = spec["containers"]
    return containers


@pytest.fixture(params=[logged, needed, both])
def wrapped(request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    made: Callable[..., dict[str, Any]] = request.param
    return made


def await_file(path: Path) -> None:
    end = time.monotonic() + _SECONDS
    while not path.exists() or not path.stat().st_size:
        assert time.monotonic() < end, f"{path} was not written"
        time.sleep(0.01)


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def test_the_program_in_the_image_is_run_instead_of_a_builtin(
    shell: Shell, wrapped: Callable[..., dict[str, Any]]
) -> None:
    for name in _BUILTINS:
        shell.add(name, f'echo "program {name} $#"\nexit 5')
        done = shell.start(wrapped(name, "1", "a b"))
        assert done.communicate(timeout=_SECONDS) == (f"program {name} 2\n", "")
        assert done.returncode == 5
        shutil.rmtree(shell.state)
        shell.state.mkdir()


def next_line(stream: IO[str] | None) -> str | None:
    """The next line, and nothing beyond it; None if it has not begun for a while."""
    assert stream is not None
    found = b""
    while not found.endswith(b"\n"):
        if not found and not select([stream], [], [], 5)[0]:
            return None
        byte = os.read(stream.fileno(), 1)
        if not byte:
            break
        found += byte
    return found.decode()


def test_a_signal_to_the_process_group_keeps_the_end_of_the_output(
    shell: Shell, wrapped: Callable[..., dict[str, Any]]
) -> None:
    done = shell.start(wrapped("/bin/sh", "-c", _IGNORING))
    assert done.communicate(timeout=_SECONDS) == ("end\n", "")
    assert done.returncode == 3
    if wrapped is not needed:
        assert (shell.state / "log").read_text() == "end\n"


@pytest.mark.parametrize("code", [0, 7, 127, 143])
def test_the_exit_code_is_exact_after_several_signals(
    shell: Shell, wrapped: Callable[..., dict[str, Any]], code: int
) -> None:
    done = shell.start(wrapped("python3", "-c", _COUNTING, str(code)))
    for number in range(4):
        while (text := next_line(done.stdout)) is None:
            done.terminate()  # bash passes on the signal that it has missed with this one: see docs/log-archive.md
        assert text == f"{number}\n"
        done.terminate()  # the last one comes while the command exits
    assert done.wait(timeout=_SECONDS) == code
    if wrapped is not logged:
        assert (shell.state / "own.succeeded").exists() == (code == 0)
        assert (shell.state / "own.failed").exists() == (code != 0)


@pytest.mark.parametrize(("program", "code"), [("kill -s KILL $$", 137), ("kill -s TERM $$", 143), ("exit 9", 9)])
def test_the_end_of_a_command_prints_nothing(
    shell: Shell, wrapped: Callable[..., dict[str, Any]], program: str, code: int
) -> None:
    done = shell.start(wrapped("/bin/sh", "-c", program.replace("$", "$$")))
    assert done.communicate(timeout=_SECONDS) == ("", "")
    assert done.returncode == code


@pytest.mark.parametrize(("single", "noted"), [(logged, "command.stop"), (needed, "own.stop")])
def test_a_signal_before_the_command_starts_stops_it(
    shell: Shell, single: Callable[..., dict[str, Any]], noted: str, tmp_path: Path
) -> None:
    reached, gate = tmp_path / "reached", tmp_path / "gate"
    os.mkfifo(reached)
    os.mkfifo(gate)
    shell.add("sh", f'echo >{reached}\nread -r _ <{gate}\nexec {shell.program} "$@"')
    done = shell.start(single("python3", "-c", "print('started')"))
    reached.read_text()
    done.terminate()
    await_file(shell.state / noted)
    gate.write_text("\n")
    assert done.communicate(timeout=_SECONDS)[0] == ""
    assert done.returncode == 143


@pytest.mark.parametrize("single", [logged, needed])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_command_gets_the_interrupts_that_it_handles(
    shell: Shell, single: Callable[..., dict[str, Any]], number: signal.Signals
) -> None:
    done = shell.start(single("python3", "-c", _INTERRUPTED, str(number.value)))
    assert line(done.stdout) == "waits\n"
    done.send_signal(number)
    assert done.wait(timeout=_SECONDS) == 4


def test_a_signal_after_the_end_of_the_command_keeps_the_end_of_the_log(shell: Shell, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    shell.add("sleep", "exec /bin/sleep 600")  # the limit must not decide
    done = shell.start(logged("/bin/sh", "-c", f"(read -r _ <{gate}; echo late) & exit 4"))
    await_file(shell.state / "command.code")
    for _ in range(2):
        done.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            done.wait(timeout=0.5)
    gate.write_text("\n")
    assert done.wait(timeout=_SECONDS) == 4
    assert (shell.state / "log").read_text() == "late\n"


def test_a_container_without_sleep_cannot_wait(shell: Shell) -> None:
    first, waiting = grouped({"name": "own", "command": ["/bin/echo", "done"]})
    shell.path = str(shell.bin)
    failed = shell.start(waiting)
    reason = "container next cannot wait for others, because its image has no program named sleep\n"
    assert failed.communicate(timeout=_SECONDS) == ("", reason)
    assert failed.returncode == 127
    assert (shell.state / "next.failed").exists()
    done = shell.start(first)
    assert done.communicate(timeout=_SECONDS) == ("done\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1])
def test_a_waiting_container_is_stopped_by_a_signal(shell: Shell, number: signal.Signals, tmp_path: Path) -> None:
    reached = tmp_path / "reached"
    os.mkfifo(reached)
    shell.add("sleep", f"echo >{reached}\nexec /bin/sleep 0.01")
    waiting = shell.start(grouped({"name": "own", "command": ["true"]})[1])
    reader = os.open(reached, os.O_RDWR)  # no later `sleep` blocks
    try:
        assert os.read(reader, 1)
        waiting.send_signal(number)
        assert waiting.wait(timeout=_SECONDS) == 143
    finally:
        os.close(reader)
