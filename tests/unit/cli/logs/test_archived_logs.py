"""`perdure logs` of pods that no longer exist: their logs come from the artifact store, by means of a pod."""

import base64
import gzip
import hashlib
import json
from typing import Any

import pytest

from perdure.cli.connection import connect
from perdure.client.logs import ArchivedLogs
from support.apiserver import ApiServer, Log, items
from support.cli import RUNS, perdure
from support.view.flow import charged_after_two_refusals
from unit.cli.logs.pod_logs import DONE, line, pod

PODS = "/api/v1/namespaces/shop/pods"
UID = charged_after_two_refusals().object["metadata"]["uid"]
SET = f"/apis/perdure.dev/v1alpha1/namespaces/shop/artifactsets/artifacts-{UID}"


def key(event: int, attempt: int) -> str:
    return f"shop/{UID}/{event}-{attempt}/log.gz"


def found(event: int, attempt: int, text: str) -> list[str]:
    """What the pod writes for a log."""
    return [json.dumps({"found": key(event, attempt)}), base64.b64encode(gzip.compress(text.encode())).decode()]


def missing(event: int, attempt: int) -> str:
    return json.dumps({"missing": key(event, attempt)})


def sends(server: ApiServer, number: int, *lines: str) -> None:
    """Have the pod with a number write lines."""
    server.answers[f"{PODS}/perdure-logs-{number}/log"] = Log("".join(f"{each}\n" for each in lines))


@pytest.fixture(autouse=True)
def shop(server: ApiServer) -> ApiServer:
    """Reserved at the second attempt, charged at the third, of which only the pod is left."""
    artifacts = {
        "metadata": {"name": f"artifacts-{UID}", "annotations": {"perdure.dev/image": "perdure:x"}},
        "spec": {"runId": UID, "stores": ["perdure-artifacts"], "holders": []},
    }
    server.answers |= {
        f"{RUNS}/order-42": charged_after_two_refusals().object,
        PODS: items(pod("charge", 5, 3, DONE, phase="Succeeded")),
        f"{PODS}/order-42-5-3/log": Log(line(5, "the bank: yes")),
        SET: artifacts,
    }
    server.status = lambda _: {"phase": "Succeeded"}
    return server


def logs(*options: str) -> tuple[int, list[str], str]:
    done = perdure("logs", "order-42", *options)
    return done.exit_code, done.stdout.splitlines(), done.stderr


def test_archived_logs_are_shown_before_those_of_pods(shop: ApiServer) -> None:
    texts = [*found(2, 1, "no shelf\n"), *found(2, 2, "2026-01-01T00:00:00Z the lamp\n"), *found(5, 1, "")]
    sends(shop, 1, *texts, missing(5, 2))
    code, out, err = logs()
    assert (code, out) == (
        0,
        ["reserve#1: no shelf", "reserve#2: 2026-01-01T00:00:00Z the lamp", "charge#3: the bank: yes"],
    )
    assert err.splitlines()[0] == "charge#2: pod order-42-5-2 was deleted, and its log with it"
    assert "`artifacts.archiveLogs`" in err
    (made,) = shop.created
    (container,) = made["spec"]["containers"]
    variables = {each["name"]: each for each in container["env"]}
    assert (container["name"], container["image"]) == ("log-export", "perdure:x")
    assert container["command"][-1] == "perdure.runner.artifacts.log_export"
    assert json.loads(variables["PERDURE_KEYS"]["value"]) == [key(2, 1), key(2, 2), key(5, 1), key(5, 2)]
    assert variables["PERDURE_STORE_BUCKET"]["valueFrom"]["secretKeyRef"]["name"] == "perdure-artifacts"
    assert shop.deleted == ["perdure-logs-1"]


def test_logs_that_one_pod_cannot_send_are_sent_by_the_next_one(shop: ApiServer) -> None:
    sends(shop, 1, *found(2, 1, "first"))
    sends(shop, 2, missing(2, 2), *found(5, 1, "second"), missing(5, 2))
    assert logs()[1][:2] == ["reserve#1: first", "charge#1: second"]
    assert [json.loads(each["spec"]["containers"][0]["env"][0]["value"])[0] for each in shop.created] == [
        key(2, 1),
        key(2, 2),
    ]


async def test_a_pod_gets_only_as_many_keys_as_fit_into_a_variable(shop: ApiServer) -> None:
    sends(shop, 1, *found(2, 1, "first"), missing(2, 2), missing(5, 1))
    sends(shop, 2, *found(5, 2, "second"))
    run = charged_after_two_refusals().run()
    pods = [f"order-42-{event}-{attempt}" for event, attempt in ((2, 1), (2, 2), (5, 1), (5, 2))]
    async with connect(context=None, namespace="shop", program="perdure") as cluster:
        read = await ArchivedLogs(cluster, run, logs_per_pod=3).read(pods)
    assert read == {"order-42-2-1": ["first"], "order-42-5-2": ["second"]}
    sent = [json.loads(each["spec"]["containers"][0]["env"][0]["value"]) for each in shop.created]
    assert sent == [[key(2, 1), key(2, 2), key(5, 1)], [key(5, 2)]]


def test_logs_are_searched_in_each_store_of_the_run(shop: ApiServer) -> None:
    shop.answers[SET] = {**shop.answers[SET], "spec": {"stores": ["one", "two"]}}  # type: ignore[dict-item]
    sends(shop, 1, *found(2, 1, "first"), missing(2, 2))
    sends(shop, 2, *found(2, 2, "second"))
    assert logs("--step", "reserve")[1] == ["reserve#1: first", "reserve#2: second"]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--tail", "1"], ["reserve#1: c"]),
        (["--tail", "0"], []),
        (["--tail", "9", "--grep", "[ab]"], ["reserve#1: a", "reserve#1: b"]),
        (["--timestamps"], ["reserve#1: a", "reserve#1: b", "reserve#1: c"]),
        (["--no-prefix"], ["a", "b", "c"]),
        (["--since", "10m"], []),
    ],
)
def test_lines_of_archived_logs_can_be_selected(shop: ApiServer, options: list[str], shown: list[str]) -> None:
    sends(shop, 1, *found(2, 1, "a\nb\nc\n"))
    code, out, err = logs("--step", "reserve", "--attempt", "1", *options)
    assert (code, out) == (0, shown)
    assert ("leave out --since" in err) == ("--since" in options)


def test_a_log_that_was_changed_is_not_shown(shop: ApiServer) -> None:
    run = charged_after_two_refusals().object
    completed = next(
        each for each in run["status"]["history"]["events"] if each["eventType"] == "ActivityTaskCompleted"
    )
    reference: dict[str, Any] = {"key": key(2, 2), "sha256": hashlib.sha256(b"original").hexdigest()}
    completed["artifacts"] = {"log.gz": reference}
    shop.answers[f"{RUNS}/order-42"] = run
    sends(shop, 1, *found(2, 2, "changed"))
    code, out, err = logs("--step", "reserve", "--attempt", "2")
    assert (code, out) == (0, [])
    assert "reserve#2: the archived log cannot be read: the SHA-256" in err


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (json.dumps({"failed": key(2, 1), "error": "no answer"}), "the archived log cannot be read: no answer"),
        (json.dumps({"large": key(2, 1)}), f"it is too large for this command; read `{key(2, 1)}` from the bucket"),
        (
            "not base64 at all!",
            "archived logs cannot be read: the pod that reads archived logs has sent something else",
        ),
        (None, "archived logs cannot be read: the pod that reads archived logs has sent nothing"),
    ],
)
def test_a_log_that_cannot_be_read_is_reported(shop: ApiServer, answer: str | None, said: str) -> None:
    sends(shop, 1, *([] if answer is None else [answer]))
    _, out, err = logs("--step", "reserve", "--attempt", "1")
    assert out == []
    assert said in err
    assert "have no archived logs" not in err
    assert shop.deleted == ["perdure-logs-1"]


def test_no_pod_is_created_when_no_log_is_archived(shop: ApiServer) -> None:
    del shop.answers[SET]
    code, _, err = logs("--step", "reserve")
    assert code == 1
    assert "reserve#1: pod order-42-2-1 was deleted, and its log with it" in err
    assert "these attempts have no archived logs: `artifacts.archiveLogs`" in err
    assert shop.created == []


def test_without_permission_to_create_pods_other_logs_are_shown(shop: ApiServer) -> None:
    shop.refuses = lambda _: True
    code, out, err = logs()
    assert (code, out) == (0, ["charge#3: the bank: yes"])
    assert "archived logs cannot be read: " in err
