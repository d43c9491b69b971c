"""`lint` as it is called: files, lines, output, exit codes. And the project's own manifests are clean."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from perdure.cli.files.documents import Loader
from perdure.cli.files.lint import lint
from perdure.language.program import Severity
from support.cli import perdure
from support.manuals import REPOSITORY, Block, blocks

GOOD = """
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: good}
spec:
  steps:
  - {name: nap, sleep: {duration: 1s}}
"""
BAD = """# a comment
apiVersion: v1
kind: ConfigMap
metadata: {name: passed-over}
---
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: bad}
spec:
  steps:
  - name: nap
    sleep:
      duration: 1s
  - name: eat
    activity:
      name: dinner
    needs: [nap]
---
apiVersion: perdure.dev/v1alpha1
kind: WorkflowRun
metadata: {name: run}
spec:
  workflow: {name: godd}
"""
WARNED = GOOD + "  blocks:\n  - {name: b, steps: [{name: x, sleep: {duration: 1s}}]}\n"


def call(*arguments: str, stdin: str | None = None) -> Result:
    return perdure("lint", *arguments, stdin=stdin)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "deep" / "bad.yml").write_text(BAD)
    (tmp_path / "scenario.yaml").write_text("files: [good.yaml]\n")
    (tmp_path / "notes.txt").write_text("{ no YAML")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_finding_has_file_line_path_severity_and_remedy(folder: Path) -> None:
    assert folder.exists()
    done = call("-f", ".")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        (
            "deep/bad.yml:16:7: Error: spec.steps[1].activity.name: activity `dinner` is not defined in `activities`; "
            "defined: none"
        ),
        (
            "deep/bad.yml:23:14: Warning: spec.workflow.name: there is no Workflow `godd` in the files, did you mean "
            "`good`; they define: bad, good"
        ),
        "✗ 3 objects: 1 error, 1 warning",
    ]


def test_findings_can_be_printed_as_json(folder: Path) -> None:
    assert folder.exists()
    answer = json.loads(call("-f", "good.yaml", "-f", "deep/bad.yml", "-o", "json").stdout)
    assert (answer["objects"], answer["errors"], answer["warnings"], answer["unreadable"]) == (3, 1, 1, [])
    assert answer["findings"][0] == {
        "file": "deep/bad.yml",
        "line": 16,
        "column": 7,
        "object": "Workflow/bad",
        "path": "spec.steps[1].activity.name",
        "severity": "Error",
        "message": "activity `dinner` is not defined in `activities`; defined: none",
    }


def test_standard_input_is_accepted() -> None:
    assert call("-f", "-", stdin=GOOD).exit_code == 0
    assert "standard input:16:7: Error" in call("-f", "-", stdin=BAD).stdout


def test_warnings_fail_with_strict() -> None:
    assert call("-f", "-", stdin=WARNED).exit_code == 0
    assert call("-f", "-", "--strict", stdin=WARNED).exit_code == 1
    assert call("-f", "-", "--strict", stdin=GOOD).exit_code == 0


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("nowhere.yaml", "cannot be read: No such file"),
        ("n" * 300, "cannot be read: File name too long"),
        ("notes.txt", "is not valid YAML"),
        ("scenario.yaml", None),
    ],
)
def test_an_unreadable_file_has_exit_code_2(folder: Path, name: str, want: str | None) -> None:
    assert folder.exists()
    done = call("-f", name, "-f", "good.yaml")
    assert done.exit_code == (2 if want else 1)
    assert (want or "") in done.stderr


def test_files_without_perdure_objects_have_exit_code_2() -> None:
    done = call("-f", "-", stdin="apiVersion: v1\nkind: ConfigMap\n")
    assert done.exit_code == 2
    assert "there is nothing to check" in done.stderr


@pytest.mark.parametrize(
    ("text", "line", "want"),
    [
        (GOOD.replace("sleep:", "slep:"), 7, "spec.steps[0].slep: unknown field"),
        (
            GOOD.replace("kind: Workflow", "kind: Workflo"),
            3,
            "kind: unknown kind; the kinds are ArtifactSet, CachedResult",
        ),
        (GOOD + "  steps: []\n", 8, "spec.steps: is set twice in the same object"),
        (GOOD.replace("{name: good}", "{}"), 4, "metadata.name: must be set"),
        ("metadata: {}\n", 1, "must be a manifest, with `apiVersion: perdure.dev/v1alpha1` and a `kind`"),
    ],
)
def test_an_invalid_manifest_is_reported_with_its_line(text: str, line: int, want: str) -> None:
    done = call("-f", "-", stdin=text)
    assert done.exit_code == 1
    assert done.stdout.startswith(f"standard input:{line}:")
    assert want in done.stdout


def test_a_key_that_kubectl_converts_causes_a_warning_with_its_value() -> None:
    text = GOOD.replace("steps:", "steps:\n  - {name: note, set: {y: 1, 'n': 2, true: 3}}")
    done = call("-f", "-", stdin=text)
    assert (
        "standard input:7:24: Warning: spec.steps[0].set.true: kubectl reads the key `y` as `true`; write 'y' if that "
        "is not what you mean" in " ".join(done.stdout.split())
    ), done.stdout
    assert "spec.steps[0].set.true: is set twice" in done.stdout
    assert "`n`" not in done.stdout
    assert call("-f", "-", stdin=text.replace(", true: 3", "")).exit_code == 0


KUBECTL = """
y true | n false | on true | off false | no false | yes true | Y true | ON true | TRUE true | 0x10 16 | 1e3 1000
12:30 "12:30" | 1:59 "1:59" | 190:20:30 "190:20:30" | 1_000 1000 | 012 10 | 0o12 10 | .5 0.5 | 1.50 1.5 | 0b11 3
2024-01-01 "2024-01-01" | ~ null | Null null | +1 1 | 1E5 100000 | 1.e+3 1000 | -0 0 | 08 8 | 0.0 0 | +.5 0.5 | 1. 1
= "=" | -0x1F -31 | -0b1 -1 | 1_0.5 10.5 | 0x "0x" | 1e "1e" | 1e+ "1e+" | .e3 ".e3" | _1 "_1" | 1_ 1 | 0_7 7 | 0o8 "0o8"
0777 511 | 1:60 "1:60" | 0x_1 1 | 1e5.0 "1e5.0" | +0x10 16 | 0b "0b" | 0b2 "0b2" | -.5e1 -5 | 1.0 1 | 1e400 "1e400"
"""
"""Scalars, and what `kubectl label --local -f FILE a=b -o json` of version 1.32.4 reads."""


@pytest.mark.parametrize("entry", KUBECTL.replace("\n", " | ").strip(" |").split(" | "))
def test_scalars_are_read_as_kubectl_reads_them(entry: str) -> None:
    written, read = entry.split(" ")
    found = yaml.load(f"[ {written} ]", Loader=Loader)
    assert json.dumps(found) == f"[{read}]"


def test_two_escapes_of_json_are_one_character() -> None:
    assert yaml.load(r'["\ud83d\ude00 ok", "\u00e9"]', Loader) == ["\U0001f600 ok", "é"]
    with pytest.raises(yaml.YAMLError, match="must be followed by the other half of the character"):
        yaml.load(r'["\ud83d"]', Loader)


def test_names_that_yaml_reads_as_booleans_are_reported_once_and_keep_their_text() -> None:
    text = GOOD.replace(
        "name: nap, sleep: {duration: 1s}}",
        "name: y, sleep: {duration: 1s}}\n  - {name: 'no', needs: [y], when: on, set: {a: n, b: '${steps.y.status}'}}",
    )
    reported = json.loads(call("-f", "-", "-o", "json", stdin=text).stdout)["findings"]
    assert [(each["path"], each["severity"]) for each in reported] == [
        ("spec.steps[0].name", "Error"),
        ("spec.steps[1].needs[0]", "Error"),
        ("spec.steps[1].when", "Error"),
        ("spec.steps[1].set.a", "Warning"),
    ]
    assert reported[0]["message"] == "must be a string, but YAML reads `y` as a boolean; write it in quotes"
    assert reported[3]["message"].startswith("kubectl reads the value `n` as a boolean; write 'n' if you mean the text")


def test_integers_that_the_api_server_rounds_are_reported() -> None:
    values = "{most: 9223372036854775807, least: -9223372036854775808, text: '99999999999999999999', float: 1e30}"
    text = GOOD.replace(
        "sleep: {duration: 1s}}",
        f"set: {values}}}\n  - {{name: large, set: {{a: [-9223372036854775809], b: 0x{'f' * 16}}}}}",
    )
    done = call("-f", "-", "-o", "json", stdin=text)
    found = json.loads(done.stdout)["findings"]
    assert (done.exit_code, [(each["path"], each["severity"], each["line"]) for each in found]) == (
        0,
        [("spec.steps[1].set.a[0]", "Warning", 8), ("spec.steps[1].set.b", "Warning", 8)],
    )
    assert found[0]["message"] == (
        "the API server stores `-9223372036854775809` as a floating-point number with about 16 digits, because it has more than "
        "64 bits; write it in quotes"
    )


def test_two_steps_of_one_name_are_one_error() -> None:
    text = GOOD.replace(
        "name: nap, sleep: {duration: 1s}}",
        "name: nap, activity: {name: a}}\n  - {name: nap, activity: {name: b}}\n"
        "  - {name: end, needs: [nap], activity: {name: c}}\n"
        "  activities:\n"
        + "\n".join(f"  - {{name: {name}, startToCloseTimeout: 1m, container: {{image: x}}}}" for name in "ab"),
    )
    reported = json.loads(call("-f", "-", "-o", "json", stdin=text).stdout)["findings"]
    assert [each["path"] for each in reported] == ["spec.steps", "spec.steps[2].activity.name"]
    assert reported[0]["message"] == "must have unique names, but has 'nap' twice"


def test_workflows_of_other_namespaces_are_not_mixed_up() -> None:
    workflow = """apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: w, namespace: %s}
spec: {input: {schema: {type: object, required: [%s]}}, steps: [{name: s, sleep: {duration: 1s}}]}
"""
    run = """apiVersion: perdure.dev/v1alpha1
kind: WorkflowRun
metadata: {name: r, namespace: %s}
spec: {workflow: {name: w}, input: {%s: 1}}
"""
    both = [workflow % ("a", "x"), workflow % ("b", "z"), run % ("a", "x"), run % ("b", "z")]
    assert call("-f", "-", stdin="---\n".join(both)).exit_code == 0
    found = call("-f", "-", stdin="---\n".join([*both, run % ("a", "z")]))
    assert found.stdout.count('does not match the input schema of Workflow `w`: "x" is a required property') == 1


def test_two_workflows_with_one_name_of_which_one_starts_itself() -> None:
    workflow = "apiVersion: perdure.dev/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec: {steps: [{name: s, %s}]}\n"
    texts = [workflow % "sleep: {duration: 1s}", workflow % "childWorkflow: {workflow: {name: w}}"]
    found = call("-f", "-", stdin="---\n".join(texts))
    assert "start each other endlessly: `w` starts `w`" in found.stdout


def test_a_merge_key_is_not_a_duplicate_and_merged_fields_have_a_line() -> None:
    text = GOOD.replace("name: nap, sleep", "<<: &base {needs: [nap2]}, needs: [], name: nap, sleep")
    assert call("-f", "-", stdin=text).exit_code == 0
    text = GOOD.replace("name: nap, sleep", "<<: &base {needs: [nap2]}, name: nap, sleep")
    assert "standard input:7:" in call("-f", "-", stdin=text).stdout


def test_the_examples_have_no_errors() -> None:
    linted = lint([str(REPOSITORY / "examples")])
    assert linted.objects
    assert [str(found) for found in linted.found if found.finding.severity is Severity.ERROR] == []


FOREIGN = ("Kustomization", "HorizontalPodAutoscaler", "ScaledObject")
"""Kinds of blocks without a manifest of Perdure."""


@pytest.mark.parametrize(
    "block",
    [block for block in blocks() if not block.not_yet and not any(f"kind: {each}" in block.text for each in FOREIGN)],
    ids=str,
)
def test_the_manifests_in_the_documentation_have_no_errors(block: Block, tmp_path: Path) -> None:
    (tmp_path / "block.yaml").write_text(block.text)
    linted = lint([str(tmp_path / "block.yaml")])
    assert linted.objects
    assert [str(found) for found in linted.found if found.finding.severity is Severity.ERROR] == []


SCHEDULE = """
apiVersion: perdure.dev/v1alpha1
kind: Schedule
metadata: {name: nightly}
spec:
  SPEC
  workflowRunTemplate: {spec: {workflow: {name: good}}}
"""


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ('cron: ["0 2 * * *"]', []),
        ('cron: ["0 2 * * *", "0 25 * * *"]', [("Error", "spec.cron[1]", "`hour` is `25`: must be hours 0 to 23")]),
        ('cron: ["0 0 30 2 *"]', [("Error", "spec.cron", "No time matches within the next 40 years")]),
        (
            'cron: ["0 2 * * *"]\n  timeZone: Mars/Olympus',
            [("Error", "spec.timeZone", "time zone `Mars/Olympus` does not exist")],
        ),
        (
            'cron: ["TZ=UTC 0 0 * * *", "TZ=Asia/Tokyo 0 0 * * *"]',
            [("Error", "spec.cron[1]", "a Schedule has one time zone")],
        ),
        (
            'cron: ["0 2 * * *"]\n  endTime: 2020-01-01T00:00:00Z',
            [("Warning", "spec.endTime", "No time is left until `endTime`")],
        ),
        ("paused: false", [("Note", "spec", "when an Operation triggers them")]),
        (
            'cron: ["0 2 * * *"]\n  retryPolicy: {name: calm}',
            [("Note", "spec.retryPolicy.name", "RetryPolicy `calm` is in none of the files")],
        ),
    ],
)
def test_findings_of_a_schedule_match_its_ready_condition(
    tmp_path: Path, spec: str, want: list[tuple[str, str, str]]
) -> None:
    (tmp_path / "all.yaml").write_text(GOOD + "---" + SCHEDULE.replace("SPEC", spec))
    found = [
        (each.finding.severity.value, each.finding.path, each.finding.message)
        for each in lint([str(tmp_path)]).found
        if each.subject == "Schedule/nightly"
    ]
    assert [each[:2] for each in found] == [each[:2] for each in want]
    assert all(part in reported for (_, _, reported), (_, _, part) in zip(found, want, strict=True)), found


def test_search_attributes_of_runs_and_schedules_are_checked() -> None:
    spec = "{inline: {steps: [{name: a, sleep: {duration: 1s}}]}, searchAttributes: {bad name!: 1}}"
    head = "apiVersion: perdure.dev/v1alpha1\nmetadata: {name: a}\n"
    run = f"{head}kind: WorkflowRun\nspec: {spec}\n"
    schedule = f"{head}kind: Schedule\nspec: {{cron: ['@daily'], workflowRunTemplate: {{spec: {spec}}}}}\n"
    for manifest, path in ((run, "spec"), (schedule, "spec.workflowRunTemplate.spec")):
        done = call("-f", "-", stdin=manifest)
        assert done.exit_code == 1
        assert f"{path}.searchAttributes.bad name!: must be 1 to 63 letters" in done.stdout.replace("\n", " ")


BROKEN = """
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: broken}
spec:
  input: {schema: {properties: {count: {type: integer}}, required: [count]}}
  activities:
  - {name: eat, startToCloseTimeot: 1m, container: {image: a/b:1}}
  - {name: drink, startToCloseTimeout: soon, container: {image: a/b:1}}
  - name: cook
    startToCloseTimeout: 1m
    backoffLimit: 3
    container: {image: a/b:1, command: [sh, "{{inputs.x}}"], args: [2, "${nobody}"], env: [{name: A, value: yes}]}
  steps:
  - {name: one, slep: {duration: 1s}}
  - {name: two, activity: {name: eat, retryPolicy: {name: nowhere}}, neds: [one]}
  - {name: three, activity: {name: dinner}}
  - {name: four, set: {x: "${steps.one.output.y}", z: "${inputs.n}"}}
  - {name: five, timeout: 5 minutes, waitForSignal: {name: approved}}
  - {name: six, activity: {name: cook}}
---
apiVersion: perdure.dev/v1alpha1
kind: WorkflowRun
metadata: {name: run}
spec: {workflow: {name: broken}, input: {count: many}, inputs: {}}
---
apiVersion: perdure.dev/v1alpha1
kind: Schedule
metadata: {name: nightly}
spec:
  crons: ["0 2 * * *"]
  cron: ["0 25 * * *", "soon", "0 2 * * *"]
  timeZone: Mars/Olympus
  intervals: [{every: 1500ms}, {every: 1.5h}]
  workflowRunTemplate: {spec: {workflow: {name: brokn}}}
---
apiVersion: perdure.dev/v1alpha1
kind: RetryPolicy
metadata: {name: calm}
spec: {exponential: {}}
"""


def test_all_errors_are_reported_at_once() -> None:
    answer = json.loads(call("-f", "-", "-o", "json", stdin=BROKEN).stdout)
    found = {(each["object"], each["path"], each["message"]) for each in answer["findings"]}
    want = {
        ("Workflow/broken", "spec.activities[0].startToCloseTimeot", "did you mean `startToCloseTimeout`"),
        ("Workflow/broken", "spec.activities[1].startToCloseTimeout", "must be a duration"),
        (
            "Workflow/broken",
            "spec.activities[2].backoffLimit",
            "did you mean `retryPolicy.exponential.maximumAttempts`",
        ),
        ("Workflow/broken", "spec.activities[2].container.command[1]", "looks like a tag of Argo Workflows"),
        ("Workflow/broken", "spec.activities[2].container.args[0]", "must be a string, not 2; put it in quotes"),
        ("Workflow/broken", "spec.activities[2].container.args[1]", "unknown name `nobody`"),
        ("Workflow/broken", "spec.activities[2].container.env[0].value", "must be a string, not true"),
        ("Workflow/broken", "spec.steps[0].slep", "did you mean `sleep`"),
        ("Workflow/broken", "spec.steps[1].neds", "did you mean `needs`"),
        ("Workflow/broken", "spec.steps[1].activity.retryPolicy.name", "there is no RetryPolicy `nowhere`"),
        ("Workflow/broken", "spec.steps[2].activity.name", "activity `dinner` is not defined"),
        ("Workflow/broken", "spec.steps[3].set.z", "inputs"),
        ("Workflow/broken", "spec.steps[4].timeout", "must be a duration"),
        ("WorkflowRun/run", "spec.inputs", "unknown field"),
        ("WorkflowRun/run", "spec.input.count", "does not match the input schema of Workflow `broken`"),
        ("Schedule/nightly", "spec.crons", "did you mean `cron`"),
        ("Schedule/nightly", "spec.cron[0]", "`hour` is `25`"),
        ("Schedule/nightly", "spec.cron[1]", "must be a cron line"),
        ("Schedule/nightly", "spec.intervals[0]", "must be whole seconds"),
        ("Schedule/nightly", "spec.intervals[1].every", "'1.5h' must be a duration"),
        ("Schedule/nightly", "spec.timeZone", "time zone `Mars/Olympus` does not exist"),
        ("Schedule/nightly", "spec.workflowRunTemplate.spec.workflow.name", "did you mean `broken`"),
    }
    missing = [one for one in want if not any(one[:2] == each[:2] and one[2] in each[2] for each in found)]
    assert missing == []
    extra = {each[:2] for each in found} - {one[:2] for one in want}
    assert extra == set()


def test_an_invalid_cron_line_is_not_also_reported_as_missing() -> None:
    template = "workflowRunTemplate: {spec: {inline: {steps: [{name: a, set: {x: 1}}]}}}"
    manifest = (
        f"apiVersion: perdure.dev/v1alpha1\nkind: Schedule\nmetadata: {{name: a}}\nspec: {{cron: [soon], {template}}}\n"
    )
    reported = json.loads(call("-f", "-", "-o", "json", stdin=manifest).stdout)["findings"]
    assert [(each["path"], each["severity"]) for each in reported] == [("spec.cron[0]", "Error")]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ("{steps: [{}]}", "spec.steps[0].name"),
        ("{steps: {}}", "spec.steps"),
        ("{steps: [1, null, x]}", "spec.steps[0]"),
        ("{activities: [{name: a, container: {}}, {name: a}]}", "spec.activities[0].container.image"),
        ("{blocks: [{name: b}], steps: [{name: s, call: {block: b}}]}", "spec.blocks[0]"),
        ("{finally: {blok: b}}", "spec.finally.blok"),
        ("[]", "spec"),
    ],
)
def test_a_manifest_of_any_shape_gets_findings(spec: str, want: str) -> None:
    manifest = f"apiVersion: perdure.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: odd}}\nspec: {spec}\n"
    done = call("-f", "-", "-o", "json", stdin=manifest)
    assert done.exit_code == 1, done.output
    assert want in [each["path"] for each in json.loads(done.stdout)["findings"]]


SIGNALS = """
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: waiting}
spec:
  steps:
  - {name: approval, timeout: 1h, waitForSignal: {name: approved}}
  - {name: late, when: "${size(signals.aproved) > 0}", sleep: {duration: 1s}}
---
apiVersion: perdure.dev/v1alpha1
kind: WorkflowRun
metadata: {name: run}
spec: {workflow: {name: waiting}}
---
apiVersion: perdure.dev/v1alpha1
kind: Operation
metadata: {name: ask}
spec: {target: {kind: WorkflowRun, name: run}, signal: {name: decision}}
---
apiVersion: perdure.dev/v1alpha1
kind: Operation
metadata: {name: ask-other}
spec: {target: {kind: WorkflowRun, name: other}, signal: {name: aproved2}}
---
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: sender}
spec:
  steps:
  - {name: send, signal: {workflowId: "${input.id}", name: aprovedd}}
  - {name: fine, signal: {workflowId: "${input.id}", name: approved}}
"""


def test_signals_awaited_under_another_name_are_reported() -> None:
    answer = json.loads(call("-f", "-", "-o", "json", stdin=SIGNALS).stdout)
    found = {(each["object"], each["path"]): each["message"] for each in answer["findings"]}
    assert found["Workflow/waiting", "spec.steps[1]"].startswith("reads `signals.aproved`, but a step waits for")
    assert found["Operation/ask", "spec.signal.name"] == (
        "Workflow `waiting` does not wait for the signal `decision`; it waits for: approved"
    )
    assert "did you mean" in found["Operation/ask-other", "spec.signal.name"]
    assert "did you mean `approved`" in found["Workflow/sender", "spec.steps[0].signal.name"]
    assert ("Workflow/sender", "spec.steps[1].signal.name") not in found


def test_labels_of_a_template_are_checked() -> None:
    metadata = (
        "{labels: {team: a b, 'x y': z, example.com/ok: v1}, annotations: {'-bad': any text, Good.example/Name: ''}}"
    )
    template = f"{{metadata: {metadata}, spec: {{inline: {{steps: [{{name: a, sleep: {{duration: 1s}}}}]}}}}}}"
    manifest = (
        "apiVersion: perdure.dev/v1alpha1\nkind: Schedule\nmetadata: {name: a}\n"
        f"spec: {{cron: ['@daily'], workflowRunTemplate: {template}}}\n"
    )
    done = call("-f", "-", "-o", "json", stdin=manifest)
    reported = [(each["path"], each["message"].split(" must")[0]) for each in json.loads(done.stdout)["findings"]]
    assert sorted(reported) == [
        ("spec.workflowRunTemplate.metadata.annotations", "`-bad`"),
        ("spec.workflowRunTemplate.metadata.labels", "`x y`"),
        ("spec.workflowRunTemplate.metadata.labels", 'the value of `team`, "a b",'),
    ]


def test_the_items_of_a_list_are_checked() -> None:
    items = ["- " + text.strip().replace("\n", "\n  ") for text in (GOOD, BAD.split("---")[1])]
    done = call("-f", "-", "--output", "json", stdin="\n".join(["apiVersion: v1", "kind: List", "items:", *items]))
    [found] = json.loads(done.stdout)["findings"]
    assert (found["object"], found["path"], found["line"]) == ("Workflow/bad", "spec.steps[1].activity.name", 20)


def test_a_long_path_in_a_finding_is_truncated() -> None:
    deep = "{a: " * 150 + "1" + "}" * 150
    done = call("-f", "-", stdin=GOOD.replace("sleep: {duration: 1s}", f"set: {{x: {deep}}}"))
    [line, _] = done.stdout.splitlines()
    assert "nested more than 100 deep" in line
    assert len(line) < 240


LIBRARY = """
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: library}
spec:
  activities: [{name: post, startToCloseTimeout: 1m, container: {image: i}}]
"""
USER = """
apiVersion: perdure.dev/v1alpha1
kind: WorkflowRun
metadata: {name: run}
spec:
  inline:
    activities:
    - name: post
      from:
        workflow: library
    steps: [{name: s, activity: {name: post}}]
"""


def test_a_library_is_found_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "library.yaml").write_text(LIBRARY)
    (tmp_path / "run.yaml").write_text(USER)
    assert [str(each.finding) for each in lint([str(tmp_path)]).found] == []
    (note,) = lint([str(tmp_path / "run.yaml")]).found
    assert note.finding.severity is Severity.NOTE
    assert str(note.finding).startswith(
        "spec.inline.activities[0].from.workflow: Workflow `library` is in none of the files"
    )
    (tmp_path / "library.yaml").write_text(LIBRARY.replace("post", "send"))
    (error,) = lint([str(tmp_path)]).found
    assert (error.position.line, error.finding.severity) == (9, Severity.ERROR)
    assert str(error.finding) == (
        "spec.inline.activities[0].from: Workflow `library` has no activity `post`; it has send"
    )


def test_namespaces_that_an_inline_definition_allows_are_reported(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(USER.replace("inline:", "inline:\n    allowedNamespaces: [shop]"))
    (tmp_path / "library.yaml").write_text(LIBRARY.replace("spec:", "spec:\n  allowedNamespaces: [shop]"))
    (warning,) = lint([str(tmp_path)]).found
    assert str(warning.finding).startswith("spec.inline.allowedNamespaces: has no effect in an inline definition")


DEFAULTS = """
apiVersion: perdure.dev/v1alpha1
kind: WorkflowDefaults
metadata: {name: default}
spec:
  runMetadata: {labels: {team: "no team"}}
  onFailure: {workflow: library, block: notify, input: "${params.text}"}
  activities:
    retryPolicy: {name: standrd}
    podTemplate: {spec: {nodeSelectr: {pool: batch}}}
"""


def test_the_mistakes_of_defaults_are_found_in_them(tmp_path: Path) -> None:
    (tmp_path / "defaults.yaml").write_text(DEFAULTS)
    (tmp_path / "library.yaml").write_text(LIBRARY)
    (tmp_path / "policy.yaml").write_text(
        "apiVersion: perdure.dev/v1alpha1\nkind: RetryPolicy\nmetadata: {name: standard}\nspec: {exponential: {}}\n"
    )
    found = {
        each.finding.path: each.finding.message for each in lint([str(tmp_path)]).found if "Defaults" in each.subject
    }
    assert "must have at most 63 letters" in found["spec.runMetadata.labels"]
    assert found["spec.onFailure.block"].startswith("Workflow `library` has no block `notify`")
    assert "did you mean `standard`" in found["spec.activities.retryPolicy.name"]
    assert any(path.startswith("spec.activities.podTemplate.spec") for path in found), found


def test_defaults_are_not_compared_with_the_activity_that_takes_them(tmp_path: Path) -> None:
    spec = "{activities: {startToCloseTimeout: 1h}}"
    (tmp_path / "defaults.yaml").write_text(DEFAULTS.partition("spec:")[0] + f"spec: {spec}\n")
    assert not lint([str(tmp_path)]).found


RUN = """
apiVersion: perdure.dev/v1alpha1
kind: WorkflowRun
metadata: {name: run}
spec:
  %s
  inline: {stepsTimeout: 2h, steps: [{name: nap, sleep: {duration: 1s}}]}
"""


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        (
            "runTimeout: 1h",
            "spec.inline.stepsTimeout: is not shorter than `runTimeout`, which ends the run without its",
        ),
        ("executionTimeout: 2h", "spec.inline.stepsTimeout: is not shorter than `executionTimeout`"),
        ("{runTimeout: 1h, stepsTimeout: 3h}", "spec.stepsTimeout: is not shorter than `runTimeout`"),
        ("{runTimeout: 1h, stepsTimeout: 30m}", ""),
        ("{runTimeout: 3h, executionTimeout: 0s}", ""),
    ],
)
def test_a_deadline_that_never_passes_is_reported(limits: str, found: str, tmp_path: Path) -> None:
    """Handlers run after `stepsTimeout`, but not after the timeout of the run (argo-workflows#13060)."""
    manifest = RUN % limits.strip("{}").replace(", ", "\n  ")
    (tmp_path / "run.yaml").write_text(manifest)
    assert [str(each.finding)[: len(found)] for each in lint([str(tmp_path)]).found] == ([found] if found else [])


def test_two_objects_of_one_name_in_a_file_are_reported(tmp_path: Path) -> None:
    other = GOOD.replace("good}", "good, namespace: other}")
    (tmp_path / "twice.yaml").write_text(f"{GOOD}---{other}---{WARNED}")
    (tmp_path / "overlay.yaml").write_text(GOOD)
    found = [each for each in lint([str(tmp_path)]).found if each.finding.path == "metadata.name"]
    assert [(each.position.line, str(each.finding)) for each in found] == [
        (18, "metadata.name: line 4 has the same name, and only one of the two objects can exist; rename or remove one")
    ]


def test_a_library_that_does_not_allow_the_namespace_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        USER.replace("workflow: library", "workflow: tools/library").replace(
            "metadata: {", "metadata: {namespace: shop, "
        )
    )
    (tmp_path / "library.yaml").write_text(
        LIBRARY.replace("metadata: {", "metadata: {namespace: tools, ").replace(
            "spec:", "spec:\n  allowedNamespaces: [bank]"
        )
    )
    (found,) = lint([str(tmp_path)]).found
    message = "`allowedNamespaces` of Workflow `library` does not have this namespace, or it is not in `tools`"
    assert str(found.finding) == f"spec.inline.activities[0].from.workflow: {message}"


PARENT = """
apiVersion: perdure.dev/v1alpha1
kind: WorkflowLimit
metadata: {name: mutex}
spec: {capacity: 1}
---
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: part}
spec:
  limits: [{name: mutex%s}]
  steps: [{name: nap, sleep: {duration: 1s}}]
---
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: whole}
spec:
  limits: [{name: mutex}]
  steps: [{name: part, childWorkflow: {workflow: {name: part}}}]
"""


@pytest.mark.parametrize(
    ("option", "count"),
    [("", 1), (", waitTimeout: 1m", 0), (", overflowPolicy: Fail", 0)],
    ids=["waits", "times out", "fails"],
)
def test_a_child_that_waits_for_the_limit_of_its_parent_is_reported(option: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "workflows.yaml").write_text(PARENT % option)
    found = [str(each.finding) for each in lint([str(tmp_path)]).found]
    assert len(found) == count
    path = "spec.steps[0].childWorkflow.workflow.name"
    assert all(
        each.startswith(f"{path}: the run holds WorkflowLimit `mutex` already (`limits`), and W") for each in found
    )


@pytest.mark.parametrize(
    ("selector", "warns"),
    [("appliesTo: {}", True), ("appliesTo: {takers: Activities}", False), ("capacity: 500", False)],
    ids=["runs", "activities", "those that name it"],
)
def test_a_rate_of_attempts_for_runs_is_reported(selector: str, warns: bool, tmp_path: Path) -> None:
    rate = "rate: {count: 30, period: 1m, counts: Attempts}"
    head = "apiVersion: perdure.dev/v1alpha1\nkind: WorkflowLimit\nmetadata: {name: calls}\n"
    (tmp_path / "limit.yaml").write_text(f"{head}spec:\n  {rate}\n  {selector}\n")
    want = "spec.rate.counts: has no effect: `appliesTo` selects runs, and only activities have attempts"
    found = [str(each.finding).partition("; ")[0] for each in lint([str(tmp_path)]).found]
    assert found == ([want] if warns else [])


@pytest.mark.parametrize(
    ("allowed", "namespace", "want"),
    [
        ("[bank]", "shop", "has only `bank`, so runs of this namespace cannot use it"),
        ("[]", "shop", "is not set, so runs of this namespace cannot use it"),
        ("[]", None, "is not set, so runs of this namespace cannot use it"),
        ("[bank]", None, None),  # the namespace of the kubeconfig may be `bank`
        ("[shop]", "shop", None),
        ("['*']", "shop", None),
    ],
)
def test_a_workflow_of_another_namespace_that_does_not_allow_its_runs_is_reported(
    tmp_path: Path, allowed: str, namespace: str | None, want: str | None
) -> None:
    meta: dict[str, Any] = {"name": "user", **({"namespace": namespace} if namespace else {})}
    child = {"name": "pay", "childWorkflow": {"workflow": {"name": "tools/pay"}}}
    run = {"workflow": {"name": "tools/pay"}}
    specs = {
        "Workflow": {"steps": [child]},
        "WorkflowRun": run,
        "Schedule": {"cron": ["@daily"], "workflowRunTemplate": {"spec": run}},
    }
    pay = {"allowedNamespaces": yaml.safe_load(allowed), "steps": [{"name": "a", "set": {"b": 1}}]}
    objects = [{"kind": kind, "metadata": meta, "spec": spec} for kind, spec in specs.items()]
    objects += [{"kind": "Workflow", "metadata": {"name": "pay", "namespace": "tools"}, "spec": pay}]
    whole = [{"apiVersion": "perdure.dev/v1alpha1", **each} for each in objects]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(whole), encoding="utf-8")
    found = {each.subject: str(each.finding) for each in lint([str(tmp_path)]).found}
    paths = {
        "Workflow/user": "spec.steps[0].childWorkflow.workflow.name",
        "WorkflowRun/user": "spec.workflow.name",
        "Schedule/user": "spec.workflowRunTemplate.spec.workflow.name",
    }
    message = f"`allowedNamespaces` of Workflow `pay` in `tools` {want}"
    assert found == ({subject: f"{path}: {message}" for subject, path in paths.items()} if want else {})


def test_the_second_entry_of_a_name_keeps_it_in_findings() -> None:
    """A note named `l-1`, which is nowhere in the file."""
    text = """
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  limits: [{name: l}, {name: l}]
  activities:
  - {name: l, container: {image: i}, startToCloseTimeout: 1m}
  - {name: l, container: {image: i}, startToCloseTimeout: 1m}
  blocks:
  - {name: l, steps: [{name: a, activity: {name: l}}]}
  - {name: l, steps: [{name: a, set: {x: "${inpt}"}}]}
  steps:
  - {name: l, activity: {name: l}}
  - {name: l, call: {block: l}}
"""
    reported = json.loads(call("-f", "-", "-o", "json", stdin=text).stdout)["findings"]
    assert "l-1" not in json.dumps(reported)
    assert sorted(each["path"] for each in reported if each["severity"] == "Error") == [
        "spec.activities",
        "spec.blocks",
        "spec.blocks[1].steps[0].set.x",
        "spec.limits",
        "spec.steps",
    ]
