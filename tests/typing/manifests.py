"""A user's program that writes manifests, for type checkers."""

from datetime import timedelta
from typing import assert_type

from perdure import api
from perdure.api import activities, steps

bank = activities.container("charge", "registry.example.com/bank:1", command=["charge"], start_to_close_timeout="1m")
reserve = steps.activity("reserve", input={"order": "${input.id}"}, timeout="1h")
charge = steps.activity("charge", input=steps.output_of(reserve), needs=[reserve], retry_policy="patient")

orders = api.Workflow(
    metadata=api.ObjectMeta(name="orders", labels={"team": "shop"}),
    spec=api.WorkflowSpec(
        activities=[
            bank,
            activities.of(
                "reserve", api.Http(url="https://hotel.example.com"), start_to_close_timeout=timedelta(minutes=1)
            ),
        ],
        steps=[reserve, charge, api.Step(name="nap", sleep=api.Sleep(duration=timedelta(days=30)))],
        failure_policy=api.FailurePolicy.CONTINUE,
    ),
)
nightly = api.Schedule(
    metadata=api.ObjectMeta(name="orders"),
    spec=api.ScheduleSpec(
        cron=["30 2 * * *"],
        workflow_run_template=api.WorkflowRunTemplate(
            spec=api.WorkflowRunSpec(workflow=api.RunWorkflow(name="orders"))
        ),
    ),
)
text = assert_type(api.to_yaml(orders, nightly), str)
again = assert_type(api.from_yaml(text, api.Workflow), api.Workflow)
assert_type(again.spec.steps, list[api.Step])
assert_type(again.spec.steps[0].activity, api.ActivityCall | None)

steps.sleep("nap", "1d", whenn="${input.a}")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
api.WorkflowSpec(stepz=[])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
misspelled = api.Workfow  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
