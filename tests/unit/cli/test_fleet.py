"""`perdure fleet`: the operators that share the work, by their Leases."""

import json
from datetime import timedelta
from typing import Any

from click.testing import CliRunner, Result

from perdure.api.labels import FLEET_LABEL
from perdure.cli.app import build
from perdure.controller.fleet.membership import MemberSettings, lease, renewal
from perdure.controller.fleet.shards import shard_of, shards_of
from perdure.kube import clock
from support.apiserver import ApiServer

PATH = "/apis/coordination.k8s.io/v1/namespaces/perdure-system/leases"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build("perdure", ["fleet", "version"]), ["fleet", *arguments], prog_name="perdure")


def member(name: str, ago: float, *members: str) -> dict[str, Any]:
    """A Lease as an operator writes it."""
    settings = MemberSettings(fleet="perdure", name=name, address=f"10.0.0.{name[-1]}:7234", release="0.1.0")
    time = clock.now() - timedelta(seconds=ago)
    made, renewed = lease(settings, name, time), renewal(settings, name, "1", members, time)
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
    assert heading.split() == ["FLEET", "OPERATOR", "SHARDS", "RENEWED", "VERSION", "ADDRESS", "MEMBERS"]
    assert first.split()[:2] == ["perdure", "op-1"]
    assert int(first.split()[2]) + int(second.split()[2]) == 64
    assert first.split()[-3:] == ["0.1.0", "10.0.0.1:7234", "op-1,op-2"]
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
