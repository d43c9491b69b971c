"""`perdure fleet`: the operators that share the work, by their Leases."""

import json
from datetime import timedelta
from typing import Any

import pytest
from click.testing import Result

from perdure.api.labels import FLEET_LABEL
from perdure.api.state_versions import NEWEST
from perdure.controller.fleet.membership import MemberSettings, lease, renewal
from perdure.controller.fleet.shards import shard_of, shards_of
from perdure.controller.state_versions import StateVersions
from perdure.kube import clock
from perdure.runtime.upgrades import UpgradeRecord, advance
from support.apiserver import ApiServer
from support.cli import perdure

RECORDS = "/api/v1/namespaces/perdure-system/configmaps"
RECORD = f"{RECORDS}/perdure-state-version"
PATH = "/apis/coordination.k8s.io/v1/namespaces/perdure-system/leases"


@pytest.fixture(autouse=True)
def no_record(server: ApiServer) -> None:
    server.answers[RECORDS] = {"metadata": {}, "items": []}


def run(*arguments: str) -> Result:
    return perdure("fleet", *arguments)


def member(name: str, ago: float, *members: str, reads: int = 2, writes: int = 1) -> dict[str, Any]:
    """A Lease as an operator writes it."""
    settings = MemberSettings(fleet="perdure", name=name, address=f"10.0.0.{name[-1]}:7234")
    time = clock.now() - timedelta(seconds=ago)
    versions = StateVersions(reads, writes, "0.1.0")
    made = lease(settings, name, versions, time)
    renewed = renewal(settings, name, "1", members, versions, time)
    made["metadata"]["annotations"] = renewed["metadata"]["annotations"]
    return made


def test_each_operator_is_listed_with_its_shards(server: ApiServer) -> None:
    live = ("op-1", "op-2")
    server.answers[PATH] = {
        "metadata": {},
        "items": [member("op-3", 65, *live, "op-3"), member("op-2", 1, *live), member("op-1", 0, *live)],
    }
    done = run()
    assert done.exit_code == 0, done.output + repr(done.exception)
    heading, first, second, third = done.stdout.splitlines()
    assert heading.split() == [
        "FLEET",
        "OPERATOR",
        "SHARDS",
        "RENEWED",
        "VERSION",
        "READS",
        "WRITES",
        "ADDRESS",
        "MEMBERS",
    ]
    assert first.split()[:2] == ["perdure", "op-1"]
    assert int(first.split()[2]) + int(second.split()[2]) == 64
    assert first.split()[-5:] == ["0.1.0", "1-2", "1", "10.0.0.1:7234", "op-1,op-2"]
    assert "(expired)" in third
    assert third.split()[1:3] == ["op-3", "0"]
    assert all("(expired)" not in line for line in (first, second))


def test_json_has_the_same_content(server: ApiServer) -> None:
    server.answers[PATH] = {"metadata": {}, "items": [member("op-1", 0, "op-1")]}
    (found,) = json.loads(run("-o", "json").stdout)
    assert (found["operator"], found["shards"], found["expired"], found["members"]) == ("op-1", 64, False, ["op-1"])


def test_the_owner_of_a_workflow_is_shown(server: ApiServer) -> None:
    live = ("op-1", "op-2")
    expired = member("op-3", 65, *live, "op-3")
    server.answers[PATH] = {"metadata": {}, "items": [member("op-1", 0, *live), member("op-2", 0, *live), expired]}
    owners = {
        json.loads(run("--owner-of", f"shop/order/{number}", "-o", "json").stdout)[0]["operator"]: number
        for number in range(20)
    }
    assert set(owners) == set(live)
    for operator, number in owners.items():
        assert shard_of("shop", f"order/{number}") in shards_of(operator, live)


def test_a_workflow_without_its_namespace_is_rejected() -> None:
    done = run("--owner-of", "order-7")
    assert done.exit_code == 2
    assert "NAMESPACE/WORKFLOW_ID" in done.output


def test_a_missing_fleet_is_reported(server: ApiServer) -> None:
    server.answers["/api/v1/namespaces/perdure-system"] = {"metadata": {"name": "perdure-system"}}
    server.answers[PATH] = {"metadata": {}, "items": []}
    done = run()
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "No operators share the work in namespace `perdure-system`.\n"
    assert any(FLEET_LABEL in str(asked) for asked in server.asked)


def upgrading(server: ApiServer, *members: dict[str, Any], **record: Any) -> dict[str, Any]:
    """Have a server answer with operators and with their upgrade record, which an operator finishes when it is allowed."""
    stored = UpgradeRecord(**{"writes": 1, **record}).config_map("perdure-state-version")
    stored["metadata"] |= {"namespace": "perdure-system", "resourceVersion": "7"}

    def read() -> dict[str, Any]:
        found = server.answers[RECORDS]["items"][0]
        if found.get("data", {}).get("finish"):
            found["data"] = {"writes": found["data"]["finish"]}
        return found

    server.answers[PATH] = {"metadata": {}, "items": list(members)}
    server.answers[RECORDS] = {"metadata": {}, "items": [stored]}
    server.answers[RECORD] = read
    server.answers["/api/v1/namespaces/perdure-system"] = {"metadata": {"name": "perdure-system"}}
    return stored


def test_the_written_state_version_and_the_next_one_are_shown(server: ApiServer) -> None:
    live = ("op-1", "op-2")
    waiting = {"follows": 2, "until": clock.now() + timedelta(hours=3, seconds=30)}
    upgrading(server, member("op-1", 0, *live), member("op-2", 0, *live), **waiting)
    *_, line = run().stdout.splitlines()
    assert line == (
        "The operators write state version 1, and version 2 in 3h, or after `perdure fleet --finish-upgrade`."
    )


def test_operators_that_hold_an_upgrade_back_are_named(server: ApiServer) -> None:
    live = ("op-1", "op-2")
    upgrading(server, member("op-1", 0, *live), member("op-2", 0, *live, reads=1))
    *_, line = run().stdout.splitlines()
    assert line == "The operators write state version 1. Version 2 follows when these are replaced: op-2."


@pytest.mark.parametrize(
    "noticed",
    [{"follows": 2, "until": clock.now() + timedelta(hours=3)}, {}, None],
    ids=["in the hold-back", "before the next look of the operators", "an emptied record"],
)
def test_an_upgrade_is_finished_on_request(server: ApiServer, noticed: dict[str, Any] | None) -> None:
    """The command returns once each operator writes the new version: they do not read the record at the same time."""
    live = ("op-1", "op-2")
    stored = upgrading(server, member("op-1", 0, *live), member("op-2", 0, *live), **(noticed or {}))
    if noticed is None:
        del stored["data"]
    written: list[dict[str, Any]] = []
    replace = server.replace
    looks = iter([1, 2])

    def later() -> dict[str, Any]:
        pair = [member("op-1", 0, *live, writes=2), member("op-2", 0, *live, writes=next(looks, 2))]
        return {"metadata": {}, "items": pair}

    def note(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        written.append(body)
        status = replace(path, body)
        stored["data"] = dict(body["data"])
        server.answers[RECORD] = lambda: {**stored, "data": {"writes": "2"}}
        server.answers[PATH] = later
        return status

    server.replace = note  # type: ignore[method-assign]
    done = run("--finish-upgrade", "--timeout", "60s")
    assert done.exit_code == 0, done.output + repr(done.exception)
    assert [each["data"]["finish"] for each in written] == ["2"]
    assert next(looks, None) is None


def test_a_request_that_an_operator_drops_is_repeated(server: ApiServer) -> None:
    """An operator that has counted on an older one since its last look writes the record without the request."""
    stored = upgrading(server, member("op-1", 0, "op-1"), follows=2, until=clock.now() + timedelta(hours=3))
    written: list[dict[str, Any]] = []
    replace = server.replace

    def note(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        written.append(body)
        status = replace(path, body)
        ends = len(written) == 2
        server.answers[RECORD] = {**stored, "data": {"writes": "2" if ends else "1"}}
        server.answers[PATH] = {"metadata": {}, "items": [member("op-1", 0, "op-1", writes=2 if ends else 1)]}
        return status

    server.replace = note  # type: ignore[method-assign]
    done = run("--finish-upgrade", "--timeout", "60s")
    assert done.exit_code == 0, done.output + repr(done.exception)
    assert [each["data"]["finish"] for each in written] == ["2", "2"]


def test_an_upgrade_is_not_finished_while_an_older_operator_is_left(server: ApiServer) -> None:
    live = ("op-1", "op-2")
    stored = upgrading(server, member("op-1", 0, *live), member("op-2", 0, *live, reads=1))
    done = run("--finish-upgrade")
    assert done.exit_code == 1
    assert "these operators do not read state version 2: op-2; wait until the upgrade has replaced them" in done.stderr
    assert "finish" not in stored["data"]


def test_an_upgrade_without_a_record_cannot_be_finished(server: ApiServer) -> None:
    server.answers[PATH] = {"metadata": {}, "items": []}
    done = run("--finish-upgrade")
    assert done.exit_code == 2
    assert "there is no upgrade record that you can read in namespace `perdure-system`" in done.stderr


def operated(server: ApiServer, stored: dict[str, Any], *, reads: int) -> None:
    """Have a single operator look at the upgrade record after each change of it."""

    def read() -> dict[str, Any]:
        found = server.answers[RECORDS]["items"][0]
        record = UpgradeRecord.read(found)
        if record.finish > 1:
            after = advance(record, [reads], timedelta(days=1), clock.now(), release="0.2.0", is_new=False)
            found["data"] = after.config_map("perdure-state-version", found)["data"]
        return found

    def replace(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        del path
        stored["data"] = body["data"]
        return 200, body

    server.answers[RECORD] = read
    server.replace = replace  # type: ignore[method-assign]


@pytest.mark.parametrize(("writes", "reads"), [(2, NEWEST), (NEWEST, NEWEST), (NEWEST, NEWEST + 1), (2, NEWEST + 1)])
def test_the_upgrade_of_a_single_operator_is_finished_before_its_first_look(
    server: ApiServer, writes: int, reads: int
) -> None:
    """It has no Lease, so the command does not know what it reads, which may be a later version than that of the command."""
    stored = upgrading(server, writes=writes)
    operated(server, stored, reads=reads)
    done = run("--finish-upgrade", "--timeout", "60s")
    assert done.exit_code == 0, done.output + repr(done.exception)
    assert UpgradeRecord.read(stored).writes == reads
    assert f"The operators write state version {reads}." in done.stdout


def test_a_request_to_a_single_operator_that_loses_against_another_client_is_repeated(server: ApiServer) -> None:
    """The record without the request does not mean that the operator has dropped it."""
    stored = upgrading(server, writes=2)
    operated(server, stored, reads=NEWEST)
    replace, tries = server.replace, []

    def lose(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        tries.append(body["data"]["finish"])
        if len(tries) == 1:
            return 409, {"kind": "Status", "reason": "Conflict", "message": "the object has been modified"}
        return replace(path, body)

    server.replace = lose  # type: ignore[method-assign]
    done = run("--finish-upgrade", "--timeout", "60s")
    assert done.exit_code == 0, done.output + repr(done.exception)
    assert tries == [str(NEWEST), str(NEWEST)]


def test_the_upgrade_of_a_single_operator_that_is_older_than_the_command_is_not_finished(server: ApiServer) -> None:
    stored = upgrading(server, writes=2)
    operated(server, stored, reads=2)
    done = run("--finish-upgrade", "--timeout", "60s")
    assert done.exit_code == 1
    assert f"the operator does not read state version {NEWEST}" in done.stderr


def test_without_an_operator_the_command_waits(server: ApiServer) -> None:
    upgrading(server)
    server.answers[RECORD] = server.answers[RECORDS]["items"][0]
    done = run("--finish-upgrade", "--timeout", "1s")
    assert done.exit_code == 124
    assert f"timed out waiting for the operators to write state version {NEWEST}" in done.stderr


def test_a_request_that_loses_against_another_client_is_repeated(server: ApiServer) -> None:
    stored = upgrading(server, member("op-1", 0, "op-1"), follows=2, until=clock.now() + timedelta(hours=3))
    replace, tries = server.replace, []

    def lose(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        tries.append(body["data"]["finish"])
        if len(tries) == 1:
            return 409, {"kind": "Status", "reason": "Conflict", "message": "the object has been modified"}
        server.answers[PATH] = {"metadata": {}, "items": [member("op-1", 0, "op-1", writes=2)]}
        status = replace(path, body)
        server.answers[RECORD] = {**stored, "data": {"writes": "2"}}
        return status

    server.replace = lose  # type: ignore[method-assign]
    done = run("--finish-upgrade", "--timeout", "60s")
    assert done.exit_code == 0, done.output + repr(done.exception)
    assert tries == ["2", "2"]


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_record_that_is_deleted_while_the_command_waits(server: ApiServer, comes_back: bool) -> None:
    stored = upgrading(server, member("op-1", 0, "op-1"), follows=2, until=clock.now() + timedelta(hours=3))
    again = {**stored, "data": {"writes": "2"}}
    looks = iter(
        [(404, {"reason": "NotFound", "message": 'configmaps "perdure-state-version" not found'})] * comes_back
    )

    def lose(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        del path
        server.answers[PATH] = {"metadata": {}, "items": [member("op-1", 0, "op-1", writes=2 if comes_back else 1)]}
        server.answers[RECORD] = lambda: next(looks, again)
        if not comes_back:
            del server.answers[RECORD]
        return 200, body

    server.replace = lose  # type: ignore[method-assign]
    done = run("--finish-upgrade", "--timeout", "60s" if comes_back else "1s")
    assert done.exit_code == (0 if comes_back else 124)
    if not comes_back:
        assert "the upgrade record `perdure-state-version` was deleted" in done.stderr


def test_a_request_for_a_record_that_is_deleted_before_it_arrives_is_repeated(server: ApiServer) -> None:
    stored = upgrading(server, member("op-1", 0, "op-1"), follows=2, until=clock.now() + timedelta(hours=3))
    replace, gone = server.replace, [True]
    missing = {"kind": "Status", "reason": "NotFound", "message": 'configmaps "perdure-state-version" not found'}

    def lose(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if gone:
            gone.clear()
            return 404, missing
        server.answers[PATH] = {"metadata": {}, "items": [member("op-1", 0, "op-1", writes=2)]}
        status = replace(path, body)
        server.answers[RECORD] = {**stored, "data": {"writes": "2"}}
        return status

    server.answers[RECORD] = stored
    server.replace = lose  # type: ignore[method-assign]
    done = run("--finish-upgrade", "--timeout", "60s")
    assert done.exit_code == 0, done.output + repr(done.exception)


def test_leases_expire_by_the_clock_of_the_api_server(server: ApiServer) -> None:
    live = ("op-1", "op-2")
    stored = upgrading(server, member("op-1", 0, *live), member("op-2", 0, *live, reads=1))
    ahead = clock.now() + timedelta(hours=1)
    token = clock.source.set(lambda: ahead)
    try:
        listed, done = run(), run("--finish-upgrade", "--timeout", "60s")
    finally:
        clock.source.reset(token)
    assert "expired" not in listed.stdout
    assert "follows when these are replaced: op-2" in listed.stdout
    assert done.exit_code == 1
    assert "these operators do not read state version 2: op-2" in done.stderr
    assert "finish" not in stored["data"]


def test_an_operator_of_another_release_in_the_namespace_does_not_hold_an_upgrade_back(server: ApiServer) -> None:
    other = member("op-9", 0, "op-9", reads=1)
    other["metadata"]["labels"][FLEET_LABEL] = "other"
    upgrading(server, member("op-1", 0, "op-1", reads=2, writes=2), other, writes=2)
    done = run("--finish-upgrade", "--timeout", "60s")
    assert done.exit_code == 0, done.output + repr(done.exception)
    theirs = UpgradeRecord(writes=1).config_map("other-state-version")
    server.answers[RECORDS]["items"].append(theirs)
    assert run().stdout.splitlines()[-2:] == [
        "The operators of `perdure` write state version 2.",
        "The operators of `other` write state version 1.",
    ]


def test_an_upgrade_that_no_operator_has_noticed_waits_for_their_next_look(server: ApiServer) -> None:
    upgrading(server, member("op-1", 0, "op-1"))
    *_, line = run().stdout.splitlines()
    assert line == (
        "The operators write state version 1. Version 2 follows after the hold-back, which begins when the operators look at "
        "the upgrade record the next time, within 10s."
    )


def test_an_older_operator_whose_lease_has_expired_does_not_hold_an_upgrade_back(server: ApiServer) -> None:
    waiting = {"follows": 2, "until": clock.now() + timedelta(hours=3, seconds=30)}
    upgrading(server, member("op-1", 0, "op-1"), member("op-2", 65, "op-1", "op-2", reads=1), **waiting)
    *_, line = run().stdout.splitlines()
    assert line == (
        "The operators write state version 1, and version 2 in 3h, or after `perdure fleet --finish-upgrade`."
    )


def test_an_older_operator_that_came_back_during_the_hold_back_is_named(server: ApiServer) -> None:
    live, waiting = ("op-1", "op-2"), {"follows": 2, "until": clock.now() + timedelta(hours=3)}
    upgrading(server, member("op-1", 0, *live), member("op-2", 0, *live, reads=1), **waiting)
    *_, line = run().stdout.splitlines()
    assert line == "The operators write state version 1. Version 2 follows when these are replaced: op-2."


@pytest.mark.parametrize("timeout", ["0", "0s"])
def test_without_time_the_upgrade_is_requested_and_not_awaited(server: ApiServer, timeout: str) -> None:
    stored = upgrading(server, member("op-1", 0, "op-1"))
    server.answers[RECORD] = stored
    done = run("--finish-upgrade", "--timeout", timeout)
    assert done.exit_code == 124
    assert "timed out waiting for the operators to write state version 2" in done.stderr
    assert server.answers[RECORD]["data"] == {"writes": "1", "finish": "2"}  # type: ignore[index] # it was replaced
