"""Checks manifests in files: each document on its own, and all of them together.

A manifest with mistakes is read as far as it is valid, so that one run of `lint` reports all mistakes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

import pydantic
from rich.text import Text

from perdure.api.crdgen import KINDS
from perdure.api.fields import NAME_PATTERN
from perdure.api.json_values import Json
from perdure.api.kinds.operation import Operation, OperationSpec
from perdure.api.kinds.retrypolicy import RetryPolicy
from perdure.api.kinds.schedule import Schedule, ScheduleSpec
from perdure.api.kinds.webhook import Webhook, WebhookSpec
from perdure.api.kinds.workflow import Workflow, WorkflowSpec
from perdure.api.kinds.workflowdefaults import WorkflowDefaults
from perdure.api.kinds.workflowlimit import LimitTakers, WorkflowLimit, WorkflowLimitSpec
from perdure.api.kinds.workflowrun import WorkflowRun, WorkflowRunSpec
from perdure.api.labels import API_VERSION, GROUP
from perdure.api.models import Resource, field_path, mistakes_by_path
from perdure.api.names import MAX_RUN_NAME, is_name
from perdure.cli.files.documents import Document, Position, UnreadableFileError, read_files, rounded
from perdure.kube import clock
from perdure.language import checks
from perdure.language.checks import (
    CheckedDefinition,
    Documents,
    annotations,
    check_references,
    deadlines,
    default_mistakes,
    in_data,
    labels,
    options,
    scheduled_input,
    unevaluated,
)
from perdure.language.checks.definition import policies_of, run_input
from perdure.language.compiler import NO_STEPS
from perdure.language.defaults import PROBE, NamespaceDefaults, within
from perdure.language.expressions import ExpressionError
from perdure.language.program import Finding, Severity
from perdure.language.reuse import allows, in_namespace, is_library
from perdure.language.schedule_input import sample_input
from perdure.language.signals import SignalNames
from perdure.language.webhooks import WebhookProgram
from perdure.schedule.calendar import InvalidTimesError
from perdure.schedule.status import outlook_after
from perdure.schedule.times import faults_of
from perdure.view import text
from perdure.view.page import Page

Location = tuple[int | str, ...]

_ROUNDS: Final = 64
"""Maximum number of reads of a manifest; each read removes some invalid parts."""

_PLACEHOLDERS: Final[dict[str, dict[str, Any]]] = {
    "steps": {"waitForSignal": {"name": "unreadable"}},
    "activities": {"worker": {"taskQueue": "unreadable"}, "startToCloseTimeout": "1m"},
    "blocks": {"steps": [{"name": "unreadable", "waitForSignal": {"name": "unreadable"}}]},
}
"""Placeholders for unreadable entries of these lists, so that their names remain known."""

_PLAIN_PLACEHOLDERS: Final[dict[str, Any]] = {"cron": "@daily", "intervals": {"every": "1h"}}
_PLAIN_PLACEHOLDER: Final = "unreadable"
"""The placeholder for an entry of another list; if it is not valid either, the whole list is removed."""

_NAME: Final = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class PartialManifest:
    """The valid part of a manifest with mistakes."""

    resource: Resource | None
    """The object without its invalid parts; None if too much is invalid."""
    mistakes: tuple[tuple[str, str], ...]
    """The mistakes: the path of the field, and the message."""
    replaced: tuple[str, ...]
    """The paths of entries that placeholders replace: ignore findings about them."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The entries with the name of an earlier one have a name of their own here: that name, and the one in the file."""


def read_partially(
    kind: type[Resource], data: dict[str, Any], misread: Mapping[str, tuple[Position, str]] | None = None
) -> PartialManifest:
    """Read as much of a manifest as is valid.

    An invalid field is removed. A step, an activity, or a block that requires the field is replaced by a placeholder, which has
    only its name. If a boolean must be a text, it becomes the text in the file, such as `y`. If entries of a list have the same
    name, the first keeps it.

    Args:
        kind: The model of the manifest.
        data: The manifest; not modified.
        misread: The values that YAML reads as booleans, as in a `Document`.
    """
    data = deepcopy(data)
    found: dict[tuple[str, str], None] = {}
    texts, restored = {path: written for path, (_, written) in (misread or {}).items()}, dict[str, str]()
    removed: set[Location] = set()
    replaced: set[Location] = set()
    renamed: dict[str, str] = {}
    for _ in range(_ROUNDS):
        try:
            resource = kind.parse(data)
        except pydantic.ValidationError as error:
            details = error.errors(include_url=False)
            wrong = [_place(data, detail["loc"], detail["type"]) for detail in details]
            misread_places = {place for place in wrong if field_path(place) in texts}
            for place, detail, mistake in zip(wrong, details, mistakes_by_path(error), strict=True):
                if place not in misread_places and not _follows(detail["loc"], detail["type"], removed):
                    restored.pop(mistake[0], None)
                    found[mistake] = None
        else:
            found |= {(path, _misread(written)): None for path, written in restored.items()}
            gone = tuple(field_path(each) for each in sorted(replaced, key=str))
            return PartialManifest(resource, tuple(found), gone, renamed)
        for place in misread_places:
            restored[field_path(place)] = written = texts.pop(field_path(place))
            _replace(data, place, written)
        for place in {*wrong} - misread_places:
            names = _rename(data, place)
            renamed |= names
            if not names and not _remove(data, place, removed, replaced):
                return PartialManifest(None, tuple(found), ())
    return PartialManifest(None, tuple(found), ())


def _misread(written: str) -> str:
    return f"must be a string, but YAML reads `{written}` as a boolean; write it in quotes"


def _replace(data: Any, place: Location, value: Any) -> None:
    *path, last = place
    for part in path:
        data = data[part]
    data[last] = value


def _rename(data: Any, place: Location) -> dict[str, str]:
    """Give other names to entries of a list that have the name of an earlier one. Return the names that they had."""
    for part in place:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return {}
    names = list(_names(data)) if isinstance(data, list) else []
    repeated = [i for i, name in enumerate(names) if name and name in names[:i]]
    for i in repeated:
        data[i]["name"] = f"{names[i]}-{i}"
    return {f"{names[i]}-{i}": names[i] for i in repeated}


def _follows(location: Location, type_: str, removed: set[Location]) -> bool:
    """Whether a mistake exists only because something was removed from its object."""
    about = location[:-1] if type_ == "missing" else location
    return any(each[: len(about)] == about and len(each) <= len(about) + 1 for each in removed)


def _place(data: Any, location: Location, type_: str) -> Location:
    """Return the part to remove for a mistake: the field, or the object without a required field, if it is in the manifest."""
    place: list[int | str] = []
    for part in location[:-1] if type_ == "missing" else location:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            break
        place.append(part)
    return tuple(place)


def _remove(data: Any, place: Location, removed: set[Location], replaced: set[Location]) -> bool:
    """Remove a value from a manifest, or replace it by a placeholder. Return whether this was possible."""
    if not place or place in {("spec",), ("kind",), ("apiVersion",)}:
        return False
    *path, last = place
    holder = data
    for part in path:
        try:
            holder = holder[part]
        except (KeyError, IndexError, TypeError):
            return True  # an enclosing part was removed for another mistake
    if isinstance(holder, dict):
        if last == "name" and len(path) > 1 and path[-2] in _PLACEHOLDERS:
            return _remove(data, tuple(path), removed, replaced)
        holder.pop(last, None)
        removed.add(place)
        return True
    if place in replaced or not isinstance(last, int):
        return _remove(data, tuple(path), removed, replaced)
    of_list = str(path[-1])
    named = _PLACEHOLDERS.get(of_list)
    plain = _PLAIN_PLACEHOLDERS.get(of_list, _PLAIN_PLACEHOLDER)
    holder[last] = plain if named is None else {"name": _name_of(holder, last), **named}
    removed.add(place)
    replaced.add(place)
    return True


def _name_of(holder: list[Any], index: int) -> str:
    """Return the name of an entry, if it is valid."""
    names = list(_names(holder))
    name = names[index]
    return name if names.count(name) == 1 and _NAME.fullmatch(name) else f"unreadable-{index}"


def _names(holder: list[Any]) -> Iterator[str]:
    for each in holder:
        name = each.get("name") if isinstance(each, dict) else None
        yield name if isinstance(name, str) else ""


_OF_PROBE: Final = frozenset({"spec.activities", "spec.activities.startToCloseTimeout"})
"""Where the timeouts of the activity that takes the defaults are compared, which are not those of other activities."""


_BY_NAME = {kind.__name__: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class LocatedFinding:
    """A finding and its position."""

    file: str
    position: Position
    subject: str
    """Kind and name of the object."""
    finding: Finding

    def as_json(self) -> dict[str, Any]:
        """The finding as JSON."""
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
class LintResult:
    """The findings in some files."""

    objects: int = 0
    """Number of Perdure's objects in the files."""
    found: list[LocatedFinding] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def count(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(located.finding.severity is severity for located in self.found)


@dataclass(frozen=True, slots=True)
class _Object:
    document: Document
    resource: Resource
    replaced: tuple[str, ...] = ()
    """Paths of unreadable parts."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The names in the file of entries that have another one here, because an earlier entry has that name, too."""
    mistaken: frozenset[str] = frozenset()
    """Paths of fields that could not be read."""
    checked: CheckedDefinition | None = None

    @property
    def namespace(self) -> str:
        """Its namespace; empty for that of the kubeconfig."""
        return self.resource.metadata.namespace or ""

    @property
    def subject(self) -> str:
        meta = self.resource.metadata
        return f"{self.resource.kind}/{meta.name or meta.generate_name}"

    def was_read(self, finding: Finding) -> bool:
        """Whether the path of a finding is in a readable part."""
        return not finding.path.startswith(self.replaced)

    def in_file(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield findings with the names in the file. About an entry without a name of its own, only errors are certain."""
        for finding in findings:
            named = [name for name in self.renamed if f"`{name}`" in finding.message]
            if named and finding.severity is not Severity.ERROR:
                continue
            message = finding.message
            for name in named:
                message = message.replace(f"`{name}`", f"`{self.renamed[name]}`")
            yield replace(finding, message=message) if named else finding

    def is_certain(self, finding: Finding) -> bool:
        """Whether a finding does not depend on the unreadable parts: errors and local findings in other parts."""
        return not self.replaced or ((finding.local or finding.severity is Severity.ERROR) and self.was_read(finding))


def lint(names: Iterable[str], now: datetime | None = None) -> LintResult:
    """Check files.

    Args:
        names: Files and folders; `-` is standard input.
        now: The current time for checks of Schedules; None for the time of the clock.
    """
    now = now or clock.now()
    linted = LintResult()
    objects: list[_Object] = []
    for name in names:
        try:
            for document in read_files(name):
                objects += _read_objects(document, linted)
        except UnreadableFileError as error:
            linted.unreadable.append(str(error))
    linted.objects += len(objects)
    linted.found += _repeated(objects)
    objects = _checked(objects)
    documents = {namespace: _known(objects, namespace) for namespace in {each.namespace for each in objects}}
    for each in objects:
        alone = filter(each.is_certain, each.checked.findings if each.checked else ())
        across = filter(each.was_read, _across_documents(each, documents[each.namespace], now))
        findings = [*each.in_file(alone), *each.in_file(across)]
        reported = {*each.mistaken, *(finding.path for finding in findings)}
        findings += [finding for finding in _of_values(each.document) if finding.path not in reported]
        linted.found += [
            LocatedFinding(each.document.file, each.document.position(finding.path), each.subject, finding)
            for finding in findings
        ]
    linted.found.sort(key=lambda found: (found.file, found.position.line, found.position.column))
    return linted


def _repeated(objects: Iterable[_Object]) -> Iterator[LocatedFinding]:
    """Warn about objects that a later one of their file replaces in the cluster. Files may be alternatives, such as overlays."""
    first: dict[tuple[str, str, str], Position] = {}
    for each in objects:
        name, file = each.resource.metadata.name, each.document.file
        position = each.document.position("metadata.name")
        earlier = first.setdefault((file, each.namespace, f"{each.resource.kind}/{name}"), position)
        if name and earlier is not position:
            message = f"line {earlier.line} has the same name, and only one of the two objects can exist; rename or remove one"
            finding = Finding("metadata.name", message, Severity.WARNING)
            yield LocatedFinding(file, position, each.subject, finding)


def _known(objects: Iterable[_Object], namespace: str) -> Documents:
    """Return the objects in the files, by name; those in the namespace have precedence over others with the same name."""
    workflows: dict[str, CheckedDefinition] = {}
    policies: set[str] = set()
    limits: set[str] = set()
    runs: dict[str, str] = {}
    in_place: list[frozenset[str] | None] = []
    signals: dict[str, frozenset[str] | None] = {}
    closed: dict[str, tuple[str, ...]] = {}
    for each in sorted(objects, key=lambda each: each.namespace == namespace):
        name, resource = each.resource.metadata.name, each.resource
        awaited = each.checked.signals.awaited if each.checked and not each.replaced else None
        if isinstance(resource, Workflow) and each.checked:
            workflows[name] = each.checked
            signals[name] = awaited
            allowed = resource.spec.allowed_namespaces
            # The namespace of the kubeconfig is not known: it may be any that the Workflow allows.
            is_closed = not allows(resource.spec.dump(), namespace) and bool(namespace or not allowed)
            if is_closed and each.namespace not in {"", namespace}:
                closed[f"{each.namespace}/{name}"] = tuple(allowed)
        elif isinstance(resource, RetryPolicy):
            policies.add(name)
        elif isinstance(resource, WorkflowLimit):
            limits.add(name)
        elif each.checked:
            in_place.append(awaited)
        elif isinstance(resource, WorkflowRun) and resource.spec.workflow and resource.spec.workflow.name:
            runs[name] = resource.spec.workflow.name
    others = None if None in in_place else frozenset[str]().union(*(each for each in in_place if each is not None))
    return Documents(workflows, frozenset(policies), frozenset(limits), SignalNames(signals, others), runs, closed)


def _read_objects(document: Document, linted: LintResult) -> Iterator[_Object]:
    """Read Perdure's objects in a document as far as possible, and record their mistakes."""
    data = document.data

    def wrong(path: str, message: str, position: Position | None = None, subject: str = "") -> None:
        place = position or document.position(path)
        linted.found.append(LocatedFinding(document.file, place, subject, Finding(path, message)))

    if not isinstance(data, dict) or "kind" not in data or "apiVersion" not in data:
        if document.explicit:
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
        wrong("kind", f"unknown kind; the kinds are {', '.join(sorted(_BY_NAME))}", subject=subject)
        return
    linted.found += [LocatedFinding(document.file, place, subject, finding) for place, finding in _of_keys(document)]
    readable = read_partially(kind, data, document.misread_values)
    for path, sentence in readable.mistakes:
        wrong(path, sentence, subject=subject)
    resource = readable.resource
    if resource is None:
        linted.objects += 1
        return
    name = resource.metadata.name
    if not name and not resource.metadata.generate_name:
        wrong("metadata.name", "must be set", subject=subject)
    elif name and not (is_name(name) and len(name) <= MAX_RUN_NAME):
        message = f"must be a DNS subdomain: lowercase letters, digits, `-`, and `.`, at most {MAX_RUN_NAME} characters"
        wrong("metadata.name", message, subject=subject)
    mistaken = frozenset(path for path, _ in readable.mistakes)
    yield _Object(document, resource, readable.replaced, readable.renamed, mistaken)


def _of_keys(document: Document) -> Iterator[tuple[Position, Finding]]:
    for path, position in document.duplicates:
        yield position, Finding(path, "is set twice in the same object, which kubectl rejects; remove one of them")
    for path, position, key in document.misread_keys:
        message = f"kubectl reads the key `{key.written}` as `{key.value}`; write '{key.written}' if that is not what you mean"
        yield position, Finding(path, message, Severity.WARNING)


def _of_values(document: Document) -> Iterator[Finding]:
    """Warn about integers that are rounded, and booleans that are probably texts (as the rule `truthy` of yamllint does)."""
    for path, (_, written) in document.large_integers.items():
        yield Finding(path, rounded(written), Severity.WARNING)
    for path, (_, written) in document.misread_values.items():
        message = f"kubectl reads the value `{written}` as a boolean; write '{written}' if you mean the text, else true or false"
        yield Finding(path, message, Severity.WARNING)


def _checked(objects: Iterable[_Object]) -> list[_Object]:
    """Check the definitions of the objects, which can copy parts of the Workflows among them."""
    found = [each.resource for each in objects if isinstance(each.resource, Workflow)]
    known = [(each.metadata.namespace, each.metadata.name, each.spec.dump()) for each in found]
    return [replace(each, checked=_check(each.resource, known)) for each in objects]


def _check(resource: Resource, workflows: Sequence[tuple[str, str, Json]]) -> CheckedDefinition | None:
    """Check the definition of an object, if it has one.

    Args:
        resource: The object.
        workflows: The Workflows: namespace, name, and spec.
    """
    namespace = resource.metadata.namespace
    libraries = in_namespace(workflows, namespace)
    check = partial(checks.check, libraries=libraries, namespace=namespace)
    if isinstance(resource, Workflow):
        checked = check(resource.spec)
        if not is_library(resource.spec.dump()):
            return checked
        return replace(checked, findings=tuple(finding for finding in checked.findings if finding != NO_STEPS))
    if isinstance(resource, WorkflowDefaults):
        defaults = NamespaceDefaults(resource.spec.dump())
        checked = check(WorkflowSpec.parse(dict(PROBE)), defaults=defaults).moved(within)
        kept = (f for f in checked.findings if f.severity is Severity.ERROR or f.path not in _OF_PROBE)
        return replace(checked, findings=tuple(kept))
    if isinstance(resource, WorkflowRun):
        inline, path = resource.spec.inline, "spec.inline"
    elif isinstance(resource, Schedule):
        inline, path = resource.spec.workflow_run_template.spec.inline, "spec.workflowRunTemplate.spec.inline"
    else:
        return None
    if inline is None:
        return None
    checked = check(inline, path=path)
    if not inline.allowed_namespaces:
        return checked
    message = "has no effect in an inline definition, which others cannot copy from; move it to a Workflow"
    finding = Finding(f"{path}.allowedNamespaces", message, Severity.WARNING)
    return replace(checked, findings=(*checked.findings, finding))


def _limit(spec: WorkflowLimitSpec) -> Iterator[Finding]:
    """Warn about a rate of attempts for runs, which have none."""
    selects_runs = spec.applies_to is not None and spec.applies_to.takers is LimitTakers.RUNS
    if spec.rate is not None and spec.rate.counts_attempts and selects_runs:
        message = "has no effect: `appliesTo` selects runs, and only activities have attempts; set `takers: Activities`"
        yield Finding("spec.rate.counts", message, Severity.WARNING)


def _across_documents(each: _Object, documents: Documents, now: datetime) -> Iterator[Finding]:
    """Yield the findings that depend on other objects."""
    resource = each.resource
    if each.checked is not None:
        name = resource.metadata.name if isinstance(resource, Workflow) else ""
        yield from check_references(each.checked, documents, name=name)
    if isinstance(resource, Operation):
        yield from _signals(resource.spec, documents)
        yield from _operation_inputs(resource.spec)
    if isinstance(resource, Webhook):
        yield from _webhook(resource.spec, documents)
    if isinstance(resource, WorkflowLimit):
        yield from _limit(resource.spec)
    if isinstance(resource, WorkflowDefaults):
        yield from default_mistakes(resource.spec.dump())
        yield from annotations(resource.spec.run_metadata, "spec.runMetadata")
        yield from deadlines(resource.spec)
    if isinstance(resource, WorkflowRun):
        yield from unevaluated(resource.spec)
        yield from annotations(resource.metadata, "metadata")
        yield from _run(each, "spec", resource.spec, documents, resource.spec.input)
    elif isinstance(resource, Schedule):
        faults = faults_of(resource.spec)
        yield from (Finding(fault.path, fault.sentence) for fault in faults)
        if not each.mistaken and not faults:
            yield from _times(resource.spec, now)
        if resource.spec.retry_policy is not None and resource.spec.retry_policy.name is not None:
            yield from policies_of((("spec.retryPolicy.name", resource.spec.retry_policy.name),), documents)
        template = resource.spec.workflow_run_template
        yield from labels(template.metadata, "spec.workflowRunTemplate.metadata")
        yield from annotations(template.metadata, "spec.workflowRunTemplate.metadata")
        path = "spec.workflowRunTemplate.spec"
        zone = resource.spec.time_zone or "UTC"
        yield from scheduled_input(template.spec, path, zone)
        yield from unevaluated(template.spec, path, evaluates_input=True)
        is_known, sample = True, None
        try:
            sample = sample_input(template.spec, zone)
        except ExpressionError:
            is_known = False
        yield from _run(each, path, template.spec, documents, sample, knows_input=is_known)


def _run(
    each: _Object, path: str, spec: WorkflowRunSpec, documents: Documents, value: Any, *, knows_input: bool = True
) -> Iterator[Finding]:
    """Yield the findings in the spec of a run.

    Args:
        each: The object.
        path: The path of the spec.
        spec: The spec.
        documents: The manifests of the files.
        value: The input of the run.
        knows_input: Whether the input is known before the run starts.
    """
    yield from options(spec, path)
    yield from deadlines(spec, path)
    if spec.retry_policy is not None and spec.retry_policy.name is not None:
        yield from policies_of(((f"{path}.retryPolicy.name", spec.retry_policy.name),), documents)
    if each.checked is not None:
        program = each.checked.program
        for finding in program.check_input(program.input.complete(value)) if knows_input else ():
            yield Finding(path + finding.path.removeprefix("spec"), finding.message)
    elif spec.workflow is not None and spec.workflow.name is not None:
        yield from run_input(spec.workflow.name, value, documents, path, knows_input=knows_input)


def _webhook(spec: WebhookSpec, documents: Documents) -> Iterator[Finding]:
    """Yield the findings in the expressions of a Webhook, or its first invalid expression, and in its references."""
    try:
        yield from WebhookProgram.compile(spec).findings()
    except ExpressionError as error:
        yield Finding(error.path, f"${{{error.expression}}}: {error.message}")
    workflow = spec.start.workflow.name if spec.start is not None else None
    if workflow is not None:
        yield from run_input(workflow, None, documents, "spec.start", knows_input=False)
    if spec.signal is not None and "${" not in spec.signal.name:
        yield from documents.signals.unmatched("spec.signal.name", spec.signal.name, workflow)


def _signals(spec: OperationSpec, documents: Documents) -> Iterator[Finding]:
    """Yield findings for signals of an Operation to a run that waits for other names."""
    if spec.signal is not None:
        workflow = documents.runs.get(spec.target.name or "")
        yield from documents.signals.unmatched("spec.signal.name", spec.signal.name, workflow)
    signal = spec.signal_with_start
    if signal is not None and signal.start.workflow is not None and signal.start.workflow.name is not None:
        name = signal.start.workflow.name
        yield from documents.signals.unmatched("spec.signalWithStart.name", signal.name, name)


def _operation_inputs(spec: OperationSpec) -> Iterator[Finding]:
    """Yield findings about expressions in the inputs of an Operation, which are used unchanged."""
    for name, signal in (("signal", spec.signal), ("signalWithStart", spec.signal_with_start)):
        if signal is not None:
            yield from in_data(f"spec.{name}.input", signal.input, "the signal has this text; write the value itself")
    if spec.signal_with_start is not None:
        yield from unevaluated(spec.signal_with_start.start, "spec.signalWithStart.start")


def _times(spec: ScheduleSpec, now: datetime) -> Iterator[Finding]:
    """Return the message about valid times, as in the condition `Ready`. A Schedule whose end has passed is valid."""
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


_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def findings(linted: LintResult, page: Page) -> Iterator[Text]:
    """Show the findings.

    Args:
        linted: The findings.
        page: The page for the output.

    Yields:
        Lines such as ``order.yaml:12:5: Error: spec.steps[1].activity.name: there is …``.
    """
    for found in linted.found:
        line = Text(f"{text.one_line(found.file)}:{found.position.line}:{found.position.column}: ")
        line.append(f"{found.finding.severity.value}: ", style=_STYLES[found.finding.severity])
        yield line.append(text.one_line(str(found.finding).removeprefix(": ")))
    counts = [
        _several(linted.count(severity), severity.value.lower()) for severity in Severity if linted.count(severity)
    ]
    good = not linted.count(Severity.ERROR)
    icon = page.glyphs.icons["Succeeded" if good else "Failed"]
    what = ", ".join(counts) or "nothing found"
    summary = f"{icon} {_several(linted.objects, 'object')}: {what}"
    yield Text(summary, style="green" if good else "bold red")


def _several(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
