"""`from`: activities and blocks of other Workflows (templateRef of Argo Workflows, resolvers of Tekton)."""

from typing import Any

import pytest
import yaml

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.language.checks import check
from perdure.language.compiler import compile_program
from perdure.language.program import Finding, Severity
from perdure.language.reuse import (
    MAX_LIBRARIES,
    Library,
    MissingLibrary,
    allows,
    compose,
    compose_all,
    in_namespace,
    is_library,
)

LIBRARY = """
failurePolicy: Continue
activities:
- {name: post, startToCloseTimeout: 1m, resultSize: Large, container: {image: post, args: ["${input.text}"]}}
- {name: log, startToCloseTimeout: 1m, container: {image: log}}
blocks:
- name: report
  params: {schema: {type: object, required: [text], properties: {text: {type: string}}}}
  steps:
  - {name: log, activity: {name: log, input: "${params}"}, catch: [{call: {block: quiet}}]}
  - {name: send, call: {block: send, input: "${params}"}, onStart: {block: quiet}, onEnd: {block: quiet}}
  - name: which
    switch: {cases: [{when: "${params.text == ''}", call: {block: quiet}}], default: {call: {block: quiet}}}
  - {name: all, parallel: {branches: [{name: one, block: quiet}]}}
  - {name: undo, set: {a: 1}, compensate: {activity: {name: log}}}
- name: send
  failurePolicy: FinishRunning
  steps:
  - {name: post, activity: {name: post, input: "${params}"}}
  - {name: again, when: "${false}", call: {block: send, input: "${params}"}}
- {name: quiet, steps: [{name: nothing, set: {quiet: true}}]}
"""


def libraries(**texts: str) -> dict[str, Library]:
    return {name: Library(yaml.safe_load(text), generation=7) for name, text in texts.items()}


SHARED = libraries(shared=LIBRARY)


def definition(text: str) -> dict[str, Any]:
    return yaml.safe_load(text)  # type: ignore[no-any-return]


def names(composed: dict[str, Any], kind: str) -> list[str]:
    return [entry["name"] for entry in composed[kind]]


def entry(composed: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    return next(each for each in composed[kind] if each["name"] == name)


def test_a_definition_without_from_is_not_changed() -> None:
    plain = definition("{activities: [{name: a}], steps: []}")
    composed = compose(plain, {})
    assert composed.definition is plain
    assert not composed.libraries


def test_a_library_that_was_not_read_is_asked_for() -> None:
    composed = compose(definition("activities: [{name: post, from: {workflow: shared}}]"), {})
    assert composed.unread == {"shared"}
    assert not composed.missing
    assert not compose(definition("activities: [{name: post, from: {workflow: shared}}]"), SHARED).unread


def test_an_activity_is_copied_under_its_own_name() -> None:
    composed = compose(definition("activities: [{name: notify, from: {workflow: shared, activity: post}}]"), SHARED)
    want = {**SHARED["shared"].spec["activities"][0], "name": "notify"}
    assert composed.definition["activities"] == [want]
    (source,) = composed.sources
    assert source == {"workflow": "shared", "generation": 7, "activities": {"notify": "post"}, "blocks": {}}


def test_fields_next_to_from_replace_those_of_the_library_except_defaults() -> None:
    text = "activities: [{name: post, from: {workflow: shared}, startToCloseTimeout: 5m, resultSize: Small, failureTypes: []}]"
    (copied,) = compose(definition(text), SHARED).definition["activities"]
    assert (copied["startToCloseTimeout"], copied["resultSize"]) == ("5m", "Large")
    assert "failureTypes" not in copied
    assert "from" not in copied


def test_a_block_brings_what_it_calls_and_its_failure_policy() -> None:
    composed = compose(definition("blocks: [{name: report, from: {workflow: shared}}]"), SHARED)
    assert names(composed.definition, "blocks") == ["report", "quiet", "send"]
    assert names(composed.definition, "activities") == ["log", "post"]
    policies = [block["failurePolicy"] for block in composed.definition["blocks"]]
    assert policies == ["Continue", "Continue", "FinishRunning"]
    steps = [{"name": "s", "call": {"block": "report", "input": {"text": "a"}}}]
    program = compile_program(WorkflowSpec.parse({**composed.definition, "steps": steps}))
    assert set(program.flows) == {"", "report", "send", "quiet"}


def test_what_a_block_calls_gets_another_name_if_its_own_is_taken() -> None:
    text = """
activities: [{name: log, startToCloseTimeout: 1m, container: {image: mine}}]
blocks: [{name: send, steps: [{name: mine, set: {a: 1}}]}, {name: report, from: {workflow: shared}}]
"""
    composed = compose(definition(text), SHARED).definition
    assert names(composed, "activities") == ["log", "log-2", "post"]
    assert names(composed, "blocks") == ["send", "report", "quiet", "send-2"]
    log, send, *_, undo = entry(composed, "blocks", "report")["steps"]
    assert log["activity"]["name"] == undo["compensate"]["activity"]["name"] == "log-2"
    assert send["call"]["block"] == "send-2"
    assert entry(composed, "blocks", "send-2")["steps"][1]["call"]["block"] == "send-2"
    assert entry(composed, "activities", "log")["container"]["image"] == "mine"


def test_a_long_name_stays_short_enough_with_a_number() -> None:
    long = "a" * 63
    shared = libraries(
        shared=f"activities: [{{name: {long}}}]\nblocks: [{{name: b, steps: [{{name: s, activity: {{name: {long}}}}}]}}]"
    )
    text = f"activities: [{{name: {long}}}]\nblocks: [{{name: b, from: {{workflow: shared}}}}]"
    assert names(compose(definition(text), shared).definition, "activities") == [long, "a" * 61 + "-2"]


def test_a_block_calls_the_copy_that_the_definition_names_unless_it_was_changed() -> None:
    text = (
        "activities: [{{name: notify, from: {{workflow: shared, activity: post}}{more}}}]\n"
        "blocks: [{{name: send, from: {{workflow: shared}}}}]"
    )
    same = compose(definition(text.format(more="")), SHARED).definition
    assert names(same, "activities") == ["notify"]
    changed = compose(definition(text.format(more=", startToCloseTimeout: 2m")), SHARED).definition
    assert names(changed, "activities") == ["notify", "post"]


def test_a_library_can_copy_from_another_one() -> None:
    chain = libraries(
        facade="activities: [{name: notify, from: {workflow: shared, activity: post}, startToCloseTimeout: 9m}]",
        shared=LIBRARY,
    )
    composed = compose_all(definition("activities: [{name: t, from: {workflow: facade, activity: notify}}]"), chain)
    (copied,) = composed.definition["activities"]
    assert (copied["name"], copied["startToCloseTimeout"], copied["container"]["image"]) == ("t", "9m", "post")
    assert composed.libraries == {"facade", "shared"}
    assert [source["workflow"] for source in composed.sources] == ["shared"]


def errors_of(text: str, **texts: str) -> list[str]:
    composed = compose_all(definition(text), libraries(**texts))
    return [str(finding) for finding in composed.findings] + [each.sentence("shop") for each in composed.missing]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            "activities: [{name: a, from: {workflow: gone}}]",
            "spec.activities[0].from.workflow: there is no Workflow `gone` in namespace `shop`",
        ),
        (
            "activities: [{name: pots, from: {workflow: shared}}]",
            "spec.activities[0].from: Workflow `shared` has no activity `pots`; did you mean `post`?",
        ),
        (
            "blocks: [{name: a, from: {workflow: shared, block: xyz}}]",
            "spec.blocks[0].from.block: Workflow `shared` has no block `xyz`; it has report, send, quiet",
        ),
        (
            "activities: [{name: a, from: {workflow: one}}]",
            (
                "spec.activities[0].from: is a cycle: activity `a` of Workflow `one`, which is copied from activity `a` of "
                "Workflow `two`, which is copied from activity `a` of Workflow `one`; define the activity in one of them"
            ),
        ),
        (
            "blocks: [{name: lost, from: {workflow: broken}}]",
            "spec.blocks[0].from: block `lost` of Workflow `broken`: Workflow `broken` has no activity `x`; it has none",
        ),
        (
            "blocks: [{name: far, from: {workflow: broken}}]",
            (
                "spec.blocks[0].from: there is no Workflow `gone` in namespace `shop`, from which block `far` of Workflow "
                "`broken` is copied"
            ),
        ),
    ],
)
def test_what_cannot_be_copied_is_an_error_of_the_field(text: str, want: str) -> None:
    texts = {
        "shared": LIBRARY,
        "one": "activities: [{name: a, from: {workflow: two}}]",
        "two": "activities: [{name: a, from: {workflow: one}}]",
        "broken": """
blocks:
- {name: lost, steps: [{name: s, activity: {name: x}}]}
- {name: far, from: {workflow: gone}}
""",
    }
    assert errors_of(text, **texts) == [want]


def test_a_definition_uses_a_limited_number_of_libraries() -> None:
    many = {f"l{i}": f"activities: [{{name: a, from: {{workflow: l{i + 1}}}}}]" for i in range(MAX_LIBRARIES + 1)}
    (error,) = errors_of("activities: [{name: a, from: {workflow: l0}}]", **many)
    assert error == f"spec.activities[0].from: leads to more than {MAX_LIBRARIES} Workflows; copy from fewer"


@pytest.mark.parametrize(
    "text",
    ["activities: 7", "activities: [7, {name: [], from: []}]", "blocks: [{from: {workflow: 3}}, {name: a, from: {}}]"],
)
def test_an_invalid_definition_stays_as_it_is(text: str) -> None:
    assert compose(definition(text), {}).definition == definition(text)


def test_only_a_definition_without_steps_is_a_library() -> None:
    assert is_library(definition(LIBRARY))
    assert not is_library({"steps": [], "activities": []})
    assert not is_library({**definition(LIBRARY), "steps": [{"name": "s", "set": {"a": 1}}]})


# Checks


def findings_of(text: str, path: str = "spec", **texts: str) -> list[Finding]:
    return list(check(WorkflowSpec.parse(definition(text)), path=path, libraries=libraries(**texts)).findings)


def test_the_input_of_a_call_must_match_the_schema_in_the_library() -> None:
    text = """
blocks: [{name: report, from: {workflow: shared}}]
steps: [{name: s, call: {block: report, input: {text: 7}}}]
"""
    (finding,) = findings_of(text, shared=LIBRARY)
    assert finding.path == "spec.steps[0].call.input.text"
    assert "does not match the params of block `report`" in finding.message
    assert finding.severity is Severity.ERROR
    assert findings_of(text.replace("7", "hello"), shared=LIBRARY) == []


def test_an_error_in_a_copy_is_reported_at_its_from() -> None:
    text = """
input: {schema: {type: object, additionalProperties: false, properties: {a: {type: string}}}}
blocks: [{name: report, from: {workflow: shared}}]
steps: [{name: s, call: {block: report}}]
"""
    shared = """
blocks:
- {name: report, steps: [{name: s, call: {block: other}}]}
- {name: other, steps: [{name: s, set: {v: "${input.b}"}}, {name: t, set: {v: "${vars.unset}"}}]}
"""
    (finding,) = findings_of(text, "spec.inline", shared=shared)
    assert finding.path == "spec.inline.blocks[0].from"
    assert finding.message.startswith("block `other` of Workflow `shared`: steps[0].set.v: ")


def test_a_workspace_that_a_copied_activity_mounts_must_be_defined() -> None:
    text = "activities: [{name: a, from: {workflow: shared}}]\nsteps: [{name: s, activity: {name: a}}]\n"
    shared = "activities: [{name: a, startToCloseTimeout: 1m, container: {image: i}, workspaces: [{name: w, mountPath: /w}]}]"
    (finding,) = findings_of(text, shared=shared)
    assert str(finding).startswith(
        "spec.activities[0].from: activity `a` of Workflow `shared`: workspaces[0].name: workspace `w` is not defined"
    )


def test_a_copied_activity_that_no_step_runs_is_reported() -> None:
    text = "activities: [{name: post, from: {workflow: shared}}]\nsteps: [{name: s, set: {a: 1}}]\n"
    (finding,) = findings_of(text, shared=LIBRARY)
    assert str(finding) == "spec.activities[0]: no step runs activity `post`; remove it"


def test_an_unknown_library_does_not_hide_other_mistakes() -> None:
    text = """
activities: [{name: post, from: {workflow: gone}}]
blocks: [{name: b, from: {workflow: gone}}]
steps: [{name: s, activity: {name: post}}, {name: t, activity: {name: typo}}, {name: u, call: {block: b, input: 1}}]
"""
    checked = check(WorkflowSpec.parse(definition(text)))
    assert [finding.path for finding in checked.findings] == ["spec.steps[1].activity.name"]
    assert checked.libraries == (
        MissingLibrary("spec.activities[0].from.workflow", "gone"),
        MissingLibrary("spec.blocks[0].from.workflow", "gone"),
    )


def test_a_copy_that_violates_a_rule_is_reported() -> None:
    text = """
activities: [{name: a, from: {workflow: shared}, cache: {key: x, maxAge: 1h}}]
steps: [{name: s, activity: {name: a}}]
"""
    shared = "activities: [{name: a, startToCloseTimeout: 1m, worker: {taskQueue: q}}]"
    (finding, *_) = findings_of(text, shared=shared)
    assert finding.path == "spec.activities[0].from"
    assert "`cache` must not be used with `worker`" in finding.message


# Namespaces


def test_references_of_a_library_in_another_namespace_are_relative_to_it() -> None:
    known = libraries(
        **{
            "tools/facade": "activities: [{name: post, from: {workflow: shared}}, {name: log, from: {workflow: shop/own}}]",
            "tools/shared": LIBRARY,
            "own": LIBRARY,
        }
    )
    text = "activities: [{name: post, from: {workflow: tools/facade}}, {name: log, from: {workflow: tools/facade}}]"
    composed = compose_all(definition(text), known, "shop")
    assert composed.libraries == {"tools/facade", "tools/shared", "own"}
    assert not composed.missing
    assert [source["workflow"] for source in composed.sources] == ["tools/shared", "own"]


def test_a_library_of_another_namespace_must_allow_it() -> None:
    workflows = [
        ("tools", "open", {"allowedNamespaces": ["*"]}),
        ("tools", "some", {"allowedNamespaces": ["shop", "bank"]}),
        ("tools", "closed", {}),
        ("shop", "own", {}),
        ("", "anywhere", {}),
    ]
    assert in_namespace(workflows, "shop").keys() == {"tools/open", "tools/some", "own", "anywhere"}
    assert in_namespace(workflows, "other").keys() == {"tools/open", "anywhere"}
    assert in_namespace(workflows, "tools").keys() == {"open", "some", "closed", "anywhere", "tools/open"}
    assert not allows({"allowedNamespaces": "*"}, "shop")
    (missing,) = compose_all(definition("blocks: [{name: a, from: {workflow: tools/closed}}]"), {}, "shop").missing
    assert missing.sentence("shop") == (
        "spec.blocks[0].from.workflow: there is no Workflow `closed` in namespace `tools` with `shop` in its `allowedNamespaces`"
    )
