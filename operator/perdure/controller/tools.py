"""What every run works with."""

from dataclasses import dataclass, field

from perdure.controller.blobs import Blobs
from perdure.controller.deadletters import DeadLetters
from perdure.controller.definitions import Definitions
from perdure.controller.pods import Pods
from perdure.controller.policies import Policies
from perdure.controller.workers import NoWorkers, Workers
from perdure.kube import client as kube
from perdure.kube.events import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """One of each for the whole operator."""

    client: kube.Client
    pods: Pods
    definitions: Definitions
    policies: Policies
    letters: DeadLetters
    recorder: Recorder
    blobs: Blobs
    workers: Workers = field(default_factory=NoWorkers)
