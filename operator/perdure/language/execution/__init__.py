"""The execution of a program, for one decision. `Execution` puts the parts together; `Context` holds what they read and write.

==================  ===========================================================================================
`frames`            lists of steps: open, stop, close; the outcome of a frame goes to its caller
`steps`             start when their needs have closed; a failure stops the frame
`loops`             `forEach`: one task for each item
`tasks`             a step or item: its action, its timeout, its `catch`
`actions`           what each kind of step does; `blocks` (call, switch, parallel) and `waits` (sleep, signals, conditions)
`compensations`     recorded when tasks complete, run when the run fails or is canceled
`closing`           what follows the main steps: compensations, handlers, the last command
`timers`            timers, and timeouts that expressions give
`evaluation`        expressions
==================  ===========================================================================================

An event is applied to the task, timer or compensation that it is about. Starting goes down: frame → step → loop → task →
action → frame of a block. It goes through the agenda of `Context`, so that a decision can be split between any two starts.
Closing goes up immediately: action → task → loop → step → frame → the task that opened the frame.

To stop something is to record the outcome that it will close with, and to cancel what is running below. It closes once the
last of that has closed. Actions decide which of them close immediately and which are waited for.
"""
