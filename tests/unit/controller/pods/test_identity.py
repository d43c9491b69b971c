"""The ServiceAccount of activities, and its RoleBinding; with an API server on loopback."""

from datetime import UTC, datetime, timedelta

import orjson
from aiohttp import web

from perdure.controller.pods.attempt_pods import ActivityIdentity
from support.http_server import api_server

T0 = datetime(2026, 1, 1, tzinfo=UTC)


async def test_deleted_accounts_are_recreated_after_some_minutes() -> None:
    there: set[str] = set()

    async def create(request: web.BaseRequest) -> web.StreamResponse:
        obj = orjson.loads(await request.read())
        if obj["kind"] in there:
            return web.json_response({"reason": "AlreadyExists", "message": "is there"}, status=409)
        there.add(obj["kind"])
        return web.json_response(obj, status=201)

    time = T0
    async with api_server(create) as client:
        identity = ActivityIdentity(client, "perdure-activity", clock=lambda: time)
        await identity.ensure("shop")
        assert there == {"ServiceAccount", "RoleBinding"}
        there.remove("RoleBinding")
        time = T0 + timedelta(minutes=4)
        await identity.ensure("shop")
        assert there == {"ServiceAccount"}
        time = T0 + timedelta(minutes=5)
        await identity.ensure("shop")
        assert there == {"ServiceAccount", "RoleBinding"}
