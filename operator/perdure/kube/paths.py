"""Paths of the API server, and the media types of its responses."""

import re
from typing import Final

CORE: Final = "/api/v1"
PERDURE: Final = "/apis/perdure.dev/v1alpha1"
WATCHED: Final = (
    "workflows",
    "workflowruns",
    "schedules",
    "retrypolicies",
    "workflowlimits",
    "workflowdefaults",
    "webhooks",
    "workerdeployments",
    "operations",
)
"""The resource names of the kinds of `PERDURE` that the operator watches, and whose statuses it writes."""
PLURALS: Final = frozenset(
    {*WATCHED, "workflowrevisions", "deadletters", "historysegments", "payloads", "artifactsets", "cachedresults"}
)
"""The resource names of all kinds of `PERDURE`."""
APPS: Final = "/apis/apps/v1"
COORDINATION: Final = "/apis/coordination.k8s.io/v1"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
EVENTS: Final = "/apis/events.k8s.io/v1"

ONLY_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
ONLY_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE: Final = "application/json;as=Table;g=meta.k8s.io;v=v1"

_NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:]*")


class InvalidNameError(ValueError):
    """No object can have this name."""


def path(
    group: str, namespace: str | None, plural: str, name: str | None = None, subresource: str | None = None
) -> str:
    """The path of a resource, e.g. ``path(CORE, "default", "pods", "web-0")``.

    Raises:
        InvalidNameError: The namespace or the name is not valid, and would change the meaning of the path.
    """
    for part in (namespace, name):
        if part is not None and not _NAME.fullmatch(part):
            raise InvalidNameError(f"`{part}` is not the name of an object")
    scope = f"/namespaces/{namespace}" if namespace else ""
    return "/".join(filter(None, (f"{group}{scope}", plural, name, subresource)))


def escaped(value: str) -> str:
    """Escape a value for a field selector (k8s.io/apimachinery/pkg/fields: EscapeValue)."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
