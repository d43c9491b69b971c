"""ArtifactSets of a newer version: nothing is added to them, and what needs their artifacts waits."""

import copy
from contextlib import closing
from datetime import UTC, datetime
from random import Random

import pytest

from perdure.api.kinds.artifactset import HolderKind
from perdure.api.kinds.workflow import Activity
from perdure.api.names import artifact_set_name
from perdure.api.state_versions import NEWEST
from perdure.controller.artifacts import NewerSetError, RunArtifacts, hold_for
from perdure.controller.pods.attempt_pods import AttemptBlockedError
from perdure.kube import client as kube
from perdure.kube.access import Access
from perdure.runtime.attempts import RunRef
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.loop import VirtualLoop
from perdure.simulation.cluster.process import Session
from perdure.simulation.cluster.store import Object, ObjectKey

UID = "11111111-0000-0000-0000-000000000000"
OTHER = "22222222-0000-0000-0000-000000000000"
NEWER: list[Object] = [
    {"runId": UID, "stores": ["store"], "holdersByKind": {}, "stateVersion": NEWEST + 1},
    {"runId": UID, "stores": ["store"], "holders": [], "stateVersion": NEWEST + 1},
    {"runId": UID, "stores": ["store"], "holders": [], "keepUntil": "2030-01-01T00:00:00Z"},
]
UPLOADS = Activity.model_validate(
    {
        "name": "work",
        "startToCloseTimeout": "1h",
        "container": {"image": "shop"},
        "artifacts": {"store": "other", "outputs": [{"name": "file", "path": "/tmp/file"}]},
    }
)
REFERENCE = f'{{"key": "default/{UID}/5-1/file", "store": "store"}}'


@pytest.mark.parametrize("spec", NEWER, ids=["another form", "a higher version", "an unknown field"])
@pytest.mark.parametrize("use", ["upload", "refer", "dead letter"])
def test_a_newer_artifact_set_is_left_as_it_is(spec: Object, use: str) -> None:
    with closing(VirtualLoop(datetime(2027, 1, 1, tzinfo=UTC))) as loop:
        server = ApiServer(loop, Random(0))
        server.create("artifactsets", {"metadata": {"name": artifact_set_name(UID)}, "spec": spec})
        key = ObjectKey("artifactsets", "default", artifact_set_name(UID))
        before = copy.deepcopy(server.get(key))
        client = kube.Client(Access(server=""), Session(server, "operator"))  # type: ignore[arg-type] # stands in for aiohttp's

        async def run() -> None:
            if use == "upload":
                with pytest.raises(AttemptBlockedError, match="A newer version of Perdure has written"):
                    await RunArtifacts(
                        client, RunRef(namespace="default", name="run", uid=UID, workflow_id="w")
                    ).expect(UPLOADS, "image")
            elif use == "refer":
                with pytest.raises(NewerSetError):
                    await RunArtifacts(
                        client, RunRef(namespace="default", name="run", uid=OTHER, workflow_id="w")
                    ).hold(REFERENCE.encode())
            else:
                letter = {
                    "metadata": {"namespace": "default", "name": "letter", "uid": OTHER},
                    "spec": {"input": REFERENCE},
                }
                with pytest.raises(NewerSetError):
                    await hold_for(client, HolderKind.DEAD_LETTER, letter)

        loop.run_until_complete(run())
        assert server.get(key) == before
