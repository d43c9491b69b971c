"""Workflow tasks: workers outside of this process decide a run. Pure, with time as an argument.

The rules are those of Temporal's server (service/history/workflow/workflow_task_state_machine.go, historybuilder/event_store.go):

* A run has one workflow task at a time. It is scheduled when something has happened; events before a worker takes it are
  recorded immediately.
* While a worker decides, events are buffered. They are recorded after the events of its commands, with the ends of activities
  and Nexus operations last. Timers and children, which need no acknowledgment, are not processed until then.
* The first attempt of a task that fails or times out leaves events. Further attempts leave none until one succeeds.
* A task that only an update has requested (speculative) leaves no events if the worker rejects the update.

One thing differs: the delivery of a task is not written, so a task that another process has delivered is delivered again.
"""
