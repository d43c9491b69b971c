from hera.workflows import Parameter, Resources, RetryStrategy, Step, Steps, Workflow, script
from hera.workflows.models import ValueFrom

IMAGE = "registry.example.com/work:1.4"


@script(
    image=IMAGE,
    retry_strategy=RetryStrategy(limit=3),
    active_deadline_seconds=3600,
    resources=Resources(cpu_request=2, memory_request="4Gi"),
)
def train(rate, epochs):
    import json

    import work

    print(json.dumps(vars(work.train(rate, epochs))))


@script(
    image=IMAGE,
    outputs=[
        Parameter(name="state", value_from=ValueFrom(path="/tmp/state")),
        Parameter(name="rates", value_from=ValueFrom(path="/tmp/rates")),
        Parameter(name="epochs", value_from=ValueFrom(path="/tmp/epochs")),
        Parameter(name="best", value_from=ValueFrom(path="/tmp/best")),
    ],
)
def compare(trials, epochs, target):
    import json
    from pathlib import Path

    import work

    found = [work.Trial(**trial) for trial in trials]
    best = work.ranked(found)[0]
    done = best.score >= target or len(found) == 1
    Path("/tmp/state").write_text("done" if done else "more")
    Path("/tmp/rates").write_text(json.dumps(work.better_half(found)))
    Path("/tmp/epochs").write_text(str(epochs * 2))
    Path("/tmp/best").write_text(json.dumps(vars(best)))


with Workflow(
    generate_name="sweep-",
    entrypoint="round",
    arguments={"rates": "[0.01, 0.1, 1.0, 5.0]", "epochs": "2", "target": "0.9"},
) as sweep:
    with Steps(name="round", inputs=[Parameter(name="rates"), Parameter(name="epochs")], parallelism=4) as following:
        trials = train(
            arguments={"rate": "{{item}}", "epochs": "{{inputs.parameters.epochs}}"},
            with_param="{{inputs.parameters.rates}}",
        )
        compared = compare(
            arguments={
                "trials": trials.result,
                "epochs": "{{inputs.parameters.epochs}}",
                "target": "{{workflow.parameters.target}}",
            }
        )
        Step(
            name="again",
            template="round",
            when="{{steps.compare.outputs.parameters.state}} == more",
            arguments={
                "rates": compared.get_parameter("rates"),
                "epochs": compared.get_parameter("epochs"),
            },
        )


if __name__ == "__main__":
    print(sweep.to_yaml())
