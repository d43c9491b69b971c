"""Checks references between the manifests of several files: children, RetryPolicies, WorkflowLimits, inputs of runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from perdure.language.checks.definition import CheckedDefinition
from perdure.language.checks.flow import ring_of
from perdure.language.checks.literals import mismatches
from perdure.language.checks.signals import SignalNames
from perdure.language.program import Finding, Severity


@dataclass(frozen=True, slots=True)
class Documents:
    """The definitions and runs of the files, by name."""

    workflows: Mapping[str, CheckedDefinition] = field(default_factory=dict)
    policies: frozenset[str] = frozenset()
    limits: frozenset[str] = frozenset()
    signals: SignalNames = field(default_factory=SignalNames)
    runs: Mapping[str, str] = field(default_factory=dict)
    """The Workflows of runs."""


def check_references(checked: CheckedDefinition, documents: Documents, *, name: str = "") -> Iterator[Finding]:
    """Find the mistakes in a definition that depend on other manifests.

    Args:
        checked: The definition.
        documents: The manifests of the files.
        name: The name of the Workflow; empty for the definition of a single run.
    """
    for child in checked.children:
        other = documents.workflows.get(child.workflow)
        if other is None:
            known = sorted(documents.workflows.keys() - {name})
            yield _unknown(f"{child.path}.workflow.name", "Workflow", child.workflow, known)
            continue
        for where, message in mismatches(other.program.input, child.input, child.kind):
            problem = f"does not match the input schema of Workflow `{child.workflow}`: {message}"
            yield Finding(f"{child.path}.input{where}", problem)
    yield from policies_of(checked.policies, documents)
    for path, limit in checked.limits:
        if limit not in documents.limits:
            yield _unknown(path, "WorkflowLimit", limit, sorted(documents.limits))
    for path, signal in checked.signals.sent:
        yield from documents.signals.unmatched(path, signal)
    yield from _endless_children(checked, documents, name)


def policies_of(named: tuple[tuple[str, str], ...], documents: Documents) -> Iterator[Finding]:
    """The references to RetryPolicies that are in none of the files."""
    for path, policy in named:
        if policy not in documents.policies:
            yield _unknown(path, "RetryPolicy", policy, sorted(documents.policies))


def run_input(workflow: str, value: Any, documents: Documents, path: str) -> Iterator[Finding]:
    """Find the mistakes in a run that references a Workflow by name.

    Args:
        workflow: The name of the Workflow.
        value: The input of the run, which is used unchanged.
        documents: The manifests of the files.
        path: Path of the spec of the run.
    """
    other = documents.workflows.get(workflow)
    if other is None:
        yield _unknown(f"{path}.workflow.name", "Workflow", workflow, sorted(documents.workflows))
        return
    for where, message in other.program.input.check(other.program.input.complete(value)):
        yield Finding(f"{path}.input{where}", f"does not match the input schema of Workflow `{workflow}`: {message}")


def _unknown(path: str, kind: str, name: str, known: list[str]) -> Finding:
    """Report a name that is in none of the files: likely a mistake if the files have other objects of this kind."""
    if not known:
        message = f"{kind} `{name}` is in none of the files, so it is not checked; include its file"
        return Finding(path, message, Severity.NOTE)
    near = get_close_matches(name, known, 1)
    hint = f", did you mean `{near[0]}`" if near else ""
    message = f"there is no {kind} `{name}` in the files{hint}; they define: {', '.join(known)}"
    return Finding(path, message, Severity.WARNING)


def _endless_children(checked: CheckedDefinition, documents: Documents, name: str) -> Iterator[Finding]:
    """Find Workflows that always start each other as children in a cycle."""
    edges = {key: {c.workflow for c in each.children if c.always} for key, each in documents.workflows.items()}
    ring = ring_of(name, edges) if name in edges else []
    if ring and name == min(ring):
        child = next(child for child in checked.children if child.always and child.workflow in ring)
        chain = " starts ".join(f"`{each}`" for each in (*ring, ring[0]))
        message = f"these Workflows start each other endlessly: {chain}; give one of the steps a `when`"
        yield Finding(child.path, message)
