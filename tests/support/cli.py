"""Calls of the command line, in this process."""

import asyncio

from click.testing import CliRunner, Result

from perdure.cli.app import build

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"


def perdure(*arguments: str, program: str = "perdure", stdin: str | None = None) -> Result:
    """Call the command."""
    return CliRunner().invoke(build(program), list(arguments), prog_name=program, input=stdin)


async def perdure_in_thread(*arguments: str) -> Result:
    """Call the command in a thread, because this one serves what it calls."""
    return await asyncio.to_thread(perdure, *arguments)
