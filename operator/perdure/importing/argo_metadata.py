"""Converts the `workflowMetadata` of Argo's workflows: labels and annotations of a run."""

from perdure.importing.argo_scope import Scope, WorkflowFacts
from perdure.importing.expressions import UntranslatableError, expression
from perdure.importing.field_reader import Fields, Object, as_text
from perdure.language.expression_text import ExpressionError
from perdure.language.expressions import compile_template


def run_metadata(given: Fields, input_: Object) -> Object:
    """Take the labels and annotations of a run.

    Args:
        given: The `workflowMetadata`.
        input_: The input of the run, from which expressions are evaluated.
    """
    labels = {name: as_text(value) for name, value in given.take("labels", {}).items()}
    annotations = {name: as_text(value) for name, value in given.take("annotations", {}).items()}
    computed = given.part("labelsFrom")
    for name in list(computed.data):
        source = computed.part(name)
        try:
            labels[name] = as_text(_value(source.text("expression") or "", input_))
        except (UntranslatableError, ExpressionError) as error:
            source.gap("expression", f"{error}; set the label on the WorkflowRun")
    given.done({})
    return {key: value for key, value in (("labels", labels), ("annotations", annotations)) if value}


def _value(text: str, input_: Object) -> object:
    facts = WorkflowFacts(labels={}, annotations={}, constants={}, parameters=frozenset(input_))
    made = expression(text, Scope("input", facts).resolve)
    return compile_template("${" + made + "}", names=frozenset({"input"})).evaluate({"input": input_})
