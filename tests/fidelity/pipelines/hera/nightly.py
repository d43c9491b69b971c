from hera.workflows import DAG, CronWorkflow, RetryStrategy, Workflow, script
from hera.workflows.models import Backoff

IMAGE = "registry.example.com/work:1.4"


@script(
    image=IMAGE,
    retry_strategy=RetryStrategy(limit=3, backoff=Backoff(duration="10s", factor=2)),
    active_deadline_seconds=600,
)
def extract(source, day):
    import json
    from datetime import date

    import work

    print(json.dumps(vars(work.extract(source, date.fromisoformat(day[:10])))))


@script(image=IMAGE, retry_strategy=RetryStrategy(limit=3), active_deadline_seconds=1800)
def load(parts):
    import work

    print(work.load([work.Part(**part) for part in parts]))


with CronWorkflow(
    name="nightly",
    schedules=["0 2 * * *"],
    entrypoint="pipeline",
    arguments={"day": "{{workflow.scheduledTime}}"},
) as nightly:
    with DAG(name="pipeline", parallelism=2):
        parts = extract(
            arguments={"source": "{{item}}", "day": "{{workflow.parameters.day}}"}, with_items=["eu", "us", "asia"]
        )
        parts >> load(arguments={"parts": parts.result})


def backfill(days: list[str]) -> list[Workflow]:
    return [
        Workflow(
            generate_name="nightly-",
            entrypoint="pipeline",
            templates=nightly.templates,
            arguments={"day": day},
        )
        for day in days
    ]


if __name__ == "__main__":
    print(nightly.to_yaml())
