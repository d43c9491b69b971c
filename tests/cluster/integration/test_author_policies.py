"""The admission policy in docs/security.md decides by the user behind a run, and nobody can pass as another one."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cluster.namespace import SYSTEM, Cluster, run_manifest

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(300)]

PAGE = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
CREATED_BY = "audit.perdure.dev/created-by"
OPERATOR = f"--as=system:serviceaccount:{SYSTEM}:perdure"
RELEASE = "system:serviceaccount:shop:release"
REFUSAL = "Only shop/release can start the Workflow deploy."


@pytest.fixture(scope="module")
def policy(cluster: Cluster) -> Iterator[Cluster]:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (text,) = (block for block in blocks if "kind: ValidatingAdmissionPolicyBinding" in block)
    cluster("apply", "-f", "-", stdin=text)
    try:
        deadline = time.monotonic() + 60
        while not refused(cluster) and time.monotonic() < deadline:  # the API server compiles it within seconds
            time.sleep(0.2)
        yield cluster
    finally:
        for each in yaml.safe_load_all(text):
            cluster("delete", each["kind"], each["metadata"]["name"])


def refused(cluster: Cluster, *flags: str, created_by: str = "") -> str:
    """What kubectl says about a run of `deploy` that is not stored in any case; empty if it would be."""
    run: dict[str, Any] = run_manifest("deploy", {"workflow": {"name": "deploy"}})
    if created_by:
        run["metadata"]["annotations"] = {CREATED_BY: created_by}
    done = cluster.run("create", "--dry-run=server", "-n", "default", "-f", "-", *flags, stdin=json.dumps(run))
    return done.stderr if done.returncode else ""


def test_only_the_chosen_user_can_start_the_workflow(policy: Cluster) -> None:
    assert REFUSAL in refused(policy)
    assert REFUSAL in refused(policy, OPERATOR), "a child, or the run of a Schedule"
    assert REFUSAL in refused(policy, OPERATOR, created_by="system:serviceaccount:shop:web")
    assert not refused(policy, OPERATOR, created_by=RELEASE)


def test_a_user_cannot_pass_as_another_one(policy: Cluster) -> None:
    assert refused(policy, created_by=RELEASE)
