"""A durable agent: a model decides which tools run, in a flow that survives crashes and waits for people.

- Each answer of the model and each tool is an activity: what has been paid for is never asked again after a crash.
- Tools run in pods without network, token, or privileges (sandbox.yaml). What they return is all that leaves the pod.
- What changes the world needs the approval of a person. No pod runs while the agent waits.
- A budget of tokens limits what a run costs. A person can raise it.

kubectl apply -k examples/agent
kubectl create secret generic model --from-literal=MODEL_URL=https://… --from-literal=MODEL_KEY=…
perdure deploy examples/agent/agent.py --image localhost/perdure:dev --mount
perdure start --type research --task-queue agent --input '{"task": "How many primes are below 1000?"}' --name primes
perdure signal primes --name approve --input true
perdure result primes
"""

import json
import os
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

import perdure.flow as pf
from perdure import activity

SECRET = {"containers": [{"name": "main", "envFrom": [{"secretRef": {"name": "model"}}]}]}
LOCKED = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "containers": [
        {
            "name": "main",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }
    ],
}

agent = pf.Environment("agent", cpu="10m", memory="64Mi")
sandbox = pf.Environment("agent-sandbox", cpu="100m", memory="128Mi", labels={"sandbox": "agent"})

LONGEST = 3_000
"""Characters of the output of a tool that the model gets; a result has at most 4 KiB."""


@dataclass
class Message:
    """A part of the conversation, as models read it."""

    role: str
    content: str


@dataclass
class Decision:
    """What the model wants: to call a tool, or, without one, to end with a text."""

    text: str = ""
    tool: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    tokens: int = 0
    """What this answer has cost."""


@dataclass
class Report:
    """The result of a run."""

    text: str
    tokens: int
    tools: list[str]


@agent.activity(timeout="5m", retries=5, definition={"podSpecPatch": SECRET})
def think(messages: list[Message]) -> Decision:
    """Ask a model what to do next, through the chat API that most models have."""
    body = {
        "messages": [{"role": each.role, "content": each.content} for each in messages],
        "response_format": {"type": "json_object"},
    }
    headers = {"Authorization": f"Bearer {os.environ['MODEL_KEY']}", "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["MODEL_URL"], json.dumps(body).encode(), headers)  # noqa: S310 - a Secret has it
    with urllib.request.urlopen(request, timeout=240) as response:  # noqa: S310
        answer = json.load(response)
    try:
        wanted = json.loads(answer["choices"][0]["message"]["content"])
        return Decision(
            text=str(wanted.get("text", "")),
            tool=wanted.get("tool"),
            arguments=wanted.get("arguments") or {},
            tokens=int(answer["usage"]["total_tokens"]),
        )
    except (AttributeError, ValueError) as error:
        raise activity.ApplicationError(
            f"the model did not answer with a decision: {error}", type="BadAnswer"
        ) from error


@sandbox.activity(timeout="1m", retries=1, definition={"podSpecPatch": LOCKED})
def run_python(code: str) -> str:
    """Run a program that the model has written, and return what it prints."""
    done = subprocess.run(  # noqa: S603 - the pod is the sandbox
        [sys.executable, "-I", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=50,
        env={},
    )
    return done.stdout[-LONGEST:]


@agent.activity(timeout="1m", retries=5)
def publish(text: str) -> str:
    """Publish a text where others see it; a real one calls an API, with the workflow ID as its idempotency key."""
    print(text)
    return "published"


TOOLS: dict[str, pf.Activity[..., str]] = {"run_python": run_python, "publish": publish}
NEED_APPROVAL = {"publish"}
INSTRUCTIONS = (
    'Answer with JSON: {"tool": "run_python", "arguments": {"code": "…"}} runs a program without network, '
    '{"tool": "publish", "arguments": {"text": "…"}} publishes a text, {"text": "…"} ends with an answer.'
)


class BudgetExceededError(Exception):
    """The run has used its tokens, and nobody has given it more."""


@agent.flow
async def research(task: str, budget: int = 20_000, longest: int = 50) -> Report:
    """Work on a task with the model and the tools until the model has an answer."""
    messages = [Message("system", INSTRUCTIONS), Message("user", task)]
    report = Report("", 0, [])
    for _ in range(longest):
        decision = await think(messages)
        report.tokens += decision.tokens
        if decision.tool is None:
            report.text = decision.text
            return report
        while report.tokens > budget:
            budget += await more_budget(report.tokens)
        answer = await use(decision)
        report.tools.append(decision.tool)
        messages += [Message("assistant", json.dumps(decision.arguments)), Message("user", answer)]
    raise BudgetExceededError(f"no answer after {longest} decisions")


async def use(decision: Decision) -> str:
    """Call a tool, and return what the model gets to read: also a refusal, or an error, from which it can learn."""
    tool = TOOLS.get(decision.tool or "")
    if tool is None:
        return f"there is no tool {decision.tool}; the tools are {', '.join(TOOLS)}"
    if decision.tool in NEED_APPROVAL:
        workflow.set_current_details(f"waits for the approval of {decision.tool}: {decision.arguments}")
        if not await pf.signal("approve", bool, timeout="7d"):
            return "a person has refused this"
        workflow.set_current_details("")
    try:
        return await tool(**decision.arguments)
    except TypeError as error:
        return f"wrong arguments: {error}"
    except ActivityError as error:
        return f"the tool has failed: {error.cause}"


async def more_budget(spent: int) -> int:
    """Wait until a person gives the run more tokens.

    Raises:
        BudgetExceededError: Nobody has, for a day.
    """
    workflow.set_current_details(f"has used {spent} tokens; signal `budget` gives it more")
    try:
        return await pf.signal("budget", int, timeout="1d")
    except TimeoutError:
        raise BudgetExceededError(f"the run has used {spent} tokens") from None
