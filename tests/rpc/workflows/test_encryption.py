"""The command line shows the runs of encrypted payloads, with the ciphertext as it is stored."""

from datetime import timedelta

from temporalio.api.common.v1 import Memo, Payload, Payloads, WorkflowExecution
from temporalio.api.failure.v1 import Failure

from perdure.kube.clock import now
from perdure.view.page import Page
from perdure.view.runs import events
from perdure.view.runs.describe import describe
from perdure.view.runs.run import read_run
from rpc.served import Served, activity, served

SEALED = Payload(metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"\xff\x00"}, data=b"\x00cipher\xff{}")


@served
async def test_describe_and_history_show_encrypted_payloads_as_they_are_stored(server: Served) -> None:
    sealed = Payloads(payloads=[SEALED])
    await server.start(input=sealed, memo=Memo(fields={"card": SEALED}))
    await server.decide(activity("charge", start_to_close_timeout=timedelta(minutes=1)))
    failure = Failure(message="Encoded failure", encoded_attributes=SEALED)
    failure.application_failure_info.details.CopyFrom(sealed)
    task = await server.call("PollActivityTaskQueue")
    await server.call("RespondActivityTaskFailed", task_token=task.task_token, failure=failure)
    described = await server.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id="w"))
    assert described.workflow_execution_info.memo.fields["card"] == SEALED
    last = described.pending_activities[0].last_failure
    assert (last.encoded_attributes, last.application_failure_info.details) == (SEALED, sealed)
    assert (await server.history())[0].workflow_execution_started_event_attributes.input == sealed

    (run,) = server.world.runs().values()
    page = Page(now=now(), width=200)
    shown = "\n".join(line.plain for line in describe(read_run(run, now=page.now), page))
    assert 'Input:        {"metadata":{"encoding":"binary/encrypted"' in shown, shown
    assert "Last failure: Application: Encoded failure" in shown
    history = "\n".join(line.plain for line in events.table(run["status"]["history"]["events"], page))
    assert "binary/encrypted" in history
