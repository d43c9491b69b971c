"""Objects as YAML: reads manifests, and writes them. A changed object can be written into the text that it was read from.

    text = Path("nightly.yaml").read_text()
    nightly = api.from_yaml(text, api.Schedule)
    later = nightly.model_copy(update={"spec": nightly.spec.model_copy(update={"cron": ["0 4 * * *"]})})
    Path("nightly.yaml").write_text(api.to_yaml(later, like=text))

Only what has changed is written again: comments, the order of fields, and the style of all other lines stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from perdure.api.kinds.operation import Operation
from perdure.api.kinds.retrypolicy import RetryPolicy
from perdure.api.kinds.schedule import Schedule
from perdure.api.kinds.webhook import Webhook
from perdure.api.kinds.workerdeployment import WorkerDeployment
from perdure.api.kinds.workflow import Workflow
from perdure.api.kinds.workflowdefaults import WorkflowDefaults
from perdure.api.kinds.workflowlimit import WorkflowLimit
from perdure.api.kinds.workflowrun import WorkflowRun
from perdure.api.labels import API_VERSIONS
from perdure.api.models import Resource, mistakes
from perdure.api.yaml_edits import Change, edited
from perdure.api.yaml_text import Loader, dump

T = TypeVar("T", bound=Resource)

_KINDS: tuple[type[Resource], ...] = (
    *(
        Operation,
        RetryPolicy,
        Schedule,
        Webhook,
        WorkerDeployment,
        Workflow,
        WorkflowDefaults,
        WorkflowLimit,
        WorkflowRun,
    ),
)
"""The kinds that users write."""


class InvalidManifestError(ValueError):
    """A manifest is not valid. The message has one line for each mistake, with its place."""


def from_yaml(text: str, kind: type[T]) -> T:
    """Read the only object of a kind.

    Args:
        text: YAML, also of several documents.
        kind: The kind, such as `api.Workflow`.

    Raises:
        InvalidManifestError: It is not valid, or the text has none or several of the kind.
    """
    found = [each for each in all_from_yaml(text) if isinstance(each, kind)]
    if len(found) != 1:
        raise InvalidManifestError(f"the text must have one {kind.__name__}, but has {len(found)}")
    return found[0]


def all_from_yaml(text: str) -> list[Resource]:
    """Read all objects of Perdure, in order; those of other APIs are left out.

    Raises:
        InvalidManifestError: The text is not YAML, or an object is not valid.
    """
    return [each.parsed for each in _documents(text) if each.parsed is not None]


def to_manifest(resource: Resource) -> dict[str, Any]:
    """Return an object as JSON values, with the fields that are set."""
    content = resource.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True, exclude={"status"})
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**head, **content}


def to_yaml(*resources: Resource, like: str = "") -> str:
    """Write objects as YAML, with the fields that are set.

    Args:
        resources: The objects.
        like: The text from which they were read. Its documents are kept as they are, except for what has changed in an object of
            the same kind, namespace, and name. Objects that it does not have follow at the end.

    Raises:
        InvalidManifestError: `like` is not valid.
    """
    left = {_identity(each): each for each in resources}
    documents = _documents(like)
    changed = [
        Change(document.node, to_manifest(document.parsed), to_manifest(wanted))
        for document in documents
        if document.parsed is not None and (wanted := left.pop(_identity(document.parsed), None)) is not None
    ]
    kept = edited(like, changed)
    wanted_now = {_identity(each): to_manifest(each) for each in resources if _identity(each) not in left}
    if any(
        wanted_now.get(_identity(each), found) != found for each in all_from_yaml(kept) for found in [to_manifest(each)]
    ):
        kept = edited(like, changed, rewrite=True)  # such as a change of what an alias refers to
    if kept and not kept.endswith("\n"):
        kept += "\n"
    added = [dump(to_manifest(each)) for each in left.values()]
    return "---\n".join([*([kept] if documents else []), *added])


def _identity(resource: Resource) -> tuple[str, str, str]:
    return resource.kind, resource.metadata.namespace, resource.metadata.name


@dataclass(frozen=True, slots=True)
class _Document:
    """One document of a text."""

    node: yaml.Node
    parsed: Resource | None
    """None if it is not an object of Perdure."""


def _documents(text: str) -> list[_Document]:
    try:
        # Two passes: merge keys are resolved in the nodes from which values are made, but the text still has them.
        nodes = list(yaml.compose_all(text, Loader=Loader))
        values = list(yaml.load_all(text, Loader=Loader))
    except yaml.YAMLError as error:
        raise InvalidManifestError(f"this is not valid YAML: {error}") from error
    return [_Document(node, _parsed(value)) for node, value in zip(nodes, values, strict=True) if value is not None]


def _parsed(data: Any) -> Resource | None:
    if not isinstance(data, dict) or data.get("apiVersion") not in API_VERSIONS:
        return None
    kind = next((each for each in _KINDS if each.__name__ == data.get("kind")), None)
    if kind is None:
        return None
    try:
        return kind.parse(data)
    except ValidationError as error:
        metadata = data.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        raise InvalidManifestError("\n".join(f"{kind.__name__} {name}: {each}" for each in mistakes(error))) from error
