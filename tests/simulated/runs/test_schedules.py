"""Reports of a Schedule about the Workflow of its runs."""

import asyncio
from datetime import datetime, timedelta, timezone

import pytest

from perdure.simulation.cluster.apiserver import Request
from perdure.simulation.cluster.store import Object, ObjectKey
from simulated.loop import START
from simulated.world import Setting, World, simulate

STRICT: Object = {
    "steps": [{"name": "one", "set": {"n": "${input.n}"}}],
    "input": {"schema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}},
}
SECONDS = 20
"""Within which a Schedule reports a change; watches lag by up to three of them."""


def test_a_schedule_reports_why_its_runs_could_not_start() -> None:
    async def scenario(world: World) -> None:
        async def check_reason(reason: str) -> None:
            await asyncio.sleep(SECONDS)
            status = world.server.get(ObjectKey("schedules", "default", "s")).get("status") or {}
            assert [each["reason"] for each in status["conditions"] if each["type"] == "Ready"] == [reason]

        world.begin()
        world.create(
            "Schedule", "s", {"workflowRunTemplate": {"spec": {"workflow": {"name": "w"}, "input": {"n": "x"}}}}
        )
        await check_reason("WorkflowNotFound")
        world.create("Workflow", "w", {"steps": [{"name": "one", "set": {"v": "${nobody}"}}]})
        await check_reason("InvalidWorkflow")
        world.edit("workflows", "w", lambda obj: obj.update(spec=STRICT))
        await check_reason("InvalidInput")
        world.edit("schedules", "s", lambda obj: obj["spec"]["workflowRunTemplate"]["spec"].update(input={"n": 1}))
        await check_reason("Accepted")
        world.delete("workflows", "w")
        await check_reason("WorkflowNotFound")

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


def test_an_operation_on_a_schedule_that_is_deleted_before_it_is_recorded_does_nothing() -> None:
    status = "/apis/perdure.dev/v1alpha1/namespaces/default/schedules/s/status"
    broken, was_read = set[str](), []

    def trace(time: float, line: str, _about: str) -> None:
        """Once the operator has read the Operation, it cannot record it."""
        if not was_read and line.startswith("op-0 GET") and "spec.target.kind=Schedule" in line:
            was_read.append(time)
            broken.add(status)

    async def scenario(world: World) -> None:
        world.faults.broken = broken
        world.begin()
        world.create("Workflow", "w", {"steps": [{"name": "one", "set": {"v": 1}}]})
        world.create("Schedule", "s", {"workflowRunTemplate": {"spec": {"workflow": {"name": "w"}}}})
        await asyncio.sleep(SECONDS)
        world.create("Operation", "withdrawn", {"target": {"kind": "Schedule", "name": "s"}, "trigger": {}})
        await asyncio.sleep(SECONDS)
        assert was_read
        world.delete("operations", "withdrawn")
        await asyncio.sleep(SECONDS)
        broken.clear()
        await asyncio.sleep(5 * SECONDS)
        assert world.runs() == {}
        world.create("Operation", "kept", {"target": {"kind": "Schedule", "name": "s"}, "trigger": {}})
        await world.rest()
        assert len(world.runs()) == 1

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0), trace).violations == []


def test_a_schedule_evaluates_its_input_and_starts_nothing_with_an_invalid_expression() -> None:
    async def scenario(world: World) -> None:
        async def ready(name: str = "s") -> Object:
            await asyncio.sleep(SECONDS)
            status = world.server.get(ObjectKey("schedules", "default", name))["status"]
            (condition,) = [each for each in status["conditions"] if each["type"] == "Ready"]
            return condition

        world.begin()
        world.create("Workflow", "w", {"steps": [{"name": "end", "return": {"output": "${input.day}"}}]})
        day = "${schedule.previousTime.strftime('%T', schedule.utcOffset)} to ${schedule.localTime}"
        template = {"workflow": {"name": "w"}, "input": {"day": day}}
        world.create(
            "Schedule",
            "s",
            {
                "intervals": [{"every": "10s"}],
                "timeZone": "Asia/Kolkata",
                "overlapPolicy": "AllowAll",
                "successfulRunsHistoryLimit": 1000,
                "workflowRunTemplate": {"spec": template},
            },
        )
        condition = await ready()
        assert (condition["status"], condition["reason"], condition.get("message", "")) == ("True", "Accepted", "")
        runs = world.runs()
        assert runs
        for run in runs.values():
            due = datetime.fromisoformat(run["spec"]["searchAttributes"]["TemporalScheduledStartTime"])
            local = due.astimezone(timezone(timedelta(hours=5, minutes=30)))
            want = f"{local - timedelta(seconds=10):%H:%M:%S} to {local.isoformat()}"
            assert run["spec"]["input"] == {"day": want}

        def change(input_: Object) -> None:
            world.edit("schedules", "s", lambda obj: obj["spec"]["workflowRunTemplate"]["spec"].update(input=input_))

        change({"day": "${now}"})
        condition = await ready()
        assert (condition["status"], condition["reason"]) == ("False", "InvalidSpec")
        assert "spec.workflowRunTemplate.spec.input.day: `now`: unknown name `now`" in condition["message"]
        before = len(world.runs())
        change({"day": "${schedule.localdate}"})
        condition = await ready()
        assert (condition["status"], condition["reason"]) == ("False", "InvalidSpec")
        assert "there is no field `localdate` in `schedule`" in condition["message"]
        await asyncio.sleep(60)
        assert len(world.runs()) == before
        # It can only be known when a run is due that an expression has no value.
        change({"day": "${schedule.lastFailure.message}"})
        await asyncio.sleep(30)
        condition = await ready()
        assert (condition["status"], condition["reason"]) == ("False", "RunRefused")
        assert "spec.workflowRunTemplate.spec.input.day: ${schedule.lastFailure.message}: " in condition["message"]
        doubtful = {"day": "${string(schedule.scheduledTime.getHours(schedule.timeZone))}"}
        template = {"spec": {"workflow": {"name": "w"}, "input": doubtful}}
        rare = {"intervals": [{"every": "100d"}], "timeZone": "Asia/Kolkata", "workflowRunTemplate": template}
        world.create("Schedule", "rare", rare)
        condition = await ready("rare")
        assert condition["status"] == "True"
        assert "had no value at any of the times that were tried: 'Asia/Kolkata'" in condition["message"]
        template = {"spec": {"workflow": {"name": "w"}}, "metadata": {"annotations": {"day": "${schedule.localDate}"}}}
        world.create("Schedule", "noted", {**rare, "workflowRunTemplate": template})
        condition = await ready("noted")
        assert condition["status"] == "True"
        assert "spec.workflowRunTemplate.metadata.annotations.day: `${…}` is not evaluated" in condition["message"]
        change({"day": "today"})
        await asyncio.sleep(30)
        assert (await ready()).get("message", "") == ""

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


def test_a_reset_and_a_retry_of_a_scheduled_run_keep_the_values_of_its_schedule() -> None:
    """Issue 44, B2: a rerun of last Friday's load silently used the day of the rerun."""

    async def scenario(world: World) -> None:
        day = "${schedule.name} ${schedule.localTime} ${schedule.timeZone} ${string(schedule.previousTime)}"
        steps = [{"name": name, "set": {name: day}} for name in ("first", "second")]
        world.begin()
        world.create("Workflow", "w", {"steps": steps, "output": ["${vars.first}", "${vars.second}"]})
        template = {"spec": {"workflow": {"name": "w"}}}
        rare = {"intervals": [{"every": "1h"}], "timeZone": "Asia/Kolkata", "workflowRunTemplate": template}
        world.create("Schedule", "s", rare)
        await asyncio.sleep(3600 + SECONDS)
        (original,) = world.runs()
        world.edit("schedules", "s", lambda obj: obj["spec"].update(paused=True, timeZone="Europe/Berlin"))
        world.operate("reset", original, reset={"to": "FirstWorkflowTask"})
        await asyncio.sleep(SECONDS)
        world.operate("retry", original, retry={"from": ["second"]})
        await asyncio.sleep(SECONDS)
        outputs = [run["status"].get("output") for run in world.runs().values()]
        assert len(outputs) == 3
        first = outputs[0]
        assert "Asia/Kolkata" in first[0]
        assert outputs == [first] * 3

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


def test_a_schedule_does_not_count_a_run_that_repeats_one_of_its_runs() -> None:
    """A run with the spec of a scheduled one, such as that of `perdure rerun`, does not block the next run."""

    async def scenario(world: World) -> None:
        def finished() -> Object:
            return {name: run for name, run in world.runs().items() if run["status"].get("completionTime")}

        world.begin()
        world.create("Workflow", "w", {"steps": [{"name": "end", "return": {"output": "${schedule.scheduledTime}"}}]})
        template = {"workflow": {"name": "w"}}
        world.create(
            "Schedule",
            "s",
            {"intervals": [{"every": "1h"}], "overlapPolicy": "Skip", "workflowRunTemplate": {"spec": template}},
        )
        await asyncio.sleep(2 * 3600)
        original = next(iter(finished().values()))
        world.create("WorkflowRun", "again", {**original["spec"], "startPaused": True})
        await asyncio.sleep(2 * 3600)
        status = world.server.get(ObjectKey("schedules", "default", "s"))["status"]
        assert status["counts"]["overlapSkipped"] == 0
        assert "again" not in [each["workflowRun"] for each in status["recentActions"]]
        assert "completionTime" not in world.runs()["again"]["status"]
        world.operate("go", "again", unpause={})
        await asyncio.sleep(SECONDS)
        assert world.runs()["again"]["status"]["output"] == original["status"]["output"]

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


_EVERY_MINUTE: Object = {
    "intervals": [{"every": "1m"}],
    "overlapPolicy": "AllowAll",
    "workflowRunTemplate": {"spec": {"inline": {"steps": [{"name": "one", "set": {"v": 1}}]}}},
}
_OF_S: Object = {"target": {"kind": "Schedule", "name": "s"}}


def _reason(world: World, operation: str) -> str:
    (condition,) = world.server.get(ObjectKey("operations", "default", operation))["status"]["conditions"]
    return str(condition["reason"])


def test_an_operation_on_a_schedule_that_is_deleted_during_a_backfill_is_answered() -> None:
    async def scenario(world: World) -> None:
        def interfere(request: Request) -> None:
            """Request a run while the backfill starts its runs, and delete the Schedule before the request is processed."""
            if request.method == "POST" and request.url.endswith("/workflowruns"):
                if len(world.runs()) == 2 and asked not in world.server.objects:
                    world.create("Operation", asked.name, {**_OF_S, "trigger": {}})
                elif len(world.runs()) == 5:
                    world.delete("schedules", "s")

        asked = ObjectKey("operations", "default", "asked")
        world.begin()
        world.create("Schedule", "s", _EVERY_MINUTE)
        await asyncio.sleep(SECONDS)
        world.server.interceptors.append(interfere)
        start = START - timedelta(hours=2)
        times = {"startTime": start.isoformat(), "endTime": (start + timedelta(hours=1)).isoformat()}
        world.create("Operation", "fill", {**_OF_S, "backfill": times})
        await asyncio.sleep(SECONDS)
        world.create("Schedule", "s", _EVERY_MINUTE)
        await asyncio.sleep(SECONDS)
        assert _reason(world, "asked") == "TargetNotFound"

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


def test_an_operation_does_not_act_on_an_object_that_was_created_after_it() -> None:
    async def scenario(world: World) -> None:
        world.create("Operation", "asked", {**_OF_S, "trigger": {}})
        world.operate("cancelled", "nap", cancel={})
        await asyncio.sleep(SECONDS)
        world.create("Schedule", "s", {**_EVERY_MINUTE, "intervals": [{"every": "1d"}]})
        world.create("WorkflowRun", "nap", {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "10m"}}]}})
        world.begin()
        await asyncio.sleep(SECONDS)
        assert [_reason(world, "asked"), _reason(world, "cancelled")] == ["TargetNotFound"] * 2
        assert list(world.runs()) == ["nap"]
        await world.rest()
        assert world.run("nap")["status"]["phase"] == "Completed"

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


def test_a_backfill_is_shown_and_paused_and_cancelled_while_it_starts_its_runs() -> None:
    """Two days of new users: a pause waited until all runs had started, and only deleting the Schedule ended a backfill."""

    async def scenario(world: World) -> None:
        def interfere(request: Request) -> None:
            """Pause the Schedule while the first group of runs starts."""
            if (
                request.method == "POST"
                and request.url.endswith("/workflowruns")
                and paused not in world.server.objects
            ):
                world.create("Operation", paused.name, {**_OF_S, "pause": {}})

        def status() -> Object:
            found: Object = world.server.get(ObjectKey("schedules", "default", "s"))["status"]
            return found

        paused = ObjectKey("operations", "default", "paused")
        world.begin()
        world.create("Schedule", "s", {**_EVERY_MINUTE, "intervals": [{"every": "1m"}], "endTime": START.isoformat()})
        await asyncio.sleep(SECONDS)
        world.server.interceptors.append(interfere)
        start = START - timedelta(hours=6)
        times = {"startTime": start.isoformat(), "endTime": (start + timedelta(hours=5)).isoformat()}
        world.create("Operation", "fill", {**_OF_S, "backfill": times})
        await asyncio.sleep(SECONDS)
        (shown,) = status()["backfills"]
        assert shown["held"]
        assert status()["counts"]["actions"] < 100
        before = status()["counts"]["actions"]
        await asyncio.sleep(5 * SECONDS)
        assert status()["counts"]["actions"] == before
        world.create("Operation", "cancelled", {**_OF_S, "cancel": {}})
        await asyncio.sleep(SECONDS)
        assert "backfills" not in status()
        world.create("Operation", "resumed", {**_OF_S, "unpause": {}})
        await world.rest()
        assert status()["counts"]["actions"] == before
        assert [_reason(world, name) for name in ("fill", "paused", "cancelled", "resumed")] == ["Done"] * 4

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


@pytest.mark.parametrize("policy", ["AllowAll", "BufferAll"])
@pytest.mark.parametrize(("operators", "mixed"), [(1, False), (3, False), (2, True)])
def test_each_time_of_a_backfill_starts_once_although_it_is_paused_and_operators_are_killed(
    operators: int, mixed: bool, policy: str
) -> None:
    count = 60

    async def scenario(world: World) -> None:
        def started() -> set[str]:
            return {name.split("-")[1] for name in world.runs()}

        def schedule() -> Object:
            found: Object = world.server.get(ObjectKey("schedules", "default", "s"))
            return found

        end = (START - timedelta(hours=1)).isoformat()
        world.begin()
        world.create("Schedule", "s", {**_EVERY_MINUTE, "endTime": end, "successfulRunsHistoryLimit": 1000})
        await asyncio.sleep(SECONDS)
        start = START - timedelta(hours=6)
        times = {"startTime": start.isoformat(), "endTime": (start + timedelta(minutes=count - 1)).isoformat()}
        world.create("Operation", "fill", {**_OF_S, "backfill": {**times, "overlapPolicy": policy}})
        random = world.random("pauses")
        for number in range(3):
            await asyncio.sleep(random.uniform(0, 4))
            world.create("Operation", f"pause-{number}", {**_OF_S, "pause": {}})
            await asyncio.sleep(random.uniform(0, 10))
            world.create("Operation", f"go-{number}", {**_OF_S, "unpause": {}})
        await world.trouble(60)
        await world.calm(90)
        for _ in range(200):  # with BufferAll, the runs start one after the other
            if "backfills" not in schedule()["status"]["state"]:
                break
            await asyncio.sleep(5)
        await world.rest()
        status = schedule()["status"]
        assert (len(world.runs()), len(started()), status["counts"]["actions"]) == (count, count, count)
        assert "backfills" not in status
        assert "backfills" not in status["state"]

    for seed in range(4):
        setting = Setting(seed=seed, operators=operators, fleet=operators > 1, mixed=mixed)
        assert simulate(scenario, setting).violations == []
