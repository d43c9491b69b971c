"""Artifacts of Argo become those of activities, passed on by reference."""

from pathlib import Path

from unit.importing.imported import argo, workflow

PASSING = """
- name: main
  steps:
  - - {name: make, template: make}
  - - name: use
      template: use
      arguments: {artifacts: [{name: message, from: "{{steps.make.outputs.artifacts.hello-art}}"}]}
- name: make
  container: {image: a, command: [sh, -c, "echo hello > /tmp/hello.txt"]}
  outputs: {artifacts: [{name: hello-art, path: /tmp/hello.txt}]}
- name: use
  inputs: {artifacts: [{name: message, path: /tmp/message}]}
  container: {image: a, command: [cat, "{{inputs.artifacts.message.path}}"]}
"""


def test_an_artifact_is_passed_from_step_to_step(tmp_path: Path) -> None:
    made = argo(tmp_path, workflow(PASSING, "entrypoint: main"))
    assert made.complete, made.sentences
    assert sum("create the Secret `perdure-artifacts`" in each for each in made.sentences) == 1
    assert made.activity("make")["artifacts"] == {"outputs": [{"name": "hello-art", "path": "/tmp/hello.txt"}]}
    artifact = {"name": "message", "path": "/tmp/message", "from": "${input['artifact-message']}"}
    assert made.activity("use")["artifacts"] == {"inputs": [artifact]}
    passed = {"artifact-message": "${steps.make.artifacts['hello-art']}"}
    assert made.step("use")["activity"]["input"] == passed
    assert made.activity("use")["container"]["command"] == ["cat", "/tmp/message"]
    assert made.simulate()["phase"] == "Completed"


def test_artifact_sources_of_a_template_become_inputs_of_its_activity(tmp_path: Path) -> None:
    template = """- name: main
  inputs:
    artifacts:
    - {name: Code_1, path: /src, http: {url: "https://shop.test/{{workflow.name}}.tar.gz"}}
    - {name: plain, path: /plain, archive: {none: {}}, http: {url: "https://shop.test/a.tgz"}}
    - {name: text, path: /text, raw: {data: "a ${b}"}}
    - {name: object, path: /object, s3: {key: in.txt, bucket: b, accessKeySecret: {name: s, key: k}}}
    - {name: maybe, path: /maybe, optional: true}
  container: {image: a, command: [ls]}"""
    made = argo(tmp_path, workflow(template, "entrypoint: main"))
    assert made.complete, made.sentences
    (activity,) = made.spec["activities"]
    assert activity["artifacts"]["inputs"] == [
        {"name": "code-1", "path": "/src", "http": {"url": "https://shop.test/${run.name}.tar.gz"}, "archive": "Tar"},
        {"name": "plain", "path": "/plain", "http": {"url": "https://shop.test/a.tgz"}},
        {"name": "text", "path": "/text", "raw": {"data": "a $${b}"}},
        {"name": "object", "path": "/object", "key": "in.txt"},
        {"name": "maybe", "path": "/maybe", "from": "${input['artifact-maybe']}", "optional": True},
    ]
    assert any("perdure-artifacts" in each for each in made.sentences)
    assert made.simulate()["phase"] == "Completed"


def test_arguments_can_be_texts_urls_and_objects(tmp_path: Path) -> None:
    templates = PASSING.replace('from: "{{steps.make.outputs.artifacts.hello-art}}"', "raw: {data: hello}")
    made = argo(tmp_path, workflow(templates, "entrypoint: main"))
    assert made.complete, made.sentences
    assert made.step("use")["activity"]["input"] == {"artifact-message": {"data": "hello"}}


def test_a_block_has_artifact_inputs_and_outputs(tmp_path: Path) -> None:
    templates = """
- name: main
  dag:
    tasks:
    - {name: first, template: both, arguments: {artifacts: [{name: given, s3: {key: a}}]}}
    - name: second
      dependencies: [first]
      template: use
      arguments: {artifacts: [{name: message, from: "{{tasks.first.outputs.artifacts.made}}"}]}
- name: both
  inputs: {artifacts: [{name: given}]}
  outputs: {artifacts: [{name: made, from: "{{steps.change.outputs.artifacts.out}}"}]}
  steps:
  - - {name: change, template: change, arguments: {artifacts: [{name: in, from: "{{inputs.artifacts.given}}"}]}}
- name: change
  inputs: {artifacts: [{name: in, path: /tmp/in}]}
  outputs: {artifacts: [{name: out, path: /tmp/out, optional: true}]}
  container: {image: a, command: [cp, /tmp/in, /tmp/out]}
- name: use
  inputs: {artifacts: [{name: message, path: /tmp/message}]}
  container: {image: a, command: [cat, /tmp/message]}
"""
    made = argo(tmp_path, workflow(templates, "entrypoint: main"))
    assert made.complete, made.sentences
    (block,) = made.spec["blocks"]
    assert block["output"] == {"artifact-made": "${steps.change.artifacts[?'out'].orValue(null)}"}
    assert made.step("change")["activity"]["input"] == {"artifact-in": "${params['artifact-given']}"}
    assert made.step("second")["activity"]["input"] == {"artifact-message": "${steps.first.output['artifact-made']}"}
    assert made.simulate()["phase"] == "Completed"


def test_global_artifacts_become_variables(tmp_path: Path) -> None:
    templates = PASSING.replace("path: /tmp/hello.txt}", "path: /tmp/hello.txt, globalName: shared}")
    templates = templates.replace("{{steps.make.outputs.artifacts.hello-art}}", "{{workflow.outputs.artifacts.shared}}")
    made = argo(tmp_path, workflow(templates, "entrypoint: main"))
    assert made.complete, made.sentences
    assert made.step("use")["activity"]["input"] == {"artifact-message": "${vars.artifact_shared}"}
    assert made.simulate()["phase"] == "Completed"


def test_arguments_of_the_workflow_become_its_input(tmp_path: Path) -> None:
    template = "- {name: main, inputs: {artifacts: [{name: message, path: /tmp/message}]}, container: {image: a, command: [ls]}}"
    spec = "entrypoint: main\narguments: {artifacts: [{name: message, raw: {data: hello}}]}"
    made = argo(tmp_path, workflow(template, spec))
    assert made.complete, made.sentences
    (run,) = made.manifests
    assert run["spec"]["input"] == {"artifact-message": {"data": "hello"}}
    assert made.simulate()["phase"] == "Completed"


def test_files_next_to_those_of_the_image_are_copied(tmp_path: Path) -> None:
    template = """- name: main
  outputs: {artifacts: [{name: top, path: /top.txt}, {name: own, path: /etc, optional: true}]}
  script: {image: a, command: [sh], source: echo x > top.txt}"""
    made = argo(tmp_path, workflow(template))
    assert made.complete, made.sentences
    activity = made.activity("main")
    assert activity["artifacts"] == {
        "outputs": [
            {"name": "top", "path": "/argo-outputs/top"},
            {"name": "own", "path": "/argo-outputs/own", "optional": True},
        ]
    }
    program, *line = activity["container"]["args"]
    assert program.splitlines()[1:] == [
        '"$@"',
        "cp -r /top.txt /argo-outputs/top",
        "if [ -e /etc ]; then cp -r /etc /argo-outputs/own; fi",
    ]
    assert line == ["perdure", "sh", "-c", "echo x > top.txt"]


def test_buckets_with_the_api_of_s3_are_the_artifact_store(tmp_path: Path) -> None:
    template = """- name: main
  inputs: {artifacts: [{name: in, path: /in, gcs: {bucket: b, key: data.tgz}}]}
  outputs: {artifacts: [{name: out, path: /tmp/x, oss: {bucket: b, key: k}}]}
  container: {image: a, command: [ls]}"""
    made = argo(tmp_path, workflow(template))
    assert made.complete, made.sentences
    assert made.activity("main")["artifacts"] == {
        "inputs": [{"name": "in", "path": "/in", "key": "data.tgz", "archive": "Tar"}],
        "outputs": [{"name": "out", "path": "/tmp/x", "key": "k"}],
    }


def test_keys_connect_artifacts_that_are_not_passed(tmp_path: Path) -> None:
    templates = """- name: main
  dag:
    tasks: [{name: make, template: make}, {name: use, template: use, depends: make}]
- name: make
  container: {image: a, command: [make]}
  outputs: {artifacts: [{name: file, path: /mnt/file, s3: {key: "{{workflow.name}}/my-file"}}]}
- name: use
  container: {image: a, command: [cat, /tmp/file]}
  inputs: {artifacts: [{name: file, path: /tmp/file, s3: {key: "{{workflow.name}}/my-file"}}]}"""
    made = argo(tmp_path, workflow(templates))
    assert made.complete, made.sentences
    (output,) = made.activity("make")["artifacts"]["outputs"]
    (artifact,) = made.activity("use")["artifacts"]["inputs"]
    assert output["key"] == artifact["key"] == "${run.name}/my-file"
    assert made.simulate()["phase"] == "Completed"


def test_hooks_use_the_artifacts_of_their_step(tmp_path: Path) -> None:
    templates = PASSING.replace(
        "{name: make, template: make}",
        "{name: make, template: make, hooks: {exit: {template: use, arguments: {artifacts: ["
        "{name: message, from: '{{steps.make.outputs.artifacts.hello-art}}'}]}}}}",
    )
    made = argo(tmp_path, workflow(templates))
    assert made.complete, made.sentences
    params = made.step("make")["onEnd"]["input"]["exit"]["input"]
    assert params == {"artifact-message": "${step.artifacts['hello-art']}"}
    assert made.simulate()["phase"] == "Completed"


def test_fields_without_a_counterpart_are_reported(tmp_path: Path) -> None:
    template = """- name: main
  inputs:
    artifacts:
    - {name: blob, path: /blob, azure: {container: c, blob: b}}
    - {name: folder, path: /folder, s3: {key: data/}}
  outputs:
    artifacts:
    - {name: dir, path: /out}
    - {name: cloud, path: /tmp/x, azure: {container: c, blob: b}}
  container: {image: a, command: [ls]}"""
    made = argo(tmp_path, workflow(template, "entrypoint: main"))
    assert not made.complete
    reported = "\n".join(made.sentences)
    assert "inputs.artifacts[0].azure: is not imported; download it in the container" in reported
    assert "inputs.artifacts[1].s3.key: is a folder; pack it into one object" in reported
    assert "outputs.artifacts[0].path: must be a folder" in reported
    assert "outputs.artifacts[1].azure: has no counterpart; artifacts go to an S3-compatible bucket" in reported


def test_an_artifact_that_is_never_passed_is_reported(tmp_path: Path) -> None:
    templates = PASSING.replace(
        'arguments: {artifacts: [{name: message, from: "{{steps.make.outputs.artifacts.hello-art}}"}]}', ""
    )
    made = argo(tmp_path, workflow(templates, "entrypoint: main"))
    assert any("the artifact `message` of the template has no value" in each for each in made.sentences)


ARCHIVING = """
- name: main
  steps:
  - - {name: notify, template: notify}
    - {name: run, template: run}
    - {name: quiet, template: quiet}
    - {name: find, template: find}
- name: notify
  container: {image: a, command: [echo], args: [hello]}
- name: run
  archiveLocation: {archiveLogs: true}
  script: {image: a, command: [sh], source: echo hello}
- name: quiet
  archiveLocation: {archiveLogs: false}
  container: {image: a, command: [echo]}
- name: find
  http: {url: "https://shop.test"}
"""


def test_archived_logs_of_a_workflow_are_those_of_its_containers(tmp_path: Path) -> None:
    made = argo(tmp_path, workflow(ARCHIVING, "entrypoint: main\narchiveLogs: true"))
    assert made.complete, made.sentences
    archived = {each["name"]: each.get("artifacts") for each in made.spec["activities"]}
    assert archived == {"notify": {"archiveLogs": True}, "run": {"archiveLogs": True}, "quiet": None, "find": None}
    paths = [each.split(": ")[2] for each in made.sentences if "logs go to the artifact store" in each]
    assert sorted(paths) == ["spec.archiveLogs", "spec.templates[2].archiveLocation.archiveLogs"]
    assert made.simulate()["phase"] == "Completed"


def test_a_template_archives_its_log_by_itself(tmp_path: Path) -> None:
    templates = PASSING.replace("outputs:", "archiveLocation: {archiveLogs: true, s3: {key: here}}\n  outputs:")
    made = argo(tmp_path, workflow(templates))
    assert made.complete, made.sentences
    outputs = [{"name": "hello-art", "path": "/tmp/hello.txt"}]
    assert made.activity("make")["artifacts"] == {"outputs": outputs, "archiveLogs": True}
    assert "archiveLogs" not in made.activity("use")["artifacts"]
    assert any(".archiveLocation: artifacts and logs go to the artifact store" in each for each in made.sentences)


def test_a_log_is_not_archived_without_a_command(tmp_path: Path) -> None:
    template = "- {name: main, archiveLocation: {archiveLogs: true}, container: {image: a, args: [hello]}}"
    made = argo(tmp_path, workflow(template))
    assert "artifacts" not in made.activity("main")
    remark = "spec.templates[0].container.command: must be set: to archive the log"
    assert any(remark in each for each in made.sentences), made.sentences


def test_several_containers_archive_the_log_of_the_main_one(tmp_path: Path) -> None:
    template = """- name: main
  containerSet:
    containers:
    - {name: a, image: i, command: [a]}
    - {name: b, image: i, command: [b]}
    - {name: main, image: i, command: [main], dependencies: [a, b]}"""
    made = argo(tmp_path, workflow(template, "entrypoint: main\narchiveLogs: true"))
    assert made.complete, made.sentences
    assert made.activity("main")["artifacts"] == {"archiveLogs": True}
    assert any("only the log of `main`" in each for each in made.sentences), made.sentences


MODE = """- name: main
  inputs: {artifacts: [{name: script, path: /data/in/run.sh, mode: 0755, recurseMode: true, raw: {data: x}}]}
  container: {image: i, command: [c]}"""


def test_the_mode_of_an_input_is_reported(tmp_path: Path) -> None:
    """argo-workflows#972: `mode` was dropped silently, also with `--strict`."""
    made = argo(tmp_path, workflow(MODE))
    assert not made.complete
    reported = " ".join(made.sentences)
    assert "inputs.artifacts[0].mode: has no counterpart; set the mode in the command" in reported
    assert "inputs.artifacts[0].recurseMode: has no counterpart" in reported


def test_a_global_artifact_of_steps_is_a_variable(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow("""- name: main
  steps:
  - - {name: one, template: group}
  - - {name: two, template: read, arguments: {artifacts: [{name: a, from: "{{workflow.outputs.artifacts.shared}}"}]}}
- name: group
  steps: [[{name: inner, template: write}]]
  outputs: {artifacts: [{name: z, globalName: shared, from: "{{steps.inner.outputs.artifacts.z}}"}]}
- {name: write, container: {image: a, command: [b]}, outputs: {artifacts: [{name: z, path: /out/z}]}}
- {name: read, container: {image: a, command: [b]}, inputs: {artifacts: [{name: a, path: /in/a}]}}"""),
    )
    assert made.complete, made.sentences
    assert made.step("one-global")["set"] == {"artifact_shared": "${steps.one.output['artifact-z']}"}
    assert made.step("two")["activity"]["input"] == {"artifact-a": "${vars.artifact_shared}"}
