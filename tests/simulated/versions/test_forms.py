"""Objects that operators of each state version have stored are decoded, continued, and finished by today's operator."""

import base64
from typing import Any

import msgspec
import pytest

from perdure.api.state_versions import FIELD, NEWEST, OLDEST, REVISIONS
from perdure.frontend.deployments.rules import WorkerDeployment
from perdure.frontend.matching.dispatch import QueueSettings
from perdure.frontend.nexus.endpoints import Endpoint
from perdure.frontend.peers.client import unpack
from perdure.simulation.cluster.store import Object
from simulated.versions import forms
from support.stored_forms import fields

VERSIONS = range(OLDEST, NEWEST + 1)
FAILED = {"lettered", "undoing"}
SETTINGS: dict[str, Any] = {
    "perdure-worker-deployments": WorkerDeployment,
    "perdure-nexus-endpoints": Endpoint,
    "perdure-task-queues": dict[str, QueueSettings],
}
CARRIERS = {
    "status": {"WorkflowRun", "Schedule", "WorkflowLimit", "RetryPolicy", "Operation"},
    "spec": {"HistorySegment", "CachedResult", "ArtifactSet"},
}
"""Where the objects of each kind carry the state version."""
SINCE = {"WorkflowRevision": REVISIONS}
"""The first version of kinds that the earliest one does not have; their specs carry it."""


def recorded(version: int) -> list[Object]:
    found: list[Object] = forms.read(forms.FORMS / str(version))
    return found


def test_every_version_has_recorded_objects(*, record: bool) -> None:
    if record:
        forms.write(forms.FORMS / str(NEWEST), forms.record(), fields())
    assert {int(each.name) for each in forms.FORMS.iterdir() if each.is_dir()} == set(VERSIONS)


def test_the_stored_form_has_not_changed() -> None:
    known, found = forms.read(forms.FORMS / str(NEWEST), "fields"), fields()
    changed = [name for name in {**known, **found} if known.get(name) != found.get(name)]
    assert not changed, "the stored form has changed: tests/golden/README.md says what to do"


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_objects_are_of_their_version(version: int) -> None:
    objects = recorded(version)
    added = {kind for kind, since in SINCE.items() if since <= version}
    for part, kinds in {**CARRIERS, "spec": CARRIERS["spec"] | added}.items():
        found = {
            each["kind"]: each[part].get(FIELD, OLDEST) for each in objects if each["kind"] in kinds and each.get(part)
        }
        assert found == dict.fromkeys(kinds, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_objects_are_continued_and_finished(version: int) -> None:
    runs, others = forms.finish(recorded(version))
    for name, run in runs.items():
        status = run["status"]
        reasons = {each["reason"] for each in status["conditions"]}
        assert not reasons & {"NewerState", "StateDamaged"}, name
        want = "Failed" if name in FAILED else "Terminated" if name == "coded" else "Completed"
        assert status["phase"] in {want, "ContinuedAsNew"}, f"{name}: {status['conditions']}"
        assert status.get(FIELD, OLDEST) in {version, NEWEST}, name
    outputs = {name: run["status"].get("output") for name, run in runs.items()}
    assert outputs["signaled"] == {"sent": "signaled"}
    assert sorted(name.split("-")[0] for name in runs).count("chain") == 4
    assert {each["kind"] for each in others.values()} >= {"HistorySegment", "DeadLetter", "ArtifactSet", "CachedResult"}
    assert others["WorkflowLimit/oven"]["status"]["held"] == 0
    assert others["RetryPolicy/breaker"]["status"]["circuit"]["state"] == "Closed"


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_messages_and_settings_are_read(version: int) -> None:
    packed = forms.read(forms.FORMS / str(version), "messages")
    assert [unpack(base64.b64decode(packed[type(each).__name__]), type(each)) for each in forms.MESSAGES] == [
        *forms.MESSAGES
    ]
    texts = forms.read(forms.FORMS / str(version), "settings")
    assert {name: msgspec.json.decode(texts[name], type=kind) for name, kind in SETTINGS.items()} == forms.SETTINGS
