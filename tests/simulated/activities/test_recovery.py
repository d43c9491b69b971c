"""Attempts whose pods an operator does not find after a restart, or observes late."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.controller.runs.attempts.attempts import RunAttempts
from perdure.controller.runs.conditions import RunEventRecorder
from perdure.controller.runs.status import StatusComposer
from perdure.controller.runs.store import RunStore
from perdure.controller.workflows.definitions import Definition
from perdure.engine.inputs import AttemptCompleted, AttemptInput, AttemptLost, AttemptStarted
from perdure.engine.state import PendingActivity, RunState
from perdure.handlers.assembly import OperatorOptions, assemble
from perdure.kube.clock import now
from perdure.language.compiler import compile_program
from perdure.runtime.attempts import RunRef
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.patches import copy
from perdure.simulation.cluster.store import Object, ObjectKey, Write
from simulated.place import URL, Place
from simulated.world import Setting, World, simulate

SPEC = {
    "activities": [{"name": "work", "startToCloseTimeout": "2m", "container": {"image": "shop"}}],
    "steps": [{"name": "only", "activity": {"name": "work"}}],
}


def open_activity(*, started: bool) -> RunState:
    """The state of a run with one activity, scheduled a minute ago."""
    time = now() - timedelta(minutes=1)
    work = PendingActivity(
        scheduled_event_id=2,
        activity_id="only",
        activity_type="work",
        start_to_close_timeout=timedelta(minutes=2),
        first_scheduled_time=time,
        scheduled_time=time,
        started_time=time if started else None,
    )
    return RunState(start_time=time, next_event_id=3, activities={"2": work})


def attempts_of(place: Place, obj: Any) -> RunAttempts:
    """The attempts of a run whose operator knows no pods yet."""
    manager, _ = assemble(place.client, OperatorOptions())
    run = RunRef(namespace="default", name="run", uid=obj["metadata"]["uid"], workflow_id="run")
    stored = RunStore(place.client, obj, run, manager.services.blobs, StatusComposer(run.uid))
    attempts = RunAttempts(
        manager.services,
        run,
        stored,
        None,
        RunEventRecorder(manager.services.recorder, run, "order"),
        wake=lambda: None,
    )
    attempts.define(Definition(compile_program(WorkflowSpec.parse(SPEC)), "order", None))
    return attempts


async def restart(place: Place, *, started: bool) -> list[AttemptInput]:
    """Recover a run without pods and apply its state, and return the operator's observations."""
    attempts = attempts_of(place, await place.client.get(URL))
    state = open_activity(started=started)
    await attempts.recover(state)
    observed = await attempts.gather(state, now())
    if not observed:
        await attempts.apply(state, now())
    return observed


def pods(place: Place) -> list[str]:
    return [key.name for key in place.server.objects if key.plural == "pods"]


def test_a_started_attempt_without_a_pod_is_lost(place: Place) -> None:
    (observed,) = place.run(restart(place, started=True))
    assert isinstance(observed, AttemptLost)
    assert observed.failure.details == {"reason": "PodGone"}
    assert pods(place) == []


def test_an_attempt_that_never_started_gets_a_pod(place: Place) -> None:
    assert place.run(restart(place, started=False)) == []
    assert pods(place) == ["run-2-1"]


def test_an_attempt_whose_start_a_lagging_watch_shows_is_read_before_it_times_out(place: Place) -> None:
    """The watch shows a start three minutes ago. In the meantime, the attempt has succeeded."""
    key = ObjectKey("pods", "default", "run-2-1")

    def run(pod: Object, **state: Any) -> None:
        name = pod["spec"]["containers"][0]["name"]
        status = {"name": name, "ready": False, "restartCount": 0, "image": "image", "imageID": "image", "state": state}
        phase = "Running" if "running" in state else "Succeeded"
        pod["status"] = {"phase": phase, "containerStatuses": [status]}

    async def play() -> list[AttemptInput]:
        attempts, state = attempts_of(place, await place.client.get(URL)), open_activity(started=False)
        await attempts.recover(state)
        await attempts.apply(state, now())
        began = (now() - timedelta(minutes=3)).isoformat()
        place.server.update(key, lambda pod: run(pod, running={"startedAt": began}))
        shown = place.server.get(key)
        ended = {"exitCode": 0, "startedAt": began, "finishedAt": began, "message": '"done"'}
        place.server.update(key, lambda pod: run(pod, terminated=ended))
        attempts.held.update(shown)
        return await attempts.gather(state, now())

    assert [type(each) for each in place.run(play())] == [AttemptStarted, AttemptCompleted]


def test_a_pod_stays_that_a_lagging_watch_shows_running_while_its_end_is_committed() -> None:
    """An operator reads at its start that the activity has completed. Afterwards, its watch shows an earlier version."""

    async def scenario(world: World) -> None:
        world.script = lambda _pod: ContainerExit(after=3)
        shown: list[Object] = []
        runs = asyncio.Event()

        def follow(write: Write) -> None:
            if write.key.plural == "pods" and write.after["status"]["phase"] == "Running":
                shown.append(write.after)
                runs.set()
            elif write.key.plural == "workflowruns" and (write.after.get("status") or {}).get("completionTime"):
                (operator,) = world.operators
                world.loop.call_soon(
                    operator.within, partial(operator.manager.informers["pods"].on_event, copy(shown[0]), deleted=False)
                )

        world.server.observers.append(follow)
        before = world.start()
        world.create("WorkflowRun", "run", {"inline": SPEC})
        await runs.wait()
        await before.kill()
        world.operators.remove(before)
        await asyncio.sleep(5)
        (watch,) = (each for each in world.start().watches if each.plural == "pods")
        watch.stop()
        await asyncio.sleep(5)
        assert world.run("run")["status"]["phase"] == "Completed"
        assert [pod["status"]["phase"] for pod in world.server.of("pods")] == ["Succeeded"]

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []
