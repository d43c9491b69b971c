"""Processes that this project started, and only those.

A pid file is not enough: after a crash or a reboot, another process may have its pid. So a
process counts only if its command line also contains a unique marker, in practice the path
of a file in the cache folder.
"""

import os
import signal
import time
from pathlib import Path

PROC = Path("/proc")


def command_line(pid: int, proc: Path = PROC) -> list[str]:
    """Return the arguments of a process; empty if it has ended or is a zombie."""
    try:
        raw = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.split(b"\0") if part]


def is_ours(pid: int, marker: str, proc: Path = PROC) -> bool:
    """Return whether a process exists and its command line contains the marker."""
    return any(marker in argument for argument in command_line(pid, proc))


def pid_from_file(file: Path, marker: str, proc: Path = PROC) -> int | None:
    """Return the pid in a file if that process is still the one for which it was written."""
    try:
        pid = int(file.read_text())
    except (OSError, ValueError):
        return None
    return pid if is_ours(pid, marker, proc) else None


def find(marker: str, proc: Path = PROC) -> list[int]:
    """Return the pids of all other processes whose command line contains the marker."""
    pids = (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    return sorted(pid for pid in pids if pid != os.getpid() and is_ours(pid, marker, proc))


def children(parents: set[int], proc: Path = PROC) -> list[int]:
    """Return the pids of the direct children of some processes."""
    result = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        # The name of the command is in parentheses, and may contain spaces and parentheses.
        parent = int(stat.rpartition(")")[2].split()[1])
        if parent in parents:
            result.append(int(entry.name))
    return sorted(result)


def stop(pid: int, marker: str, *, grace: float = 20.0) -> None:
    """Stop one of our processes: with SIGTERM, and with SIGKILL after the grace period.

    The pidfd makes the check and the signal atomic: if the pid is reused in between, the
    signal cannot reach the wrong process, because the descriptor refers to the checked one.
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
