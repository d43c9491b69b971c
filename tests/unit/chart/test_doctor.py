"""`perdure doctor` recognizes the objects of the chart."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.apiserver import items, serving
from support.doctor import BINDINGS, DEPLOYMENTS, POLICIES, findings, make_healthy
from unit.chart.manifests import Render


@pytest.mark.parametrize("settings", [(), ("temporal.enabled=false",), ("ui.enabled=true",)])
def test_doctor_finds_the_operator_and_its_policies(
    render: Render, settings: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = render(*settings)
    by_kind = {kind: [each for each in manifests if each["kind"] == kind] for kind in {m["kind"] for m in manifests}}
    deployments = [{**each, "status": {"readyReplicas": each["spec"]["replicas"]}} for each in by_kind["Deployment"]]
    policies, bindings = by_kind["ValidatingAdmissionPolicy"], by_kind["ValidatingAdmissionPolicyBinding"]
    with serving(tmp_path, monkeypatch) as server:
        make_healthy(server)
        server.answers |= {
            DEPLOYMENTS: items(*reversed(deployments)),
            POLICIES: items(*policies),
            BINDINGS: items(*bindings),
        }
        found = findings()
    assert {each["result"] for each in found.values()} == {"OK"}, json.dumps(found, indent=1)
    assert found["Admission policies"]["message"] == f"{len(policies)} policies, all bound"
    for each in (*policies, deployments[0]):
        assert each["metadata"]["labels"]["app.kubernetes.io/component"] == "operator"
