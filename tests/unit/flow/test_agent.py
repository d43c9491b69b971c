"""examples/agent: a model decides, tools run in a sandbox, and people approve. The model is a script."""

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from temporalio.exceptions import ApplicationError

import perdure.flow as pf
from perdure import activity
from support.cli import perdure
from support.http_server import Server
from support.manuals import REPOSITORY

FOLDER = REPOSITORY / "examples" / "agent"
PRIMES = "print(len([n for n in range(2, 100) if all(n % d for d in range(2, n))]))"


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("agent")
    sys.modules.pop("agent", None)


def scripted(module: Any, *answers: dict[str, Any]) -> tuple[pf.LocalRun, list[list[Any]]]:
    """A run whose model gives these answers, and the conversations that it has seen."""
    left, seen = list(answers), []

    def think(messages: list[Any]) -> Any:
        seen.append(messages)
        return module.Decision(**{"tokens": 100, **left.pop(0)})

    run = pf.LocalRun()
    run.replace(module.think, think)
    return run, seen


def test_the_model_reads_what_its_program_has_printed(agent: Any) -> None:
    run, seen = scripted(agent, {"tool": "run_python", "arguments": {"code": PRIMES}}, {"text": "25"})
    report = run.run(agent.research, "How many primes are below 100?")
    assert (report.text, report.tokens, report.tools) == ("25", 200, ["run_python"])
    assert seen[1][-1].content == "25\n"
    assert [call.id for call in run.calls] == ["think", "run-python", "think#2"]


def test_a_lost_pod_repeats_a_tool_and_not_the_answer_of_the_model(agent: Any) -> None:
    run, seen = scripted(agent, {"tool": "run_python", "arguments": {"code": PRIMES}}, {"text": "25"})
    run.lose(agent.run_python)
    assert run.run(agent.research, "primes").tokens == 200
    assert len(seen) == 2
    assert [call.outcome for call in run.calls if call.activity == "run-python"] == ["Lost", "Completed"]


@pytest.mark.parametrize(("approved", "read"), [(True, "published"), (False, "a person has refused this")])
def test_a_person_decides_what_is_published(agent: Any, *, approved: bool, read: str) -> None:
    run, seen = scripted(agent, {"tool": "publish", "arguments": {"text": "hello"}}, {"text": "done"})
    run.send_signal("approve", approved, after="3d")
    run.run(agent.research, "Say hello")
    assert seen[1][-1].content == read
    assert run.now - run.start == timedelta(days=3)
    assert ("publish" in {call.activity for call in run.calls}) == approved


def test_a_run_stops_at_its_budget_unless_a_person_raises_it(agent: Any) -> None:
    answers = [{"tool": "run_python", "arguments": {"code": "print(1)"}, "tokens": 600}] * 3
    run, _ = scripted(agent, *answers)
    with pytest.raises(ApplicationError, match="has used 1200 tokens") as caught:
        run.run(agent.research, "Think long", budget=1_000)
    assert caught.value.type == "BudgetExceededError"
    assert run.now - run.start == timedelta(days=1)
    run, _ = scripted(agent, *answers, {"text": "done"})
    run.send_signal("budget", 5_000, after="1h")
    assert run.run(agent.research, "Think long", budget=1_000).tokens == 1_900


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        ({"tool": "delete_all"}, "there is no tool delete_all"),
        ({"tool": "run_python", "arguments": {"program": "1"}}, "wrong arguments"),
        ({"tool": "run_python", "arguments": {"code": "while True: pass"}}, "the tool has failed"),
    ],
    ids=["no such tool", "wrong arguments", "endless"],
)
def test_the_model_reads_its_mistakes(agent: Any, answer: dict[str, Any], read: str) -> None:
    run, seen = scripted(agent, answer, {"text": "sorry"})
    if "failed" in read:
        run.set_duration(agent.run_python, "2m")
    assert run.run(agent.research, "Try").text == "sorry"
    assert read in seen[1][-1].content


def test_an_agent_without_an_answer_ends(agent: Any) -> None:
    run, _ = scripted(agent, *[{"tool": "run_python", "arguments": {"code": "1"}}] * 3)
    with pytest.raises(ApplicationError, match="no answer after 3 decisions"):
        run.run(agent.research, "Think", longest=3)


def manifests(*arguments: str) -> list[dict[str, Any]]:
    deploy = ["deploy", str(FOLDER / "agent.py"), "--image", "agent:1", "--mount", "--dry-run", *arguments]
    code = f"import sys; sys.argv = ['perdure', *{deploy!r}]; from perdure.cli.app import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def test_tools_run_in_pods_that_the_network_policy_selects(tmp_path: Path) -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for each in manifests()}
    (tool,) = found["Workflow", "agent-sandbox"]["spec"]["activities"]
    policy = yaml.safe_load((FOLDER / "sandbox.yaml").read_text())["spec"]
    assert tool["podTemplate"]["metadata"]["labels"].items() >= policy["podSelector"]["matchLabels"].items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy.keys() == {"podSelector", "policyTypes"}, "no rule allows anything"
    patch = tool["podSpecPatch"]
    assert patch["automountServiceAccountToken"] is False
    assert patch["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert "env" not in str(patch)
    assert ("WorkerDeployment", "agent-sandbox") not in found, "it has no flows"
    file = tmp_path / "agent.yaml"
    file.write_text(yaml.safe_dump_all(found.values()))
    linted = perdure("lint", "--file", str(file))
    assert linted.exit_code == 0, linted.output


async def asked(agent: Any, content: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Server]:
    """What `think` makes of the answer of a model, and the server that has given it."""
    answer = {"choices": [{"message": {"content": content}}], "usage": {"total_tokens": 7}}
    async with Server(lambda _: web.json_response(answer)).serve() as server:
        monkeypatch.setenv("MODEL_URL", server.address)
        monkeypatch.setenv("MODEL_KEY", "key")
        return await asyncio.to_thread(agent.think.function, [agent.Message("user", "Hi")]), server


async def test_think_reads_the_decision_of_a_model(agent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    decision, server = await asked(agent, '{"tool": "run_python", "arguments": {"code": "1"}}', monkeypatch)
    assert (decision.tool, decision.arguments, decision.tokens) == ("run_python", {"code": "1"}, 7)
    assert server.asked[0].headers["Authorization"] == "Bearer key"
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("content", ["Hello!", "[1]"])
async def test_an_answer_that_is_no_decision_is_asked_again(
    agent: Any, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(activity.ApplicationError, match="did not answer with a decision"):
        await asked(agent, content, monkeypatch)
