"""Daemons of Argo: Pods that steps create, and delete when their template ends."""

from pathlib import Path

from unit.importing.imported import argo, inputs, ran, workflow

TEMPLATES = """
- name: main
  steps:
  - - {name: server, template: server, arguments: {parameters: [{name: port, value: "80"}]}}
  - - {name: client, template: client, arguments: {parameters: [{name: ip, value: "{{steps.server.ip}}"}]}}
- name: server
  daemon: true
  inputs: {parameters: [{name: port}]}
  nodeSelector: {disk: ssd}
  container:
    image: nginx
    args: ["--port={{inputs.parameters.port}}", "${HOME}"]
    readinessProbe: {httpGet: {path: "/${x}", port: 80}}
    volumeMounts: [{name: data, mountPath: /data}]
- name: client
  inputs: {parameters: [{name: ip}]}
  container: {image: busybox, command: [wget, "{{inputs.parameters.ip}}"]}
"""
SPEC = "entrypoint: main\nserviceAccountName: web\nvolumes: [{name: data, emptyDir: {}}, {name: other, emptyDir: {}}]"
READY = {"server": [{"output": {"ip": "10.0.0.7", "name": "server-x"}}]}


def test_a_daemon_becomes_a_pod_whose_address_later_steps_use(tmp_path: Path) -> None:
    made = argo(tmp_path, workflow(TEMPLATES, SPEC))
    assert made.complete, made.sentences
    created = made.activity("server")["resource"]
    assert (created["action"], created["serviceAccountName"], created["owned"]) == ("Create", "web", True)
    assert created["manifest"]["metadata"] == {"generateName": "server-"}
    assert created["manifest"]["spec"] == {
        "serviceAccountName": "web",
        "nodeSelector": {"disk": "ssd"},
        "restartPolicy": "Never",
        "volumes": [{"name": "data", "emptyDir": {}}],
        "containers": [
            {
                "name": "main",
                "image": "nginx",
                "args": ["--port=${input.port}", "$${HOME}"],
                "readinessProbe": {"httpGet": {"path": "/$${x}", "port": 80}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }
        ],
    }
    assert any(
        "the ServiceAccount `web` must be allowed to create, get, and delete Pods" in each for each in made.sentences
    )
    report = made.simulate(READY)
    assert report["phase"] == "Completed"
    assert inputs(report) == [{"port": "80"}, {"ip": "10.0.0.7"}, {"name": "server-x"}]


def test_a_daemon_is_deleted_if_the_run_fails(tmp_path: Path) -> None:
    made = argo(tmp_path, workflow(TEMPLATES, SPEC))
    report = made.simulate({**READY, "client": [{"fail": {"type": "NoAnswer"}}]})
    assert report["phase"] == "Failed"
    assert ran(report, "delete-server") == ["Completed"]


def test_a_daemon_is_deleted_after_the_last_task_of_a_dag(tmp_path: Path) -> None:
    templates = """
- name: main
  dag:
    tasks:
    - {name: server, template: server}
    - {name: a, template: client, depends: server, arguments: {parameters: [{name: ip, value: "{{tasks.server.ip}}"}]}}
    - {name: b, template: client, depends: server.Daemoned, arguments: {parameters: [{name: ip, value: x}]}}
- {name: server, daemon: true, retryStrategy: {limit: 3}, script: {image: python, command: [python], source: serve()}}
- {name: client, inputs: {parameters: [{name: ip}]}, container: {image: busybox, command: [wget]}}
"""
    made = argo(tmp_path, workflow(templates))
    assert made.complete, made.sentences
    assert made.step("delete-server")["needs"] == ["server", "a", "b"]
    pod = made.activity("server")["resource"]["manifest"]["spec"]
    assert pod["restartPolicy"] == "OnFailure"
    assert (pod["containers"][0]["command"], pod["containers"][0]["args"]) == (["python"], ["-c", "serve()"])
    report = made.simulate(READY)
    assert report["phase"] == "Completed"
    assert inputs(report)[-1] == {"name": "server-x"}


def test_unsupported_fields_of_a_daemon_are_reported(tmp_path: Path) -> None:
    templates = TEMPLATES.replace(
        "inputs: {parameters: [{name: port}]}", "inputs: {artifacts: [{name: a, path: /a, raw: {data: x}}]}", 1
    )
    made = argo(
        tmp_path,
        workflow(templates.replace(' arguments: {parameters: [{name: port, value: "80"}]}', " withItems: [1]")),
    )
    reported = "\n".join(made.sentences)
    assert "inputs.artifacts: has no counterpart; a Pod that runs on its own has no artifacts" in reported
    assert "daemons do not run in loops" in reported


def test_a_daemon_cannot_mount_a_workspace(tmp_path: Path) -> None:
    spec = "entrypoint: main\nvolumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce]}}]"
    made = argo(tmp_path, workflow(TEMPLATES, spec))
    assert any("a daemon Pod cannot mount a workspace" in each for each in made.sentences)
