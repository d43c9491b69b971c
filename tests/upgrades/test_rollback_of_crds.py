"""What `helm rollback` does to the CRDs, and to objects with fields that only the later ones have, as docs/versions.md says.

On a control plane alone: nothing runs, so that only the API server and helm change objects. The charts have no CRDs but those of
the objects here.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import gobuild
from cluster.controlplane import control_plane
from cluster.paths import REPOSITORY, Cache
from cluster.tools import DEFAULT_TOOLS, ensure_tools
from perdure.api.state_versions import NEWEST

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

Json = dict[str, Any]
CHART = REPOSITORY / "charts" / "perdure"
CRDS = {f"perdure.dev_{plural}.yaml" for plural in ("workflowruns", "historysegments", "webhooks")}
RUN: Json = {
    "apiVersion": "perdure.dev/v1beta1",
    "kind": "WorkflowRun",
    "metadata": {"name": "nap"},
    "spec": {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "1h"}}]}, "hibernation": {"after": "1m"}},
}
NOW = "2026-01-01T00:00:00Z"
CONDITION = {"type": "Succeeded", "status": "Unknown", "reason": "Running", "message": "", "lastTransitionTime": NOW}
STATUS: Json = {
    "phase": "Running",
    "stateVersion": NEWEST + 1,
    "archive": {"key": "2026/01", "rows": [1, 2]},
    "history": {"nextEventId": 2, "segments": 0, "sizeBytes": 0, "compression": "zstd"},
    "conditions": [CONDITION | {"severity": "Info"}],
}
"""A status with new fields: at its top, in an object that is known, and in an entry of a list."""
SEGMENT: Json = {
    "apiVersion": "perdure.dev/v1beta1",
    "kind": "HistorySegment",
    "metadata": {"name": "nap-1"},
    "spec": {
        "workflowRun": {"name": "nap", "workflowId": "nap", "runId": "0b1c"},
        "index": 0,
        "firstEventId": 1,
        "lastEventId": 1,
        "events": [{"eventId": 1}],
        "hash": "9f86d081884c7d659a2feaa0c55ad015",
        "compression": "zstd",
    },
}

KIND: Json = {
    "apiVersion": "perdure.dev/v1beta1",
    "kind": "Gadget",
    "metadata": {"name": "only-copy"},
    "spec": {"signature": {"secret": {"name": "any"}}, "start": {"workflow": {"name": "nap"}}},
}
"""An object of a kind that only the next version has; its CRD is that of Webhooks with another name."""
GADGETS = "customresourcedefinition/gadgets.perdure.dev"


@dataclass(frozen=True)
class Helm:
    """A control plane, and the charts of this version and of the next one."""

    environment: dict[str, str]
    charts: Path

    def run(self, *command: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment, input=text, capture_output=True, text=True, timeout=300, check=False
        )

    def __call__(self, *command: str, text: str | None = None) -> str:
        done = self.run(*command, text=text)
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def upgrade(self, chart: str, *values: str) -> None:
        release = ("upgrade", "--install", "perdure", str(self.charts / chart), "--namespace=perdure-system")
        self("helm", *release, "--create-namespace", *(f"--set={each}" for each in values))

    def roll_back(self) -> None:
        """Roll back to the release before."""
        self("helm", "rollback", "perdure", "--namespace=perdure-system")

    def wait_for_fields(self, *, new: bool) -> None:
        """Wait until the API server accepts the new fields, or does not; it learns of a changed CRD a moment later."""
        probe = json.dumps(RUN | {"metadata": {"name": "probe"}})
        deadline = time.monotonic() + 60
        command = ("kubectl", "create", "--dry-run=server", "--validate=strict", "--filename=-")
        while (self.run(*command, text=probe).returncode == 0) != new:
            assert time.monotonic() < deadline

    def get(self, kind: str, name: str) -> Json:
        found: Json = json.loads(self("kubectl", "get", kind, name, "--output=json"))
        return found

    def begin(self) -> None:
        """Create objects that have fields of the next version."""
        self.wait_for_fields(new=True)
        self("kubectl", "delete", "workflowruns,historysegments", "--all")
        for obj in (RUN, SEGMENT):
            self("kubectl", "create", "--validate=strict", "-f", "-", text=json.dumps(obj))
        status = json.dumps({"status": STATUS})
        self("kubectl", "patch", "workflowrun", "nap", "--subresource=status", "--type=merge", "-p", status)

    def write(self) -> None:
        """Write the objects: only then does the API server remove what it does not know."""
        for kind, name in (("workflowrun", "nap"), ("historysegment", "nap-1")):
            self("kubectl", "label", kind, name, "written=true")


def add_fields(crd: Json) -> None:
    """Add the new fields of the next version to a CRD."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for version in crd["spec"]["versions"]:
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        if crd["spec"]["names"]["kind"] == "WorkflowRun":
            status = properties["status"]["properties"]
            properties["spec"]["properties"]["hibernation"] = status["archive"] = anything
            status["history"]["properties"]["compression"] = {"type": "string"}
            status["conditions"]["items"]["properties"]["severity"] = {"type": "string"}
        if crd["spec"]["names"]["kind"] == "HistorySegment":
            properties["spec"]["properties"]["compression"] = {"type": "string"}


def edited(file: Path, change: Callable[[Json], None]) -> None:
    """Change the CRD in a template of the chart, and leave the lines around it."""
    head, rest = file.read_text(encoding="utf-8").split("spec:\n", 1)
    body, end = rest.rsplit("{{- end }}", 1)
    crd = {"spec": yaml.load(body.replace('{{ "{{" }}', "{{"), yaml.CSafeLoader)}
    change(crd)
    spec = json.dumps(crd["spec"]).replace("{{", '{{ "{{" }}')
    file.write_text(f"{head}spec: {spec}\n{{{{- end }}}}{end}", encoding="utf-8")


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Helm]:
    cache, folder = Cache.from_environment(os.environ), tmp_path_factory.mktemp("charts")
    shutil.copytree(CHART, folder / "this")
    for file in (folder / "this" / "templates" / "crds").iterdir():
        if file.name not in CRDS:
            file.unlink()
    shutil.copytree(folder / "this", folder / "next")
    for plural in ("workflowruns", "historysegments"):
        edited(folder / "next" / "templates" / "crds" / f"perdure.dev_{plural}.yaml", add_fields)
    crds = folder / "next" / "templates" / "crds"
    renamed = (crds / "perdure.dev_webhooks.yaml").read_text(encoding="utf-8").replace("webhook", "gadget")
    renamed = renamed.replace("Webhook", "Gadget").replace("whk", "gdg")
    (crds / "perdure.dev_gadgets.yaml").write_text(renamed, encoding="utf-8")
    tools = ensure_tools(cache, DEFAULT_TOOLS)
    with control_plane(cache, gobuild.kubernetes(os.environ.get("KUBERNETES", ""))) as kubeconfig:
        settings = {"KUBECONFIG": str(kubeconfig), "PATH": f"{tools}:{os.environ['PATH']}"}
        yield Helm(settings | {"HOME": str(folder)}, folder)


def test_a_rollback_keeps_what_operators_have_stored_and_removes_new_fields_of_specs(helm: Helm) -> None:
    helm.upgrade("this")
    helm.upgrade("next")
    helm.begin()
    assert helm.get("workflowrun", "nap")["spec"]["hibernation"] == {"after": "1m"}
    helm.roll_back()
    helm.wait_for_fields(new=False)
    helm.write()
    assert helm.get("workflowrun", "nap")["status"] == STATUS
    assert helm.get("historysegment", "nap-1")["spec"]["compression"] == "zstd"
    helm.upgrade("next")
    helm.wait_for_fields(new=True)
    run = helm.get("workflowrun", "nap")
    assert "hibernation" not in run["spec"], "docs/versions.md says so"
    assert run["status"] == STATUS


def test_the_earlier_chart_without_its_crds_removes_nothing(helm: Helm) -> None:
    helm.upgrade("next")
    helm.begin()
    helm.upgrade("this", "crds.enabled=false")
    helm.write()
    helm.upgrade("next", "crds.enabled=true")
    run = helm.get("workflowrun", "nap")
    assert (run["spec"]["hibernation"], run["status"]) == ({"after": "1m"}, STATUS)
    assert helm.get("historysegment", "nap-1")["spec"]["compression"] == "zstd"


@pytest.mark.parametrize("keep", [False, True], ids=["without crds.keep", "with crds.keep"])
def test_a_rollback_removes_kinds_that_are_new_unless_the_crds_are_kept(helm: Helm, *, keep: bool) -> None:
    value = f"crds.keep={str(keep).lower()}"
    helm.upgrade("this", value)
    helm.upgrade("next", value)
    helm("kubectl", "wait", "--for=condition=Established", GADGETS, "--timeout=60s")
    helm("kubectl", "create", "--validate=strict", "-f", "-", text=json.dumps(KIND))
    before = helm.get("gadget", "only-copy")
    helm.roll_back()
    if keep:
        assert helm.get("gadget", "only-copy") == before
        helm("kubectl", "delete", "gadget", "only-copy")
    else:
        helm("kubectl", "wait", "--for=delete", GADGETS, "--timeout=60s")
