"""The kinds of the in-memory API server: Perdure's own, with the data of their CRDs, and the Kubernetes kinds it needs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Any

from perdure.api.crdgen import KINDS, structural_schema
from perdure.api.labels import GROUP, VERSION
from perdure.api.models import Resource as Model
from perdure.simulation.cluster.patches import copy

Default = Callable[..., Any]
"""Returns a value with its defaults filled in; the value itself does not change.

The second argument, if given, is an object with defaults: members that are the same objects in both are complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """The properties of a kind that URLs and lists need."""

    group: str
    """The API group; empty for the core group."""
    version: str
    plural: str
    kind: str
    has_status: bool = False
    """Whether the status is a separate subresource."""
    has_generation: bool = False
    """Whether `metadata.generation` counts changes of its spec."""
    made_by_put: bool = False
    """Whether a PUT creates a missing object."""
    selectable: frozenset[str] = frozenset({"metadata.name", "metadata.namespace"})
    """The fields that field selectors may use."""
    defaults: Default | None = None

    @property
    def api_version(self) -> str:
        """Group and version, as in the `apiVersion` of objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_custom(self) -> bool:
        """Whether it is one of Perdure's own kinds."""
        return self.group == "perdure.dev"


@cache
def resources() -> dict[tuple[str, str], ResourceType]:
    """All kinds, by group and plural."""
    found = [*_builtin(), *map(_custom, KINDS)]
    return {(each.group, each.plural): each for each in found}


@cache
def kinds() -> dict[str, ResourceType]:
    """All kinds, by plural."""
    return {each.plural: each for each in resources().values()}


def _builtin() -> Iterator[ResourceType]:
    fields = frozenset({"metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"})
    yield ResourceType(
        group="", version="v1", plural="pods", kind="Pod", has_status=True, has_generation=True, selectable=fields
    )
    yield ResourceType(group="", version="v1", plural="serviceaccounts", kind="ServiceAccount")
    yield ResourceType(group="", version="v1", plural="namespaces", kind="Namespace")
    yield ResourceType(group="", version="v1", plural="services", kind="Service")
    yield ResourceType(group="", version="v1", plural="configmaps", kind="ConfigMap")
    yield ResourceType(group="", version="v1", plural="secrets", kind="Secret")
    yield ResourceType(group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim")
    yield ResourceType(group="events.k8s.io", version="v1", plural="events", kind="Event")
    yield ResourceType(
        group="apps", version="v1", plural="deployments", kind="Deployment", has_status=True, has_generation=True
    )
    yield ResourceType(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", made_by_put=True)
    yield ResourceType(group="rbac.authorization.k8s.io", version="v1", plural="rolebindings", kind="RoleBinding")


def _custom(kind: type[Model]) -> ResourceType:
    info = kind.info
    return ResourceType(
        group=GROUP,
        version=VERSION,
        plural=info.plural,
        kind=kind.__name__,
        has_generation=True,
        has_status=info.has_status,
        selectable=frozenset(
            {"metadata.name", "metadata.namespace", *(path.removeprefix(".") for path in info.selectable)}
        ),
        defaults=partial(_with_defaults, kind),
    )


def _with_defaults(kind: type[Model], value: Any, known: Mapping[str, Any] = MappingProxyType({})) -> Any:
    return _filler(kind)(value, known)


@cache
def _filler(kind: type[Model]) -> Default:
    """The function that fills in the defaults of a kind. Its schema takes a tenth of a second, so it is made when needed."""
    return _defaults(structural_schema(kind)) or (lambda value, _known: value)


def _defaults(schema: dict[str, Any]) -> Default | None:
    """The function that fills in the defaults of a structural schema; None if it has no defaults. Parents are not created."""
    defaults = {key: each["default"] for key, each in schema.get("properties", {}).items() if "default" in each}
    within = {key: inner for key, each in schema.get("properties", {}).items() if (inner := _defaults(each))}
    items = _defaults(schema["items"]) if isinstance(schema.get("items"), dict) else None
    others = schema.get("additionalProperties")
    values = _defaults(others) if isinstance(others, dict) else None
    if not (defaults or within or items or values):
        return None

    def filled(value: Any, known: Mapping[str, Any] = MappingProxyType({})) -> Any:
        if isinstance(value, list):
            return list(map(items, value)) if items else value
        if not isinstance(value, dict):
            return value
        result = value.copy()
        for key, default in defaults.items():
            if key not in result:
                result[key] = copy(default)
        for key, inner in within.items():
            if key in result and result[key] is not known.get(key):
                result[key] = inner(result[key])
        return {key: values(each) for key, each in result.items()} if values else result

    return filled
