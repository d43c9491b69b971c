"""The execution of a program, for one decision of the interpreter.

============  ===============================================================================================
`context`     the data of the decision: the memory, the commands, the agenda, expressions, and timers; the `Observer`
`actions`     how a task does its own work: activities, children, signals, waits, variables, limits
`services`    the services of a running list of steps: when they start, are ready, are lost, and stop
`flow`        the tree of frames, steps, loops, and tasks; it starts and cancels actions and services
============  ===============================================================================================

Each module uses those above it. `perdure.language.interpreter` drives them: it applies the event, processes the agenda, and
closes the run after its main steps.
"""
