"""The decider of a run: an interpreter, a standalone activity or Nexus operation, or workers."""

from dataclasses import dataclass
from datetime import datetime

from perdure.api.kinds.workflowrun import WorkflowRunSpec
from perdure.controller.reconcile.inbox import Inbox
from perdure.controller.reconcile.newer_states import NewerStateError
from perdure.controller.reconcile.record import Record
from perdure.controller.recorded_state import DamagedStateError
from perdure.controller.runs.first_event import Idle, one_activity, one_operation, scope_of
from perdure.controller.tools import Tools
from perdure.controller.workflows.definitions import Definition, newer_definition, read_spec
from perdure.engine import inputs
from perdure.engine.decider import Decider
from perdure.engine.standalone import OneActivity, OneOperation
from perdure.engine.state import RunState
from perdure.language.interpreter import Interpreter
from perdure.language.program import InvalidWorkflowError, with_defaults
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import extras_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """The decider of a run, with its definition."""

    decider: Decider | None
    """The decider; None if workers decide."""
    definition: Definition | None = None


class RunDeciders:
    """Finds the decider of one run."""

    def __init__(self, tools: Tools, run: RunRef, record: Record, inbox: Inbox[inputs.Request]) -> None:
        """Create it.

        Args:
            tools: The shared services.
            run: The run.
            record: The object of the run.
            inbox: The requests to the run.
        """
        self._tools = tools
        self._run = run
        self._record = record
        self._inbox = inbox

    def resume(self, state: RunState) -> Deciding:
        """Find the decider of a run that has already begun.

        Raises:
            NotYetError: The definition of the run is being compiled.
            DamagedStateError: The stored definition has changed or is not valid.
            NewerStateError: A newer version has written the spec or the definition.
        """
        given, snapshot = self._record.object["spec"], self._record.status.get("definition")
        try:
            spec = read_spec(given)
            standalone = self.standalone(spec)
            if standalone is not None:
                return Deciding(decider=standalone)
            definition = self._tools.definitions.pinned(
                self._run.namespace, self._run.name, spec, given.get("inline"), snapshot
            )
        except InvalidWorkflowError as error:
            at = "spec.inline" if snapshot is None else "status.definition"
            if why := newer_definition(snapshot or given.get("inline"), at):
                raise NewerStateError(why) from error
            if self._inbox.has(inputs.TerminateRequested):
                return Deciding(decider=Idle())  # ending it needs no definition
            message = f"The definition that the run started with cannot be run: {error}; restore the status, or delete the run"
            raise DamagedStateError(message) from error
        pending = {
            each.activity_type for each in state.activities.values() if not (each.by_worker or each.takes_limits)
        }
        if unknown := pending - definition.program.activities.keys():
            names = ", ".join(sorted(unknown))
            message = f"The definition lacks pending activities: {names}; restore the status, or delete the run"
            raise DamagedStateError(message)
        return Deciding(decider=self.interpreter(definition, spec, state.start_time), definition=definition)

    def standalone(self, spec: WorkflowRunSpec) -> OneActivity | OneOperation | None:
        """The decider of a standalone activity or Nexus operation; None if the run is a workflow."""
        extras = extras_of(self._record.object)
        if spec.activity is not None:
            return one_activity(self._run.workflow_id, spec, spec.activity, extras)
        if spec.nexus_operation is not None:
            return one_operation(spec, spec.nexus_operation, extras)
        return None

    def interpreter(self, definition: Definition, spec: WorkflowRunSpec, start_time: datetime) -> Interpreter:
        """The decider of a run of a Workflow."""
        given = with_defaults(definition.program, spec.input)
        return Interpreter(definition.program, scope_of(self._record.object), input=given, start_time=start_time)
