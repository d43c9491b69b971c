"""Asking the cluster; whatever goes wrong becomes one sentence.

What speaks to an API server is slow to import: it is imported when something is asked, not when help is shown.
"""

from __future__ import annotations

import os
import re
import shlex
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from perdure import __version__
from perdure.api.labels import SCHEDULE_LABEL
from perdure.api.reasons import ConditionReason
from perdure.cli.errors import CliError, ExitCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import ModuleType

    from perdure.cli.view.openings import Seen
    from perdure.kube.access import Access
    from perdure.kube.client import Client
    from perdure.runtime.segments import Past

Object = dict[str, Any]

_LISTED_BY = {
    "WorkflowRun": "list",
    "Schedule": "schedule list",
    "DeadLetter": "deadletters list",
    "Operation": "operations",
}
"""The verbs that list objects of a kind."""

GET_ONE = "set KUBECONFIG or --context, or create a cluster with `make cluster`"
"""How to get a cluster."""


class UnreachableError(CliError):
    """The API server could not be asked, or could not answer; it may be able to later."""


class GoneError(CliError):
    """There is no such object."""


class NoNamespaceError(CliError):
    """There is nothing to list, nor such a namespace."""

    status = ExitCode.NO


class ExistsError(CliError):
    """There is an object of that name already."""


class Cluster:
    """The cluster that was asked for, and the namespace."""

    def __init__(self, client: Client, namespace: str, program: str, api: ModuleType) -> None:
        self.namespace = namespace
        self._client = client
        self._program = program
        self._api = api

    async def run(self, name: str) -> Object:
        """Read a WorkflowRun.

        Raises:
            CliError: there is none, or it cannot be read.
        """
        return await self.read("WorkflowRun", "workflowruns", name)

    async def chosen(self, name: str | None, workflow_id: str | None) -> Object:
        """Read a WorkflowRun that is named, or the one of a workflow id: the open one, else the one that closed last.

        Raises:
            CliError: there is none, or it cannot be read.
        """
        if workflow_id is not None:
            found = await self._of_workflow_id(workflow_id)
            if not found:
                raise GoneError(
                    f"no WorkflowRun with workflow ID `{workflow_id}` in namespace `{self.namespace}`; list all runs with "
                    f"`{self._program} list -A -o wide`, and choose the namespace with -n"
                )
            return max(found, key=_standing)
        assert name is not None, "it is named in one of the two ways"
        try:
            return await self.run(name)
        except GoneError as error:
            raise await self._other_way(name) or error from None

    async def _other_way(self, name: str) -> GoneError | None:
        """Return a hint if a name that no run has is the workflow ID of some run."""
        try:
            found = await self._of_workflow_id(name)
        except CliError:
            return None
        if not found:
            return None
        newest = sorted(found, key=_standing, reverse=True)[:3]
        runs = ", ".join(f"`{run['metadata']['name']}`" for run in newest)
        return GoneError(
            f"there is no WorkflowRun `{name}` in namespace `{self.namespace}`, but that is the workflow ID of {runs}; pass it "
            f"with `-w {shlex.quote(name)}`"
        )

    async def _of_workflow_id(self, workflow_id: str) -> list[Object]:
        """The runs of a workflow id; one that is given none has its name for it. Standalone activities have none."""
        url = self._api.path(self._api.PERDURE, self.namespace, "workflowruns")
        escaped = re.sub(r"([\\,=])", r"\\\1", workflow_id)
        found = {}
        for field in ("spec.workflowId", "metadata.name"):
            for run in await self._ask(self._client.list_all(url, fieldSelector=f"{field}={escaped}")):
                if "activity" in run["spec"]:
                    continue
                if (run["spec"].get("workflowId") or run["metadata"]["name"]) == workflow_id:
                    found[run["metadata"]["uid"]] = run
        return list(found.values())

    async def schedule(self, name: str) -> Object:
        """Read a Schedule.

        Raises:
            CliError: there is none, or it cannot be read.
        """
        return await self.read("Schedule", "schedules", name)

    async def runs(self, *, everywhere: bool = False, phase: str | None = None) -> list[Object]:
        """Read all WorkflowRuns, of the namespace or of all namespaces, or those of one phase.

        Raises:
            CliError: they cannot be read.
        """
        asked = {"fieldSelector": f"status.phase={phase}"} if phase else {}
        return await self.every("workflowruns", everywhere=everywhere, **asked)

    async def runs_of_schedules(self, *, of: str | None = None, everywhere: bool = False) -> list[Object]:
        """Read the runs of one Schedule, or of all; none where the user may not.

        Raises:
            CliError: they cannot be read.
        """
        namespace = None if everywhere else self.namespace
        url = self._api.path(self._api.PERDURE, namespace, "workflowruns")
        selector = SCHEDULE_LABEL if of is None else f"{SCHEDULE_LABEL}={of}"
        try:
            items: list[Object] = await self._client.list_all(url, labelSelector=selector)
        except self._api.ApiError as error:
            if error.status == 403:  # noqa: PLR2004
                return []
            raise self._refused(error.status, error.message) from error
        except self._api.TRANSIENT as error:
            raise _unreachable(self._client.access, error) from error
        return items

    async def operation(self, name: str) -> Object:
        """Read an Operation.

        Raises:
            CliError: it is gone, or cannot be read.
        """
        return await self.read("Operation", "operations", name)

    async def read(self, kind: str, plural: str, name: str) -> Object:
        """Read an object of ours.

        Raises:
            CliError: there is none, or it cannot be read.
        """
        try:
            path = self._path(plural, name)
        except ValueError:  # no object can be called so
            raise self._gone(kind, name) from None
        found: Object = await self._ask(self._client.get(path), name, kind)
        return found

    async def every(self, plural: str, *, everywhere: bool = False, **asked: str) -> list[Object]:
        """Read all objects of a kind of ours, of the namespace or of all namespaces; `asked`: those that a selector takes.

        Raises:
            NoNamespaceError: there are none, nor is there the namespace.
            CliError: they cannot be read.
        """
        url = self._api.path(self._api.PERDURE, None if everywhere else self.namespace, plural)
        items: list[Object] = await self._ask(self._client.list_all(url, **asked))
        if not items and not everywhere and await self._lacks_namespace():
            raise NoNamespaceError(self._no_namespace)
        return items

    async def delete(self, kind: str, plural: str, name: str, *, orphan: bool = False) -> None:
        """Delete an object of ours, and what belongs to it unless that is to stay.

        Raises:
            CliError: there is none, or it must not be deleted.
        """
        found = await self.read(kind, plural, name)
        how = "Orphan" if orphan else "Background"
        deleted = self._client.delete(self._path(plural, name), uid=found["metadata"]["uid"], propagation=how)
        await self._ask(deleted, name, kind)

    async def create(self, plural: str, body: Object) -> Object:
        """Create an object in the namespace; as the API server has it then.

        Raises:
            CliError: it was refused.
        """
        made: Object = await self._ask(
            self._client.create(self._api.path(self._api.PERDURE, self.namespace, plural), body)
        )
        return made

    async def config_map(self, name: str) -> Object | None:
        """Read a ConfigMap of the namespace; None if there is none.

        Raises:
            NoNamespaceError: there is no such namespace.
            CliError: it cannot be read.
        """
        try:
            found: Object = await self._ask(self._client.get(self._config_maps(name)), name, "ConfigMap")
        except GoneError:
            if await self._lacks_namespace():
                raise NoNamespaceError(self._no_namespace) from None
            return None
        return found

    async def store_config_map(self, body: Object) -> None:
        """Replace a ConfigMap that was read and not changed since, or create one.

        Raises:
            CliError: it was refused, or someone else has changed or created it meanwhile.
        """
        meta = body["metadata"]
        if "resourceVersion" in meta:
            await self._ask(self._client.replace(self._config_maps(meta["name"]), body), meta["name"], "ConfigMap")
        else:
            await self._ask(self._client.create(self._config_maps(), body))

    def _config_maps(self, name: str | None = None) -> str:
        return str(self._api.path(self._api.CORE, self.namespace, "configmaps", name))

    async def seen(self, run: Object) -> Seen | None:
        """See a run's pods with their Leases, why pods were refused, and its children.

        Returns:
            The result; None if the user has no permission, or the API is not available.
        """
        from perdure.cli.live import children_selector, refusals, see, selector  # noqa: PLC0415 - see the docstring of the module

        namespace = run["metadata"]["namespace"]
        found: list[list[Object]] = []
        for group, plural, asked in (
            (self._api.CORE, "pods", {"labelSelector": selector(run)}),
            (self._api.COORDINATION, "leases", {"labelSelector": selector(run)}),
            (self._api.CORE, "events", {"fieldSelector": refusals(run)}),
            (self._api.PERDURE, "workflowruns", {"labelSelector": children_selector(run)}),
        ):
            if plural == "workflowruns" and not (run.get("status") or {}).get("pendingChildren"):
                continue
            try:
                url = self._api.path(group, namespace, plural)
                found.append(await self._client.list_all(url, **asked))
            except self._api.ApiError:
                if plural == "pods":
                    return None
                found.append([])
            except self._api.TRANSIENT:
                return None
        return see(run, *found)

    async def pods(self, run: Object) -> list[Object]:
        """Read the pods of a run's attempts.

        Raises:
            CliError: they cannot be read.
        """
        from perdure.cli.live import selector  # noqa: PLC0415 - see the docstring of the module

        url = self._api.path(self._api.CORE, run["metadata"]["namespace"], "pods")
        found: list[Object] = await self._ask(self._client.list_all(url, labelSelector=selector(run)))
        return found

    async def children(self, run: Object) -> list[Object]:
        """Read the children of a run.

        Raises:
            CliError: they cannot be read.
        """
        from perdure.cli.live import children_selector  # noqa: PLC0415 - see the docstring of the module

        return await self.every("workflowruns", labelSelector=children_selector(run))

    async def log(self, pod: str, **query: str) -> AsyncIterator[bytes]:
        """Read the lines of a pod's log.

        Raises:
            GoneError: there is no such pod any more.
            UnreachableError: the connection broke, or the node cannot answer.
            CliError: it cannot be read.
        """
        url = self._api.path(self._api.CORE, self.namespace, "pods", pod, "log")
        try:
            async for line in self._client.lines(url, **query):
                yield line
        except self._api.NotFoundError as error:
            raise GoneError(error.message) from error
        except self._api.ApiError as error:
            raise self._refused(error.status, error.message) from error
        except self._api.TRANSIENT as error:
            raise _unreachable(self._client.access, error) from error

    async def past(self, run: Object) -> Past:
        """The whole history of a run, sealed segments included, and what is wrong with it.

        Raises:
            CliError: the segments cannot be read.
        """
        from perdure.runtime.segments import gather  # noqa: PLC0415 - see the docstring of the module

        found: list[Object] = []
        if ((run.get("status") or {}).get("history") or {}).get("segments"):
            url = self._api.path(self._api.PERDURE, run["metadata"]["namespace"], "historysegments")
            of_run = f"spec.workflowRun.runId={run['metadata']['uid']}"
            found = await self._ask(self._client.list_all(url, fieldSelector=of_run))
        return gather(run, found)

    async def with_past(self, run: Object) -> Object:
        """The run with all that is left of its history in its status.

        Raises:
            CliError: the segments cannot be read.
        """
        status = run.get("status") or {}
        history = status.get("history") or {}
        if not history.get("segments"):
            return run
        past = await self.past(run)
        return {**run, "status": {**status, "history": {**history, "events": past.events}}}

    async def _lacks_namespace(self) -> bool:
        """Whether there is no such namespace; not so where the user may not look, or nobody can."""
        try:
            await self._client.get(self._api.path(self._api.CORE, None, "namespaces", self.namespace))
        except self._api.NotFoundError:
            return True
        except (self._api.ApiError, *self._api.TRANSIENT):
            return False
        return False

    @property
    def _no_namespace(self) -> str:
        return f"there is no namespace `{self.namespace}`; choose another one with -n"

    def _path(self, plural: str, name: str) -> str:
        return str(self._api.path(self._api.PERDURE, self.namespace, plural, name))

    async def _ask(self, answer: Any, name: str | None = None, kind: str = "WorkflowRun") -> Any:
        try:
            return await answer
        except self._api.NotFoundError as error:
            if error.message.startswith("namespaces "):
                raise CliError(self._no_namespace) from None
            if name is None or name not in error.message:
                raise CliError(
                    "the cluster has no WorkflowRuns: Perdure is not installed in it; run `make install`, or "
                    "choose another cluster with --context"
                ) from None
            raise self._gone(kind, name) from None
        except self._api.AlreadyExistsError as error:
            raise ExistsError(f"the API server refused the request: {error.message}") from error
        except self._api.ApiError as error:
            raise self._refused(error.status, error.message) from error
        except self._api.TRANSIENT as error:
            raise _unreachable(self._client.access, error) from error

    def _gone(self, kind: str, name: str) -> GoneError:
        verb = _LISTED_BY.get(kind, "")
        way = f"{self._program} {verb}" if verb else f"kubectl get {kind.lower()}"
        return GoneError(
            f"there is no {kind} `{name}` in namespace `{self.namespace}`; list those that exist with "
            f"`{way} -A`, and choose the namespace with -n"
        )

    def _refused(self, status: int, message: str) -> CliError:
        if status == 401:  # noqa: PLR2004
            return CliError(
                f"the API server does not accept your credentials ({message}); log in again, or use --context"
            )
        if status == 403:  # noqa: PLR2004
            return CliError(
                f"{message}; ask your administrator for the role `view` (to read), `perdure-on-call` (to create Operations) "
                f"or `edit` in namespace `{self.namespace}`, or choose "
                "another namespace with -n"
            )
        if status == 429 or status >= 500:  # noqa: PLR2004
            return UnreachableError(f"the API server is not available ({status}: {message}); try again later")
        return CliError(f"the API server refused the request: {message}")


def _standing(run: Object) -> tuple[bool, bool, str, str]:
    """Of the runs of a workflow id the open one is the greatest; of the closed ones that which has run last."""
    status = run.get("status") or {}
    refused = (status.get("failure") or {}).get("type") == ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED
    return (
        not status.get("completionTime"),
        not refused and bool(status.get("startTime")),
        str(status.get("completionTime") or ""),
        str(run["metadata"].get("creationTimestamp") or ""),
    )


@asynccontextmanager
async def connect(
    *, context: str | None, namespace: str | None, program: str, connections: int = 4
) -> AsyncIterator[Cluster]:
    """Reach the cluster that the kubeconfig, or the pod this runs in, names.

    Args:
        context: A context of the kubeconfig; None for its current one.
        namespace: The namespace that was asked for; None for the kubeconfig's own.
        program: How the command was called.
        connections: Maximum number of concurrent requests.

    Yields:
        The cluster, not asked yet.

    Raises:
        CliError: there is no cluster.
    """
    from perdure.kube import client as kube  # noqa: PLC0415 - see the docstring of the module

    access = _access(context)
    try:
        opened = kube.Client.open(access, user_agent=f"perdure-cli/{__version__}", connections=connections)
        client = await opened.__aenter__()
    except OSError as error:
        raise CliError(f"the certificates of the kubeconfig cannot be read: {error}; {GET_ONE}") from error
    try:
        yield Cluster(client, namespace or access.namespace, program, kube)
    finally:
        await opened.__aexit__(None, None, None)


def _access(context: str | None) -> Access:
    import yaml  # noqa: PLC0415 - see the docstring of the module

    from perdure.kube.access import NoAccessError, find_access  # noqa: PLC0415 - see the docstring of the module

    # Who names a context means the kubeconfig, also inside a pod.
    host = "" if context else os.environ.get("KUBERNETES_SERVICE_HOST", "")
    try:
        return find_access(context=context, host=host, port=os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
    except NoAccessError as error:
        raise CliError(str(error)) from error
    except (AttributeError, LookupError, OSError, TypeError, ValueError, yaml.YAMLError) as error:
        # The official client does not check a kubeconfig: it raises whatever it stumbles over.
        raise CliError(f"the kubeconfig cannot be read: {' '.join(str(error).split())}; {GET_ONE}") from error


def _unreachable(access: Access, error: Exception) -> UnreachableError:
    cause = str(error) or type(error).__name__
    return UnreachableError(
        f"the API server at {access.server} does not respond ({cause}); start that cluster, or {GET_ONE}"
    )
