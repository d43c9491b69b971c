"""Revisions: definitions that runs refer to, named by their content. Pure.

    status.revision of a run: { name: <workflow>-<hash>, hash: sha256 of the content }  ──▶  WorkflowRevision

The name of a WorkflowRevision depends on its content and on nothing else, so all who need it create the same object. The
hash in the reference is part of the digest of a run, so a definition that was replaced is found out.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from perdure.api.json_values import mapping
from perdure.api.kinds.workflowrevision import WorkflowRevisionSpec
from perdure.api.labels import API_VERSION, REVISION_LABEL, WORKFLOW_LABEL
from perdure.api.models import json_fields
from perdure.api.names import label_value, revision_name
from perdure.api.state_versions import unknown_in, unreadable, version_of
from perdure.runtime.commits import canonical

Json = dict[str, Any]

_FIELDS: Final = json_fields(WorkflowRevisionSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a revision contains."""

    workflow: str | None
    """Name of the Workflow; None for a definition of a run that has its own."""
    definition: Json
    """The definition, with what it copies."""
    written: Json | None = None
    """The definition as written, if it copies anything."""

    @classmethod
    def of(cls, revision: Mapping[str, Any]) -> Self:
        """Read the content of a WorkflowRevision."""
        spec = revision["spec"]
        return cls(workflow=spec.get("workflow"), definition=spec["definition"], written=spec.get("written"))

    def reference(self) -> "Reference":
        """The reference to it.

        Raises:
            ValueError: It cannot be written as JSON.
        """
        hashed = hashlib.sha256(canonical(self._spec())).hexdigest()
        return Reference(name=revision_name(self.workflow, hashed), hash=f"sha256:{hashed}")

    def build(self, namespace: str, number: int) -> Json:
        """Build its WorkflowRevision.

        Args:
            namespace: The namespace.
            number: Its number among those of its Workflow.
        """
        reference = self.reference()
        labels = {REVISION_LABEL: str(number)}
        if self.workflow is not None:
            labels[WORKFLOW_LABEL] = label_value(self.workflow)
        return {
            "apiVersion": API_VERSION,
            "kind": "WorkflowRevision",
            "metadata": {"namespace": namespace, "name": reference.name, "labels": labels},
            "spec": {**self._spec(), "number": number, "hash": reference.hash},
        }

    def _spec(self) -> Json:
        optional = {"workflow": self.workflow, "written": self.written}
        return {"definition": self.definition, **{key: value for key, value in optional.items() if value is not None}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference to a revision, as in the status of a run."""

    name: str
    """Name of the WorkflowRevision."""
    hash: str
    """Hash of its content."""

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> Self | None:
        """Read the reference in the status of a run; None if it has none."""
        found = mapping(status.get("revision"))
        return cls(name=str(found.get("name")), hash=str(found.get("hash"))) if found else None

    def stored(self) -> Json:
        """The reference in the form of a status."""
        return {"name": self.name, "hash": self.hash}


def fault(revision: Mapping[str, Any]) -> str:
    """Say why the content of a WorkflowRevision cannot be used; empty if it can.

    Args:
        revision: The WorkflowRevision, as read.
    """
    try:
        reference = Content.of(revision).reference()
    except (ValueError, TypeError, KeyError) as error:
        return f"its content cannot be read: {error}"
    if (revision["metadata"]["name"], revision["spec"].get("hash")) != (reference.name, reference.hash):
        return "its content does not match its name and hash: another client has created it"
    return ""


def newer_part(revision: Mapping[str, Any], reads: int) -> str:
    """Say what only a newer version can read in a WorkflowRevision; empty if there is nothing.

    Args:
        revision: The WorkflowRevision, as read.
        reads: The newest state version that the process reads.
    """
    spec = revision["spec"]
    return unreadable(version_of(spec), reads) or unknown_in(spec, _FIELDS)


def number_of(meta: Mapping[str, Any]) -> int:
    """The number of a revision, from the metadata of its WorkflowRevision; 0 if that has none."""
    text = (meta.get("labels") or {}).get(REVISION_LABEL, "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def is_needed_by(run: Mapping[str, Any], name: str, workflow: str | None) -> bool:
    """Whether a run needs a revision, or may be about to.

    A run that has not started can start with any revision of its Workflow: its starter may have looked at the revision
    already.

    Args:
        run: The WorkflowRun, as read.
        name: Name of the WorkflowRevision.
        workflow: Name of its Workflow; None for a definition of a run that has its own.
    """
    spec, status = mapping(run.get("spec")), mapping(run.get("status"))
    of_workflow = mapping(spec.get("workflow"))
    if name in (mapping(status.get("revision")).get("name"), of_workflow.get("revision")):
        return True
    if status.get("state"):
        return False
    if workflow is None:
        return bool(spec.get("inline"))
    return str(of_workflow.get("name")).removeprefix(f"{run['metadata']['namespace']}/") == workflow
