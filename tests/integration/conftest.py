"""What tests against a real cluster share."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl against the cluster of the tests."""

    binary: str
    kubeconfig: Path

    def run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run one command, whatever comes of it."""
        command = [self.binary, "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run one command that has to succeed, and give what it prints."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout


@pytest.fixture(scope="session")
def kubectl() -> Kubectl:
    cache = Path(os.environ.get("PERDURE_CACHE") or Path.home() / ".cache" / "perdure")
    kubeconfig = Path(os.environ.get("KUBECONFIG") or cache / "clusters" / "perdure" / "kubeconfig")
    if not kubeconfig.exists():
        pytest.fail(f"There is no cluster: {kubeconfig} does not exist. Bring one up with `make cluster`.")
    binary = shutil.which("kubectl", path=cache / "bin") or shutil.which("kubectl")
    if binary is None:
        pytest.fail("There is no kubectl: put it on PATH.")
    found = Kubectl(binary, kubeconfig)
    answer = found.run("get", "--raw", "/readyz", "--request-timeout=10s")
    if answer.returncode != 0:
        pytest.fail(f"The cluster of {kubeconfig} does not answer: {answer.stderr.strip()}")
    return found
