"""Responses are compared in their wire form: presence, values, and the order of events."""

from datetime import UTC, datetime
from fnmatch import fnmatchcase

from temporalio.api.common.v1 import SearchAttributes, WorkflowExecution
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

from fidelity.differences import OPEN, PLANS
from fidelity.normal import Normalizer
from fidelity.recording import FOLDER, NAMES, differences, path_of

RUN = "3b241101-e2bb-4255-8caf-4136c566a962"


def described(**info: object) -> object:
    made = DescribeWorkflowExecutionResponse(workflow_execution_info=WorkflowExecutionInfo(**info))  # type: ignore[arg-type]
    return [{"rpc": "Describe", "response": Normalizer("1f", "somewhere").message(made)}]


def fields(temporal: object, ours: object) -> list[tuple[str, object, object]]:
    return [(one.field, one.temporal, one.ours) for one in differences("s", temporal, ours)]  # type: ignore[arg-type]


def test_an_empty_message_differs_from_an_absent_one() -> None:
    found = fields(described(search_attributes=SearchAttributes(), history_length=1), described(history_length=1))
    assert found == [("Describe: response.workflow_execution_info.search_attributes", {}, "(absent)")]


def test_generated_values_are_compared_only_by_equality() -> None:
    def one(run: str, first: str, name: str, year: int) -> object:
        info = WorkflowExecutionInfo(execution=WorkflowExecution(workflow_id=name, run_id=run), first_run_id=first)
        info.start_time.FromDatetime(datetime(year, 1, 1, tzinfo=UTC))
        return described(execution=info.execution, first_run_id=info.first_run_id, start_time=info.start_time)

    other = RUN.replace("3b", "4c")
    assert fields(one(RUN, RUN, "w-1f", 2025), one(other, other, "w-1f", 2026)) == []
    [(field, _, _)] = fields(one(RUN, RUN, "w-1f", 2025), one(other, RUN, "w-1f", 2025))
    assert field == "Describe: response.workflow_execution_info.first_run_id"


def test_events_are_compared_by_type_and_order() -> None:
    def history(*types: str) -> object:
        events = [{"event_id": number, "event_type": f"EVENT_TYPE_{kind}"} for number, kind in enumerate(types, 1)]
        return [{"rpc": "Get", "response": {"history": {"events": events}}}]

    assert fields(history("STARTED", "SIGNALED"), history("STARTED", "TIMER", "SIGNALED")) == [
        ("SIGNALED: event_id", 2, 3),
        ("Get: response.history.order", "STARTED SIGNALED", "STARTED TIMER SIGNALED"),
    ]


def test_each_open_field_has_a_plan() -> None:
    plans = {field: [pattern for pattern in PLANS if fnmatchcase(field, pattern)] for field in OPEN}
    assert [field for field, patterns in plans.items() if not patterns] == []
    assert {pattern for patterns in plans.values() for pattern in patterns} == set(PLANS)


def test_each_scenario_is_recorded() -> None:
    assert sorted(FOLDER.glob("*.json")) == sorted(map(path_of, NAMES))
