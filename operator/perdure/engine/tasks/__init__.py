"""Workflow tasks: how workers outside of this process decide a run. Pure, with time as an argument.

The rules are those of Temporal's server (service/history/workflow/workflow_task_state_machine.go, historybuilder/event_store.go):

* A run has one workflow task at a time. It is scheduled after something has happened; events before a worker takes it are
  recorded immediately.
* While a worker decides, events are buffered. They are recorded after the events of its commands, the ends of activities and
  Nexus operations last. Timers and children, which nobody waits to have acknowledged, are not even processed until then.
* A task that fails or times out leaves events the first time. Further attempts leave none until one succeeds.
* A task that only an update has requested leaves no events if the worker rejects the update (speculative).

One thing differs: that a worker has taken a task is not written. A task that another process has delivered is delivered again.
"""
