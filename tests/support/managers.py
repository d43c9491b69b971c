"""Idle operators with an API server simulated by the test, or with none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.controller.deadletters import DeadLetters
from perdure.controller.limits import WorkflowLimits
from perdure.controller.manager import Manager
from perdure.controller.payloads import Blobs
from perdure.controller.pods.attempt_pods import ActivityIdentity, Pods
from perdure.controller.retry_policies import Policies
from perdure.controller.services import Services
from perdure.controller.workflows.definitions import Definitions
from perdure.frontend.core import Frontend
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.settings import Settings
from perdure.handlers.assembly import OperatorOptions, assemble
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.kube.events import Recorder
from perdure.runtime.attempts import PodSettings


def services_over(client: Client, recorder: Recorder, settings: PodSettings = PodSettings()) -> Services:  # noqa: B008 (immutable)
    """The shared services of a process of the operator."""
    return Services(
        client=client,
        pods=Pods(client, ActivityIdentity(client, "perdure-activity"), settings),
        definitions=Definitions(client),
        policies=Policies(client, recorder),
        letters=DeadLetters(client, recorder),
        limits=WorkflowLimits(client, recorder),
        recorder=recorder,
        blobs=Blobs(client),
    )


@asynccontextmanager
async def client_without_server() -> AsyncIterator[Client]:
    """A client of an API server that does not run."""
    async with Client.open(Access(server="http://127.0.0.1:9"), user_agent="test") as client:
        yield client


def manager_over(client: Client, *, fleet: str = "") -> Manager:
    """A manager, as the operator assembles it. One with a fleet has not joined it, so it holds no shards."""
    manager, _ = assemble(client, OperatorOptions(fleet=fleet))
    return manager


def frontend_over(client: Client, settings: Settings | None = None, *, fleet: str = "") -> Frontend:
    """The frontend of such a manager."""
    manager = manager_over(client, fleet=fleet)
    frontend = Frontend(manager, settings or Settings(authentication=False))
    manager.attach(frontend)
    return frontend


def gateway_of(manager: Manager) -> RunGateway:
    """The runs of a manager, as RPCs see them."""
    return RunGateway(manager.client, manager.directory, manager.runs)


async def unchanged() -> None:
    """Confirm the state of a run: nobody else has written it."""
