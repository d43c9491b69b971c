"""How tests of commands call them."""

from click.testing import CliRunner, Result

from perdure.cli.app import build

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"


def call(*arguments: str, program: str = "perdure") -> Result:
    return CliRunner().invoke(build(program), list(arguments), prog_name=program)
