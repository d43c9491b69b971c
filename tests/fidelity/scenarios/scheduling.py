"""Schedules."""

import importlib.resources
from typing import Any

from fidelity.driver import Session, command, encoded, payload, payloads, scenario
from fidelity.scenarios.starting import EVERY_OPTION


def schedule(s: Session, base: str = "s", spec: Any = None, **options: Any) -> dict[str, Any]:
    action = {
        "workflow_id": s.named("w"),
        "workflow_type": {"name": "Type"},
        "task_queue": {"name": s.named("q")},
    }
    return {
        "schedule_id": s.named(base),
        "request_id": s.named(f"request {base}"),
        "schedule": {
            "spec": spec if spec is not None else {"interval": [{"interval": "86400s", "phase": "3600s"}]},
            "action": {"start_workflow": action | options.pop("action", {})},
            **options,
        },
    }


@scenario
def schedule_with_defaults(s: Session) -> None:
    s.call("CreateSchedule", **schedule(s))
    mine = {"schedule_id": s.named("s")}
    s.call("DescribeSchedule", **mine)
    s.call("CreateSchedule", "again", **schedule(s))
    s.call("CreateSchedule", "another of the same ID", **schedule(s) | {"request_id": "another"})
    s.call("ListScheduleMatchingTimes", **mine, start_time="2030-01-01T00:00:00Z", end_time="2030-01-03T00:00:00Z")
    s.call("PatchSchedule", "pause", **mine, patch={"pause": "broken"})
    s.until(lambda response: response.schedule.state.paused, "DescribeSchedule", "paused", **mine)
    s.call("PatchSchedule", "unpause", **mine, patch={"unpause": "repaired"})
    s.until(lambda response: not response.schedule.state.paused, "DescribeSchedule", "unpaused", **mine)
    s.call("DeleteSchedule", **mine)
    s.call("DeleteSchedule", "no schedule", schedule_id="none")
    s.call("DescribeSchedule", "no schedule", schedule_id="none")
    s.call("PatchSchedule", "no schedule", schedule_id="none", patch={"pause": "x"})
    s.call("UpdateSchedule", "no schedule", **schedule(s) | {"schedule_id": "none"})


@scenario
def schedule_with_every_option(s: Session) -> None:
    options = {name: EVERY_OPTION[name] for name in EVERY_OPTION if name != "workflow_id_reuse_policy"}
    fields = schedule(
        s,
        spec={
            "structured_calendar": [
                {
                    "second": [{}],
                    "minute": [{"start": 30}],
                    "hour": [{"start": 8, "end": 18, "step": 2}],
                    "day_of_month": [{"start": 1, "end": 31}],
                    "month": [{"start": 1, "end": 12}],
                    "day_of_week": [{"start": 1, "end": 5}],
                    "comment": "in working hours",
                }
            ],
            "cron_string": ["0 12 * * MON"],
            "calendar": [{"hour": "5", "day_of_week": "0"}],
            "start_time": "2030-01-01T00:00:00Z",
            "end_time": "2031-01-01T00:00:00Z",
            "jitter": "1s",
            "timezone_name": "Europe/Berlin",
        },
        action=options,
        policies={
            "overlap_policy": "SCHEDULE_OVERLAP_POLICY_BUFFER_ONE",
            "catchup_window": "3600s",
            "pause_on_failure": True,
        },
        state={"notes": "a note", "paused": True, "limited_actions": True, "remaining_actions": 5},
    )
    mine = {"schedule_id": s.named("s")}
    memo = {"memo": {"fields": {"note": payload("said")}}}
    attributes = {"search_attributes": {"indexed_fields": {"CustomKeywordField": payload("key")}}}
    s.call("CreateSchedule", **fields, **memo, **attributes)
    s.call("DescribeSchedule", **mine)
    s.until(
        lambda response: response.schedules,
        "ListSchedules",
        query=f"ScheduleId = '{s.named('s')}'",
    )
    changed = schedule(s, state={"paused": True})
    s.call("UpdateSchedule", **changed)
    s.until(
        lambda response: response.schedule.spec.interval,
        "DescribeSchedule",
        "updated",
        **mine,
    )
    s.call("UpdateSchedule", "bad conflict token", **changed | {"conflict_token": "AAAAAAAAAAA="})
    s.call("DeleteSchedule", **mine)


@scenario
def schedule_with_explicit_defaults(s: Session) -> None:
    policy = {"retry_policy": {"maximum_attempts": 1, "maximum_interval": "100s"}}
    s.call("CreateSchedule", **schedule(s, action=policy, state={"remaining_actions": 30}))
    s.call("DescribeSchedule", schedule_id=s.named("s"))
    s.call("DeleteSchedule", schedule_id=s.named("s"))


@scenario
def schedule_triggered(s: Session) -> None:
    s.call("CreateSchedule", **schedule(s), initial_patch={"trigger_immediately": {}})
    mine = {"schedule_id": s.named("s")}
    s.until(lambda response: response.info.running_workflows, "DescribeSchedule", "triggered", **mine)
    task = s.task()
    started = {"workflow_id": task.workflow_execution.workflow_id, "run_id": task.workflow_execution.run_id}
    s.call("DescribeWorkflowExecution", "of the schedule", execution=started)
    s.complete(task, command("COMPLETE_WORKFLOW_EXECUTION", result=payloads("done")))
    s.until(
        lambda response: response.info.recent_actions and response.info.recent_actions[0].start_workflow_status != 1,
        "DescribeSchedule",
        "completed",
        **mine,
    )
    s.call("DeleteSchedule", **mine)


@scenario
def schedule_refused(s: Session) -> None:
    s.call("CreateSchedule", "no ID", **schedule(s) | {"schedule_id": ""})
    s.call("CreateSchedule", "no schedule", schedule_id=s.named("s"))
    refused = {
        "bad interval": {"spec": {"interval": [{"interval": "0s"}]}},
        "bad phase": {"spec": {"interval": [{"interval": "10s", "phase": "20s"}]}},
        "bad cron": {"spec": {"cron_string": ["never"]}},
        "bad zone": {"spec": {"timezone_name": "Nowhere/Nothing", "interval": [{"interval": "10s"}]}},
        "no type": {"action": {"workflow_type": {}}},
        "no workflow ID": {"action": {"workflow_id": ""}},
        "no task queue": {"action": {"task_queue": {}}},
        "negative timeout": {"action": {"workflow_run_timeout": "-1s"}},
    }
    for note, options in refused.items():
        s.call("CreateSchedule", note, **schedule(s, **options))
        s.begin("DeleteSchedule", schedule_id=s.named("s")).exception()


@scenario
def schedule_backfilled(s: Session) -> None:
    mine = {"schedule_id": s.named("s")}
    s.call("CreateSchedule", **schedule(s, state={"paused": True}))
    times = {"start_time": "2022-01-01T00:00:00Z", "end_time": "2022-01-02T12:00:00Z"}
    backfill = [{**times, "overlap_policy": "SCHEDULE_OVERLAP_POLICY_BUFFER_ALL"}]
    s.call("PatchSchedule", **mine, patch={"backfill_request": backfill}, request_id="one")
    s.until(
        lambda response: response.info.buffer_size == 1 and response.info.running_workflows,
        "DescribeSchedule",
        "backfilled",
        **mine,
    )
    s.decide(command("COMPLETE_WORKFLOW_EXECUTION"), note="the first time")
    s.decide(command("COMPLETE_WORKFLOW_EXECUTION"), note="the second time")
    s.poll(lambda response: not response.info.running_workflows, "DescribeSchedule", **mine)
    s.call("PatchSchedule", "nothing", **mine)
    s.call("DeleteSchedule", **mine)


@scenario
def schedule_overlaps(s: Session) -> None:
    mine = {"schedule_id": s.named("s")}
    s.call(
        "CreateSchedule",
        **schedule(s, policies={"overlap_policy": "SCHEDULE_OVERLAP_POLICY_SKIP"}),
        initial_patch={"trigger_immediately": {}},
    )
    s.until(lambda response: response.info.running_workflows, "DescribeSchedule", "triggered", **mine)
    s.call("PatchSchedule", "skip", **mine, patch={"trigger_immediately": {"overlap_policy": 1}})
    s.until(lambda response: response.info.overlap_skipped, "DescribeSchedule", "skipped", **mine)
    s.call("PatchSchedule", "buffer one", **mine, patch={"trigger_immediately": {"overlap_policy": 2}})
    s.until(lambda response: response.info.buffer_size, "DescribeSchedule", "buffered", **mine)
    s.call("DeleteSchedule", **mine)


@scenario
def schedule_specs(s: Session) -> None:
    midnight: Any = {field: [{}] for field in ("second", "minute", "hour")} | {"day_of_week": [{"end": 6}]}
    midnight |= {"day_of_month": [{"start": 1, "end": 31}], "month": [{"start": 1, "end": 12}]}
    specs = {
        "with years and a comment": {
            "structured_calendar": [midnight | {"year": [{"start": 2031, "end": 2032}], "comment": "x"}]
        },
        "with all of a calendar": {
            "calendar": [
                {
                    "second": "0",
                    "minute": "*/30",
                    "hour": "8-10",
                    "day_of_month": "1,15",
                    "month": "JAN-MAR",
                    "year": "2031",
                    "comment": "x",
                }
            ]
        },
        "with exclusions": {
            "interval": [{"interval": "3600s"}],
            "exclude_structured_calendar": [midnight | {"hour": [{"end": 11}]}],
        },
        "as a cron with a comment": {"cron_string": ["@every 1h/5m", "0 12 * * MON-FRI # at noon", "@daily"]},
    }
    times = {"start_time": "2031-01-01T00:00:00Z", "end_time": "2031-01-02T00:00:00Z"}
    for number, (note, spec) in enumerate(specs.items()):
        mine = {"schedule_id": s.named(f"s{number}")}
        s.call("CreateSchedule", note, **schedule(s, f"s{number}", spec, state={"paused": True}))
        s.call("DescribeSchedule", note, **mine)
        s.call("ListScheduleMatchingTimes", note, **mine, **times)
        s.call("DeleteSchedule", **mine)
    s.call("ListScheduleMatchingTimes", "no schedule", schedule_id="none", **times)


@scenario
def schedule_updates(s: Session) -> None:
    mine = {"schedule_id": s.named("s")}
    policies = {"overlap_policy": "SCHEDULE_OVERLAP_POLICY_ALLOW_ALL"}
    s.call("CreateSchedule", **schedule(s, policies=policies, state={"paused": True}))
    changed = schedule(s, policies={"overlap_policy": "SCHEDULE_OVERLAP_POLICY_CANCEL_OTHER"}, state={"paused": True})
    found = {"indexed_fields": {"CustomKeywordField": payload("new")}}
    s.call("UpdateSchedule", **changed, search_attributes=found)
    s.until(lambda response: response.search_attributes.indexed_fields, "DescribeSchedule", "updated", **mine)
    mine_only = f"ScheduleId = '{s.named('s')}'"
    s.until(lambda response: response.count, "CountSchedules", query=mine_only)
    s.until(lambda response: response.schedules, "ListSchedules", query=mine_only, maximum_page_size=5)
    s.call("ListSchedules", "bad query", query="ScheduleId =")
    s.call("CountSchedules", "bad query", query="ScheduleId =")
    s.call("ListSchedules", "bad token", next_page_token="AAAA")
    refused = {
        "a cron schedule": {"cron_schedule": "@daily"},
        "a reuse policy": {"workflow_id_reuse_policy": "WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY"},
        "unknown search attribute": {"search_attributes": {"indexed_fields": {"Unheard": payload("x")}}},
    }
    for note, action in refused.items():
        s.call("UpdateSchedule", note, **schedule(s, action=action, state={"paused": True}))
    s.call("DeleteSchedule", **mine)


@scenario
def schedule_triggered_while_running(s: Session) -> None:
    """By each policy that starts another workflow: the requests name their times, so all workflows have names of their own."""
    for policy in ("ALLOW_ALL", "BUFFER_ALL", "CANCEL_OTHER", "TERMINATE_OTHER"):
        mine = {"schedule_id": s.named(policy)}
        action = {"workflow_id": s.named(f"w {policy}")}
        first = {"trigger_immediately": {"scheduled_time": "2026-01-01T00:00:00Z"}}
        s.call("CreateSchedule", policy, **schedule(s, policy, action=action), initial_patch=first)
        begun = s.until(lambda response: response.info.running_workflows, "DescribeSchedule", f"{policy}: one", **mine)
        again = {"overlap_policy": f"SCHEDULE_OVERLAP_POLICY_{policy}", "scheduled_time": "2026-01-02T00:00:00Z"}
        s.call("PatchSchedule", policy, **mine, patch={"trigger_immediately": again})
        s.until(
            lambda response, ends=policy == "TERMINATE_OTHER": (
                response.info.recent_actions[0].start_workflow_status != 1 and len(response.info.recent_actions) == 2
                if ends
                else response.info.buffer_size or len(response.info.recent_actions) == 2
            ),
            "DescribeSchedule",
            f"{policy}: two",
            **mine,
        )
        for one in begun.info.running_workflows:
            named = {"workflow_id": one.workflow_id, "run_id": one.run_id}
            s.until(  # a Schedule lists a run before it has started
                lambda response: response.workflow_execution_info.history_length,
                "DescribeWorkflowExecution",
                f"{policy}: the first",
                execution=named,
            )
        s.call("DeleteSchedule", **mine)


@scenario
def schedule_backfilled_by_each_policy(s: Session) -> None:
    times = {"start_time": "2022-01-01T00:00:00Z", "end_time": "2022-01-02T12:00:00Z"}
    handled: dict[str, Any] = {
        "SKIP": lambda response: response.info.recent_actions and response.info.overlap_skipped,
        "BUFFER_ONE": lambda response: response.info.recent_actions and response.info.buffer_size,
        "ALLOW_ALL": lambda response: len(response.info.recent_actions) == 2,
        "CANCEL_OTHER": lambda response: response.info.recent_actions,
        "TERMINATE_OTHER": lambda response: response.info.recent_actions,
    }
    for policy, are_handled in handled.items():
        mine = {"schedule_id": s.named(policy)}
        action = {"workflow_id": s.named(f"w {policy}")}
        s.call("CreateSchedule", policy, **schedule(s, policy, action=action, state={"paused": True}))
        request = {**times, "overlap_policy": f"SCHEDULE_OVERLAP_POLICY_{policy}"}
        s.call("PatchSchedule", policy, **mine, patch={"backfill_request": [request]})
        s.until(
            are_handled,
            "DescribeSchedule",
            f"{policy}: backfilled",
            **mine,
        )
        s.call("DeleteSchedule", **mine)


@scenario
def schedule_policies(s: Session) -> None:
    zone = importlib.resources.files("tzdata.zoneinfo.Asia").joinpath("Tokyo").read_bytes()
    spec = {"cron_string": ["0 12 * * *"], "timezone_data": encoded(zone)}
    for policy in ("BUFFER_ALL", "TERMINATE_OTHER"):
        mine = {"schedule_id": s.named(policy)}
        policies = {"overlap_policy": f"SCHEDULE_OVERLAP_POLICY_{policy}"}
        action = {
            "versioning_override": {"auto_upgrade": True},
            "workflow_id_reuse_policy": "WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE",
        }
        s.call(
            "CreateSchedule",
            policy,
            **schedule(s, policy, spec, action=action, policies=policies, state={"paused": True}),
        )
        s.call("DescribeSchedule", policy, **mine)
        times = {"start_time": "2030-01-01T00:00:00Z", "end_time": "2030-01-03T00:00:00Z"}
        s.call("ListScheduleMatchingTimes", policy, **mine, **times)
        s.call("DeleteSchedule", **mine)
    named = {**spec, "timezone_name": "Tokyo"}
    s.call("CreateSchedule", "a zone with a name and data", **schedule(s, "s", named, state={"paused": True}))
    s.begin("DeleteSchedule", schedule_id=s.named("s")).exception()
    rejecting = {"workflow_id_reuse_policy": "WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE"}
    s.call("CreateSchedule", "another reuse policy", **schedule(s, "s", action=rejecting, state={"paused": True}))
    s.begin("DeleteSchedule", schedule_id=s.named("s")).exception()
