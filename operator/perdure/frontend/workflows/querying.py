"""Queries of runs whose decider is in this process, which are runs of Workflows."""

from temporalio.api.workflowservice.v1 import QueryWorkflowRequest, QueryWorkflowResponse

from perdure.controller.errors import NotYetError, when_ready
from perdure.controller.reconcile.newer_states import NewerStateError, message_for
from perdure.controller.workflows.definitions import Definition, read_spec
from perdure.engine.state import RunState
from perdure.frontend.errors import invalid, precondition, unavailable
from perdure.frontend.runs.gateway import RunGateway, View
from perdure.frontend.workflows.step_queries import QUERIES, QueriedRun, answer
from perdure.language.program import InvalidWorkflowError

_COMPILING_SECONDS = 10.0
"""How long a query waits for the definition to be compiled."""


class StepQueries:
    """Answers queries about the steps of runs."""

    def __init__(self, runs: RunGateway, console_url: str) -> None:
        self._runs = runs
        self._console_url = console_url

    async def answer(self, request: QueryWorkflowRequest, view: View, state: RunState) -> QueryWorkflowResponse:
        """Answer a query of a run.

        Raises:
            RpcError: The query does not exist, or the definition of the run is not valid.
        """
        query = request.query.query_type
        if query not in QUERIES:
            raise invalid(f"unknown queryType {query}: a run of a Workflow answers {', '.join(QUERIES)}")
        definition = await self._definition(view)
        entry, phase = view.entry, str((view.object.get("status") or {}).get("phase", ""))
        url = self._console_url
        run = QueriedRun(entry.name, entry.namespace, phase, definition.program, state, url)
        return QueryWorkflowResponse(query_result=answer(run, query, definition.workflow_type))

    async def _definition(self, view: View) -> Definition:
        given, snapshot = view.object["spec"], (view.object.get("status") or {}).get("definition")

        async def find() -> Definition:
            return self._runs.definitions.pinned(
                view.entry.namespace, view.entry.name, read_spec(given), given.get("inline"), snapshot
            )

        try:
            return await when_ready(find, seconds=_COMPILING_SECONDS)
        except NotYetError:
            raise unavailable("the definition of the run is being compiled; retry later") from None
        except NewerStateError as error:
            raise unavailable(message_for(str(error))) from error
        except InvalidWorkflowError as error:
            raise precondition(f"The definition that the run started with cannot be read: {error}") from error
