"""The own controllers of other systems, on a control plane without nodes: how one is started, and how its objects are played.

A controller is the real one, built from hack/node-image into the project's cache. No container runs: a `Play` writes the
statuses of pods as a kubelet does. It has a clock of its own, which only the ends of its pods move. So hundreds of objects take
minutes, and end in the same way every time.
"""

import json
import os
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, Final, Generic, TypeVar

import urllib3
import yaml

from cluster import commands, gobuild
from cluster.controlplane import control_plane
from cluster.paths import Cache
from cluster.store import locked

Json = dict[str, Any]
_START_SECONDS: Final = 60.0
_STUCK: Final = 45.0
"""After how long without a change an object without running pods is stuck, in seconds."""
_INTERVAL: Final = 0.02
"""How often the player looks at changes, in seconds."""


class Api:
    """The API server: requests in JSON."""

    def __init__(self, kubeconfig: Path) -> None:
        """Connect to the server of a kubeconfig."""
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server: str = cluster["server"]
        self._headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": "application/json"}
        self._pool = urllib3.PoolManager(ca_certs=cluster["certificate-authority"], maxsize=32, retries=False)

    def request(self, method: str, path: str, body: Any = None, *, patch: str = "") -> Json:
        """Send a request, and return the answer.

        Raises:
            AssertionError: The server rejects it.
        """
        headers = {**self._headers, **({"Content-Type": f"application/{patch}+json"} if patch else {})}
        data = None if body is None else json.dumps(body)
        answer = self._pool.request(method, self._server + path, headers=headers, body=data)
        found: Json = json.loads(answer.data)
        assert answer.status < 300, f"{method} {path}: {found.get('message')}"
        return found

    def delete(self, path: str) -> None:
        """Delete an object, unless its controller has already done so."""
        answer = self._pool.request("DELETE", self._server + path, headers=self._headers)
        assert answer.status in {200, 202, 404}, answer.data

    def define(self, crd: Json) -> None:
        """Create a CRD, and wait until the server serves its objects."""
        self.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        spec = crd["spec"]
        version = next(each["name"] for each in spec["versions"] if each["storage"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        deadline = time.monotonic() + _START_SECONDS
        while self._pool.request("GET", self._server + path, headers=self._headers).status != 200:
            assert time.monotonic() < deadline, f"{path} is not served"
            time.sleep(0.1)

    def watch(self, path: str, version: str) -> Iterator[Json]:
        """Yield the changes of the objects of a collection."""
        query = f"{path}?watch=true&resourceVersion={version}"
        answer = self._pool.request("GET", self._server + query, headers=self._headers, preload_content=False)
        rest = b""
        for chunk in answer.stream(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)


@contextmanager
def running(
    target: gobuild.GoProgram,
    program: str,
    *,
    install: Callable[[Api], None],
    flags: Sequence[str],
    environment: Mapping[str, str],
) -> Iterator[Api]:
    """Run a control plane with the controller of another system.

    Args:
        target: What is built.
        program: The name of the controller's program.
        install: Creates the CRDs and the configuration.
        flags: The flags of the program.
        environment: The variables of the program.
    """
    cache = Cache.from_environment(os.environ)
    with locked(cache.locks / f"build-{target.name}"):
        built = gobuild.build(cache, target) / program
    with control_plane(cache, gobuild.KUBERNETES) as kubeconfig, ExitStack() as opened:
        api = Api(kubeconfig)
        install(api)
        log = opened.enter_context((kubeconfig.parent / f"{target.name}.log").open("wb"))
        command = [*commands.DIE_WITH_ME, str(built), f"--kubeconfig={kubeconfig}", *flags]
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
        try:
            yield api
        finally:
            process.kill()  # it has nothing to save
            process.wait()


@dataclass
class Play(ABC):
    """One object that is played, and its clock."""

    api: Api
    now: float = field(default=0.0, kw_only=True)
    changed: float = field(default_factory=time.monotonic, kw_only=True)
    """When something has changed, on the clock of the machine."""

    @abstractmethod
    def observe(self, kind: str, change: Json) -> None:
        """Take a change of one of its objects."""

    @abstractmethod
    def advance(self) -> None:
        """Let the next thing happen, if the controller has nothing to do."""

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether the object has ended."""

    @property
    @abstractmethod
    def waits(self) -> bool:
        """Whether no pod runs that can end."""

    @property
    def stuck(self) -> bool:
        """Whether the controller waits for what never comes."""
        return self.waits and time.monotonic() - self.changed > _STUCK


_Case = TypeVar("_Case")
_Play = TypeVar("_Play", bound=Play)
_Played = TypeVar("_Played")


class Player(ABC, Generic[_Case, _Play, _Played]):
    """Plays cases on a controller, several at a time."""

    parallel: ClassVar[int]
    """How many."""
    watched: ClassVar[Mapping[str, str]]
    """The kinds of objects that the plays observe, and their paths."""

    def __init__(self, api: Api) -> None:
        """`api`: the server."""
        self.api = api

    @abstractmethod
    def name(self, case: _Case) -> str:
        """Return what is unique for a case."""

    @abstractmethod
    def owner(self, kind: str, found: Json) -> str:
        """Return the name of the case to which an object belongs."""

    @abstractmethod
    def begin(self, case: _Case) -> _Play:
        """Return the play of a case."""

    @abstractmethod
    def create(self, case: _Case) -> None:
        """Create the objects of a case."""

    @abstractmethod
    def end(self, case: _Case, play: _Play) -> _Played:
        """Return how a play went, and remove what would disturb others."""

    def play(self, cases: Sequence[_Case]) -> Iterator[tuple[_Case, _Played]]:
        """Play cases; yield how each went, in the order of their ends."""
        changes: SimpleQueue[tuple[str, Json]] = SimpleQueue()
        for kind, path in self.watched.items():
            version = self.api.request("GET", path)["metadata"]["resourceVersion"]
            threading.Thread(target=self._follow, args=(kind, path, version, changes), daemon=True).start()
        waiting = list(reversed(cases))
        plays: dict[str, tuple[_Case, _Play]] = {}
        while waiting or plays:
            while waiting and len(plays) < self.parallel:
                case = waiting.pop()
                plays[self.name(case)] = case, self.begin(case)
                self.create(case)
            time.sleep(_INTERVAL)
            while not changes.empty():
                kind, change = changes.get()
                found = plays.get(self.owner(kind, change["object"]))
                if found is not None:
                    found[1].observe(kind, change)
            for name, (case, each) in list(plays.items()):
                if each.over or each.stuck:
                    del plays[name]
                    yield case, self.end(case, each)
                else:
                    each.advance()

    def _follow(self, kind: str, path: str, version: str, changes: "SimpleQueue[tuple[str, Json]]") -> None:
        with suppress(urllib3.exceptions.HTTPError):  # the server ends first
            for change in self.api.watch(path, version):
                changes.put((kind, change))
