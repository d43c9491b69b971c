"""Objects that operators of each state version have stored are decoded, continued, and finished by today's operator."""

import base64
from typing import Any

import msgspec
import pytest

from perdure.api.labels import FLEET_LABEL, START_ANNOTATION, STATE_VERSION_ANNOTATION, UPGRADE_RECORD_LABEL
from perdure.api.state_versions import FIELD, NEWEST, OLDEST, REVISIONS
from perdure.archive.rows import restored
from perdure.controller.recorded_state import stored_state
from perdure.engine.history import decode_events
from perdure.engine.starts import Callback
from perdure.frontend.deployments.rules import WorkerDeployment
from perdure.frontend.matching.dispatch import QueueSettings
from perdure.frontend.messages import tokens
from perdure.frontend.nexus.endpoints import Endpoint
from perdure.frontend.peers.client import unpack
from perdure.runtime import status_encoding
from perdure.runtime.callbacks import SYSTEM_URL, TOKEN_HEADER, token_of
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
ADDED_CARRIERS = {
    "status": {"DeadLetter", "Webhook", "WorkerDeployment"},
    "spec": {"Payload", "WorkflowRevision"},
}
"""The same of kinds that recordings have since state version 3."""
WHOLE = range(REVISIONS, NEWEST + 1)
"""The versions whose recordings have everything."""


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
    for part, kinds in CARRIERS.items():
        wanted = kinds | ADDED_CARRIERS[part] if version in WHOLE else kinds
        found = {
            each["kind"]: each[part].get(FIELD, OLDEST) for each in objects if each["kind"] in wanted and each.get(part)
        }
        assert found == dict.fromkeys(wanted, version)


@pytest.mark.parametrize("version", WHOLE)
def test_recordings_have_what_runs_can_have_since_their_version(version: int) -> None:
    """What is added to the newest version before its release belongs into the story, too."""
    objects = recorded(version)
    leases = {each["metadata"]["annotations"][STATE_VERSION_ANNOTATION] for each in objects if each["kind"] == "Lease"}
    assert leases == {str(version)}, "of an attempt, and of a member"
    members = [each for each in objects if FLEET_LABEL in each["metadata"].get("labels", {})]
    assert [each["kind"] for each in members] == ["Lease"]
    records = [each["data"] for each in objects if UPGRADE_RECORD_LABEL in each["metadata"].get("labels", {})]
    assert [each["writes"] for each in records] == [str(version)]
    runs = {each["metadata"]["name"]: status_encoding.decode(each) for each in objects if each["kind"] == "WorkflowRun"}
    frames = {name: runs[name]["status"]["state"]["memory"]["frames"] for name in ("branching", "served", "unready")}
    assert frames["branching"].keys() == {"", "all.nap", "all.wait"}, "the third branch has completed"
    assert [each["services"].keys() for each in frames["served"].values()] == [{"db"}]
    assert [each.get("lostServices") for each in frames["unready"].values()] == [1]
    (order,) = [run for run in runs.values() if run["spec"].get("workflowId") == "order"]
    assert "continuedFailure" in order["metadata"]["annotations"][START_ANNOTATION]
    state = order["status"]["state"]
    assert {each["activityId"] for each in state["activities"].values()} == {"charge"}
    assert state["timers"]
    assert state["children"]
    assert state["code"]["updates"].keys() == {"at once", "in a while"}


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
    if version in WHOLE:
        (letter,) = [each for each in others.values() if each["kind"] == "DeadLetter"]
        assert [(each["type"], each["status"]) for each in letter["status"]["conditions"]] == [("Redriven", "True")]
        assert outputs["served"] == "served-db-2.default.svc"


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_messages_and_settings_are_read(version: int) -> None:
    packed = forms.read(forms.FORMS / str(version), "messages")
    messages = {name: unpack(base64.b64decode(each), type(forms.MESSAGES[name])) for name, each in packed.items()}
    assert messages == {name: forms.MESSAGES[name] for name in packed}
    assert version < NEWEST or packed.keys() == forms.MESSAGES.keys()
    texts = forms.read(forms.FORMS / str(version), "settings")
    assert {name: msgspec.json.decode(texts[name], type=kind) for name, kind in SETTINGS.items()} == forms.SETTINGS


@pytest.mark.parametrize("version", WHOLE)
def test_recorded_tokens_are_read(version: int) -> None:
    texts = forms.read(forms.FORMS / str(version), "tokens")
    for token in forms.TOKENS:
        assert tokens.unpack(texts[type(token).__name__].encode(), type(token), token.namespace) == token
    callback = Callback(url=SYSTEM_URL, header={TOKEN_HEADER: texts["CallbackToken"]})
    assert token_of(callback) == forms.CALLBACK


@pytest.mark.parametrize("version", WHOLE)
def test_recorded_rows_of_the_archive_are_read(version: int) -> None:
    rows = forms.read(forms.FORMS / str(version), "archive")
    assert "done" in rows
    for name, content in rows.items():
        run = restored(base64.b64decode(content))
        state = stored_state(run)
        assert state is not None
        assert state.closed, name
        assert run["status"][FIELD] == version
        assert decode_events(run["status"]["history"]["events"])[-1].event_id + 1 == state.next_event_id
