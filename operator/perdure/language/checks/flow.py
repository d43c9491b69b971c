"""Checks the flow of steps: steps that never run, calls that never end, and waits without limit."""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from perdure.api.kinds.steps import ActivityCall, Step
from perdure.api.kinds.workflow import Activity, Block, WorkflowSpec
from perdure.language.cel import Meter
from perdure.language.compiler import HANDLERS, ancestors, calls_of
from perdure.language.expressions import ExpressionError
from perdure.language.program import CompiledStep, Finding, Flow, Program, Severity

if TYPE_CHECKING:
    from perdure.language.expressions import Template

LONG: Final = timedelta(minutes=30)
"""Attempts that may take longer should heartbeat: otherwise, a hung one is noticed only at its timeout."""
_CONSTANT_WORK: Final = 10_000
"""Units of work for determining whether a condition is always or never true."""
_ONE_BY_ONE: Final = "has no effect: each step of the list needs the one before it; set `needs`, such as `needs: []`"
_ENDS: Final = {"return": "ends the block or the run", "continue_as_new": "closes the run", "fail": "fails"}


def of_definition(spec: WorkflowSpec, program: Program) -> Iterator[Finding]:
    """Check a definition as a whole."""
    yield from _endless_calls(spec, program)
    if spec.steps:  # others use the activities and blocks of a library
        yield from _unused(spec)
    yield from _policies(spec, program)
    for i, activity in enumerate(spec.activities):
        yield from _timeouts(f"spec.activities[{i}]", activity)


def _policies(spec: WorkflowSpec, program: Program) -> Iterator[Finding]:
    """Check that each `failurePolicy` of a list has an effect: that something runs next to something else."""
    lists: list[tuple[str, str, WorkflowSpec | Block]] = [("spec", "", spec)]
    lists += [(f"spec.blocks[{i}]", block.name, block) for i, block in enumerate(spec.blocks)]
    for path, name, found in lists:
        inherited = not name and bool(spec.blocks)
        if found.failure_policy is None or inherited or any(step.for_each or step.parallel for step in found.steps):
            continue
        if _one_by_one(_ancestors(program.flows[name])):
            yield _warning(f"{path}.failurePolicy", _ONE_BY_ONE)


def _ancestors(flow: Flow) -> dict[str, set[str]]:
    return ancestors({compiled.step.name: compiled.needs for compiled in flow.steps})


def _one_by_one(before: Mapping[str, Collection[str]]) -> bool:
    """Whether each step of a list needs the one before it; `before` has the steps before each."""
    return sorted(map(len, before.values())) == list(range(len(before)))


def of_flow(path: str, flow: Flow) -> Iterator[Finding]:
    """Check a list of steps: the main steps, or those of a block."""
    before = _ancestors(flow)
    if flow.max_concurrency is not None and _one_by_one(before):
        yield _warning(f"{path}.maxConcurrency", _ONE_BY_ONE)
    for i, compiled in enumerate(flow.steps):
        step, where = compiled.step, f"{path}.steps[{i}]"
        ends = [name for name in flow.by_name if name in before[step.name] and _always_ends(flow.by_name[name])]
        if ends:
            what = _ENDS[flow.by_name[ends[0]].step.kind]
            yield _warning(where, f"step `{step.name}` never runs: step `{ends[0]}` before it always {what}; move it")
        if _constant(compiled, "when") is False:
            yield _warning(f"{where}.when", f"step `{step.name}` never runs: its `when` is always false")
        yield from _cases(where, compiled)
        yield from _clauses(where, step)
        yield from _waits(where, step)


def may_be_skipped(compiled: CompiledStep) -> bool:
    """Whether a step has a `when` that may be false."""
    return compiled.step.when is not None and _constant(compiled, "when") is not True


def always_runs(compiled: CompiledStep, flow: Flow) -> bool:
    """Whether a step always starts when its list of steps runs, unless something fails first."""
    if may_be_skipped(compiled) or compiled.step.for_each or compiled.step.catch:
        return False
    others = (other for other in flow.steps if other is not compiled)
    return not any(other.step.kind in {"return", "continue_as_new"} for other in others)


def _constant(compiled: CompiledStep, key: str) -> bool | None:
    """Return the value of a constant condition; None if it is not known."""
    template: Template | None = compiled.templates.get(key)
    if template is None or not template.sources or template.references.roots:
        return None
    try:
        return template.evaluate({}, Meter(_CONSTANT_WORK)) is True
    except ExpressionError:
        return None


def _always_ends(compiled: CompiledStep) -> bool:
    step = compiled.step
    if step.kind not in _ENDS or may_be_skipped(compiled) or step.for_each:
        return False
    return step.kind != "fail" or not step.catch


def _cases(where: str, compiled: CompiledStep) -> Iterator[Finding]:
    switch = compiled.step.switch
    if switch is None:
        return
    taken: int | None = None
    first: dict[str, int] = {}
    for i, case in enumerate(switch.cases):
        path, value = f"{where}.switch.cases[{i}]", _constant(compiled, f"case/{i}")
        if taken is not None:
            yield _warning(
                path, f"never matches: case {taken} before it always matches; move it before that case, or remove it"
            )
        elif value is False:
            yield _warning(path, "never matches: its `when` is always false")
        elif case.when in first:
            yield _warning(path, f"never matches: case {first[case.when]} before it has the same `when`")
        if value is True and taken is None:
            taken = i
        first.setdefault(case.when, i)
    if taken is not None and switch.default:
        yield _warning(f"{where}.switch.default", f"is never used: case {taken} always matches; remove it")


def _clauses(where: str, step: Step) -> Iterator[Finding]:
    caught: set[str] = set()
    everything: int | None = None
    for i, clause in enumerate(step.catch):
        types = set(clause.error_types)
        if everything is not None:
            message = (
                f"never catches anything: entry {everything} before it catches every failure; move it before that entry"
            )
            yield _warning(f"{where}.catch[{i}]", message)
        elif types and types <= caught:
            yield _warning(f"{where}.catch[{i}]", "never catches anything: entries before it catch all of its types")
        caught |= types
        if not types and everything is None:
            everything = i


def _waits(where: str, step: Step) -> Iterator[Finding]:
    for name, wait in (("waitForSignal", step.wait_for_signal), ("waitUntil", step.wait_until)):
        if wait is not None and wait.timeout is None and step.timeout is None:
            message = "waits without limit; set `timeout`, such as `24h`, unless that is intended"
            yield Finding(f"{where}.{name}", message, Severity.NOTE)


def _timeouts(path: str, activity: Activity) -> Iterator[Finding]:
    attempt = activity.start_to_close_timeout or activity.schedule_to_close_timeout
    if attempt is None:
        return
    if activity.heartbeat_timeout is None and attempt > LONG and activity.worker is None:
        yield _warning(
            path,
            f"an attempt of activity `{activity.name}` may take longer than 30 minutes and has no `heartbeatTimeout`: if "
            "it hangs, only its timeout ends it; send heartbeats and set `heartbeatTimeout`, such as `1m`",
        )
    if activity.heartbeat_timeout is not None and activity.heartbeat_timeout >= attempt:
        message = "is not shorter than the timeout of the attempt, so it has no effect; make it shorter"
        yield _warning(f"{path}.heartbeatTimeout", message)
    total = activity.schedule_to_close_timeout
    if total is not None and activity.start_to_close_timeout is not None and total < activity.start_to_close_timeout:
        message = "is longer than `scheduleToCloseTimeout`, which ends the activity first; make it shorter"
        yield _warning(f"{path}.startToCloseTimeout", message)


def _unused(spec: WorkflowSpec) -> Iterator[Finding]:
    lists = [spec.steps, *(block.steps for block in spec.blocks)]
    steps = [step for each in lists for step in each]
    calls: list[ActivityCall | None] = [step.activity for step in steps]
    calls += [step.compensate.activity for step in steps if step.compensate]
    used = {call.name for call in calls if call}
    for i, activity in enumerate(spec.activities):
        if activity.name not in used:
            yield _warning(f"spec.activities[{i}]", f"no step runs activity `{activity.name}`; remove it")
    called = {call.block for step in steps for _, call in calls_of(step)}
    called |= {handler.block for field in HANDLERS if (handler := getattr(spec, field))}
    for i, block in enumerate(spec.blocks):
        if block.name not in called:
            yield _warning(f"spec.blocks[{i}]", f"nothing calls block `{block.name}`; remove it")
    mounted = {mount.name for activity in spec.activities for mount in activity.workspaces}
    for i, workspace in enumerate(spec.workspaces):
        if workspace.name not in mounted:
            yield _warning(f"spec.workspaces[{i}]", f"no activity mounts workspace `{workspace.name}`; remove it")


def _endless_calls(spec: WorkflowSpec, program: Program) -> Iterator[Finding]:
    """Find blocks that always call each other in a cycle."""
    edges = {name: {block for _, block in _certain_calls(flow)} for name, flow in program.flows.items()}
    for i, block in enumerate(spec.blocks):
        ring = ring_of(block.name, edges)
        if ring and block.name == min(ring):
            chain = " calls ".join(f"`{name}`" for name in (*ring, ring[0]))
            step = next(step for step, called in _certain_calls(program.flows[block.name]) if called in ring)
            names = [compiled.step.name for compiled in program.flows[block.name].steps]
            yield Finding(
                f"spec.blocks[{i}].steps[{names.index(step)}]",
                f"these blocks call each other endlessly: {chain}; give one of the calls a `when`, or put it into a "
                "`switch`",
            )


def _certain_calls(flow: Flow) -> Iterator[tuple[str, str]]:
    """Yield the calls that always happen when a flow runs unless something fails first: the step, and the block."""
    for compiled in flow.steps:
        step = compiled.step
        if not always_runs(compiled, flow):
            continue
        if step.call:
            yield step.name, step.call.block
        for branch in step.parallel.branches if step.parallel and step.parallel.wait == "All" else ():
            yield step.name, branch.block


def ring_of(start: str, edges: Mapping[str, set[str]]) -> list[str]:
    """Return the shortest cycle through a node, beginning with the node; empty if there is no cycle."""
    trails = [[start]]
    visited: set[str] = set()
    while trails:
        trail = trails.pop(0)
        for following in sorted(edges.get(trail[-1], ())):
            if following == start:
                return trail
            if following not in visited:
                visited.add(following)
                trails.append([*trail, following])
    return []


def _warning(path: str, message: str) -> Finding:
    return Finding(path, message, Severity.WARNING)
