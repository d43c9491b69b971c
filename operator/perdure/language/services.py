"""The services of a list of steps: pods that run as long as the steps, such as a database.

A service is two activities. One has the pod, and stays open until the steps have ended. The other has no pod, and completes when
the first one's pod is ready; its result is the address. So timeouts, cancellation, and removal are those of activities.
"""

import re
from datetime import timedelta
from typing import Final

from perdure.api.kinds.workflow import Activity, Container, GroupService
from perdure.api.rules import json_name
from perdure.language.expressions import Template
from perdure.language.program import CompiledService

LIFETIME: Final = timedelta(days=3650)
"""The start-to-close timeout of a service, which the engine demands. A service ends with its steps."""
NOT_READY: Final = "ServiceNotReady"
"""The type of the failure of steps whose service was not ready in time."""
ENDED: Final = "ServiceEnded"
"""The type of the failure of steps whose service has ended, or was lost, before they have ended."""
MAX_LOST: Final = 5
"""How many pods of services that are not ready yet are replaced if they are lost. Later, the steps fail."""
_PREFIX: Final = "services."
"""The names of activities contain no dot, so those of services are no names of others."""
_OWN_FIELDS: Final = frozenset(map(json_name, ("ready_timeout", "pod_spec_patch")))
_READ: Final = re.compile(r"""\bservices(?:\.([A-Za-z_]\w*)|\[\s*(["'])([^"']+)\2\s*\])""")


def compiled_service(block: str, service: GroupService) -> CompiledService:
    """Compile a service.

    Args:
        block: The block that has it; empty for the main steps.
        service: Its definition.
    """
    activity = f"{_PREFIX}{block}.{service.name}" if block else f"{_PREFIX}{service.name}"
    return CompiledService(service.name, activity, service.ready_timeout)


def service_activity(name: str, service: GroupService) -> Activity:
    """The activity that is the pod of a service.

    Args:
        name: Its name.
        service: The service.
    """
    container = {key: value for key, value in service.dump().items() if key not in _OWN_FIELDS}
    activity = Activity(
        name=service.name,
        start_to_close_timeout=LIFETIME,
        container=Container.model_validate(container),
        pod_spec_patch=service.pod_spec_patch,
    )
    return activity.model_copy(update={"name": name})


def services_read(template: Template) -> set[str]:
    """The services whose addresses a template reads, by name."""
    if "services" not in template.references.roots:
        return set()
    return {found[1] or found[3] for source in template.sources for found in _READ.finditer(source)}
