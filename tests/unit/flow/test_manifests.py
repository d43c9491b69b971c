"""What `perdure deploy` applies."""

from pathlib import Path

import pytest
import yaml
from click.testing import Result

import perdure.flow as pf
from perdure.api.kinds.workerdeployment import WorkerDeploymentSpec
from perdure.api.kinds.workflow import WorkflowSpec
from perdure.flow.manifests import Placement, manifests_of, workflow_of
from perdure.runtime.workers.versions import build_id
from support.cli import perdure
from support.manuals import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "flow" / "etl.py"
train = pf.Environment(
    "train",
    image="example.com/train:1",
    cpu="2",
    memory="4Gi",
    gpu=1,
    env={"A": "b", "TOKEN": pf.Secret("bank", "token"), "SPARE": pf.Secret("bank", "spare", optional=True)},
    service_account="reader",
)


@train.activity(
    timeout="1h",
    total_timeout="1d",
    heartbeat="30s",
    retry=pf.Retry(attempts=3, initial="2s", backoff=1.5, maximum="1m", not_for=(ValueError, "Diverged")),
    limit=("gpus", "licenses"),
    cache="1d",
    definition={"podReplacementPolicy": "Failed"},
)
def fit(lr: float) -> float:
    return lr


@train.flow
async def search(rates: list[float]) -> float:
    return max(await pf.map(fit, rates))


TWO_VOLUMES = """
import perdure.flow as pf
one, two = pf.Environment("one"), pf.Environment("two")
@one.activity(workspace=pf.Workspace("files", size="1Gi"))
def first() -> None: ...
@two.activity(workspace=pf.Workspace("files", size="2Gi"))
def second() -> None: ...
"""


def deploy(*arguments: str) -> Result:
    return perdure("deploy", *arguments)


def test_an_activity_has_the_fields_of_yaml() -> None:
    workflow = workflow_of(train, Placement(image="other", module="shop.train"))
    WorkflowSpec.model_validate(workflow["spec"])
    [activity] = workflow["spec"]["activities"]
    [container] = activity.pop("podTemplate")["spec"]["containers"]
    assert activity == {
        "name": "fit",
        "startToCloseTimeout": "1h",
        "scheduleToCloseTimeout": "1d",
        "heartbeatTimeout": "30s",
        "retryPolicy": {
            "exponential": {
                "initialInterval": "2s",
                "backoffCoefficient": "1.5",
                "maximumInterval": "1m",
                "maximumAttempts": 3,
                "nonRetryableErrorTypes": ["ValueError", "Diverged"],
            }
        },
        "limits": [{"name": "gpus"}, {"name": "licenses"}],
        "cache": {"key": "${input}", "maxAge": "1d"},
        "podReplacementPolicy": "Failed",
    }
    assert container["image"] == "example.com/train:1"
    assert container["command"] == ["python", "-m", "perdure.flow.pod", "shop.train", "train"]
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi"},
        "limits": {"memory": "4Gi", "nvidia.com/gpu": "1"},
    }
    assert container["env"] == [
        {"name": "A", "value": "b"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "bank", "key": "token"}}},
        {"name": "SPARE", "valueFrom": {"secretKeyRef": {"name": "bank", "key": "spare", "optional": True}}},
    ]
    worker = manifests_of(train, Placement(image="other", module="shop.train"))[-1]
    names = {each["name"] for each in worker["spec"]["podTemplate"]["spec"]["containers"][0]["env"]}
    assert "A" in names
    assert "TOKEN" not in names, "only activities get secrets"


def test_a_retry_policy_by_name_is_a_reference_that_calls_leave_to_the_definition() -> None:
    tools = pf.Environment("named")

    @tools.activity(retry="standard")
    def run(code: str) -> str:
        return code

    spec = WorkflowSpec.model_validate(workflow_of(tools, Placement(image="python", module="tools"))["spec"])
    assert [each.retry_policy and each.retry_policy.name for each in spec.activities] == ["standard"]
    with pytest.raises(
        ValueError, match=r"must be a `pf.Retry`, or the name of a RetryPolicy such as `standard`, not 'No!'"
    ):
        tools.activity(retry="No!")
    with pytest.raises(ValueError, match="`retryPolicy` in `definition` has no effect on flows: use `retry`"):
        tools.activity(definition={"retryPolicy": {"name": "standard"}})


def test_a_mounted_module_reaches_the_worker_and_the_activities() -> None:
    placement = Placement(image="python", module="etl.py", source="import perdure.flow\n")
    code, *_, workflow, worker = manifests_of(train, placement)
    assert code["data"] == {"etl.py": "import perdure.flow\n"}
    name = code["metadata"]["name"]
    for spec in (workflow["spec"]["activities"][0]["podTemplate"]["spec"], worker["spec"]["podTemplate"]["spec"]):
        assert {"name": "code", "configMap": {"name": name}} in spec["volumes"]
        assert spec["containers"][0]["command"][3] == "/flow/etl.py"


def test_an_environment_without_flows_needs_no_worker_and_labels_its_pods() -> None:
    tools = pf.Environment("tools", labels={"sandbox": "tools"})

    @tools.activity()
    def run(code: str) -> str:
        return code

    (workflow,) = manifests_of(tools, Placement(image="python", module="tools"))
    WorkflowSpec.model_validate(workflow["spec"])
    assert workflow["spec"]["activities"][0]["podTemplate"]["metadata"] == {"labels": {"sandbox": "tools"}}


def test_changed_code_is_another_version_of_the_worker_and_leaves_that_of_open_runs() -> None:
    builds, names = set(), set()
    for source in ("import perdure.flow\n", "import perdure.flow as pf\n"):
        code, *_, worker = manifests_of(train, Placement(image="python", module="etl.py", source=source))
        assert worker["kind"] == "WorkerDeployment"
        builds.add(build_id(WorkerDeploymentSpec.parse(worker["spec"])))
        names.add(code["metadata"]["name"])
    assert (len(builds), len(names)) == (2, 2)


def test_the_command_prints_the_manifests() -> None:
    done = deploy(str(EXAMPLE), "--image", "example.com/etl:1", "--mount", "--dry-run")
    assert done.exit_code == 0, done.output
    found = {each["kind"]: each["metadata"]["name"] for each in yaml.safe_load_all(done.stdout)}
    assert found.pop("ConfigMap").startswith("etl-code-")
    assert found == {
        "ServiceAccount": "etl-worker",
        "RoleBinding": "etl-worker",
        "Workflow": "etl",
        "WorkerDeployment": "etl",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nowhere\n", "cannot be imported: line 1: No module named 'nowhere'"),
        ("x = 1\n", "has no `perdure.flow.Environment`"),
        (TWO_VOLUMES, "the activity `second` mounts another workspace named `files` than the others"),
    ],
)
def test_a_module_without_flows_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / f"flows_{len(text)}.py"
    file.write_text(text)
    done = deploy(str(file), "--image", "x")
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_missing_file_and_a_mounted_name_are_refused() -> None:
    assert "there is no file nowhere.py" in deploy("nowhere.py", "--image", "x").stderr
    assert "requires a file as MODULE" in deploy("json", "--image", "x", "--mount").stderr
