"""Simulated nodes whose pods heartbeat: every pod of activities in a namespace runs forever. Runs as a separate process.

Usage: beats.py NAMESPACE SECONDS, the time between the heartbeats of a pod. Each line on standard input has the
number of pods to silence. On standard output: `{"ready": true}`, `{"beating": n}` as that grows, and `{"detected": seconds}` for
each pod that is deleted after it was silenced: the time since its last heartbeat.
"""

import asyncio
import json
import random
import sys
import time
from typing import Any

from bench.kubelet import watching
from perdure.kube import clock
from perdure.kube.access import find_access
from perdure.kube.client import COORDINATION, CORE, Client, RequestError, path

Json = dict[str, Any]


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def now() -> str:
    return clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Nodes:
    """All pods, and the time of the last heartbeat of each."""

    def __init__(self, client: Client, period: float) -> None:
        self.client = client
        self.period = period
        self.beats: dict[str, float] = {}
        self.silent: set[str] = set()
        self.gone: set[str] = set()

    async def live(self, pod: Json) -> None:
        """A pod starts, and sends heartbeats until it is silenced or deleted."""
        meta = pod["metadata"]
        uid, name, namespace = meta["uid"], meta["name"], meta["namespace"]
        containers = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now()[:19] + "Z"}},
            }
            for container in pod["spec"]["containers"]
        ]
        status = {"phase": "Running", "startTime": now()[:19] + "Z", "containerStatuses": containers}
        await self._retried(path(CORE, namespace, "pods", name, "status"), {"status": status})
        first = True
        while uid not in self.silent and uid not in self.gone:
            lease = path(COORDINATION, namespace, "leases", name)
            annotations = {"perdure.dev/heartbeat-details": '{"at":"work"}'}
            body = {"spec": {"renewTime": now()}, "metadata": {"annotations": annotations}}
            sent = time.monotonic()
            if await self._retried(lease, body):
                self.beats[uid] = sent
                if first:
                    say(beating=len(self.beats))
            await asyncio.sleep(self.period * (random.random() if first else 1))
            first = False

    async def _retried(self, url: str, body: Json) -> bool:
        for _ in range(50):
            try:
                await self.client.merge(url, body)
            except RequestError:
                await asyncio.sleep(0.2)
            else:
                return True
        return False

    def deleted(self, pod: Json) -> None:
        """Process the deletion of a pod: if it was silenced, print the time since its last heartbeat."""
        uid = pod["metadata"]["uid"]
        if uid in self.silent and uid not in self.gone:
            say(detected=round(time.monotonic() - self.beats[uid], 3))
        self.gone.add(uid)

    async def listen(self) -> None:
        """Silence pods on request."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            beating = [uid for uid in self.beats if uid not in self.silent and uid not in self.gone]
            self.silent.update(random.sample(beating, int(line)))


async def main(namespace: str, period: float) -> None:
    access = find_access()
    async with (
        Client.open(access, user_agent="perdure-bench-nodes", connections=32) as client,
        watching(access, namespace) as pods,
        asyncio.TaskGroup() as group,
    ):
        nodes, started = Nodes(client, period), set[str]()
        group.create_task(nodes.listen())
        say(ready=True)
        async for pod in pods:
            uid = pod["metadata"]["uid"]
            if pod["metadata"].get("deletionTimestamp"):
                nodes.deleted(pod)
            elif uid not in started:
                started.add(uid)
                group.create_task(nodes.live(pod))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
