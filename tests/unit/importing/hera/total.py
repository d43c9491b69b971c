"""A workflow of Hera 7.1, which prints its manifest: total.yaml."""

import sys

from hera.workflows import DAG, Parameter, RetryStrategy, Workflow, script


@script(image="python:3.12", outputs=Parameter(name="total", value_from={"path": "/tmp/total"}))
def add(numbers: list[int]) -> None:
    """Write the sum of numbers."""
    with open("/tmp/total", "w") as file:  # noqa: PTH123 (a script needs its imports)
        file.write(str(sum(numbers)))


@script(image="python:3.12", retry_strategy=RetryStrategy(limit="2"))
def show(text: str, prefix: str = "total: ") -> None:
    """Print a text."""
    print(f"{prefix}{text}")


with Workflow(name="hera", entrypoint="main", arguments={"numbers": [1, 2, 3]}) as workflow, DAG(name="main"):
    total = add(name="add", arguments={"numbers": workflow.get_parameter("numbers")})
    shown = show(name="show", arguments={"text": total.get_parameter("total")})
    many = show(name="many", arguments={"text": "{{item}}"}, with_items=["a", "b"])
    total >> shown >> many

if __name__ == "__main__":
    sys.stdout.write(workflow.to_yaml())
