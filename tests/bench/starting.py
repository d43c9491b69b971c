"""Start an operator here, against the cluster of KUBECONFIG: ``python tests/bench/starting.py``.

Prints the time until /readyz, and the resident memory then, at its peak, and after a resync.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

_PORT = 18_080
_OPERATOR = Path(sys.executable).with_name("perdure-operator")


def _is_ready() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _memory(pid: int, what: str) -> float:
    """Return the memory of a process in MiB: ``VmRSS`` for the current value, ``VmHWM`` for the peak."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.split(f"{what}:")[1].split()[0]) / 1024


def main() -> None:
    """Start, watch and stop an operator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=int, default=130, help="how long to run the operator; it resyncs once a minute"
    )
    parser.add_argument("--temporal", action="store_true", help="with the frontend for Temporal SDKs")
    given = parser.parse_args()
    temporal = {"PERDURE_TEMPORAL_ADDRESS": "127.0.0.1:17233", "PERDURE_TEMPORAL_AUTHENTICATION": "None"}
    environment = {**os.environ, "PERDURE_HTTP_PORT": str(_PORT), **(temporal if given.temporal else {})}
    with tempfile.NamedTemporaryFile(prefix="operator-", suffix=".log", delete=False) as log:
        began = time.monotonic()
        operator = subprocess.Popen([_OPERATOR], env=environment, stdout=log, stderr=log)
        ready = 0.0
        try:
            while time.monotonic() < began + given.seconds and operator.poll() is None:
                if not ready and _is_ready():
                    ready = time.monotonic() - began
                    sys.stdout.write(f"ready after {ready:.1f} s with {_memory(operator.pid, 'VmRSS'):.0f} MiB\n")
                    sys.stdout.flush()
                time.sleep(0.2)
            if operator.poll() is None:
                now, peak = (_memory(operator.pid, what) for what in ("VmRSS", "VmHWM"))
                sys.stdout.write(f"after {given.seconds} s {now:.0f} MiB, at most {peak:.0f} MiB\n")
        finally:
            operator.terminate()
            operator.wait(30)
        sys.stdout.write(f"log: {log.name}\n")


if __name__ == "__main__":
    main()
