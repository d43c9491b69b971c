"""Run the official Python SDK's own tests against an operator, as a measure of compatibility.

Pass the folder of a checkout of temporalio/sdk-python. Its tests run in a separate virtual environment with the released wheel
of the version that is installed here. The address is that of an operator that serves SDKs without authentication, started with
``PERDURE_TEMPORAL_SUGGEST_EVENTS=50``, as the tests expect of their server::

    export PERDURE_TEMPORAL_ADDRESS=127.0.0.1:7233 PERDURE_TEMPORAL_AUTHENTICATION=None
    PERDURE_TEMPORAL_SUGGEST_EVENTS=50 perdure-operator
    python hack/sdk_tests.py --address 127.0.0.1:7233 ~/sdk-python tests/worker/test_workflow.py
"""

import argparse
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DEFAULT = ("tests/worker/test_workflow.py", "tests/worker/test_activity.py", "tests/test_client.py")
PACKAGES = (
    "pytest>=9,<9.1",
    "pytest-asyncio<0.22",
    "pytest-timeout",
    "pytest-rerunfailures",
    "pydantic",
    "httpx",
    "psutil",
    "cryptography",
    "opentelemetry-sdk",
    "opentelemetry-exporter-otlp-proto-grpc",
    "googleapis-common-protos",
    "grpcio",
)


def main() -> int:
    """Run the tests; the exit status is pytest's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", default="127.0.0.1:7233", help="Address of the operator's Temporal frontend")
    parser.add_argument("--timeout", type=int, default=60, help="Timeout of one test, in seconds")
    parser.add_argument("folder", type=Path, help="A checkout of temporalio/sdk-python")
    parser.add_argument("tests", nargs="*", help=f"Which tests; default {' '.join(DEFAULT)}")
    chosen = parser.parse_args()
    if not (chosen.folder / "tests" / "conftest.py").is_file():
        sys.exit(f"There is no tests/conftest.py in {chosen.folder}.")
    with tempfile.TemporaryDirectory(prefix="sdk-tests-") as work:
        place = Path(work)
        # Without the sources of the SDK next to them, because these have no compiled core.
        shutil.copytree(chosen.folder / "tests", place / "tests")
        shutil.copy(chosen.folder / "pyproject.toml", place)
        python = environment(place)
        command = [str(python), "-m", "pytest", "-E", chosen.address, f"--timeout={chosen.timeout}", "-rfE", "-v"]
        # The sandbox imports the whole test module for each workflow; rewriting its assertions each time would take seconds.
        command.append("--assert=plain")
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", *(chosen.tests or DEFAULT)],
            cwd=place,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        print(done.stdout)
        # The SDK sometimes crashes when the interpreter exits, also with Temporal's server, so the output decides.
        found = re.findall(r" (PASSED|FAILED|ERROR|SKIPPED)\b", done.stdout)
        print("; ".join(f"{found.count(what)} {what.lower()}" for what in ("PASSED", "FAILED", "ERROR", "SKIPPED")))
        return done.returncode


def environment(place: Path) -> Path:
    """Create a virtual environment with the SDK's released wheel, and return its python."""
    version = importlib.metadata.version("temporalio")
    subprocess.run([sys.executable, "-m", "venv", place / ".venv"], check=True)
    python = place / ".venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"temporalio=={version}", *PACKAGES], check=True)
    return python


if __name__ == "__main__":
    sys.exit(main())
