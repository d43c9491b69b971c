"""Periodic checks of namespaces, in virtual time."""

import asyncio

from structlog.testing import capture_logs

from perdure.controller.fleet.shards import AllShards
from perdure.controller.namespaces import CHECK_SECONDS, ServedNamespaces, check_forever
from perdure.kube import client as kube
from unit.controller.queue_driver import elapsed, in_virtual_time


class _NoShards(AllShards):
    """The shards of a member of a fleet that owns none."""

    def owns(self, namespace: str, name: str) -> bool:  # noqa: ARG002
        return False


@in_virtual_time
async def test_a_failed_check_is_repeated_and_does_not_delay_other_namespaces() -> None:
    checked: list[tuple[str | None, float]] = []

    async def check(namespace: str | None) -> None:
        checked.append((namespace, elapsed()))
        if namespace == "shop":
            raise kube.NoResponseError("no response")

    with capture_logs() as logged:
        checking = asyncio.create_task(
            check_forever(check, ServedNamespaces(("shop", "team-a")), AllShards(), "the-subject")
        )
        await asyncio.sleep(CHECK_SECONDS * 1.5)
        checking.cancel()
    assert checked == [(name, time) for time in (0, CHECK_SECONDS) for name in ("shop", "team-a")]
    assert [(each["subject"], each["namespace"]) for each in logged] == [("the-subject", "shop")] * 2


@in_virtual_time
async def test_a_member_checks_only_subjects_that_it_owns() -> None:
    checked: list[str | None] = []

    async def check(namespace: str | None) -> None:
        checked.append(namespace)

    checking = asyncio.create_task(check_forever(check, ServedNamespaces(), _NoShards(), "the-subject"))
    await asyncio.sleep(CHECK_SECONDS * 3)
    checking.cancel()
    assert checked == []
