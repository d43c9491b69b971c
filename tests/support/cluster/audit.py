"""Read the API server's audit log: writes and their users."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.cluster.namespace import cache_folder

Entry = dict[str, Any]


def audit_log() -> Path:
    """The audit log of the cluster under test, which must have been created with ``--audit``."""
    name = os.environ.get("PERDURE_TEST_CLUSTER") or "perdure"
    return cache_folder() / "clusters" / name / "audit" / "audit.log"


def writes(namespace: str) -> Iterator[Entry]:
    """Every write to objects of a namespace that the API server has answered; a dry-run writes nothing."""
    with audit_log().open() as lines:
        for line in lines:
            if f'"{namespace}"' in line:
                entry: Entry = json.loads(line)
                if entry["objectRef"].get("namespace") == namespace and "dryRun=" not in entry["requestURI"]:
                    yield entry


def what(entry: Entry) -> str:
    """Verb and resource of a write: ``create pods``, ``patch workflowruns/status``."""
    target = entry["objectRef"]
    return f"{entry['verb']} {'/'.join(filter(None, (target.get('resource'), target.get('subresource'))))}"


def by_operator(entry: Entry) -> bool:
    """Whether the operator has written it."""
    return str(entry.get("userAgent", "")).startswith("perdure-operator")


def deletions(namespace: str, resource: str) -> str:
    """Who has deleted objects of a resource, a line for each request, to explain a failure; also without an audit log."""
    if not audit_log().exists():
        return f"{audit_log()} does not exist: create the cluster with --audit"
    return "\n".join(
        f"{entry['requestReceivedTimestamp']} {entry['objectRef'].get('name', '(all)')}: {entry['responseStatus']['code']}"
        f" {entry['user']['username']} {entry.get('userAgent')}"
        for entry in writes(namespace)
        if what(entry).startswith("delete") and entry["objectRef"].get("resource") == resource
    )
