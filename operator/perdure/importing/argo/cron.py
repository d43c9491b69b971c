"""Converts a CronWorkflow of Argo, whose workflow is a reference, to a Schedule."""

import re

from perdure.importing.argo.scope import is_tag
from perdure.importing.cron import classic_lines, cron_options, identity, newest_missed, schedule_manifest
from perdure.importing.expressions import TAG
from perdure.importing.reader import Object, Source, shorten

_FIRST_FAILURE = re.compile(r"\s*(cronworkflow\.)?failed\s*(>=\s*1|>\s*0)\s*")
"""An expression of Argo that is true once a run has failed."""


def cron_workflow(source: Source, new_name: str | None, run_template: Object | None = None) -> list[Object]:
    """Convert a CronWorkflow to a Schedule.

    Args:
        source: The manifest.
        new_name: Name of the Schedule; None for the name of the original.
        run_template: What it starts, if its workflow is converted already. Otherwise, the workflow must be a
            `workflowTemplateRef`.

    Raises:
        UnsupportedScheduleError: A field has no equivalent.
    """
    metadata = identity(source, new_name)
    spec = source.part("spec")
    if run_template is None:
        run_template = {"spec": _run(spec, spec.part("workflowSpec"))}
    lines = spec.texts("schedules") or [spec.take("schedule")]
    made: Object = {
        "cron": [each for line in lines for each in classic_lines(spec, line, "schedules")],
        "timeZone": spec.text("timezone"),
        **cron_options(spec),
        "workflowRunTemplate": run_template,
    }
    made |= newest_missed(spec.number("startingDeadlineSeconds", 0))
    if spec.take("when"):
        raise spec.refuse("when", "put the condition into the workflow, as `when` of its first step")
    spec.take("schedule")
    made |= _stop(spec, spec.part("stopStrategy"))
    spec.done()
    source.done()
    return [schedule_manifest(metadata, made)]


def _run(spec: Source, workflow: Source) -> Object:
    """Take the workflow, which must be a `workflowTemplateRef`, as the spec of a run."""
    reference = workflow.part("workflowTemplateRef")
    name = reference.text("name")
    if not name:
        raise spec.refuse(
            "workflowSpec",
            "Argo steps are not converted; write them as a Workflow, and name it in workflowTemplateRef",
        )
    arguments = workflow.part("arguments")
    input_ = _parameters(arguments)
    arguments.done()
    reference.done()
    workflow.done()
    return {"workflow": {"name": name}, **({"input": input_} if input_ else {})}


def _parameters(arguments: Source) -> Object:
    found: Object = {}
    for each in arguments.parts("parameters"):
        name = each.required("name", "name the parameter")
        if name in found:
            raise each.refuse("name", f"`{name}` is given twice; remove one of them")
        value = each.take("value")
        if isinstance(value, dict | list):
            raise each.refuse("value", f"must be a string, not {shorten(value)}; write it in quotes")
        if isinstance(value, str) and any(is_tag(tag.strip()) for tag in TAG.findall(value)):
            raise each.refuse(
                "value", f"`{value}` is not evaluated in a Schedule; convert it with `perdure import argo`"
            )
        found[name] = value.replace("${", "$${") if isinstance(value, str) else value
        each.done()
    return found


def _stop(spec: Source, strategy: Source) -> Object:
    """Convert Argo's stopStrategy if it stops after the first failure, as a pause does."""
    expression = strategy.text("expression") or strategy.text("condition")
    strategy.done()
    if expression is None:
        return {}
    if _FIRST_FAILURE.fullmatch(expression):
        return {"pauseOnFailure": True}
    raise spec.refuse(
        "stopStrategy",
        f"`{expression}` has no equivalent: `failed >= 1` becomes `pauseOnFailure: true`; to stop after a number of runs, set "
        "`remainingActions` in the new manifest",
    )
