"""`count`: the number of runs by phase."""

import asyncio
from collections import Counter
from typing import Annotated

import typer

from perdure.cli.connection import connect
from perdure.cli.options import ContextOption, NamespaceOption, ReportOption
from perdure.cli.selection import (
    AttributeOption,
    CompletedOption,
    OlderOption,
    PhaseOption,
    PrefixOption,
    RunningOption,
    SelectorOption,
    SinceOption,
    chosen,
)
from perdure.cli.terminal import Screen, program_of
from perdure.kube import clock
from perdure.view.phases import RunPhase

HELP = """Count runs by phase.

\b
Examples:
  {program} count
  {program} count --all-namespaces --since 24h
  {program} count --phase Failed --output json
"""


def command(
    context: typer.Context,
    *,
    namespace: NamespaceOption = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Count the runs of all namespaces")
    ] = False,
    phases: PhaseOption = None,
    running: RunningOption = False,
    completed: CompletedOption = False,
    selector: SelectorOption = None,
    attributes: AttributeOption = None,
    since: SinceOption = None,
    older: OlderOption = None,
    prefix: PrefixOption = None,
    output: ReportOption = "text",
    cluster: ContextOption = None,
) -> None:
    """Count runs by phase."""
    choice = chosen(phases, selector, attributes, since, older, prefix=prefix, running=running, completed=completed)

    async def read() -> Counter[str]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await choice.count(found, clock.now(), everywhere=everywhere)

    counts = asyncio.run(read())
    ordered = {phase: counts[phase] for phase in (*RunPhase, *sorted(counts.keys() - set(RunPhase))) if counts[phase]}
    screen = Screen()
    if output != "text":
        screen.write_data(output, {"total": counts.total(), "phases": ordered})
        return
    width = max(map(len, ("Total", *ordered)))
    for name, number in {**ordered, "Total": counts.total()}.items():
        screen.write(f"{name.ljust(width)}  {number}")
