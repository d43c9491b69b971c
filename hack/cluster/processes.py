"""Processes that this project started, and only those.

A pid file says little: after a crash or a reboot its number may belong to anybody. So a
process is trusted only if its command line also holds a marker that nobody else's has, in
practice the path of a file under the cache folder.
"""

import os
import signal
import time
from pathlib import Path

PROC = Path("/proc")


def command_line(pid: int, proc: Path = PROC) -> list[str]:
    """Arguments of a process; empty if it is gone or only a zombie."""
    try:
        raw = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.split(b"\0") if part]


def is_ours(pid: int, marker: str, proc: Path = PROC) -> bool:
    """Whether a process is there and its command line holds the marker."""
    return any(marker in argument for argument in command_line(pid, proc))


def pid_from_file(file: Path, marker: str, proc: Path = PROC) -> int | None:
    """Pid that a file names, if it is still the process it was written for."""
    try:
        pid = int(file.read_text())
    except (OSError, ValueError):
        return None
    return pid if is_ours(pid, marker, proc) else None


def find(marker: str, proc: Path = PROC) -> list[int]:
    """Pids of all processes but this one whose command line holds the marker."""
    pids = (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    return sorted(pid for pid in pids if pid != os.getpid() and is_ours(pid, marker, proc))


def children(parents: set[int], proc: Path = PROC) -> list[int]:
    """Pids of the direct children of some processes."""
    result = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        # The command's name is in brackets and may itself hold spaces and brackets.
        parent = int(stat.rpartition(")")[2].split()[1])
        if parent in parents:
            result.append(int(entry.name))
    return sorted(result)


def stop(pid: int, marker: str, *, grace: float = 20.0) -> None:
    """End a process of ours: politely first, by force after the grace period.

    The pidfd makes check and signal one thing: a pid that is reused in between cannot
    be hit, because the descriptor stays bound to the process it was opened for.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for signum, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
            if not is_ours(pid, marker):
                return
            try:
                signal.pidfd_send_signal(handle, signum)
            except ProcessLookupError:
                return
            deadline = time.monotonic() + patience
            while is_ours(pid, marker) and time.monotonic() < deadline:
                time.sleep(0.05)
    finally:
        os.close(handle)
