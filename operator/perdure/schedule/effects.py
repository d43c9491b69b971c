"""The actions that a schedule's committed state requires, as data. They depend on the state alone."""

from dataclasses import dataclass

from perdure.schedule.state import Running, ScheduleState


@dataclass(frozen=True, slots=True)
class StartRun:
    """Create a run, or record why it cannot be created."""

    run: Running


@dataclass(frozen=True, slots=True)
class StopRun:
    """Request every open run of a chain to stop, because another run replaces it."""

    run: Running


Effect = StartRun | StopRun


def effects(state: ScheduleState) -> list[Effect]:
    """The effects of a state, in order. Each can be applied any number of times."""
    starts: list[Effect] = [StartRun(run) for run in state.running if not run.run_id]
    stops: list[Effect] = [StopRun(run) for run in state.running if run.cancel or run.terminate]
    return [*starts, *stops]
