"""What the parts that look after the attempts of one run share."""

from dataclasses import dataclass

from perdure.controller.attempts.blocked import Blocked
from perdure.controller.attempts.definitions import ActivityDefinitions
from perdure.controller.attempts.held import HeldPods
from perdure.controller.pods import Pods
from perdure.runtime.attempts import RunRef


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext:
    """A run, and what is known of its attempts."""

    api: Pods
    run: RunRef
    held: HeldPods
    blocked: Blocked
    definitions: ActivityDefinitions
