"""The first workflow task of a run that is reserved for the client that starts it."""

import asyncio

from temporalio.api.enums.v1 import WorkflowIdConflictPolicy

from perdure.frontend.runs.starts import run_name
from rpc.served import Served, complete_workflow, served


@served
async def test_a_start_that_finds_an_open_run_reserves_no_task(it: Served) -> None:
    use_existing = WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
    requests = ("one", "other")
    answers = await asyncio.gather(
        *(
            it.start(request_id=each, request_eager_execution=True, workflow_id_conflict_policy=use_existing)
            for each in requests
        )
    )
    assert answers[0].run_id == answers[1].run_id
    assert sorted(answer.started for answer in answers) == [False, True]
    names = [run_name("w", request) for request in requests]
    assert not [name for name in names if it.frontend.first_tasks.is_reserved("default", name)]
    [task] = [answer.eager_workflow_task for answer in answers if answer.started]
    await it.complete(task, complete_workflow())
