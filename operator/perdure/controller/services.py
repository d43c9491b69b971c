"""The services that all runs share."""

from dataclasses import dataclass, field

from perdure.controller.dead_letters import DeadLetters
from perdure.controller.fleet.shards import AllShards, Shards
from perdure.controller.limits.workflow_limits import WorkflowLimits
from perdure.controller.payloads.store import Blobs
from perdure.controller.pods.attempt_pods import Pods
from perdure.controller.retry_policies import Policies
from perdure.controller.workers import NoWorkers, Workers
from perdure.controller.workflows.definitions import Definitions
from perdure.kube import client as kube
from perdure.kube.events import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The shared services of the operator, one of each."""

    client: kube.Client
    pods: Pods
    definitions: Definitions
    policies: Policies
    letters: DeadLetters
    limits: WorkflowLimits
    recorder: Recorder
    blobs: Blobs
    workers: Workers = field(default_factory=NoWorkers)
    shards: Shards = field(default_factory=AllShards)
