"""Which steps archive the logs of their attempts."""

from perdure.language.program import Program
from perdure.language.step_paths import Path


def archives_log(program: Program, path: str) -> bool:
    """Whether the attempts of a step archive their logs.

    Args:
        program: The program of the run.
        path: The path of the step.
    """
    parsed = Path.parse(path)
    if parsed.is_compensation:
        return False  # it has another activity than the step that it compensates
    activities = {flow.by_name[parsed.step].activity for flow in program.flows.values() if parsed.step in flow.by_name}
    artifacts = [given.artifacts for name, given in program.activities.items() if name in activities]
    return bool(artifacts) and all(each is not None and each.archive_logs for each in artifacts)
