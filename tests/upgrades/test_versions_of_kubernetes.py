"""Versions of Kubernetes validate the CRDs and the admission policies of the chart, without a cluster.

`hack/admission` is built with the oldest version that docs/versions.md names, or with that of KUBERNETES, such as 1.34. Versions
differ: 1.32 and 1.33 ignore the `maxLength` of a field that is an integer or a string when they estimate the cost of a rule.
"""

import json
import os
import subprocess
from typing import Any

import pytest
import yaml

from cluster import gobuild
from cluster.paths import REPOSITORY, Cache
from cluster.tools import ensure_tools
from perdure.api.crdgen import KINDS, crd_yaml, minimal_definition

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

OLDEST = "1.32"
HEADROOM = 0.75
"""How much of the limits of Kubernetes the estimated costs of the rules may use."""


def test_a_version_of_kubernetes_accepts_the_crds_and_the_policies() -> None:
    cache, minor = Cache.from_environment(os.environ), os.environ.get("KUBERNETES") or OLDEST
    program = gobuild.admission(minor)
    (binary,) = gobuild.build(cache, program).iterdir()
    chart = [str(ensure_tools(cache, ("helm",)) / "helm"), "template", "perdure", "charts/perdure"]
    settings = [f"--kube-version={minor}", "--set=definitionFence.inlineDefinitions=Deny"]
    rendered = subprocess.run([*chart, *settings], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    minimal = [minimal_definition(yaml.load(crd_yaml(kind), yaml.CSafeLoader)) for kind in KINDS]
    manifests = "\n---\n".join([rendered, *map(json.dumps, minimal)])
    done = subprocess.run([binary], input=manifests, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert [each for each in found if each["errors"]] == []
    kinds = [each["kind"] for each in found]
    assert kinds.count("CustomResourceDefinition") == 2 * len(KINDS)
    assert kinds.count("ValidatingAdmissionPolicy") == kinds.count("ValidatingAdmissionPolicyBinding") > 0
    print(f"Kubernetes {program.version}: {len(found)} objects are valid")
    for each in found:
        for cost in each.get("costs", ()):
            assert max(cost["total"], cost["highest"]) < HEADROOM, (each["name"], cost)
            if cost["total"] > 0.1:
                print(f"{each['name']} {cost['version']}: {cost['total']:.0%} of the cost limit of all rules")
