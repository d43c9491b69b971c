"""Fixtures that render the chart with the real helm."""

import subprocess
from functools import cache

import pytest
import yaml

from support.cluster.namespace import helm_program
from unit.chart.manifests import CHART, Helm, Manifest, Render

OLDEST_KUBERNETES = "1.32.0"


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Run helm with the oldest Kubernetes version that the chart supports."""
    program = helm_program()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        # Install has no such flag: it uses the version of the cluster, or the one that helm was built for.
        version = () if arguments[0] == "install" else (f"--kube-version={OLDEST_KUBERNETES}",)
        return subprocess.run([program, *arguments, *version], capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture(scope="session")
def render(helm: Helm) -> Render:
    """Render the chart as release `perdure` in `perdure-system`; arguments are those of `--set-json`.

    With `tests`, the objects of `helm test` are among the manifests.
    """

    @cache
    def manifests(*settings: str, tests: bool = False) -> list[Manifest]:
        flags = [part for setting in settings for part in ("--set-json", setting)]
        flags += () if tests else ("--skip-tests",)
        done = helm("template", "perdure", str(CHART), "--namespace", "perdure-system", *flags)
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.load_all(done.stdout, yaml.CSafeLoader) if document]

    return manifests
