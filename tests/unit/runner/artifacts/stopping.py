"""Starts the programs of sidecars as Kubernetes does, and stops them."""

import os
import subprocess
import sys
from typing import Final

_STOPPED: Final = """
import resource, signal, subprocess, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
running = subprocess.Popen(sys.argv[1:])
running.terminate()
code = running.wait(300)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""
"""Starts a program with SIGTERM blocked, as the sidecar is, and stops it. A small process starts it, because a new process counts
the memory of the one that started it."""


def stopped(command: list[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program that is stopped immediately."""
    return subprocess.run(
        [sys.executable, "-c", _STOPPED, *command],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
