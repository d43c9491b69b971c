"""The kinds of Argo: runs, templates, schedules, and limits."""

from pathlib import Path

from unit.importing.imported import argo, inputs, workflow

TEMPLATE = """
apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
metadata: {name: shared, namespace: shop, labels: {team: a, workflows.argoproj.io/creator: ada}}
spec:
  entrypoint: main
  arguments: {parameters: [{name: text, value: hello}, {name: to, enum: [ada, bob], description: who}]}
  templates:
  - name: main
    inputs: {parameters: [{name: text}, {name: to}]}
    container: {image: busybox, command: [echo, "{{inputs.parameters.text}}", "{{inputs.parameters.to}}"]}
"""
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {size: "3", text: from the map}
"""


def test_a_workflow_template_becomes_a_workflow_with_a_schema(tmp_path: Path) -> None:
    made = argo(tmp_path, TEMPLATE)
    assert made.complete, made.sentences
    (manifest,) = made.manifests
    assert (manifest["kind"], manifest["metadata"]) == (
        "Workflow",
        {"name": "shared", "namespace": "shop", "labels": {"team": "a"}},
    )
    assert manifest["spec"]["input"] == {
        "schema": {
            "type": "object",
            "properties": {"to": {"description": "who", "enum": ["ada", "bob"]}},
            "required": ["to"],
        },
        "default": {"text": "hello"},
    }


def test_a_workflow_with_a_template_reference_becomes_a_run(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        """
kind: Workflow
metadata: {generateName: shared-}
spec:
  workflowTemplateRef: {name: shared}
  arguments: {parameters: [{name: to, value: ada}]}
""",
        TEMPLATE,
    )
    assert made.complete, made.sentences
    run = made.manifests[0]
    assert run["metadata"] == {"generateName": "shared-"}
    assert run["spec"] == {"input": {"text": "hello", "to": "ada"}, "workflow": {"name": "shared"}}


CHANGES = """
  serviceAccountName: deployer
  nodeSelector: {disk: ssd}
  synchronization: {mutexes: [{name: only-one}]}
"""


def test_changes_to_a_template_become_a_definition_of_the_run(tmp_path: Path) -> None:
    reference = f"kind: Workflow\nmetadata: {{name: made}}\nspec:\n  workflowTemplateRef: {{name: shared}}{CHANGES}"
    made = argo(
        tmp_path, f"{reference}  arguments: {{parameters: [{{name: to, value: ada}}]}}\n  shutdown: Stop\n", TEMPLATE
    )
    assert [each.split(": ")[2] for each in made.sentences] == ["spec.shutdown"]
    run = next(each for each in made.manifests if each["kind"] == "WorkflowRun")["spec"]["inline"]
    pod = run["activities"][0]["podTemplate"]["spec"]
    assert (pod["serviceAccountName"], pod["nodeSelector"]) == ("deployer", {"disk": "ssd"})
    assert run["limits"] == [{"name": "only-one"}]


def test_changes_to_a_template_that_is_in_none_of_the_files_are_reported(tmp_path: Path) -> None:
    reference = f"kind: Workflow\nmetadata: {{name: made}}\nspec:\n  workflowTemplateRef: {{name: far}}{CHANGES}"
    made = argo(tmp_path, f"{reference}  activeDeadlineSeconds: 60\n  priority: 3\n")
    message = "the template `far` is in none of the files; import the files together"
    assert made.sentences == tuple(
        f"Not imported: Workflow/made: spec.{each}: {message}"
        for each in ("nodeSelector", "serviceAccountName", "synchronization")
    )
    (run,) = made.manifests
    assert run["spec"] == {"stepsTimeout": "1m", "priority": 3, "workflow": {"name": "far"}}


def test_options_of_a_template_that_only_runs_have_are_reported(tmp_path: Path) -> None:
    """The deadline of a template is that of its Workflow."""
    options = "  activeDeadlineSeconds: 60\n  priority: 3\n  ttlStrategy: {secondsAfterCompletion: 10}\n"
    made = argo(tmp_path, f"{TEMPLATE}{options}")
    assert made.spec["stepsTimeout"] == "1m"
    of, message = "Not imported: WorkflowTemplate/shared: spec", "a Workflow has no such field"
    assert made.sentences == (
        f"{of}.ttlStrategy: {message}: set `ttlSecondsAfterFinished` in each WorkflowRun",
        f"{of}.priority: {message}: set `priority` in each WorkflowRun",
    )


def test_templates_of_other_files_are_copied(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow("""- name: main
  steps:
  - - name: a
      templateRef: {name: shared, template: main}
      arguments: {parameters: [{name: text, value: x}, {name: to, value: z}]}"""),
        TEMPLATE,
    )
    assert made.complete, made.sentences
    run = made.manifests[0]["spec"]["inline"]
    assert [each["name"] for each in run["activities"]] == ["main"]
    assert run["steps"] == [{"name": "a", "activity": {"name": "main", "input": {"text": "x", "to": "z"}}}]


LIBRARY = """
kind: WorkflowTemplate
metadata: {name: far}
spec:
  templates:
  - name: work
    inputs: {parameters: [{name: text}, {name: to, value: ada}], artifacts: [{name: file, path: /in, optional: true}]}
    outputs: {parameters: [{name: out, valueFrom: {path: /tmp/x}}]}
    container: {image: alpine, command: [sh, -c], args: ["echo {{inputs.parameters.text}} {{inputs.parameters.to}} > /tmp/x"]}
  - name: twice
    inputs: {parameters: [{name: text, value: hi}]}
    steps:
    - - {name: a, template: work, arguments: {parameters: [{name: text, value: "{{inputs.parameters.text}}"}]}}
    - - {name: b, template: work, arguments: {parameters: [{name: text, value: "{{steps.a.outputs.parameters.out}}"}]}}
  - {name: hold, suspend: {}}
"""
USER = """- name: main
  steps:
  - - {name: a, templateRef: {name: far, template: work}, arguments: {parameters: [{name: text, value: x}]}}
  - - name: b
      when: "{{steps.a.outputs.parameters.out}} == '1'"
      templateRef: {name: far, template: twice}
  - - {name: c, templateRef: {name: far, template: hold}}"""


def test_a_template_that_is_in_none_of_the_files_is_copied_from_its_workflow(tmp_path: Path) -> None:
    user = argo(tmp_path, workflow(USER))
    assert user.complete, user.sentences
    assert any("is copied from the Workflow `far`, which is in none of the files" in each for each in user.sentences)
    assert user.spec["blocks"] == [
        {"name": name, "from": {"workflow": "far", "block": name}} for name in ("work", "twice", "hold")
    ]
    (tmp_path / "library").mkdir()
    library = argo(tmp_path / "library", LIBRARY)
    assert library.complete, library.sentences
    assert [each["name"] for each in library.spec["blocks"]] == ["work", "twice", "hold"]
    report = user.simulate({"work": [{"output": "1"}]}, files=[str(library.file)], signals=[{"name": "hold"}])
    assert (report["phase"], inputs(report)) == (
        "Completed",
        [{"text": "x", "to": "ada", "artifact-file": None}, *_twice("hi", "1")],
    )


def _twice(*texts: str) -> list[dict[str, object]]:
    return [{"text": each, "to": "ada", "artifact-file": None} for each in texts]


def test_the_namespace_of_a_template_of_the_cluster_must_be_written(tmp_path: Path) -> None:
    step = "{name: a, templateRef: {name: far, template: work, clusterScope: true}}"
    made = argo(tmp_path, workflow(f"- {{name: main, steps: [[{step}]]}}"))
    assert any("write the namespace of its Workflow in `from`, as `NAMESPACE/NAME`" in each for each in made.sentences)


def test_what_a_copied_template_prints_is_only_known_with_its_file(tmp_path: Path) -> None:
    templates = """- name: main
  steps:
  - - {name: a, templateRef: {name: far, template: work}}
  - - {name: b, template: own, when: "{{steps.a.outputs.result}} == x"}
- {name: own, container: {image: a}}"""
    made = argo(tmp_path, workflow(templates))
    assert any("`outputs.result` of a template in another file is not known" in each for each in made.sentences)


def test_a_library_reports_what_cannot_be_copied_by_itself(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        """
kind: WorkflowTemplate
metadata: {name: far}
spec:
  onExit: late
  templates:
  - name: late
    inputs: {parameters: [{name: text, value: "{{workflow.name}}"}]}
    container: {image: a}
  - {name: kept, steps: [[{name: a, template: late}]], synchronization: {mutexes: [{name: one}]}}
""",
    )
    sentences = " ".join(made.sentences)
    assert not made.complete
    assert "spec.onExit: is not copied with a template" in sentences
    assert "spec.templates[0].inputs: a default with tags is not copied; pass `text`" in sentences
    assert "spec.templates[1]: cannot be copied by itself" in sentences


def test_remarks_about_a_library_have_the_paths_of_its_templates(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        """
kind: WorkflowTemplate
metadata: {name: far}
spec:
  podMetadata: {labels: {of: "{{inputs.parameters.p}}"}}
  archiveLogs: true
  templates:
  - name: work
    metrics: {prometheus: [{name: x, help: y, counter: {value: "1"}}]}
    inputs: {parameters: [{name: p}]}
    container: {image: a, command: [b]}
""",
    )
    paths = {each.split(": ")[2] for each in made.sentences}
    assert paths == {"spec", "spec.podMetadata.labels.of", "spec.archiveLogs", "spec.templates[0].metrics"}


def test_a_template_of_the_cluster_becomes_a_workflow_that_all_namespaces_can_copy_from(tmp_path: Path) -> None:
    made = argo(tmp_path, TEMPLATE.replace("kind: WorkflowTemplate", "kind: ClusterWorkflowTemplate"))
    assert made.complete, made.sentences
    (manifest,) = made.manifests
    assert (manifest["kind"], manifest["spec"]["allowedNamespaces"]) == ("Workflow", ["*"])
    assert any(
        "Note: ClusterWorkflowTemplate/shared: spec: apply it in one namespace" in each for each in made.sentences
    )
    (local,) = argo(tmp_path, TEMPLATE).manifests
    assert "allowedNamespaces" not in local["spec"]


def test_a_template_of_the_cluster_is_copied_if_a_file_has_it(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow("""- name: main
  steps:
  - - name: a
      templateRef: {name: shared, template: main, clusterScope: true}
      arguments: {parameters: [{name: text, value: x}, {name: to, value: z}]}"""),
        TEMPLATE.replace("kind: WorkflowTemplate", "kind: ClusterWorkflowTemplate"),
    )
    assert made.complete, made.sentences
    assert made.manifests[0]["spec"]["inline"]["steps"] == [
        {"name": "a", "activity": {"name": "main", "input": {"text": "x", "to": "z"}}}
    ]


def test_a_cron_workflow_becomes_a_workflow_and_a_schedule(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        """
kind: CronWorkflow
metadata: {name: nightly}
spec:
  schedules: ["0 2 * * *"]
  timezone: Europe/Berlin
  concurrencyPolicy: Replace
  workflowSpec:
    entrypoint: main
    arguments: {parameters: [{name: num, value: 1}]}
    templates:
    - {name: main, container: {image: busybox, command: [echo, "{{workflow.parameters.num}} {{workflow.scheduledTime}}"]}}
""",
    )
    assert made.complete, made.sentences
    assert made.step("main")["activity"]["input"]["scheduledTime"] == "${schedule.scheduledTime}"
    definition, schedule = made.manifests
    assert (definition["kind"], definition["spec"]["input"]) == ("Workflow", {"default": {"num": "1"}})
    assert schedule["spec"]["cron"] == ["0 2 * * *"]
    assert schedule["spec"]["overlapPolicy"] == "TerminateOther"
    assert schedule["spec"]["workflowRunTemplate"]["spec"] == {"workflow": {"name": "nightly"}}


SCHEDULED = """
    activeDeadlineSeconds: 60
    priority: 3
    suspend: true
    ttlStrategy: {secondsAfterCompletion: 10}
    workflowMetadata: {labels: {team: a}}
"""
WANTED = {"priority": 3, "startPaused": True, "ttlSecondsAfterFinished": 10}


def test_options_of_a_scheduled_workflow_are_those_of_its_runs(tmp_path: Path) -> None:
    cron = "kind: CronWorkflow\nmetadata: {name: made}\nspec:\n  schedules: ['0 2 * * *']\n  workflowMetadata: {labels: {by: me}}"
    templates = "entrypoint: main\n    templates: [{name: main, container: {image: i}}]"
    made = argo(tmp_path, f"{cron}\n  workflowSpec:\n    {templates}{SCHEDULED}")
    assert made.complete, made.sentences
    definition, schedule = made.manifests
    assert definition["spec"]["stepsTimeout"] == "1m"
    template = schedule["spec"]["workflowRunTemplate"]
    assert template == {
        "metadata": {"labels": {"team": "a", "by": "me"}},
        "spec": {"workflow": {"name": "made"}, **WANTED},
    }
    referred = argo(
        tmp_path, f"{cron}\n  workflowSpec:\n    workflowTemplateRef: {{name: far}}{SCHEDULED}    parallelism: 2\n"
    )
    assert [each.split(": ")[2] for each in referred.sentences] == ["spec.workflowSpec.parallelism"]
    (schedule,) = referred.manifests
    template["spec"] |= {"workflow": {"name": "far"}, "stepsTimeout": "1m"}
    assert schedule["spec"]["workflowRunTemplate"] == template


def test_a_schedule_whose_workflow_changes_its_template_has_a_workflow_of_its_own(tmp_path: Path) -> None:
    cron = """
kind: CronWorkflow
metadata: {name: made}
spec:
  schedules: ["0 2 * * *"]
  workflowSpec:
    workflowTemplateRef: {name: shared}
    arguments: {parameters: [{name: to, value: ada}]}
    nodeSelector: {disk: ssd}
"""
    made = argo(tmp_path, cron, TEMPLATE)
    assert made.complete, made.sentences
    definition, schedule, _ = made.manifests
    assert definition["spec"]["activities"][0]["podTemplate"]["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert definition["spec"]["input"]["default"] == {"text": "hello", "to": "ada"}
    assert schedule["spec"]["workflowRunTemplate"]["spec"] == {"workflow": {"name": "made"}}


def test_metadata_of_a_workflow_becomes_that_of_its_run(tmp_path: Path) -> None:
    spec = """entrypoint: main
arguments: {parameters: [{name: team, value: shop}]}
workflowMetadata:
  labels: {kind: nightly}
  annotations: {note: x}
  labelsFrom: {team: {expression: "workflow.parameters.team + '-a'"}}"""
    made = argo(tmp_path, workflow("- {name: main, container: {image: busybox}}", spec))
    assert made.complete, made.sentences
    (run,) = made.manifests
    assert run["metadata"]["labels"] == {"kind": "nightly", "team": "shop-a"}
    assert run["metadata"]["annotations"] == {"note": "x"}
    unknown = argo(
        tmp_path, workflow("- {name: main, container: {image: busybox}}", spec.replace("parameters.team", "name"))
    )
    assert any("spec.workflowMetadata.labelsFrom.team.expression: " in each for each in unknown.sentences)


def test_inputs_of_the_entrypoint_without_a_value_are_required(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        """
kind: WorkflowTemplate
metadata: {name: say}
spec:
  entrypoint: main
  templates:
  - name: main
    inputs: {parameters: [{name: text, description: what to say}, {name: end, value: "!"}]}
    container: {image: busybox, command: [echo, "{{inputs.parameters.text}}{{inputs.parameters.end}}"]}
""",
    )
    assert made.complete, made.sentences
    assert made.spec["input"]["schema"] == {
        "type": "object",
        "properties": {"text": {"description": "what to say"}},
        "required": ["text"],
    }
    assert made.step("main")["activity"]["input"] == {"text": "${input.text}", "end": "!"}


def test_locks_of_a_workflow_become_limits(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            "- {name: main, container: {image: busybox}}",
            """entrypoint: main
synchronization:
  mutexes: [{name: deploy}]
  semaphores: [{configMapKeyRef: {name: settings, key: size}}]""",
        ),
        CONFIG,
    )
    assert made.complete, made.sentences
    limits = {each["metadata"]["name"]: each["spec"] for each in made.manifests if each["kind"] == "WorkflowLimit"}
    assert limits == {"deploy": {"capacity": 1}, "size": {"capacity": 3}}
    assert made.spec["limits"] == [{"name": "deploy"}, {"name": "size"}]


def test_config_maps_of_the_files_supply_parameters(tmp_path: Path) -> None:
    text = workflow(
        "- {name: main, container: {image: busybox, command: [echo, '{{workflow.parameters.text}}']}}",
        """entrypoint: main
arguments: {parameters: [{name: text, valueFrom: {configMapKeyRef: {name: settings, key: text}}}]}""",
    )
    made = argo(tmp_path, text, CONFIG)
    assert made.complete, made.sentences
    assert made.manifests[0]["spec"]["input"] == {"text": "from the map"}
    assert not argo(tmp_path, text).complete


def test_options_of_a_run_are_imported(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            "- {name: main, container: {image: busybox}}",
            """entrypoint: main
activeDeadlineSeconds: 300
priority: 5
suspend: true
ttlStrategy: {secondsAfterCompletion: 10, secondsAfterFailure: 60}
podGC: {strategy: OnPodSuccess}""",
        ),
    )
    assert made.complete, made.sentences
    spec = made.manifests[0]["spec"]
    assert (spec["runTimeout"], spec["priority"], spec["startPaused"]) == ("5m", 5, True)
    assert (spec["ttlSecondsAfterFinished"], spec["ttlSecondsAfterFailure"]) == (10, 60)
    assert made.spec["activities"][0]["podRetention"] == {"onSuccess": "Delete"}


def test_comments_name_the_origin(tmp_path: Path) -> None:
    made = argo(tmp_path, workflow("- {name: main, steps: [[{name: a, template: b}]]}\n- {name: b, plugin: {x: {}}}"))
    text = made.file.read_text()
    assert text.startswith("# From Workflow/made.\n# Not imported: spec.templates[1].plugin: ")
    assert "# template b" not in text


def test_locks_of_a_container_template_become_limits_of_its_activity(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """- name: main
  steps:
  - - name: one
      template: locked
      arguments: {parameters: [{name: text, value: "{{item}}"}]}
      withItems: [a, b]
    - {name: two, template: other}
- name: locked
  synchronization:
    mutexes: [{name: "deploy-{{inputs.parameters.text}}"}]
    semaphores: [{configMapKeyRef: {name: settings, key: size}}]
  inputs: {parameters: [{name: text}]}
  container: {image: busybox, command: [echo, "{{inputs.parameters.text}}"]}
- name: other
  synchronization: {semaphore: {configMapKeyRef: {name: settings, key: size}}}
  container: {image: busybox, command: [echo]}""",
            "entrypoint: main",
        ),
        CONFIG,
    )
    assert made.complete, made.sentences
    limits = {each["metadata"]["name"]: each["spec"] for each in made.manifests if each["kind"] == "WorkflowLimit"}
    assert limits == {"deploy": {"capacity": 1}, "size": {"capacity": 3}}
    assert len(made.manifests) == 3
    locked, other = made.spec["activities"]
    assert locked["limits"] == [{"name": "deploy", "key": "deploy-${input.text}"}, {"name": "size"}]
    assert other["limits"] == [{"name": "size"}]
    assert made.simulate()["phase"] == "Completed"


def test_locks_of_a_steps_template_become_limits_of_a_step(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """- name: main
  steps:
  - - name: one
      template: locked
      arguments: {parameters: [{name: text, value: "{{item}}"}]}
      withItems: [a, b]
  - - {name: two, template: say, arguments: {parameters: [{name: text, value: "{{steps.one.outputs.parameters.said}}"}]}}
- name: locked
  synchronization:
    mutexes: [{name: "deploy-{{inputs.parameters.text}}-{{workflow.parameters.to}}"}]
    semaphores: [{configMapKeyRef: {name: settings, key: size}}]
  inputs: {parameters: [{name: text}]}
  outputs: {parameters: [{name: said, valueFrom: {parameter: "{{steps.say.outputs.result}}"}}]}
  steps:
  - - {name: say, template: say, arguments: {parameters: [{name: text, value: "{{inputs.parameters.text}}"}]}}
- name: say
  inputs: {parameters: [{name: text}]}
  container: {image: busybox, command: [echo, "{{inputs.parameters.text}} {{workflow.parameters.to}}"]}""",
            "entrypoint: main\narguments: {parameters: [{name: to, value: ada}]}",
        ),
        CONFIG,
    )
    assert made.complete, made.sentences
    assert [(each["kind"], each["metadata"]["name"]) for each in made.manifests] == [
        ("WorkflowLimit", "deploy"),
        ("WorkflowLimit", "size"),
        ("WorkflowRun", "made"),
    ]
    assert made.step("one")["call"] == {"block": "locked-locked", "input": {"text": "${item}"}}
    blocks = {each["name"]: each for each in made.spec["blocks"]}
    assert blocks["locked-locked"] == {
        "name": "locked-locked",
        "steps": [
            {
                "name": "locked",
                "limits": [{"name": "deploy", "key": "deploy-${params.text}-${input.to}"}, {"name": "size"}],
                "call": {"block": "locked", "input": "${params}"},
            }
        ],
        "output": "${steps.locked.output}",
    }
    assert made.simulate()["phase"] == "Completed"


def test_locks_of_the_entrypoint_and_of_a_suspension_become_limits_of_steps(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """- name: main
  synchronization: {mutex: {name: deploy}}
  dag: {tasks: [{name: ask, template: ask, arguments: {parameters: [{name: to, value: ada}]}}]}
- name: ask
  inputs: {parameters: [{name: to}]}
  synchronization: {mutex: {name: "ask-{{inputs.parameters.to}}"}}
  suspend: {duration: 10s}""",
            "entrypoint: main",
        ),
    )
    assert made.complete, made.sentences
    held = [step for block in made.spec["blocks"] for step in block["steps"] if "limits" in step]
    assert sorted((step["limits"] for step in held), key=str) == [
        [{"name": "ask", "key": "ask-${params.to}"}],
        [{"name": "deploy"}],
    ]
    assert made.simulate()["phase"] == "Completed"


def test_more_locks_than_a_step_can_take_are_reported(tmp_path: Path) -> None:
    locks = ", ".join(f"{{name: m{i}}}" for i in range(4))
    templates = f"""- {{name: main, synchronization: {{mutexes: [{locks}]}}, steps: [[{{name: a, template: b}}]]}}
- {{name: b, container: {{image: busybox, command: [echo]}}}}"""
    made = argo(tmp_path, workflow(templates, "entrypoint: main"))
    assert not made.complete
    assert "spec.templates[0].synchronization: a step can take 3 limits" in str(made.sentences)


def test_locks_that_become_one_limit_are_reported(tmp_path: Path) -> None:
    start = """entrypoint: main
arguments: {parameters: [{name: a, value: one}, {name: b, value: two}]}
"""
    locks = 'mutexes: [{name: "db-{{workflow.parameters.a}}"}, {name: "db-{{workflow.parameters.b}}"}]'
    main = "- {name: main, container: {image: busybox}}"
    made = argo(tmp_path, workflow(main, f"{start}synchronization: {{{locks}}}"))
    assert not made.complete
    assert "synchronization.mutexes[1]: the WorkflowLimit `db` is already taken for another lock" in str(made.sentences)
    sizes = ", ".join(f"{{configMapKeyRef: {{name: {name}, key: size}}}}" for name in ("settings", "others"))
    made = argo(tmp_path, workflow(main, f"{start}synchronization: {{semaphores: [{sizes}]}}"), CONFIG)
    assert "synchronization.semaphores[1]: the WorkflowLimit `size` is already taken for another" in str(made.sentences)
    locked = "- {name: main, container: {image: busybox}, synchronization: {mutex: {name: size}}}"
    semaphore = "synchronization: {semaphore: {configMapKeyRef: {name: settings, key: size}}}"
    made = argo(tmp_path, workflow(locked, f"{start}{semaphore}"), CONFIG)
    assert not made.complete
    assert "several objects become the WorkflowLimit `size`; rename one of them" in str(made.sentences)


def test_a_semaphore_without_a_valid_size_gets_a_note(tmp_path: Path) -> None:
    main = """- name: main
  container: {image: busybox}
  synchronization: {semaphore: {configMapKeyRef: {name: settings, key: size}}}"""
    made = argo(tmp_path, workflow(main, "entrypoint: main"), CONFIG.replace('"3"', '"\u00b2"'))
    assert "set `capacity` of the WorkflowLimit" in str(made.sentences)


def test_locks_of_steps_with_retries_become_limits_of_a_child(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """- name: main
  steps: [[{name: one, template: locked}]]
- name: locked
  synchronization: {mutexes: [{name: "deploy-{{workflow.parameters.to}}"}]}
  retryStrategy: {limit: 2}
  steps: [[{name: say, template: say}]]
- name: say
  container: {image: busybox, command: [echo]}""",
            "entrypoint: main\narguments: {parameters: [{name: to, value: ada}]}",
        ),
    )
    assert made.complete, made.sentences
    assert [(each["kind"], each["metadata"]["name"]) for each in made.manifests] == [
        ("WorkflowLimit", "deploy"),
        ("Workflow", "made-locked"),
        ("WorkflowRun", "made"),
    ]
    assert made.manifests[1]["spec"]["limits"] == [{"name": "deploy", "key": "deploy-${input.to}"}]
    (step,) = made.manifests[2]["spec"]["inline"]["steps"]
    assert step["childWorkflow"]["input"] == {"to": "${input.to}"}
    assert "synchronization" not in str(made.manifests)


def test_a_disruption_budget_is_created_by_a_step_and_owned_by_the_run(tmp_path: Path) -> None:
    spec = "entrypoint: main\nserviceAccountName: web\npodDisruptionBudget: {minAvailable: 9}"
    made = argo(tmp_path, workflow("- {name: main, container: {image: a}}", spec))
    assert made.complete, made.sentences
    resource = made.activity("pod-disruption-budget")["resource"]
    assert (resource["action"], resource["serviceAccountName"], resource["owned"]) == ("Create", "web", True)
    expected = {"selector": {"matchLabels": {"perdure.dev/run": "${run.name}"}}, "minAvailable": 9}
    assert resource["manifest"]["spec"] == expected
    assert made.step("pod-disruption-budget")["needs"] == []
    assert any("podDisruptionBudget: a step creates it" in each for each in made.sentences)
