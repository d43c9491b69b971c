"""`lint`, `simulate`, `test`, `replay`, and `import`: work on the files of definitions, without a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from perdure.cli.command import argument, group, option, verb
from perdure.cli.inputs import value
from perdure.cli.options import color_option, report_option, time_option
from perdure.cli.terminal import Color, Output, Screen, TimeFormat, page_of
from perdure.client.errors import ExitCode
from perdure.lazy import lazily

with lazily():
    from perdure.cli.files import conversion, documents, histories, replays, scenarios
    from perdure.cli.files import lint as linter
    from perdure.importing.airflow import manifests as airflow_manifests
    from perdure.importing.argo import manifests as argo_manifests
    from perdure.importing.tekton import manifests as tekton_manifests
    from perdure.language import program
    from perdure.simulation import manifests as simulation_manifests
    from perdure.simulation import report as simulation_report
    from perdure.view import flow_simulation as flow_view
    from perdure.view import simulation as view

if TYPE_CHECKING:
    from perdure.cli.files.conversion import ConversionResult


@verb()
@option(
    "--file",
    "-f",
    multiple=True,
    required=True,
    help="Manifests: a file, a folder (recursive), or - for standard input; repeatable",
)
@option("--strict", is_flag=True, help="Treat warnings as errors")
@report_option
@color_option
@click.pass_context
def lint(context: click.Context, *, file: tuple[str, ...], strict: bool, output: Output, color: Color) -> None:
    """Check manifests without a cluster.

    Finds undefined names, invalid expressions, type errors, steps that never run,
    infinite loops, and waits without a timeout. The operator runs the same checks
    and reports them in the condition Ready of a Workflow.

    Exit status: 0 no errors, 1 errors (with --strict also warnings), 2 a file
    cannot be read, or there is nothing to check.

    \b
    Examples:
      {program} lint -f order.yaml
      {program} lint -f workflows/ -f policies.yaml --strict
      helm template shop | {program} lint -f - --output json
    """
    screen = Screen(color)
    linted = linter.lint(file)
    count = {severity: linted.count(severity) for severity in program.Severity}
    if output != "text":
        screen.write_data(
            output,
            {
                "findings": [found.as_json() for found in linted.found],
                "objects": linted.objects,
                "errors": count[program.Severity.ERROR],
                "warnings": count[program.Severity.WARNING],
                "notes": count[program.Severity.NOTE],
                "unreadable": linted.unreadable,
            },
        )
    elif linted.objects:
        screen.show(linter.findings(linted, page_of(context, screen)))
    for sentence in linted.unreadable:
        click.echo(f"Error: {sentence}", err=True)
    if linted.unreadable:
        raise Exit(ExitCode.TROUBLE)
    if not linted.objects:
        click.echo("Error: there is nothing to check: the files contain no Perdure manifests", err=True)
        raise Exit(ExitCode.TROUBLE)
    bad = count[program.Severity.ERROR] + (count[program.Severity.WARNING] if strict else 0)
    raise Exit(ExitCode.NO if bad else ExitCode.YES)


@verb()
@option(
    "--file",
    "-f",
    multiple=True,
    help="Manifests of Workflow, WorkflowRun, RetryPolicy, or a Python file with flows; - for standard input; repeatable",
)
@option("--scenario", help="Scenario: what happens, and the expected outcome")
@option("--input", "-i", "input_text", help="Input: JSON, @FILE, or @- for standard input")
@report_option
@time_option
@color_option
@click.pass_context
def simulate(
    context: click.Context,
    *,
    file: tuple[str, ...],
    scenario: str | None,
    input_text: str | None,
    output: Output,
    times: TimeFormat,
    color: Color,
) -> None:
    """Run a workflow in virtual time, without a cluster.

    Uses the real engine and interpreter. Activities behave as the scenario says,
    or complete immediately. 30 days pass in milliseconds. A flow in Python runs
    with the functions of its activities, except where the scenario has entries.

    Exit status: 0 the run ended (with any outcome), 1 it does not match the
    scenario, 2 a file is invalid or the run does not end.

    \b
    Examples:
      {program} simulate --file order.yaml --input @order.json
      {program} simulate --file order.yaml --scenario declined.yaml
      {program} simulate --scenario declined.yaml --output json
      {program} simulate --file etl.py --scenario lost.yaml
    """
    if not file and scenario is None:
        raise click.BadParameter("set a manifest, or a scenario that names one", param_hint="--file")
    screen = Screen(color)
    try:
        wanted, report = scenarios.simulate_scenario(file or [], scenario, value(input_text, "--input"))
    except simulation_manifests.BadFileError as error:
        for line in str(error).splitlines():
            click.echo(f"Error: {line}", err=True)
        raise Exit(ExitCode.TROUBLE) from error
    unmet = report.unmet(wanted.expect) if wanted.expect else None
    schedules = report.schedules if isinstance(report, simulation_report.Report) else ()
    if schedules and (scenario is None or report.failure is not None):
        names = ", ".join(f"`{each}`" for each in schedules)
        what = f"the Schedule {names} starts" if len(schedules) == 1 else f"the Schedules {names} start"
        how = f"pass a scenario with `schedule: {{name: {schedules[0]}}}`"
        click.echo(f"Note: {what} this Workflow; to simulate a scheduled run, {how}", err=True)
    if output != "text":
        screen.write_data(output, report.as_json() | ({} if unmet is None else {"unmet": unmet}))
    else:
        page = page_of(context, screen, times=times)
        screen.show(
            view.show(report, unmet, page)
            if isinstance(report, simulation_report.Report)
            else flow_view.show(report, unmet, page)
        )
    raise Exit(ExitCode.NO if unmet else ExitCode.YES)


@verb()
@argument("folder", metavar="DIR", type=click.Path(path_type=Path), help="Folder with scenarios, or one scenario")
@report_option
@color_option
@click.pass_context
def test(context: click.Context, *, folder: Path, output: Output, color: Color) -> None:
    """Simulate every scenario of a folder, and report differences.

    A scenario lists its manifests in `files`, relative to itself, and the expected
    outcome in `expect`. Files that are manifests are skipped.

    Exit status: 0 all scenarios pass, 1 one fails, 2 a file is invalid, or there
    are none.

    \b
    Examples:
      {program} test scenarios/
      {program} test scenarios/declined.yaml --output json
    """
    screen = Screen(color)
    try:
        files = scenarios.scenarios_in(folder)
    except simulation_manifests.BadFileError as error:
        click.echo(f"Error: {error}", err=True)
        raise Exit(ExitCode.TROUBLE) from error
    if not files:
        click.echo(f"Error: {folder} has no scenarios: YAML files without `kind`, with `files` and `expect`", err=True)
        raise Exit(ExitCode.TROUBLE)
    page = page_of(context, screen)
    results = []
    for file in files:
        results.append(_simulate(file))
        if output == "text":
            screen.show(view.verdict(results[-1], page))
    count = {word: sum(result["verdict"] == word for result in results) for word in ("Met", "Unmet", "Bad")}
    if output != "text":
        screen.write_data(output, {"scenarios": results, **{word.lower(): number for word, number in count.items()}})
    else:
        screen.show([view.summary(count, page)])
    raise Exit(ExitCode.TROUBLE if count["Bad"] else ExitCode.NO if count["Unmet"] else ExitCode.YES)


def _simulate(file: Path) -> dict[str, Any]:
    """Simulate one scenario and return a summary of its result."""
    try:
        scenario, report = scenarios.simulate_scenario([], str(file))
    except (simulation_manifests.BadFileError, documents.UnreadableFileError) as error:
        return {"file": str(file), "verdict": "Bad", "errors": str(error).splitlines()}
    unmet = report.unmet(scenario.expect) if scenario.expect else []
    return {
        "file": str(file),
        "verdict": "Unmet" if unmet else "Met",
        "expects": scenario.expect is not None,
        "phase": report.phase,
        "elapsed": report.elapsed.total_seconds(),
        "unmet": unmet,
    }


@verb()
@option("--file", "-f", required=True, help="History, from `history -o json` or the archive; - for standard input")
@option("--workflow", required=True, help="Manifest of a Workflow or a WorkflowRun")
@option("--name", help="Name of the run; default: its workflow ID")
@option("--namespace", "-n", help="Namespace of the run; default: `default`")
@color_option
@click.pass_context
def replay(
    context: click.Context, *, file: str, workflow: str, name: str | None, namespace: str | None, color: Color
) -> None:
    """Check that a definition still replays a recorded history.

    Replays the history with the definition and reports the first difference,
    without a cluster. A history does not contain the name and namespace of the
    run: if expressions use them, set --name and --namespace. --file can be a file
    of the archive in a bucket, as it is.

    Exit status: 0 it replays, 1 it does not, 2 a file cannot be read.

    \b
    Examples:
      {program} history order-42 --output json > order-42.json
      {program} replay --file order-42.json --workflow workflow.yaml
    """
    screen = Screen(color)
    events = replays.read_history(histories.read_text(file), file)
    manifest = replays.read_manifest(histories.read_text(workflow), workflow, replays.workflow_type(events))
    found = replays.replay(events, manifest, name=name, namespace=namespace)
    if isinstance(found, replays.Difference):
        screen.show(replays.show(found, page_of(context, screen)))
        raise Exit(ExitCode.NO)
    if found is not None:
        click.echo(f"does not replay: {found}")
        raise Exit(ExitCode.NO)
    click.echo(f"replays: {len(events)} events")


files_argument = argument(
    "files",
    metavar="FILE…",
    nargs=-1,
    required=True,
    help="Manifests: files, folders (recursive), or - for standard input",
)


strict_option = option("--strict", is_flag=True, help="Write nothing if something has no counterpart")


@group()
def import_() -> None:
    """Convert manifests of other workflow systems.

    Writes Perdure's manifests to standard output. A field without a counterpart is
    reported on standard error, with its path and advice, and in a comment.

    Exit status: 0 everything was converted, 1 something has no counterpart, or
    the result is invalid, 2 a file cannot be read, or has nothing to convert.

    \b
    Examples:
      {program} import argo workflow.yaml > perdure.yaml
      {program} import tekton pipeline.yaml run.yaml --strict
    """


@import_.command("airflow")
@files_argument
@strict_option
def airflow(*, files: tuple[str, ...], strict: bool) -> None:
    """Convert DAGs of Airflow, from their serialized JSON.

    Reads what `SerializedDAG.to_dict` (Airflow 2) or `DagSerialization.to_dict`
    (Airflow 3) returns; see docs/from-airflow.md. Tasks must be
    KubernetesPodOperators.

    \b
    Examples:
      {program} import airflow load.json > perdure.yaml
      {program} import airflow dags/ --strict
    """
    result = conversion.convert_files(
        list(files), airflow_manifests.KINDS, airflow_manifests.convert, accepts=airflow_manifests.is_dag
    )
    _print(result, strict=strict)


@import_.command("argo")
@files_argument
@strict_option
def argo(*, files: tuple[str, ...], strict: bool) -> None:
    """Convert manifests of Argo Workflows.

    Reads Workflow, WorkflowTemplate, ClusterWorkflowTemplate, and CronWorkflow.
    Import files that refer to each other together. ConfigMaps in the files supply
    parameters and the sizes of semaphores.

    \b
    Examples:
      {program} import argo workflow.yaml > perdure.yaml
      {program} import argo templates/ crons.yaml --strict
    """
    _print(conversion.convert_files(list(files), argo_manifests.KINDS, argo_manifests.convert), strict=strict)


@import_.command("tekton")
@files_argument
@strict_option
def tekton(*, files: tuple[str, ...], strict: bool) -> None:
    """Convert manifests of Tekton.

    Reads Pipeline, Task, PipelineRun, and TaskRun, and the StepActions that they
    name. Import files that refer to each other together: a Pipeline or a Task that
    a run names becomes a part of that run.

    \b
    Examples:
      {program} import tekton pipeline.yaml run.yaml > perdure.yaml
      {program} import tekton - --strict < taskrun.yaml
    """
    _print(conversion.convert_files(list(files), tekton_manifests.KINDS, tekton_manifests.convert), strict=strict)


def _print(converted: "ConversionResult", *, strict: bool) -> None:
    for sentence in converted.sentences:
        click.echo(sentence, err=True)
    if strict and not converted.complete:
        click.echo("Error: nothing was written, because of --strict", err=True)
    elif converted.text:
        click.echo(converted.text, nl=False)
    raise Exit(ExitCode.YES if converted.complete else ExitCode.NO)
