"""WorkflowRevisions: stored before a run refers to them, and deleted when nothing needs them.

    a run starts         read the revision ─┬─ it exists                    ──────────────▶ commit refers to it
                                            ├─ it is marked: remove the mark ─────────────▶
                                            └─ it does not exist: create it  ─────────────▶
    nothing needs it     mark it ── a while later, look at all runs ── delete the version with the mark

A revision that a run needs is never deleted, whatever is killed or frozen in between. A run that existed when all runs were
looked at either refers to the revision, or has not started: then it counts as if it did. A run that was created later reads the
revision later, and so after it was marked: it finds the mark and removes it, which changes the version, or it finds nothing and
creates the revision again. No clock decides this; the pause only keeps revisions for people for a while.

The newest revisions of an existing Workflow stay although nothing refers to them, so that people can compare and roll back.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Final, Protocol

import structlog

from perdure.api.json_values import mapping
from perdure.api.labels import UNUSED_ANNOTATION, WORKFLOW_LABEL
from perdure.api.names import label_value
from perdure.api.reasons import ConditionReason
from perdure.api.state_versions import REVISIONS
from perdure.api.times import format_time, read_kubernetes_time
from perdure.controller.errors import NotReadyError
from perdure.controller.fleet.shards import Shards
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.reconcile.newer_states import NewerStateError
from perdure.controller.state_versions import state_versions
from perdure.kube import client as kube
from perdure.kube.clock import now, until_next_poll
from perdure.observe import metrics
from perdure.runtime import revisions
from perdure.runtime.revisions import Content, Reference

LOOK_SECONDS: Final = 60.0
"""Seconds between two looks at all revisions."""
TRY_AGAIN: Final = timedelta(minutes=1)
"""Delay before a missing revision is looked for again; the operator does not watch revisions."""
_MAX_VERIFIED: Final = 10_000
_REFUSALS: Final = frozenset(
    {
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
"""A quota, a policy, or a missing role or CRD: the run does not wait for them."""

_log = structlog.get_logger("perdure.revisions")


class Revisions:
    """Stores and reads WorkflowRevisions."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client
        self._verified: OrderedDict[str, None] = OrderedDict()
        """UIDs of revisions with the right content, which cannot change."""

    async def keep(self, namespace: str, content: Content) -> Reference | None:
        """Ensure that a revision exists as long as the run that asks, which must exist already.

        Args:
            namespace: The namespace.
            content: The content of the revision.

        Returns:
            The reference to it; None if it cannot be stored, so that the run must contain its definition.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if state_versions().writes < REVISIONS:
            return None
        reference = content.reference()
        try:
            while (stored := await self._usable(namespace, reference, content)) is None:
                pass
        except kube.ApiError as error:
            if error.status not in _REFUSALS and not isinstance(error, kube.TooLargeError):
                raise
            self._refused(namespace, reference, error.message)
            return None
        return reference if stored else None

    async def _usable(self, namespace: str, reference: Reference, content: Content) -> bool | None:
        """Whether a revision exists that stays; None if another client has changed it meanwhile.

        Raises:
            RequestError: The Kubernetes API request failed.
        """
        url = _url(namespace, reference.name)
        try:
            meta = (await self._client.metadata(url))["metadata"]
        except kube.NotFoundError:
            with suppress(kube.AlreadyExistsError):
                await self._create(namespace, content)
                return True
            return None
        if meta.get("deletionTimestamp"):  # a finalizer of another client holds it for a while
            self._refused(namespace, reference, "it is being deleted")
            return False
        if meta["uid"] not in self._verified:
            with suppress(kube.NotFoundError):
                found = await self._client.get(url)
                if why := revisions.newer_part(found, state_versions().reads) or revisions.fault(found):
                    self._refused(namespace, reference, why)
                    return False
                self._note(found)
            return None
        return True if not is_marked(meta) or await unmark(self._client, meta) else None

    async def _create(self, namespace: str, content: Content) -> None:
        of_workflow = WORKFLOW_LABEL + ("" if content.workflow is None else f"={label_value(content.workflow)}")
        selector = of_workflow if content.workflow is not None else f"!{WORKFLOW_LABEL}"
        numbers = [
            revisions.number_of(each["metadata"])
            async for each in self._client.lists.each_metadata(_url(namespace), labelSelector=selector)
        ]
        body = content.build(namespace, max(numbers, default=0) + 1)
        self._note(await self._client.create(_url(namespace), state_versions().stamp_spec(body)))
        metrics.REVISIONS.labels("Stored").inc()

    def _note(self, revision: kube.Object) -> None:
        self._verified[revision["metadata"]["uid"]] = None
        if len(self._verified) > _MAX_VERIFIED:
            self._verified.popitem(last=False)

    def _refused(self, namespace: str, reference: Reference, why: str) -> None:
        metrics.REVISIONS.labels("Refused").inc()
        _log.warning("Runs contain their definition", namespace=namespace, revision=reference.name, reason=why)

    async def read(self, namespace: str, reference: Reference) -> Content:
        """Read the content of a revision that a run refers to.

        Raises:
            NotReadyError: The revision was deleted or replaced.
            NewerStateError: A newer version has stored it.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        content, found = await self._content(namespace, reference.name)
        if found != reference:
            raise NotReadyError(
                ConditionReason.REVISION_NOT_FOUND,
                f"WorkflowRevision `{reference.name}` was replaced: its hash is {found.hash}, but the run started with "
                f"{reference.hash}; restore it from a backup",
                until=now() + TRY_AGAIN,
            )
        return content

    async def named(self, namespace: str, name: str, workflow: str) -> Content:
        """Read the content of the revision that the spec of a run names.

        Raises:
            NotReadyError: The Workflow has no revision with this name.
            NewerStateError: A newer version has stored it.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        content, _ = await self._content(namespace, name)
        if content.workflow != workflow:
            of = f"of Workflow `{content.workflow}`" if content.workflow else "of a run that has its own definition"
            message = f"WorkflowRevision `{name}` is {of}, not of `{workflow}`; start a run of a revision that it has"
            raise NotReadyError(ConditionReason.REVISION_NOT_FOUND, message, until=now() + TRY_AGAIN)
        return content

    async def _content(self, namespace: str, name: str) -> tuple[Content, Reference]:
        try:
            found = await self._client.get(_url(namespace, name))
        except kube.NotFoundError:
            message = (
                f"there is no WorkflowRevision `{name}` in namespace `{namespace}`; the run continues once there is: restore "
                "it from a backup, or give its Workflow the same spec again"
            )
            raise NotReadyError(ConditionReason.REVISION_NOT_FOUND, message, until=now() + TRY_AGAIN) from None
        if why := revisions.newer_part(found, state_versions().reads):
            raise NewerStateError(f"WorkflowRevision `{name}`: {why}")
        if why := revisions.fault(found):
            message = f"WorkflowRevision `{name}` cannot be used: {why}; delete it, and restore it from a backup"
            raise NotReadyError(ConditionReason.REVISION_NOT_FOUND, message, until=now() + TRY_AGAIN)
        self._note(found)
        content = Content.of(found)
        return content, content.reference()


async def with_definition(client: kube.Client, run: kube.Object) -> kube.Object:
    """A run with the definition of its revision in its status, for a copy that outlives the revision; without it if that is lost.

    Raises:
        NewerStateError: A newer version has stored the revision.
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    status = run.get("status") or {}
    reference = Reference.of(status)
    if reference is None:
        return run
    try:
        content = await Revisions(client).read(run["metadata"]["namespace"], reference)
    except NotReadyError as error:
        _log.warning("A run is archived without its definition", run=run["metadata"]["name"], reason=error.message)
        return run
    return {**run, "status": {**status, "definition": content.definition}}


def _url(namespace: str | None, name: str | None = None) -> str:
    return kube.path(kube.PERDURE, namespace, "workflowrevisions", name)


def is_marked(meta: kube.Object) -> bool:
    """Whether a revision is marked as unused, by its metadata."""
    return UNUSED_ANNOTATION in (meta.get("annotations") or {})


async def unmark(client: kube.Client, meta: kube.Object) -> bool:
    """Remove the mark from a revision; return whether this succeeded: another client may have changed or deleted it."""
    return await _annotate(client, meta, None) is not None


async def _annotate(client: kube.Client, meta: kube.Object, value: str | None) -> kube.Object | None:
    """Write or remove the mark of a version of a revision; return its new metadata, or None if it is another version now."""
    patch = {"resourceVersion": meta["resourceVersion"], "annotations": {UNUSED_ANNOTATION: value}}
    with suppress(kube.ConflictError, kube.NotFoundError):
        changed: kube.Object = await client.merge(_url(meta["namespace"], meta["name"]), {"metadata": patch})
        return dict(changed["metadata"])
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionRetention:
    """How long revisions are kept that no run refers to."""

    history: int = 10
    """How many revisions of an existing Workflow are kept in any case, the newest ones, as in a Deployment."""
    unused_for: timedelta = timedelta(minutes=5)
    """How long any other one is kept."""


class Held(Protocol):
    """What a process holds of revisions in memory."""

    def held(self) -> Sequence[tuple[str, Content, Reference]]:
        """The revisions of the runs in memory, with their namespaces."""
        ...


class RevisionCollector:
    """Deletes revisions that nothing needs, and restores those that another client has deleted."""

    def __init__(
        self,
        client: kube.Client,
        store: Revisions,
        definitions: Held,
        retention: RevisionRetention,
        is_of_version: Callable[[str, str], Awaitable[bool]],
    ) -> None:
        """Create it.

        Args:
            client: Reads runs, Workflows, and Schedules; changes revisions.
            store: Stores revisions.
            definitions: Has the definitions of the runs in memory.
            retention: How long revisions are kept that no run refers to.
            is_of_version: Whether the Deployment of a version of workers names a revision, by namespace and name.
        """
        self._retention = retention
        self._is_of_version = is_of_version
        self._client = client
        self._store = store
        self._definitions = definitions

    async def collect_forever(self, served: ServedNamespaces, shards: Shards) -> None:
        """Look at all revisions again and again, until cancelled.

        Args:
            served: The served namespaces.
            shards: The shards, so that only one member of a fleet deletes revisions.
        """
        while True:
            await until_next_poll(LOOK_SECONDS)
            for namespace in served:
                try:
                    await self._look(namespace, deletes=shards.owns("", "revisions"))
                except kube.RequestError as error:
                    _log.warning("Could not check for unused revisions", namespace=namespace, error=repr(error))

    async def _look(self, served: str | None, *, deletes: bool) -> None:
        """Restore and delete revisions once; `served` is None for all namespaces."""
        held = [each for each in self._definitions.held() if served in (None, each[0])]
        found: dict[str, list[kube.Object]] = defaultdict(list)
        async for each in self._client.lists.each_metadata(_url(served)):
            found[each["metadata"]["namespace"]].append(each["metadata"])
        known = {(namespace, meta["name"]) for namespace, metas in found.items() for meta in metas}
        for namespace, content, reference in held:
            if (namespace, reference.name) in known or not await self._is_referred_to(namespace, reference.name):
                continue  # the definition of a run that was deleted may stay in memory for a while
            if await self._store.keep(namespace, content):
                metrics.REVISIONS.labels("Restored").inc()
                _log.warning("Restored a deleted revision", namespace=namespace, revision=reference.name)
        for namespace, metas in found.items() if deletes else ():
            await self._collect(namespace, [each for each in metas if not each.get("deletionTimestamp")])

    async def _collect(self, namespace: str, metas: Iterable[kube.Object]) -> None:
        """Mark, or delete, the revisions of a namespace that nothing needs."""
        existing = {label_value(name) for name in await self._names_of_workflows(namespace)}
        by_workflow: dict[str | None, list[kube.Object]] = defaultdict(list)
        for meta in metas:
            by_workflow[(meta.get("labels") or {}).get(WORKFLOW_LABEL)].append(meta)
        for workflow, group in by_workflow.items():
            newest_first = sorted(group, key=revisions.number_of, reverse=True)
            kept = self._retention.history if workflow in existing else 0
            for meta in newest_first[:kept]:
                if is_marked(meta):
                    await unmark(self._client, meta)
            for meta in newest_first[kept:]:
                await self._advance(namespace, meta)

    async def _names_of_workflows(self, namespace: str) -> list[str]:
        url = kube.path(kube.PERDURE, namespace, "workflows")
        return [each["metadata"]["name"] async for each in self._client.lists.each_metadata(url)]

    async def _advance(self, namespace: str, meta: kube.Object) -> None:
        """Take the next step towards the deletion of a revision, unless something needs it."""
        name = meta["name"]
        try:
            found = await self._client.get(_url(namespace, name))
        except kube.NotFoundError:
            return
        if revisions.newer_part(found, state_versions().reads):
            return
        meta, workflow = found["metadata"], found["spec"].get("workflow")
        if await self._is_referred_to(namespace, name) or await self._is_chosen(namespace, name, workflow):
            if is_marked(meta):
                await unmark(self._client, meta)
            return
        if not is_marked(meta):
            marked = await _annotate(self._client, meta, format_time(now()))
            if marked is None:
                return
            meta = marked
        since = read_kubernetes_time(meta["annotations"][UNUSED_ANNOTATION])
        if since is not None and now() - since < self._retention.unused_for:
            return
        # Only a look that begins after the mark counts, and only the version with the mark is deleted.
        if await self._is_needed(namespace, name, workflow) or await self._is_of_version(namespace, name):
            return
        if await self._client.delete(_url(namespace, name), uid=meta["uid"], version=meta["resourceVersion"]):
            metrics.REVISIONS.labels("Deleted").inc()
            _log.info("Deleted an unused revision", namespace=namespace, revision=name)

    async def _is_referred_to(self, namespace: str, name: str) -> bool:
        """Whether a run that has started refers to a revision. This is quick, and shows most of those that are needed."""
        url = kube.path(kube.PERDURE, namespace, "workflowruns")
        async for _ in self._client.lists.each_metadata(url, fieldSelector=f"status.revision.name={name}"):
            return True
        return False

    async def _is_chosen(self, namespace: str, name: str, workflow: str | None) -> bool:
        """Whether a revision is that of its Workflow now, or a Schedule or the Deployment of a version of workers names it."""
        if workflow is None:
            return False
        if await self._is_of_version(namespace, name):
            return True
        if "/" not in workflow:  # the Workflows of other namespaces have their own revisions there
            with suppress(kube.NotFoundError):
                found = await self._client.get(kube.path(kube.PERDURE, namespace, "workflows", workflow))
                if mapping(found.get("status")).get("revision") == name:
                    return True
        async for schedule in self._client.lists.each(kube.path(kube.PERDURE, namespace, "schedules")):
            template = mapping(mapping(schedule["spec"].get("workflowRunTemplate")).get("spec"))
            if mapping(template.get("workflow")).get("revision") == name:
                return True
        return False

    async def _is_needed(self, namespace: str, name: str, workflow: str | None) -> bool:
        """Whether a run needs a revision, or may be about to."""
        url = kube.path(kube.PERDURE, namespace, "workflowruns")
        selectors: list[dict[str, str]] = [{}]
        if workflow is not None:
            spellings = (workflow,) if "/" in workflow else (workflow, f"{namespace}/{workflow}")
            selectors = [{"fieldSelector": f"spec.workflow.name={each}"} for each in spellings]
        for selector in selectors:
            async for run in self._client.lists.each(url, **selector):
                is_newer = bool(state_versions().unreadable(mapping(run.get("status"))))
                if is_newer or revisions.is_needed_by(run, name, workflow):
                    return True
        return False
