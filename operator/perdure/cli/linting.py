"""Checking manifests in files: every document by itself, and all of them together."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pydantic

from perdure.api.common import API_VERSION, GROUP, Resource, mistakes_by_path
from perdure.api.crdgen import KINDS
from perdure.api.retrypolicy import RetryPolicy
from perdure.api.schedule import Schedule, ScheduleSpec
from perdure.api.workflow import Workflow
from perdure.api.workflowrun import WorkflowRun, WorkflowRunSpec
from perdure.cli.documents import Document, Position, UnreadableError, read
from perdure.kube import clock
from perdure.language.checks import Checked, Documents, between, check, options
from perdure.language.checks.between import policies_of, run_input
from perdure.language.program import Finding, Severity
from perdure.schedule.errors import InvalidTimesError
from perdure.schedule.outlook import outlook_after

_BY_NAME = {kind.__name__: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Located:
    """A finding, and where it is."""

    file: str
    position: Position
    subject: str
    """Kind and name of the object."""
    finding: Finding

    def as_json(self) -> dict[str, Any]:
        """The finding as programs read it."""
        return {
            "file": self.file,
            "line": self.position.line,
            "column": self.position.column,
            "object": self.subject,
            "path": self.finding.path,
            "severity": self.finding.severity.value,
            "message": self.finding.message,
        }


@dataclass(slots=True)
class Linted:
    """What was found in some files."""

    objects: int = 0
    """How many of Perdure's objects they have."""
    found: list[Located] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def count(self, severity: Severity) -> int:
        """How many findings are so bad."""
        return sum(located.finding.severity is severity for located in self.found)


@dataclass(frozen=True, slots=True)
class _Object:
    document: Document
    resource: Resource
    checked: Checked | None

    @property
    def subject(self) -> str:
        meta = self.resource.metadata
        return f"{self.resource.kind}/{meta.name or meta.generate_name}"


def lint(names: Iterable[str], now: datetime | None = None) -> Linted:
    """Check files.

    Args:
        names: Files and folders; `-` is standard input.
        now: The time, by which Schedules are judged; None for that of the clock.
    """
    now = now or clock.now()
    linted = Linted()
    objects: list[_Object] = []
    for name in names:
        try:
            for document in read(name):
                objects += _take(document, linted)
        except UnreadableError as error:
            linted.unreadable.append(str(error))
    linted.objects += len(objects)
    documents = Documents(
        {o.resource.metadata.name: o.checked for o in objects if isinstance(o.resource, Workflow) and o.checked},
        frozenset(o.resource.metadata.name for o in objects if isinstance(o.resource, RetryPolicy)),
    )
    for each in objects:
        findings = [*(each.checked.findings if each.checked else ()), *_together(each, documents, now)]
        linted.found += [
            Located(each.document.file, each.document.position(finding.path), each.subject, finding)
            for finding in findings
        ]
    linted.found.sort(key=lambda found: (found.file, found.position.line, found.position.column))
    return linted


def _take(document: Document, linted: Linted) -> Iterator[_Object]:
    """The objects of Perdure in a document that can be read; what is wrong with others is noted."""
    data = document.data

    def wrong(path: str, message: str, position: Position | None = None, subject: str = "") -> None:
        place = position or document.position(path)
        linted.found.append(Located(document.file, place, subject, Finding(path, message)))

    if not isinstance(data, dict) or "kind" not in data or "apiVersion" not in data:
        if document.asked:
            linted.objects += 1
            wrong("", f"must be a manifest, with `apiVersion: {API_VERSION}` and a `kind`")
        return
    if not str(data["apiVersion"]).startswith(f"{GROUP}/") or data["kind"] == "Scenario":
        return
    kind = _BY_NAME.get(str(data["kind"]))
    metadata = data.get("metadata")
    subject = f"{data['kind']}/{metadata.get('name', '') if isinstance(metadata, dict) else ''}"
    if kind is None:
        linted.objects += 1
        wrong("kind", f"there is no such kind; there are: {', '.join(sorted(_BY_NAME))}", subject=subject)
        return
    linted.found += [Located(document.file, place, subject, finding) for place, finding in _of_keys(document)]
    try:
        resource = kind.parse(data)
    except pydantic.ValidationError as error:
        linted.objects += 1
        for path, sentence in mistakes_by_path(error):
            wrong(path, sentence, subject=subject)
        return
    if not resource.metadata.name and not resource.metadata.generate_name:
        wrong("metadata.name", "must be set", subject=subject)
    yield _Object(document, resource, _checked(resource))


def _of_keys(document: Document) -> Iterator[tuple[Position, Finding]]:
    for path, position in document.twice:
        yield position, Finding(path, "stands twice in the same object; kubectl refuses that: take one away")
    for path, position, key in document.renamed:
        told = f"kubectl reads the key `{key.written}` as `{key.value}`; write '{key.written}' if that is not meant"
        yield position, Finding(path, told, Severity.WARNING)


def _checked(resource: Resource) -> Checked | None:
    if isinstance(resource, Workflow):
        return check(resource.spec)
    if isinstance(resource, WorkflowRun) and resource.spec.inline is not None:
        return check(resource.spec.inline, path="spec.inline")
    if isinstance(resource, Schedule) and resource.spec.workflow_run_template.spec.inline is not None:
        return check(resource.spec.workflow_run_template.spec.inline, path="spec.workflowRunTemplate.spec.inline")
    return None


def _together(each: _Object, documents: Documents, now: datetime) -> Iterator[Finding]:
    """What is found in the light of the other objects."""
    resource = each.resource
    if each.checked is not None:
        name = resource.metadata.name if isinstance(resource, Workflow) else ""
        yield from between(each.checked, documents, name=name)
    run: tuple[str, WorkflowRunSpec] | None = None
    if isinstance(resource, WorkflowRun):
        run = "spec", resource.spec
    elif isinstance(resource, Schedule):
        run = "spec.workflowRunTemplate.spec", resource.spec.workflow_run_template.spec
        yield from _times(resource.spec, now)
        if resource.spec.retry_policy is not None and resource.spec.retry_policy.name is not None:
            yield from policies_of((("spec.retryPolicy.name", resource.spec.retry_policy.name),), documents)
    if run is None:
        return
    path, spec = run
    yield from options(spec, path)
    if spec.retry_policy is not None and spec.retry_policy.name is not None:
        yield from policies_of(((f"{path}.retryPolicy.name", spec.retry_policy.name),), documents)
    if each.checked is not None:
        program = each.checked.program
        for finding in program.check_input(program.input.complete(spec.input)):
            yield Finding(path + finding.path.removeprefix("spec"), finding.message)
    elif spec.workflow is not None and spec.workflow.name is not None:
        yield from run_input(spec.workflow.name, spec.input, documents, path)


def _times(spec: ScheduleSpec, now: datetime) -> Iterator[Finding]:
    """What the condition `Ready` of a Schedule would say. One whose end has passed may be kept."""
    try:
        found = outlook_after(spec, now)
    except InvalidTimesError as error:
        yield Finding(error.path, error.sentence)
        return
    if not found.ready:
        ended = spec.end_time is not None and spec.end_time <= now
        yield Finding(found.path, found.message, Severity.WARNING if ended else Severity.ERROR)
    elif found.message:
        yield Finding("spec", found.message, Severity.NOTE)
