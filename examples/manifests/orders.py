"""Writes a Workflow for each shop, and its Schedule, as typed objects.

python examples/manifests/orders.py | kubectl apply -f -
python examples/manifests/orders.py > orders.yaml && perdure lint --file orders.yaml
"""

from perdure import api
from perdure.api import activities, steps

IMAGE = "localhost/perdure:dev"
SHOPS = {"berlin": "Europe/Berlin", "lisbon": "Europe/Lisbon"}


def settlement(shop: str) -> api.Workflow:
    """Settle the orders of a day: count them, wait until someone approves a large sum, and pay."""
    count = steps.activity("count", input={"day": "${input.day}"})
    approve = steps.approval(
        "approve", when="${steps.count.output.sum > 100}", timeout="1d", message="${steps.count.output.sum} EUR"
    )
    pay = steps.activity("pay", input=steps.output_of(count))
    count_orders = 'echo \'{"orders": 7, "sum": 70}\' > $PERDURE_TERMINATION_LOG'
    return api.Workflow(
        metadata=api.ObjectMeta(name=f"settle-{shop}", labels={"shop": shop}),
        spec=api.WorkflowSpec(
            input=api.InputSpec(
                schema_={"type": "object", "required": ["day"], "properties": {"day": {"type": "string"}}}
            ),
            activities=[
                activities.script("count", IMAGE, count_orders, start_to_close_timeout="10m"),
                activities.container(
                    "pay",
                    IMAGE,
                    command=["echo"],
                    args=["${input.sum}"],
                    env={"SHOP": shop},
                    memory="32Mi",
                    start_to_close_timeout="1m",
                    retry_policy=api.RetryPolicyChoice(exponential=api.Exponential(maximum_attempts=5)),
                ),
            ],
            steps=[count, approve, pay],
        ),
    )


def nightly(shop: str, time_zone: str) -> api.Schedule:
    """Start the settlement of a shop each night, in its time zone."""
    run = api.WorkflowRunSpec(workflow=api.RunWorkflow(name=f"settle-{shop}"), input={"day": "${schedule.localDate}"})
    return api.Schedule(
        metadata=api.ObjectMeta(name=f"settle-{shop}", labels={"shop": shop}),
        spec=api.ScheduleSpec(
            cron=["30 2 * * *"], time_zone=time_zone, workflow_run_template=api.WorkflowRunTemplate(spec=run)
        ),
    )


if __name__ == "__main__":
    print(
        api.to_yaml(*(each for shop, zone in SHOPS.items() for each in (settlement(shop), nightly(shop, zone)))), end=""
    )
