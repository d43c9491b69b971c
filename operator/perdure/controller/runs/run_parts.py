"""The parts of a WorkflowRun in this process."""

from collections.abc import Callable
from dataclasses import dataclass

from perdure.controller.peers import Peers
from perdure.controller.reconcile.inbox import Inbox
from perdure.controller.runs.attempts.run_attempts import RunAttempts
from perdure.controller.runs.child_outcomes import ChildOutcomes
from perdure.controller.runs.effects.pending_inputs import PendingInputs
from perdure.controller.runs.effects.run_effects import Effects
from perdure.controller.runs.kubernetes_events import RunEventRecorder
from perdure.controller.runs.run_commits import RunCommits
from perdure.controller.runs.run_conditions import RunConditions
from perdure.controller.runs.run_deciders import RunDeciders
from perdure.controller.runs.run_facts import CurrentFacts
from perdure.controller.runs.run_record import RunRecord
from perdure.controller.runs.starter import RunStarter
from perdure.controller.tools import Tools
from perdure.engine import inputs
from perdure.kube import client as kube
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import reset_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The parts of one run."""

    ref: RunRef
    stored: RunRecord
    event_recorder: RunEventRecorder
    attempts: RunAttempts
    effects: Effects
    facts: CurrentFacts
    conditions: RunConditions
    outcomes: ChildOutcomes
    inbox: Inbox[inputs.Request]
    commits: RunCommits
    deciders: RunDeciders
    starter: RunStarter

    @classmethod
    def assemble(cls, tools: Tools, peers: Peers, obj: kube.Object, wake: Callable[[], None]) -> "RunParts":
        """Build the parts of a run; `wake` requests a reconciliation."""
        meta = obj["metadata"]
        ref = RunRef(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            workflow_id=obj["spec"].get("workflowId") or meta["name"],
        )
        stored = RunRecord(tools.client, obj, ref, tools.blobs)
        event_recorder = RunEventRecorder(tools.recorder, ref)
        reset = reset_of(obj)
        attempts = RunAttempts(
            tools,
            ref,
            stored,
            reset,
            event_recorder.pod_refused,
            event_recorder.pod_waits,
            event_recorder.result_not_cached,
            wake=wake,
        )
        pending = PendingInputs(wake)
        effects = Effects(tools.client, ref, reset, peers, tools.policies, pending, wake, event_recorder.create_refused)
        facts = CurrentFacts(ref, stored, effects, tools.workers)
        conditions = RunConditions(ref, stored, peers, event_recorder, facts.collect)
        inbox: Inbox[inputs.Request] = Inbox("the run")
        deciders = RunDeciders(tools, ref, stored.record, inbox)
        return cls(
            ref=ref,
            stored=stored,
            event_recorder=event_recorder,
            attempts=attempts,
            effects=effects,
            facts=facts,
            conditions=conditions,
            outcomes=ChildOutcomes(effects, pending),
            inbox=inbox,
            commits=RunCommits(
                ref, stored, facts, inbox, peers=peers, conditions=conditions, event_recorder=event_recorder
            ),
            deciders=deciders,
            starter=RunStarter(tools, effects.context, stored, inbox, deciders),
        )
