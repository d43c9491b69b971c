"""Run commands: quietly, with a log file, or in a sandbox that cleans up after itself."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.errors import ClusterError, CommandError

TAIL_LINES = 15

DIE_WITH_ME = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
"""Prefix of commands that must not outlive this program, even if it is killed.

Empty if setpriv does not exist, for example on a Mac. A killed run may then leave a build
running until it ends, which the retries and renames of the next run tolerate.
"""

SANDBOX = (
    *DIE_WITH_ME,
    "unshare",
    "--mount",
    "--propagation=private",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
"""Prefix of commands whose mounts and processes end together with them."""


def tail(text: str, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a text."""
    return "\n".join(text.rstrip().splitlines()[-lines:])


def capture(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
    stdin: str | None = None,
) -> str:
    """Run a command and return its output; raise CommandError if it fails."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise ClusterError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(command, -1, f"no answer within {timeout} s") from error
    if done.returncode:
        raise CommandError(command, done.returncode, tail(done.stdout + done.stderr))
    return done.stdout


def succeeds(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> bool:
    """Run a command and return only its exit status."""
    try:
        capture(command, environment=environment, timeout=60)
    except ClusterError:
        return False
    return True


def run_logged(
    command: Sequence[str],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> None:
    """Run a command and write its output to a file; if it fails, raise CommandError with the end of the file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        raise CommandError(command, done.returncode, tail(log.read_text(errors="replace")), log)


def found(name: str) -> str | None:
    """Find a command on PATH, or in system folders that are not on the PATH of normal users."""
    path = os.environ.get("PATH", "")
    return shutil.which(name, path=f"{path}:/usr/local/sbin:/usr/sbin:/sbin")
