"""Services of an activity: containers that are ready before it starts, and stop after it.

They are native sidecars, which Kubernetes starts before the other containers, restarts when they end, and stops after the others:
https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/.
"""

from collections.abc import Mapping
from typing import Any, Final

from perdure.runtime.attempts import KubeObject

_READINESS, _STARTUP = "readinessProbe", "startupProbe"
_PERIOD_SECONDS: Final = 1
_FAILURE_THRESHOLD: Final = 3_600
"""How often the probe may fail: a service that is not ready within an hour restarts."""


def service_container(service: Mapping[str, Any]) -> KubeObject:
    """Build the container of a service.

    The other containers wait for its startup probe, not for its readiness probe. Therefore, without a startup probe of its own,
    it gets its readiness probe as one, tried every second.

    Args:
        service: The service in the definition of the activity, whose expressions are evaluated.
    """
    container: KubeObject = {**service, "restartPolicy": "Always"}
    readiness = container.get(_READINESS)
    if isinstance(readiness, dict) and container.get(_STARTUP) is None:
        action = {key: value for key, value in readiness.items() if key != "successThreshold"}
        container[_STARTUP] = {**action, "periodSeconds": _PERIOD_SECONDS, "failureThreshold": _FAILURE_THRESHOLD}
    return container
