"""Only the operators of a release write the Leases by which they find each other: the policy of the chart, as installed.

The callers are impersonated: an editor of the namespace, who may write Leases there, and an operator.
"""

import subprocess
from collections.abc import Iterator

import pytest
import yaml

from perdure.api.labels import FLEET_LABEL, MEMBER_ADDRESS_ANNOTATION
from support.cluster.namespace import Cluster, helm_program
from support.manuals import REPOSITORY

pytestmark = pytest.mark.cluster

EDITOR = "--as=editor"


@pytest.fixture
def release(namespace: Cluster) -> Iterator[Cluster]:
    """A namespace with an editor, and with the policy of a release there, which is in force."""
    name = namespace.namespace
    rendered = subprocess.run(
        [
            *(helm_program(), "template", name, str(REPOSITORY / "charts/perdure"), f"--namespace={name}"),
            *(f"--set=fullnameOverride={name}", "--set=serviceAccount.name=perdure"),
            "--show-only=templates/fleetfence.yaml",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    accounts = ("--user=editor", f"--serviceaccount={name}:perdure")
    namespace("create", "rolebinding", "editor", "--clusterrole=edit", *accounts)
    namespace("apply", "-f", "-", stdin=rendered)
    try:
        forged = lease("forged", **{FLEET_LABEL: name})
        refused = "operators of Perdure find each other with them"
        namespace.wait(
            "the policy to be in force",
            lambda: refused in namespace.run("create", EDITOR, "--dry-run=server", "-f", "-", stdin=forged).stderr,
        )
        yield namespace
    finally:
        namespace("delete", "-f", "-", stdin=rendered)


def operator(release: Cluster) -> str:
    return f"--as=system:serviceaccount:{release.namespace}:perdure"


def lease(name: str, **marks: str) -> str:
    """The manifest of a Lease."""
    metadata = {"name": name, "labels": marks}
    return yaml.safe_dump({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}})


def test_only_operators_change_and_delete_their_leases(release: Cluster) -> None:
    address = f"{MEMBER_ADDRESS_ANNOTATION}=10.0.0.9:7234"
    operator_lease = lease("perdure-1", **{FLEET_LABEL: release.namespace})
    release("create", operator(release), "-f", "-", stdin=operator_lease)
    assert release.run("annotate", EDITOR, "lease", "perdure-1", address).returncode
    assert release.run("label", EDITOR, "lease", "perdure-1", f"{FLEET_LABEL}-").returncode
    assert release.run("delete", EDITOR, "lease", "perdure-1").returncode
    release("annotate", operator(release), "lease", "perdure-1", address)
    release("delete", operator(release), "lease", "perdure-1")


@pytest.mark.parametrize("marks", [{}, {FLEET_LABEL: "another"}], ids=["no fleet", "another fleet"])
def test_users_can_write_other_leases_but_cannot_turn_them_into_operator_leases(
    release: Cluster, marks: dict[str, str]
) -> None:
    release("create", EDITOR, "-f", "-", stdin=lease("leader", **marks))
    label = f"{FLEET_LABEL}={release.namespace}"
    assert release.run("label", EDITOR, "--overwrite", "lease", "leader", label).returncode
    release("annotate", EDITOR, "lease", "leader", "note=mine")
    release("delete", EDITOR, "lease", "leader")
