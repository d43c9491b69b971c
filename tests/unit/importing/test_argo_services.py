"""Daemons of Argo: services of a list of steps, and Pods that steps create, and delete when their template ends."""

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
LATER = TEMPLATES.replace(
    "  - - {name: server,",
    "  - - {name: first, template: client, arguments: {parameters: [{name: ip, value: x}]}}\n  - - {name: server,",
)
"""The daemon starts after another step."""
SPEC = "entrypoint: main\nserviceAccountName: web\nvolumes: [{name: data, emptyDir: {}}, {name: other, emptyDir: {}}]"
READY = {"server": [{"output": {"ip": "10.0.0.7", "name": "server-x"}}]}


def test_a_daemon_that_starts_first_becomes_a_service_of_the_list(tmp_path: Path) -> None:
    made = argo(tmp_path, workflow(TEMPLATES, SPEC))
    assert made.complete, made.sentences
    assert made.spec["services"] == [
        {
            "name": "server",
            "image": "nginx",
            "args": ["--port=80", "$${HOME}"],
            "readinessProbe": {"httpGet": {"path": "/${x}", "port": 80}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "securityContext": {"runAsNonRoot": False},
            "readyTimeout": "1d",
            "podSpecPatch": {
                "serviceAccountName": "web",
                "automountServiceAccountToken": True,
                "nodeSelector": {"disk": "ssd"},
                "volumes": [{"name": "data", "emptyDir": {}}],
            },
        }
    ]
    assert [each["name"] for each in made.spec["steps"]] == ["client"]
    report = made.simulate()
    assert report["phase"] == "Completed"
    (passed,) = [each for each in inputs(report) if isinstance(each, dict) and "ip" in each]
    assert passed["ip"].count(".") == 3


def test_the_services_of_a_block_read_its_inputs(tmp_path: Path) -> None:
    templates = """
- name: main
  steps:
  - - {name: one, template: group, arguments: {parameters: [{name: tag, value: "1.13"}]}}
  - - {name: two, template: group, arguments: {parameters: [{name: tag, value: "{{workflow.parameters.newest}}"}]}}
- name: group
  inputs: {parameters: [{name: tag}]}
  dag:
    tasks:
    - {name: web server, template: server, arguments: {parameters: [{name: of, value: "nginx:{{inputs.parameters.tag}}"}]}}
    - {name: a, template: client, depends: web server.Daemoned, arguments: {parameters: [{name: ip, value: x}]}}
    - {name: b, template: client, depends: "!(a.Failed)", arguments: {parameters: [{name: ip, value: "x{{tasks.a.status}}"}]}}
- name: server
  daemon: true
  inputs: {parameters: [{name: of}]}
  script: {image: "{{inputs.parameters.of}}", command: [python], source: "serve('{{inputs.parameters.of}}')"}
- name: client
  inputs: {parameters: [{name: ip}]}
  container: {image: busybox, command: [wget, "{{inputs.parameters.ip}}"]}
""".replace("web server", "server")
    spec = "entrypoint: main\narguments: {parameters: [{name: newest, value: '1.29'}]}"
    made = argo(tmp_path, workflow(templates, spec))
    assert made.complete, made.sentences
    (block,) = [each for each in made.spec["blocks"] if each["name"] == "group"]
    (service,) = block["services"]
    assert (service["image"], service["command"], service["args"]) == (
        "${'nginx:' + string(input.tag)}",
        ["python"],
        ["-c", "serve('${'nginx:' + string(input.tag)}')"],
    )
    report = made.simulate()
    assert report["phase"] == "Completed"
    images = [each for each in inputs(report) if isinstance(each, dict) and each.get("ip", "").startswith("x")]
    assert [each["ip"] for each in images] == ["x", "xSucceeded"] * 2


def test_a_list_of_daemons_only_keeps_its_pods(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow("- {name: main, steps: [[{name: a, template: b}]]}\n- {name: b, daemon: true, container: {image: c}}"),
    )
    assert made.complete, made.sentences
    assert "services" not in made.spec


def test_a_daemon_that_starts_later_becomes_a_pod_whose_address_the_next_steps_use(tmp_path: Path) -> None:
    made = argo(tmp_path, workflow(LATER, SPEC))
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
    assert inputs(report) == [{"ip": "x"}, {"port": "80"}, {"ip": "10.0.0.7"}, {"name": "server-x"}]


def test_a_daemon_is_deleted_if_the_run_fails(tmp_path: Path) -> None:
    made = argo(tmp_path, workflow(LATER, SPEC))
    client = [{"whenInput": {"ip": "10.0.0.7"}, "fail": {"type": "NoAnswer"}}, {}]
    report = made.simulate({**READY, "client": client})
    assert report["phase"] == "Failed"
    assert ran(report, "delete-server") == ["Completed"]


def test_a_daemon_is_deleted_after_the_last_task_of_a_dag(tmp_path: Path) -> None:
    templates = """
- name: main
  dag:
    tasks:
    - {name: first, template: client, arguments: {parameters: [{name: ip, value: x}]}}
    - {name: server, template: server, depends: first}
    - {name: a, template: client, depends: server, arguments: {parameters: [{name: ip, value: "{{tasks.server.ip}}"}]}}
    - {name: b, template: client, depends: server.Daemoned, arguments: {parameters: [{name: ip, value: x}]}}
- {name: server, daemon: true, retryStrategy: {limit: 3}, script: {image: python, command: [python], source: serve()}}
- {name: client, inputs: {parameters: [{name: ip}]}, container: {image: busybox, command: [wget]}}
"""
    made = argo(tmp_path, workflow(templates))
    assert made.complete, made.sentences
    assert made.step("delete-server")["needs"] == ["first", "server", "a", "b"]
    pod = made.activity("server")["resource"]["manifest"]["spec"]
    assert pod["restartPolicy"] == "OnFailure"
    assert (pod["containers"][0]["command"], pod["containers"][0]["args"]) == (["python"], ["-c", "serve()"])
    report = made.simulate(READY)
    assert report["phase"] == "Completed"
    assert inputs(report)[-1] == {"name": "server-x"}


def test_unsupported_fields_of_a_daemon_are_reported(tmp_path: Path) -> None:
    templates = LATER.replace(
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
    made = argo(tmp_path, workflow(LATER, spec))
    assert any("a daemon Pod cannot mount a workspace" in each for each in made.sentences)
