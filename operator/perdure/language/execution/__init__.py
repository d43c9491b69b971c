"""The execution of a program, for one decision. `Execution` combines the parts; `DecisionContext` contains their data.

==================  ===========================================================================================
`frames`            lists of steps: open, stop, close; the outcome of a frame goes to its caller
`steps`             start when their needs have closed; a failure stops the frame
`loops`             `forEach`: one task for each item
`tasks`             a step or item: its action, its timeout, its `catch`
`actions`           the kinds of steps; `blocks` (call, switch, parallel) and `waits` (sleep, signals, conditions)
`compensations`     recorded when tasks complete, run when the run fails or is canceled
`closing`           after the main steps: compensations, handlers, the last command
`timers`            timers, and timeouts from expressions
`evaluation`        expressions
==================  ===========================================================================================

An event is applied to its task, timer, or compensation. Starting goes down: frame → step → loop → task → action → frame of a
block. It goes through the agenda of `DecisionContext`, so that a decision can be split between any two starts. Closing goes up
immediately: action → task → loop → step → frame → the task that opened the frame.

Stopping a task, step, loop, or frame records its outcome and cancels its running parts. It closes after the last of these
parts. Each kind of action determines whether it closes immediately or later.
"""
