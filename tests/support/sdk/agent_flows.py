"""An agent of the OpenAI Agents SDK as a workflow; a person approves its answer. The sandbox imports this module for each run."""

from datetime import timedelta

from agents import Agent, Runner
from temporalio import activity, workflow
from temporalio.openai_agents.workflow import activity_as_tool


@activity.defn
async def count_primes(below: int) -> int:
    """Count the primes below a number."""
    return len([n for n in range(2, below) if all(n % divisor for divisor in range(2, n))])


@workflow.defn
class Assistant:
    """An agent whose answer a person approves."""

    def __init__(self) -> None:
        self._answer = ""
        self._approved: bool | None = None

    @workflow.run
    async def run(self, task: str) -> str:
        tool = activity_as_tool(count_primes, start_to_close_timeout=timedelta(seconds=30))
        agent = Agent(name="Assistant", instructions="Use the tools.", tools=[tool])
        self._answer = (await Runner.run(agent, task)).final_output
        await workflow.wait_condition(lambda: self._approved is not None)
        return self._answer if self._approved else "refused"

    @workflow.query
    def answer(self) -> str:
        return self._answer

    @workflow.update
    def approve(self, approved: bool) -> str:
        self._approved = approved
        return self._answer

    @approve.validator
    def check(self, approved: bool) -> None:
        if not self._answer:
            raise ValueError(f"there is no answer yet, so it cannot be approved: {approved}")
