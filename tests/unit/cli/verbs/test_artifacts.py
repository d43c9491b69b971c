"""`perdure artifacts`: the artifacts of a run, and the pod that reads one for the user."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.connection import connect
from perdure.cli.verbs.artifacts import ArtifactDownload
from perdure.client.errors import CliError
from perdure.runner.artifacts.seals import PIECE, Reader, UnsealedError, seal
from support.apiserver import ApiServer, Log, items
from support.cli import RUNS, perdure

CONTENT = bytes(range(256)) * 100
REPORT = {
    "store": "perdure-artifacts",
    "key": "shop/uid-1/2-1/report",
    "size": len(CONTENT),
    "sha256": hashlib.sha256(CONTENT).hexdigest(),
    "archive": "None",
}
PODS = "/api/v1/namespaces/shop/pods"
UPLOADER = {"spec": {"initContainers": [{"name": "perdure-outputs", "image": "perdure:x"}]}}


def run(*artifacts: dict[str, Any]) -> dict[str, Any]:
    events = [
        {"eventId": i, "eventType": "ActivityTaskCompleted", "activityId": f"make[{i}]", "artifacts": each}
        for i, each in enumerate(artifacts)
    ]
    meta = {"name": "order", "namespace": "shop", "uid": "uid-1"}
    return {"metadata": meta, "spec": {}, "status": {"history": {"events": events}}}


@pytest.fixture(autouse=True)
def stored(server: ApiServer) -> None:
    server.answers[f"{RUNS}/order"] = run(
        {"report": REPORT}, {}, {"report": {**REPORT, "key": "shop/uid-1/4-1/report"}}
    )
    server.answers[PODS] = items(UPLOADER)
    server.status = lambda _: {"phase": "Succeeded"}
    serve(server, CONTENT)


def serve(server: ApiServer, content: bytes) -> None:
    def log() -> Log:
        return Log("\n".join(seal([content], variables_of(server)["PERDURE_READER"])) + "\n")

    server.answers[f"{PODS}/perdure-artifact-get-1/log"] = log


def variables_of(server: ApiServer, container: int = -1) -> dict[str, Any]:
    """The variables of a container of the newest pod."""
    pod = server.created[-1]["spec"]
    containers = [*pod.get("initContainers", ()), *pod["containers"]]
    return {each["name"]: each.get("value") for each in containers[container]["env"]}


def test_the_artifacts_of_all_steps_are_listed(server: ApiServer) -> None:
    lines = [line.split() for line in perdure("artifacts", "list", "order").stdout.splitlines()]
    assert lines == [
        ["ARTIFACT", "BYTES", "KEY"],
        ["make[0]/report", "25600", "shop/uid-1/2-1/report"],
        ["make[2]/report", "25600", "shop/uid-1/4-1/report"],
    ]
    assert json.loads(perdure("artifacts", "list", "order", "-o", "json").stdout)["make[0]/report"] == REPORT
    server.answers[f"{RUNS}/order"] = run({})
    assert perdure("artifacts", "list", "order").stderr == "The steps of `order` have left no artifacts.\n"


def test_copies_are_shown(server: ApiServer) -> None:
    server.answers[f"{RUNS}/order"] = run({"report": {**REPORT, "copy": "monthly/latest"}, "log": REPORT})
    server.answers[PODS] = items()
    for verb in (("artifacts", "list"), ("describe",)):
        lines = [line.split() for line in perdure(*verb, "order").stdout.splitlines()]
        assert ["ARTIFACT", "BYTES", "KEY", "COPY"] in lines
        assert ["make[0]/report", "25600", "shop/uid-1/2-1/report", "monthly/latest"] in lines
        assert ["make[0]/log", "25600", "shop/uid-1/2-1/report", "-"] in lines


def test_artifacts_are_listed_in_the_order_in_which_their_steps_started(server: ApiServer) -> None:
    run_ = run(*({"report": REPORT} for _ in range(3)))
    for event, started in zip(run_["status"]["history"]["events"], (4, 2, 3), strict=True):
        event["scheduledEventId"] = started
    server.answers[f"{RUNS}/order"] = run_
    lines = perdure("artifacts", "list", "order").stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["make[1]/report", "make[2]/report", "make[0]/report"]


def test_describe_shows_the_first_artifacts(server: ApiServer) -> None:
    server.answers[PODS] = items()
    shown = perdure("describe", "order").stdout
    assert "\nArtifacts\n  ARTIFACT        BYTES  KEY\n  make[0]/report  25600  shop/uid-1/2-1/report\n" in shown
    assert json.loads(perdure("describe", "order", "-o", "json").stdout)["artifacts"]["make[0]/report"] == REPORT
    server.answers[f"{RUNS}/order"] = run(*({"report": REPORT} for _ in range(23)))
    assert "make[19]/report" in (shown := perdure("describe", "order").stdout)
    assert "make[20]/report" not in shown
    assert "  3 more; `perdure artifacts list` shows all\n" in shown
    server.answers[f"{RUNS}/order"] = run({})
    assert "Artifacts" not in perdure("describe", "order").stdout
    assert "artifacts" not in json.loads(perdure("describe", "order", "-o", "json").stdout)


def test_a_pod_reads_an_artifact_and_is_deleted(server: ApiServer, tmp_path: Path) -> None:
    done = perdure("artifacts", "get", "order", "make[0]/report", "--file", str(tmp_path / "report"))
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "report").read_bytes() == CONTENT
    (pod,) = server.created
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "perdure:x"
    assert "runAsUser" not in {**pod["spec"]["securityContext"], **container["securityContext"]}
    variables = {each["name"]: each for each in container["env"]}
    assert variables["PERDURE_KEY"]["value"] == REPORT["key"]
    assert variables["PERDURE_STORE_BUCKET"]["valueFrom"]["secretKeyRef"]["name"] == "perdure-artifacts"
    assert server.deleted == ["perdure-artifact-get-1"]


def test_an_artifact_with_a_wrong_hash_is_not_written(server: ApiServer, tmp_path: Path) -> None:
    serve(server, b"changed")
    done = perdure("artifacts", "get", "order", "make[0]/report", "--file", str(tmp_path / "report"))
    assert (done.exit_code, "is not the recorded one" in done.stderr) == (2, True)
    assert not (tmp_path / "report").exists()
    assert server.deleted == ["perdure-artifact-get-1"]


@pytest.mark.parametrize(
    ("status", "log", "message"),
    [
        ({"phase": "Failed"}, "the artifact store does not give `x`: denied\n", "does not give `x`: denied"),
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": "no secret"}}}
                ],
            },
            "",
            "cannot read the artifact: no secret",
        ),
        ({"phase": "Succeeded"}, "not base64 at all!\n", "the log of the pod is not the artifact"),
    ],
    ids=["failed", "no Secret", "garbage"],
)
def test_a_pod_that_cannot_read_it_is_explained_and_deleted(
    server: ApiServer, status: dict[str, Any], log: str, message: str
) -> None:
    server.status = lambda _: status
    server.answers[f"{PODS}/perdure-artifact-get-1/log"] = Log(log)
    done = perdure("artifacts", "get", "order", "make[0]/report", "--file", "-")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert server.deleted == ["perdure-artifact-get-1"]


def test_an_unreadable_artifact_is_rejected_before_a_pod_is_created(server: ApiServer) -> None:
    assert "choose one of `make[0]/report`, `make[2]/report`" in perdure("artifacts", "get", "order", "make/x").stderr
    server.answers[PODS] = items()
    assert "set it with --image" in perdure("artifacts", "get", "order", "make[0]/report").stderr
    assert server.created == []


LARGE = bytes(range(256)) * 100 + b"the end"
PART = 8_000


def serve_parts(server: ApiServer, *, shorten: int | None = None) -> None:
    """Have the containers of pods write parts of the artifact; shorten the log of one container."""
    sent = []

    def log() -> Log:
        variables = variables_of(server, len(sent) % 2)
        part = variables["PERDURE_RANGE"]
        first, end = map(int, part.split("-"))
        sent.append(part)
        lines = [*seal([LARGE[first:end]], variables["PERDURE_READER"])]
        return Log("\n".join(lines[:2] if len(sent) - 1 == shorten else lines) + "\n")

    for number in range(1, 4):
        server.answers[f"{PODS}/perdure-artifact-get-{number}/log"] = log


async def download(target: Path) -> None:
    reference = {**REPORT, "size": len(LARGE), "sha256": hashlib.sha256(LARGE).hexdigest()}
    async with connect(context=None, namespace=None, program="perdure") as cluster:
        await ArtifactDownload(cluster, reference, "perdure:x", part=PART, parts_per_pod=2).save(target)


async def test_a_large_artifact_is_read_in_parts_by_several_pods(server: ApiServer, tmp_path: Path) -> None:
    serve_parts(server)
    await download(tmp_path / "report")
    assert (tmp_path / "report").read_bytes() == LARGE
    assert server.deleted == ["perdure-artifact-get-1", "perdure-artifact-get-2"]
    assert not (tmp_path / "report.part").exists()


async def test_a_download_that_failed_continues_after_its_last_complete_part(server: ApiServer, tmp_path: Path) -> None:
    serve_parts(server, shorten=1)
    with pytest.raises(
        CliError, match="the logs of the pod have 13984 of 16000 bytes: the node may keep less than 10 MiB"
    ):
        await download(tmp_path / "report")
    assert (tmp_path / "report.part").read_bytes() == LARGE[:PART]
    assert not (tmp_path / "report").exists()
    await download(tmp_path / "report")
    assert (tmp_path / "report").read_bytes() == LARGE
    ranges = [
        each["value"]
        for pod in server.created[1:]
        for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"])
        for each in container["env"]
        if each["name"] == "PERDURE_RANGE"
    ]
    assert ranges == ["8000-16000", "16000-24000", "24000-25607"]


def test_without_a_pod_the_image_is_that_of_the_artifact_set(server: ApiServer) -> None:
    server.answers[PODS] = items()
    of_set = {"name": "artifacts-uid-1", "annotations": {"perdure.dev/image": "perdure:recorded"}}
    server.answers[f"{RUNS.rpartition('/')[0]}/artifactsets/artifacts-uid-1"] = {"metadata": of_set}
    assert perdure("artifacts", "get", "order", "make[0]/report", "--file", "-").exit_code == 0
    assert server.created[0]["spec"]["containers"][0]["image"] == "perdure:recorded"


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 20_000])
def test_content_is_sealed_in_short_log_lines_and_opened(size: int) -> None:
    content, reader = CONTENT[:size], Reader.generate()
    pieces = [content[i : i + 777] for i in range(0, size, 777)]
    first, *lines = seal(pieces, reader.public_key)
    assert max(map(len, lines), default=0) <= 8_000
    opener = reader.open(first)
    assert b"".join(map(opener.piece, lines)) == content


def test_the_log_shows_nothing_of_the_content_to_others() -> None:
    reader, other = Reader.generate(), Reader.generate()
    first, *lines = seal([b"secret" * 4_000], reader.public_key)
    assert all(b"secret" not in base64.b64decode(line) for line in lines)
    with pytest.raises(UnsealedError):
        other.open(first).piece(lines[0])
    with pytest.raises(UnsealedError):
        reader.open(first).piece(lines[1])
    with pytest.raises(UnsealedError):
        reader.open("not base64 at all!")
    with pytest.raises(UnsealedError):
        reader.open(base64.b64encode(b"short").decode())
