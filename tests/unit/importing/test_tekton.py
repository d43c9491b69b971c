"""Pipelines and tasks of Tekton: converted and simulated."""

from pathlib import Path

import pytest

from unit.importing.imported import inputs, pipeline_run, ran, tekton

TASK = """
apiVersion: tekton.dev/v1
kind: Task
metadata: {name: add}
spec:
  params: [{name: first}, {name: second, default: "1"}]
  results: [{name: sum, description: both}]
  steps:
  - name: add
    image: busybox
    script: |
      #!/bin/sh
      echo -n $(( $(params.first) + $(params.second) )) > $(results.sum.path)
"""
PIPELINE = """
apiVersion: tekton.dev/v1
kind: Pipeline
metadata: {name: sums}
spec:
  params: [{name: start, type: string, description: where to start}, {name: step, default: "5"}]
  tasks:
  - name: one
    taskRef: {name: add}
    params: [{name: first, value: $(params.start)}]
  - name: two
    taskRef: {name: add}
    params: [{name: first, value: $(tasks.one.results.sum)}, {name: second, value: $(params.step)}]
  results: [{name: total, value: "= $(tasks.two.results.sum)"}]
"""
RUN = """
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {generateName: sums-, labels: {team: a, tekton.dev/x: b}}
spec:
  pipelineRef: {name: sums}
  params: [{name: start, value: "3"}]
  timeouts: {pipeline: 2h}
"""


def task_run(spec: str, run: str = "{}") -> str:
    indented = "\n".join(f"    {line}" for line in spec.splitlines())
    return f"kind: TaskRun\nmetadata: {{name: made}}\nspec:\n  <<: {run}\n  taskSpec:\n{indented}\n"


def test_a_run_contains_its_pipeline_and_tasks(tmp_path: Path) -> None:
    made = tekton(tmp_path, TASK, PIPELINE, RUN)
    assert made.complete, made.sentences
    (run,) = made.manifests
    assert (run["kind"], run["metadata"]) == ("WorkflowRun", {"generateName": "sums-", "labels": {"team": "a"}})
    assert (run["spec"]["input"], run["spec"]["runTimeout"]) == ({"step": "5", "start": "3"}, "2h")
    report = made.simulate({"one": [{"output": 4, "after": "1s"}], "two": [{"output": 9, "after": "1s"}]})
    assert (report["phase"], report["output"], report["elapsed"]) == ("Completed", {"total": "= 9"}, 2)
    assert inputs(report) == [{"second": "1", "first": "3"}, {"second": "5", "first": 4}]


def test_the_old_form_of_parameter_references_is_supported(tmp_path: Path) -> None:
    old = TASK.replace("$(params.", "$(inputs.params.")
    assert "$(inputs.params.first)" in old
    made = tekton(tmp_path, old, PIPELINE, RUN)
    assert made.spec == tekton(tmp_path, TASK, PIPELINE, RUN).spec


def test_a_pipeline_without_a_run_becomes_a_workflow(tmp_path: Path) -> None:
    made = tekton(tmp_path, PIPELINE, TASK)
    assert made.complete, made.sentences
    (workflow,) = made.manifests
    assert workflow["kind"] == "Workflow"
    assert workflow["spec"]["input"]["default"] == {"step": "5"}
    assert workflow["spec"]["input"]["schema"]["required"] == ["start"]


def test_a_task_becomes_a_workflow_with_one_step(tmp_path: Path) -> None:
    made = tekton(tmp_path, TASK)
    assert made.complete, made.sentences
    report = made.simulate({"add": [{"output": 3}]}, input={"first": "2"})
    assert (report["phase"], inputs(report)) == ("Completed", [{"second": "1", "first": "2"}])


def test_steps_become_containers_that_run_in_order_and_share_folders(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        task_run(
            """
results: [{name: text}, {name: list, type: array}]
workspaces: [{name: data}]
stepTemplate: {env: [{name: A, value: "1"}]}
sidecars: [{name: web, image: nginx, readinessProbe: {httpGet: {port: 80}}}]
steps:
- {name: first, image: a, onError: continue, script: "exit 1"}
- {image: b, computeResources: {limits: {cpu: "1"}}, command: [cat, "$(steps.step-first.exitCode.path)"]}
- name: last
  image: c
  script: |
    #!/usr/bin/env bash
    echo "$(date) ${HOME}" > $(workspaces.data.path)/x
""",
            "{workspaces: [{name: data, emptyDir: {}, subPath: part}]}",
        ),
    )
    assert made.complete, made.sentences
    pod = made.spec["activities"][0]["podTemplate"]["spec"]
    assert [each["name"] for each in pod["initContainers"]] == ["web", "step-first", "step-unnamed-1"]
    assert (pod["initContainers"][0]["restartPolicy"], "startupProbe" in pod["initContainers"][0]) == ("Always", True)
    assert pod["initContainers"][2]["command"] == ["cat", "/tekton/steps/step-first/exitCode"]
    (last,) = pod["containers"]
    assert last["args"][-3:] == ["bash", "-c", 'echo "$$(date) $${HOME}" > /workspace/data/x\n']
    mounts = {mount["mountPath"]: mount.get("subPath") for mount in last["volumeMounts"]}
    assert mounts == {
        "/tekton/results": "results",
        "/tekton/steps": "steps",
        "/workspace": "workspace",
        "/workspace/data": "part",
    }
    assert [volume["name"] for volume in pod["volumes"]] == ["ws-data", "tekton"]


def test_a_mount_that_a_step_declares_replaces_the_shared_folder(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        task_run("""
steps:
- {name: write, image: a, script: echo x > /workspace/x}
- {name: own, image: a, script: ls /workspace, volumeMounts: [{name: empty, mountPath: /workspace}]}
volumes: [{name: empty, emptyDir: {}}]
"""),
    )
    assert made.complete, made.sentences
    pod = made.spec["activities"][0]["podTemplate"]["spec"]
    assert pod["initContainers"][0]["volumeMounts"] == [
        {"name": "tekton", "mountPath": "/workspace", "subPath": "workspace"}
    ]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "empty", "mountPath": "/workspace"}]


def test_a_skipped_task_skips_those_that_read_its_results(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        pipeline_run("""
params: [{name: go, default: "no"}]
tasks:
- name: check
  when: [{input: $(params.go), operator: in, values: ["yes", "sure"]}]
  taskSpec: {results: [{name: x}], steps: [{image: a, script: x}]}
- name: reads
  params: [{name: x, value: $(tasks.check.results.x)}]
  taskSpec: {params: [{name: x}], steps: [{image: a, args: [$(params.x)], command: [echo]}]}
- name: after
  runAfter: [check]
  when: [{cel: "'$(params.go)' == 'no' || '$(params.go)' == 'yes'"}]
  taskSpec: {steps: [{image: a, script: x}]}
"""),
    )
    assert made.complete, made.sentences
    no = made.simulate()
    assert [len(ran(no, name)) for name in ("check", "reads", "after")] == [0, 0, 1]
    yes = made.simulate({"check": [{"output": "r"}]}, input={"go": "yes"})
    assert [len(ran(yes, name)) for name in ("check", "reads", "after")] == [1, 1, 1]


@pytest.mark.parametrize(("code", "phase", "status"), [(0, "Completed", "Succeeded"), (1, "Failed", "Failed")])
def test_final_tasks_always_run(tmp_path: Path, code: int, phase: str, status: str) -> None:
    made = tekton(
        tmp_path,
        pipeline_run("""
tasks:
- {name: work, taskSpec: {results: [{name: x}], steps: [{image: a, script: x}]}}
finally:
- name: report
  params: [{name: status, value: $(tasks.work.status)}, {name: all, value: $(tasks.status)}]
  taskSpec: {params: [{name: status}, {name: all}], steps: [{image: a, command: [echo, $(params.status), $(params.all)]}]}
- name: reads
  params: [{name: x, value: $(tasks.work.results.x)}]
  taskSpec: {params: [{name: x}], steps: [{image: a, command: [echo, $(params.x)]}]}
"""),
    )
    assert made.complete, made.sentences
    report = made.simulate({"work": [{"exitCode": code} if code else {"output": "r"}]})
    assert (report["phase"], len(ran(report, "reads"))) == (phase, 0 if code else 1)
    expected = "None" if code else status
    assert inputs(report)[1]["all"] == status
    assert inputs(report)[1]["status"] in {status, expected}


def test_the_status_of_all_tasks_says_that_some_were_skipped(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        pipeline_run("""
params: [{name: go, default: "no"}]
tasks:
- {name: work, taskSpec: {steps: [{image: a, script: x}]}}
- {name: more-work, when: [{input: $(params.go), operator: in, values: ["yes"]}], taskSpec: {steps: [{image: a, script: x}]}}
finally:
- name: report
  params: [{name: all, value: $(tasks.status)}]
  taskSpec: {params: [{name: all}], steps: [{image: a, command: [echo, $(params.all)]}]}
"""),
    )
    assert made.complete, made.sentences
    failing = {"work": [{"exitCode": 1}]}
    for script, go, expected in (({}, "no", "Completed"), ({}, "yes", "Succeeded"), (failing, "no", "Failed")):
        report = made.simulate(script, input={"go": go})
        assert inputs(report)[-1]["all"] == expected


def test_only_results_that_the_tasks_of_a_matrix_have_written_count(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        pipeline_run("""
tasks:
- name: build
  matrix: {params: [{name: os, value: [linux, mac]}]}
  taskSpec: {params: [{name: os}], results: [{name: first}, {name: second}], steps: [{image: a, command: [x, $(params.os)]}]}
- name: gather
  runAfter: [build]
  params:
  - {name: all, value: $(tasks.build.matrix.length)}
  - {name: first, value: $(tasks.build.matrix.first.length)}
  - {name: second, value: $(tasks.build.matrix.second.length)}
  taskSpec: {params: [{name: all}, {name: first}, {name: second}], steps: [{image: a, command: [x, "$(params.first)"]}]}
"""),
    )
    assert made.complete, made.sentences
    report = made.simulate(
        {
            "build": [
                {"output": {"first": "1", "second": "2"}},
                {"output": {"first": "3", "second": ""}, "whenInput": {"os": "mac"}},
            ]
        }
    )
    assert inputs(report)[-1] == {"all": 2, "first": 2, "second": 1}


def test_a_workspace_that_a_step_lists_is_mounted_only_there(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        task_run(
            """
workspaces: [{name: creds}, {name: data}]
steps:
- {name: first, image: a, script: ls, workspaces: [{name: creds, mountpath: /creds}]}
- {name: second, image: a, script: ls}
sidecars:
- {name: aside, image: a, script: ls, workspaces: [{name: creds}]}
- {name: other, image: a, script: ls}""",
            "{workspaces: [{name: creds, secret: {secretName: s}}, {name: data, emptyDir: {}}]}",
        ),
    )
    assert made.complete, made.sentences
    spec = made.spec["activities"][0]["podTemplate"]["spec"]
    mounts = {
        each["name"]: {mount["mountPath"] for mount in each.get("volumeMounts", ())}
        for each in (*spec["initContainers"], *spec["containers"])
    }
    assert mounts == {
        "step-first": {"/creds", "/workspace/data"},
        "step-second": {"/workspace/data"},
        "aside": {"/workspace/creds", "/workspace/data"},
        "other": {"/workspace/data"},
    }


def test_a_parameter_can_say_that_an_error_is_ignored(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        task_run(
            """
params: [{name: mode, default: continue}]
steps: [{name: only, image: a, onError: $(params.mode), script: exit 1}]"""
        ),
    )
    assert made.complete, made.sentences
    (step,) = made.spec["activities"][0]["podTemplate"]["spec"]["containers"]
    assert "exitCode" in step["args"][0]


def test_a_matrix_runs_every_combination(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        pipeline_run("""
params: [{name: browsers, type: array, default: [chrome, firefox]}]
tasks:
- name: test
  matrix:
    params: [{name: os, value: [linux, mac]}, {name: browser, value: "$(params.browsers[*])"}]
  taskSpec: {params: [{name: os}, {name: browser}], results: [{name: r}], steps: [{image: a, command: [x, $(params.os)]}]}
- name: gather
  params: [{name: all, value: ["$(tasks.test.results.r[*])"]}, {name: count, value: $(tasks.test.matrix.length)}]
  taskSpec: {params: [{name: all, type: array}, {name: count}], steps: [{image: a, command: [x, "$(params.count)"]}]}
"""),
    )
    assert made.complete, made.sentences
    report = made.simulate({"test": [{"output": "ok"}]})
    assert inputs(report)[:4] == [
        {"browser": browser, "os": os} for os in ("linux", "mac") for browser in ("chrome", "firefox")
    ]
    assert inputs(report)[4] == {"all": ["ok"] * 4, "count": 4}


def test_included_parameters_of_a_matrix_extend_matching_combinations(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        pipeline_run("""
tasks:
- name: build
  matrix:
    params: [{name: os, value: [linux, mac]}]
    include:
    - {name: flags, params: [{name: os, value: mac}, {name: flag, value: "-x"}]}
    - {name: extra, params: [{name: os, value: bsd}, {name: flag, value: "-b"}]}
  taskSpec: {params: [{name: os}, {name: flag, default: none}], steps: [{image: a, command: [x, $(params.os)]}]}
"""),
    )
    items = made.step("build")["forEach"]["items"]
    assert items == [{"os": "linux"}, {"os": "mac", "flag": "-x"}, {"os": "bsd", "flag": "-b"}]


def test_arrays_become_arguments_and_pod_templates_are_imported(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        """
kind: TaskRun
metadata: {name: made}
spec:
  serviceAccountName: builder
  podTemplate: {nodeSelector: {disk: ssd}}
  timeout: 5m
  params: [{name: words, value: [a, b]}]
  taskSpec:
    params: [{name: words, type: array}, {name: map, type: object, properties: {k: {}}, default: {k: v}}]
    volumes: [{name: x, emptyDir: {}}]
    steps: [{image: a, command: [echo], args: ["first", "$(params.words[*])", "$(params.map.k)", "$(params.words[1])"]}]
""",
    )
    assert made.complete, made.sentences
    activity = made.spec["activities"][0]
    assert activity["startToCloseTimeout"] == "5m"
    pod = activity["podTemplate"]["spec"]
    assert pod["containers"][0]["args"] == ["first", "a", "b", "${input.map.k}", "${input.words[1]}"]
    assert (pod["serviceAccountName"], pod["nodeSelector"]) == ("builder", {"disk": "ssd"})
    assert made.simulate()["phase"] == "Completed"


@pytest.mark.parametrize(
    ("run", "path"),
    [
        (pipeline_run("tasks: [{name: a, taskRef: {resolver: git}}]"), "taskRef.resolver"),
        (pipeline_run("tasks: [{name: a, taskRef: {name: far}}]"), "tasks[0].taskRef.name"),
        (task_run("steps: [{image: a, timeout: 5s, script: x}]"), "steps[0].timeout"),
        (task_run("workspaces: [{name: w}]\nsteps: [{image: a, script: x}]"), "workspaces[0]"),
        (task_run('steps: [{image: a, script: "#!/usr/bin/env pwsh\\nx"}]'), "steps[0].script"),
        (
            pipeline_run("tasks: [{name: a, taskSpec: {apiVersion: example.dev/v1, kind: Wait, spec: {}}}]"),
            "tasks[0].taskSpec",
        ),
    ],
)
def test_fields_without_a_counterpart_are_reported_by_path(tmp_path: Path, run: str, path: str) -> None:
    made = tekton(tmp_path, run)
    assert not made.complete
    assert [each for each in made.sentences if each.startswith("Not imported: ") and path in each], made.sentences
    assert not [each for each in made.sentences if each.startswith("Invalid")]


def test_streams_are_redirected(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        task_run(
            "steps: [{image: a, command: [date], stdoutConfig: {path: /data/out}, stderrConfig: {path: /data/err}}]"
        ),
    )
    assert made.complete, made.sentences
    container = made.spec["activities"][0]["podTemplate"]["spec"]["containers"][0]
    assert container["args"] == ['"$@" > /data/out 2> /data/err', "perdure", "date"]


def test_parameters_set_by_a_matrix_for_some_combinations_have_their_default(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        pipeline_run("""
tasks:
- name: build
  retries: 2
  matrix:
    include:
    - {name: a, params: [{name: os, value: x}]}
    - {name: b, params: [{name: os, value: z}, {name: flag, value: v}]}
  params: [{name: tries, value: $(context.pipelineTask.retries)}]
  taskSpec:
    params: [{name: os}, {name: flag, default: none}, {name: tries}]
    steps: [{image: a, command: [x, $(params.os), $(params.flag)]}]
"""),
    )
    assert made.complete, made.sentences
    report = made.simulate()
    assert inputs(report) == [
        {"flag": "none", "tries": "2", "os": "x"},
        {"flag": "v", "tries": "2", "os": "z"},
    ]


def test_embedded_tasks_can_use_workspaces_and_objects_of_their_run(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        """
kind: PipelineRun
metadata: {name: made}
spec:
  params: [{name: repo, value: {url: a, commit: b}}]
  workspaces: [{name: files, persistentVolumeClaim: {claimName: mine}}]
  pipelineSpec:
    tasks:
    - name: one
      params: [{name: repo, value: {url: c}}, {name: words, value: [w, "$(params.repo.url)"]}]
      taskSpec:
        params: [{name: words, type: array}]
        steps: [{image: a, command: [ls, "$(workspaces.files.path)", "$(params.repo.commit)", "$(params.words[*])"]}]
""",
    )
    assert made.complete, made.sentences
    container = made.spec["activities"][0]["podTemplate"]["spec"]["containers"][0]
    assert (container["command"], container["args"]) == (
        ["ls", "/workspace/files"],
        ["${input.repo.commit}", "${input.words[0]}", "${input.words[1]}"],
    )
    report = made.simulate()
    assert inputs(report) == [{"repo": {"commit": "b", "url": "c"}, "words": ["w", "a"]}]


def test_claims_become_workspaces_that_all_steps_mount(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        """
kind: PipelineRun
metadata: {name: made}
spec:
  workspaces:
  - {name: own, volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}
  - name: shared
    subPath: all
    volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
  pipelineSpec:
    params: [{name: part, default: one}]
    tasks:
    - name: build
      workspaces: [{name: source, workspace: own}, {name: cache, workspace: shared, subPath: $(params.part)}]
      taskSpec:
        workspaces: [{name: source}, {name: cache, readOnly: true, mountPath: /cache}]
        steps: [{image: b, command: [ls, $(workspaces.source.path)]}]
    - name: several
      workspaces: [{name: source, workspace: own, subPath: x}]
      taskSpec:
        workspaces: [{name: source}]
        steps: [{image: a, command: [ls]}, {image: b, command: [ls]}]
""",
    )
    assert made.complete, made.sentences
    assert [each["name"] for each in made.spec["workspaces"]] == ["own", "shared"]
    assert made.activity("build")["workspaces"] == [
        {"name": "own", "mountPath": "/workspace/source"},
        {"name": "shared", "mountPath": "/cache", "readOnly": True, "subPath": "all/${input.part}"},
    ]
    several = made.activity("several")
    assert several["workspaces"] == [{"name": "own", "mountPath": "/workspace/source", "subPath": "x"}]
    first = several["podTemplate"]["spec"]["initContainers"][0]
    assert first["volumeMounts"] == [{"name": "workspace-own", "mountPath": "/workspace/source", "subPath": "x"}]
    assert made.simulate()["phase"] == "Completed"


def test_labels_of_an_embedded_task_are_those_of_its_pods(tmp_path: Path) -> None:
    """`taskSpec.metadata` was dropped silently."""
    made = tekton(
        tmp_path,
        pipeline_run(
            "tasks: [{name: a, taskSpec: {metadata: {labels: {x: blue}}, steps: [{image: i, command: [c]}]}}]"
        ),
    )
    assert made.complete, made.sentences
    assert made.activity("a")["podTemplate"]["metadata"] == {"labels": {"x": "blue"}}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        (
            "tasks: []\nfinally: [{name: f, runAfter: [g], taskSpec: {steps: [{image: i, command: [c]}]}}]",
            "spec.pipelineSpec.finally[0].runAfter: final tasks run at the same time",
        ),
        (
            "tasks: [{name: t, workspaces: [{name: w, workspace: x}], taskSpec: {steps: [{image: i, command: [c]}]}}]",
            "spec.pipelineSpec.tasks[0].workspaces[0]: there is no workspace `x` in the pipeline",
        ),
        (
            "params: [{name: p, default: c, enum: [a, b]}]\ntasks: [{name: t, taskSpec: {steps: [{image: i, command: [c]}]}}]",
            "spec.pipelineSpec.params[0].enum: does not have the value `c` of the run",
        ),
        ("tasks: [{name: t, taskSpec: {steps: []}}]", "tasks[0].taskSpec.steps: must have a step"),
    ],
)
def test_what_tekton_would_reject_is_reported(tmp_path: Path, spec: str, want: str) -> None:
    made = tekton(tmp_path, pipeline_run(spec))
    assert any(want in each for each in made.sentences), made.sentences


def test_a_remark_about_a_task_run_has_the_path_of_its_source(tmp_path: Path) -> None:
    made = tekton(tmp_path, task_run("steps: [{image: a, timeout: 5s, script: x}]"))
    assert any("TaskRun/" in each and ": spec.taskSpec.steps[0].timeout: " in each for each in made.sentences)


def test_settings_of_tasks_that_the_pipeline_does_not_have_are_reported(tmp_path: Path) -> None:
    """Tekton rejects the run."""
    made = tekton(
        tmp_path,
        pipeline_run("tasks: [{name: a, taskSpec: {steps: [{name: s, image: i, command: [c]}]}}]")
        + "  taskRunSpecs: [{pipelineTaskName: a, timeout: 5s}, {pipelineTaskName: b, timeout: 5s}]\n",
    )
    of = "Not imported: PipelineRun/made: spec.taskRunSpecs[1].pipelineTaskName"
    assert made.sentences == (f"{of}: there is no task `b`, which Tekton rejects; remove it",)


def test_parameters_of_a_step_without_a_reference_are_reported(tmp_path: Path) -> None:
    step = "{name: s, image: i, command: [c], params: [{name: z, value: y}]}"
    made = tekton(tmp_path, pipeline_run(f"tasks: [{{name: a, taskSpec: {{steps: [{step}]}}}}]"))
    assert "params" not in str(made.spec["activities"])
    assert ["only a step with a `ref` has parameters" in each for each in made.sentences] == [True]


def test_the_folder_of_credentials_is_reported(tmp_path: Path) -> None:
    step = "{name: s, image: i, command: [c], args: [$(credentials.path)]}"
    made = tekton(tmp_path, pipeline_run(f"tasks: [{{name: a, taskSpec: {{steps: [{step}]}}}}]"))
    assert ["`$(credentials.path)` has no counterpart here" in each for each in made.sentences] == [True]


def test_arrays_and_objects_are_checked_when_a_run_starts(tmp_path: Path) -> None:
    """Tekton rejects a run with a parameter of another type; a text may look like a number here."""
    made = tekton(
        tmp_path,
        """apiVersion: tekton.dev/v1
kind: Task
metadata: {name: t}
spec:
  params: [{name: list, type: array}, {name: map, properties: {k: {}}}, {name: text, type: string}, {name: given, default: [a]}]
  steps: [{name: s, image: i, command: [c], args: ["$(params.list[*])", "$(params.map.k)", $(params.text)]}]
""",
    )
    assert made.complete, made.sentences
    assert made.spec["input"]["schema"]["properties"] == {
        "list": {"type": "array"},
        "map": {"type": "object"},
        "given": {"type": "array"},
    }
