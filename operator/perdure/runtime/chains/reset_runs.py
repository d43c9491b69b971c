"""Builds the run for a reset."""

import msgspec

from perdure.api import labels
from perdure.runtime.attempts import KubeObject
from perdure.runtime.chains.run_annotations import ResetOrigin, continuation_of, extras_of, parent_of
from perdure.runtime.chains.run_objects import run_object, same_labels, same_spec, with_owners


def reset_run(run: KubeObject, reset: ResetOrigin, name: str) -> KubeObject:
    """Build the WorkflowRun for a reset, with the same chain, parent, and spec as the run to reset.

    Args:
        run: The run to reset.
        reset: The history that the new run begins with.
        name: Name of the new run, which is a lock.
    """
    tie = continuation_of(run)
    namespace, own = run["metadata"]["namespace"], same_labels(run)
    body = run_object(namespace, name, same_spec(run), parent_of(run), tie, own, extras=extras_of(run))
    body["metadata"]["annotations"][labels.RESET_ANNOTATION] = msgspec.json.encode(reset).decode()
    return with_owners(body, run)
