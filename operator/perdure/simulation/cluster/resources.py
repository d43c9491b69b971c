"""The kinds that the in-memory API server knows: Perdure's own with what their CRDs say, and those of Kubernetes it needs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from perdure.api.common import Resource as Model
from perdure.api.crdgen import KINDS, custom_resource_definition
from perdure.simulation.cluster.patching import copy

Default = Callable[[Any], Any]
"""A value with its defaults filled in; the value itself does not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """One kind, as its URLs and its lists need it."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    kind: str
    has_status: bool = False
    """Whether the status is a subresource of its own."""
    has_generation: bool = False
    """Whether changes of its spec are counted."""
    made_by_put: bool = False
    """Whether a PUT makes an object that is not there."""
    selectable: frozenset[str] = frozenset({"metadata.name", "metadata.namespace"})
    """Fields that lists can be selected by."""
    defaults: Default | None = None

    @property
    def api_version(self) -> str:
        """Group and version, as objects say it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_custom(self) -> bool:
        """Whether it is one of Perdure's own."""
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
    yield ResourceType(group="", version="v1", plural="configmaps", kind="ConfigMap")
    yield ResourceType(group="", version="v1", plural="secrets", kind="Secret")
    yield ResourceType(group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim")
    yield ResourceType(group="events.k8s.io", version="v1", plural="events", kind="Event")
    yield ResourceType(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", made_by_put=True)
    yield ResourceType(group="rbac.authorization.k8s.io", version="v1", plural="rolebindings", kind="RoleBinding")


def _custom(kind: type[Model]) -> ResourceType:
    spec = custom_resource_definition(kind)["spec"]
    version = next(each for each in spec["versions"] if each["storage"])
    fields = {field["jsonPath"].removeprefix(".") for field in version.get("selectableFields", ())}
    return ResourceType(
        group=spec["group"],
        version=version["name"],
        plural=spec["names"]["plural"],
        kind=spec["names"]["kind"],
        has_generation=True,
        has_status="status" in version.get("subresources", {}),
        selectable=frozenset({"metadata.name", "metadata.namespace", *fields}),
        defaults=_defaults(version["schema"]["openAPIV3Schema"]),
    )


def _defaults(schema: dict[str, Any]) -> Default | None:
    """What fills in the defaults of a structural schema; None where it has none. Absent parents are not made."""
    given = {key: each["default"] for key, each in schema.get("properties", {}).items() if "default" in each}
    within = {key: inner for key, each in schema.get("properties", {}).items() if (inner := _defaults(each))}
    items = _defaults(schema["items"]) if isinstance(schema.get("items"), dict) else None
    others = schema.get("additionalProperties")
    values = _defaults(others) if isinstance(others, dict) else None
    if not (given or within or items or values):
        return None

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(items, value)) if items else value
        if not isinstance(value, dict):
            return value
        whole = value.copy()
        for key, default in given.items():
            if key not in whole:
                whole[key] = copy(default)
        for key, inner in within.items():
            if key in whole:
                whole[key] = inner(whole[key])
        return {key: values(each) for key, each in whole.items()} if values else whole

    return filled
