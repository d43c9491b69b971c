"""Temporal's integration of the OpenAI Agents SDK: agents with a scripted model, as workflows on Perdure's frontend."""

import uuid
from datetime import timedelta

import pytest
from agents import set_tracing_disabled
from temporalio.openai_agents import ModelActivityParameters
from temporalio.openai_agents.testing import AgentEnvironment, ResponseBuilders, TestModel
from temporalio.worker import Worker

from support.sdk.agent_flows import Assistant, count_primes
from support.sdk.client import Temporal, until

set_tracing_disabled(True)  # it would send traces to OpenAI

ANSWERS = [ResponseBuilders.tool_call('{"below": 100}', "count_primes"), ResponseBuilders.output_message("25 primes")]


@pytest.mark.parametrize(("approved", "result"), [(True, "25 primes"), (False, "refused")])
async def test_an_agent_calls_tools_and_waits_for_a_person(temporal: Temporal, *, approved: bool, result: str) -> None:
    answers = iter(ANSWERS)
    model = TestModel(lambda: next(answers))
    queue = f"agents-{uuid.uuid4().hex[:8]}"
    parameters = ModelActivityParameters(start_to_close_timeout=timedelta(seconds=30))
    async with AgentEnvironment(model=model, model_params=parameters) as environment:
        client = environment.applied_on_client(temporal.client)

        def worker() -> Worker:
            # Without a cache, each workflow task replays the history, and the model must not be asked again.
            return Worker(
                client, task_queue=queue, workflows=[Assistant], activities=[count_primes], max_cached_workflows=0
            )

        async with worker():
            run = await client.start_workflow(
                Assistant.run, "How many primes are below 100?", id=queue, task_queue=queue
            )

            async def answered() -> bool:
                return bool(await run.query(Assistant.answer))

            await until("the answer of the agent", answered)
        async with worker():
            assert await run.execute_update(Assistant.approve, approved) == "25 primes"
            assert await run.result() == result
    types = [
        attributes.activity_type.name
        for name, attributes in await temporal.history(run)
        if name == "ActivityTaskScheduled"
    ]
    assert types == ["invoke_model_activity", "count_primes", "invoke_model_activity"]
    assert next(answers, None) is None
