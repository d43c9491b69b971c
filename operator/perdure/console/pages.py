"""The pages of the console: each reads objects and fills in a template. They change nothing."""

from __future__ import annotations

import asyncio
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, RedirectResponse, StreamingResponse
from starlette.routing import Route

from perdure.api.json_values import mapping, mappings, text
from perdure.api.kinds.workflowrun import definition_of
from perdure.api.phases import Phase
from perdure.client.cluster import Cluster
from perdure.client.errors import ClientError, NotFoundError, UnreachableError
from perdure.client.frontend import quoted
from perdure.client.logs import ArchivedLogError, ArchivedLogs
from perdure.console import rows
from perdure.console.forms import awaited_signals
from perdure.console.site import NAME
from perdure.kube import clock
from perdure.kube.errors import NoResponseError
from perdure.view import schedules
from perdure.view.fleet import members_of
from perdure.view.page import Page
from perdure.view.runs import failure
from perdure.view.runs.graph import lay_out
from perdure.view.runs.logs import AttemptLog, LogLines, logs_of, missing_logs
from perdure.view.runs.replay import trace
from perdure.view.runs.run import read_run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from perdure.api.json_values import Json
    from perdure.client.cluster import Cluster
    from perdure.console.site import Site
    from perdure.view.runs.logs import AttemptLog
    from perdure.view.runs.run import RunView


_MAX_DIGITS: Final = 7
PAGE: Final = 50
"""Maximum number of objects on a page of a list."""
ARCHIVED: Final = 200
"""Maximum number of archived runs on their page."""
STEPS: Final = 500
"""Maximum number of steps in the table of a run."""
REDRIVABLE: Final = ("Not re-driven", "Failed")
"""The states of dead letters that can run again."""

LISTS: Final[dict[str, tuple[str, Callable[[Json], rows.Row]]]] = {
    "schedules": ("schedules", rows.schedule),
    "workflows": ("workflows", rows.workflow),
    "limits": ("workflowlimits", rows.limit),
    "retrypolicies": ("retrypolicies", rows.retry_policy),
    "deadletters": ("deadletters", rows.dead_letter),
}
"""The resource and the function that converts an object to a row, by the last part of the path."""


class Pages:
    """Serves the pages."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._settings = site.settings

    def routes(self) -> list[Route]:
        """The pages by their paths."""
        space = "/namespaces/{namespace}"
        return [
            Route("/", self.home),
            Route("/go", self.select_namespace),
            Route("/fleet", self.fleet),
            Route(f"{space}/runs/{{name}}", self.run),
            Route(f"{space}/runs/{{name}}/logs/{{pod}}", self.log),
            Route(f"{space}/runs/{{name}}/logs/{{pod}}/text", self.text),
            Route(f"{space}/runs/{{name}}/logs/{{pod}}/archived", self.archived_log),
            Route(f"{space}/deadletters/{{name}}", self.dead_letter),
            Route(f"{space}/schedules/{{name}}", self.schedule),
            Route(f"{space}/runs", self.runs),
            Route(f"{space}/archive", self.archive),
            Route(f"{space}/{{kind}}", self.listing),
        ]

    async def home(self, request: Request) -> Response:
        """Redirect to the runs of the first namespace."""
        return RedirectResponse(f"{request.scope.get('root_path', '')}/namespaces/{self._settings.namespace}/runs")

    async def select_namespace(self, request: Request) -> Response:
        """Redirect to the namespace that the form at the top of each page selects."""
        namespace = request.query_params.get("namespace", "").strip() or self._settings.namespace
        if not NAME.fullmatch(namespace):
            raise HTTPException(404, "No namespace can have this name.")
        return RedirectResponse(str(request.url_for("listing", namespace=namespace, kind="runs").path), status_code=303)

    async def listing(self, request: Request) -> Response:
        """Show the objects of a kind, a page at a time."""
        kind = request.path_params["kind"]
        if kind not in LISTS:
            raise HTTPException(404, "There is no such page.")
        plural, row = LISTS[kind]
        async with self._site.open(request) as cluster:
            found, token = await cluster.page(plural, PAGE, request.query_params.get("continue", ""))
        shown = [row(each) for each in found]
        following = {"continue": token} if token else {}
        return self._site.show(request, f"{kind}.html", rows=shown, following=following, redrivable=REDRIVABLE)

    async def runs(self, request: Request) -> Response:
        """Show the runs, newest first, a page at a time."""
        phase, asked = request.query_params.get("phase", ""), request.query_params.get("page", "")
        number = max(int(asked), 1) if asked.isdecimal() and len(asked) < _MAX_DIGITS else 1
        selectors = {"fieldSelector": f"status.phase={phase}"} if phase in set(Phase) else {}
        async with self._site.open(request) as cluster:
            found = rows.newest_first(await cluster.rows("workflowruns", everywhere=False, metadata=True, **selectors))
            if phase:
                found = [each for each in found if rows.run(each).word == phase]  # without those in deletion
        shown = [rows.run(each) for each in found[(number - 1) * PAGE : number * PAGE]]
        following = {"phase": phase, "page": number + 1} if len(found) > number * PAGE else {}
        return self._site.show(
            request, "runs.html", rows=shown, following=following, phase=phase, phases=list(Phase), total=len(found)
        )

    async def archive(self, request: Request) -> Response:
        """Show runs that are only in the archive: the newest ones, or those that closed in a month."""
        workflow = request.query_params.get("workflow", "").strip()
        month = request.query_params.get("month", "").strip()
        query = "" if not workflow else f"WorkflowType = {quoted(workflow)}"
        async with self._site.open(request) as cluster, self._site.open_archive(request, cluster) as api:
            listed = await api.archived_runs(query, ARCHIVED, month)
        return self._site.show(
            request,
            "archive.html",
            rows=list(map(rows.archived_run, listed.found)),
            more=listed.more,
            workflow=workflow,
            month=month or listed.month,
        )

    async def schedule(self, request: Request) -> Response:
        """Show a Schedule: its times, its last runs, and why it does not start runs."""
        name = request.path_params["name"]
        async with self._site.open(request) as cluster:
            found = await cluster.read("Schedule", "schedules", name)
            started = await cluster.runs.of_schedules(name)
        page = Page(now=clock.now(), width=100)
        lines = "\n".join(line.plain for line in schedules.description(found, page, started)[1:])
        runs = [text(each.get("workflowRun")) for each in mappings(mapping(found.get("status")).get("recentActions"))]
        return self._site.show(
            request, "schedule.html", row=rows.schedule(found), description=dedent(lines), runs=runs[::-1]
        )

    async def run(self, request: Request) -> Response:
        """Show a run: its steps as a graph and as a table, and the logs of its attempts."""
        async with self._site.open(request) as cluster:
            read, is_archived = await self._site.read_run(request, cluster)
            found = await cluster.runs.with_history(dict(read))
            live = await cluster.runs.live_state(found)
            pods = [] if live is None else await cluster.runs.pods(found)
            retries = await cluster.runs.retries(dict(found))
        now = clock.now()
        shown = await asyncio.to_thread(
            lambda: read_run(found, now=now, live=live, trace=trace(found), retries=retries)
        )
        steps = list(shown.every_step())
        order = {step.path: number for number, step in enumerate(steps)}
        logs = [*logs_of(shown, pods), *missing_logs(shown, pods)]
        return self._site.show(
            request,
            "run.html",
            run=shown,
            graph=lay_out(shown.steps, definition_of(found)) if shown.steps else None,
            steps=steps[:STEPS],
            more=max(len(steps) - STEPS, 0),
            message=failure.titled(shown.message, shown.titles),
            logs=sorted(logs, key=lambda log: (order.get(log.step, len(order)), log.attempt)),
            archived=_archived(shown, definition_of(found)),
            no_pods=live is None,
            awaited=awaited_signals(found),
            from_archive=is_archived,
            web_ui=self._in_web_ui(shown),
            page=Page(now=now),
        )

    def _in_web_ui(self, run: RunView) -> str:
        """Return the base URL of Temporal's Web UI for a run; empty if the Web UI does not show the run."""
        return self._settings.web_ui.rstrip("/") if run.observed and not (run.activity or run.operation) else ""

    async def archived_log(self, request: Request) -> Response:
        """Send the archived log of an attempt as text. A pod reads it, which the user creates."""
        if self._settings.read_only:
            raise HTTPException(404, "This console has no actions, and a pod must read the archived log.")
        async with self._site.open(request) as cluster:
            run = read_run(await cluster.runs.get(request.path_params["name"]), now=clock.now())
            pod = request.path_params["pod"]
            if not pod.startswith(f"{run.name}-"):
                raise HTTPException(404, "The run has no such attempt.")
            found = (await ArchivedLogs(cluster, run).read([pod])).get(pod)
        if found is None:
            raise HTTPException(404, "The log of this attempt is not archived.")
        if isinstance(found, ArchivedLogError):
            raise HTTPException(502, f"The archived log cannot be read: {found}")
        return PlainTextResponse("".join(f"{line}\n" for line in found))

    async def log(self, request: Request) -> Response:
        """Show the log of an attempt."""
        async with self._site.open(request) as cluster:
            log = await self._log_of(cluster, request)
        return self._site.show(request, "log.html", log=log)

    async def text(self, request: Request) -> Response:
        """Send the log of an attempt as text, as it is written."""
        opened = self._site.open(request)
        cluster = await opened.__aenter__()
        try:
            log = await self._log_of(cluster, request)
        except BaseException:
            await opened.__aexit__(None, None, None)
            raise

        async def sent() -> Any:
            try:
                async for part in text_of(cluster, log, follow="follow" in request.query_params):
                    yield part
            finally:
                await opened.__aexit__(None, None, None)

        return StreamingResponse(sent(), media_type="text/plain")

    async def _log_of(self, cluster: Cluster, request: Request) -> AttemptLog:
        """Find the attempt that has a pod."""
        found = await cluster.runs.get(request.path_params["name"])
        pods = await cluster.runs.pods(found)
        logs = logs_of(read_run(found, now=clock.now()), pods)
        pod, container = request.path_params["pod"], request.query_params.get("container", "")
        log = next((each for each in logs if each.pod == pod and container in {"", each.container}), None)
        if log is None:
            raise HTTPException(404, "The pod of this attempt no longer exists, and neither does its log.")
        return log

    async def dead_letter(self, request: Request) -> Response:
        """Show a dead letter."""
        async with self._site.open(request) as cluster:
            found = await cluster.read("DeadLetter", "deadletters", request.path_params["name"])
        spec, status, page = mapping(found.get("spec")), mapping(found.get("status")), Page(now=clock.now(), width=100)
        again = page.perdure(request.path_params["namespace"], "deadletters redrive", found["metadata"]["name"])
        return self._site.show(
            request,
            "deadletter.html",
            row=rows.dead_letter(found),
            redrivable=REDRIVABLE,
            input=spec.get("input"),
            failure=_chain(mapping(spec.get("failure")), page),
            again=_chain(mapping(status["failure"]), page) if status.get("failure") else "",
            command=again,
        )

    async def fleet(self, request: Request) -> Response:
        """Show the operators that share the work."""
        async with self._site.open_system(request) as cluster:
            leases = await cluster.leases()
        return self._site.show(request, "fleet.html", members=members_of(leases, clock.now()))


def _archived(run: RunView, definition: Json) -> frozenset[str]:
    """Return the paths of the steps whose activities archive their logs."""
    archiving = {
        each.get("name")
        for each in mappings(definition.get("activities"))
        if mapping(each.get("artifacts")).get("archiveLogs")
    }
    return frozenset(step.path for step in run.every_step() if step.kind == "activity" and step.target in archiving)


def _chain(node: Json, page: Page) -> str:
    """Format a failure and its causes as text."""
    return dedent("\n".join(line.plain for line in failure.chain(node, page)))


# The log of an attempt

TAIL = 2_000
"""Maximum lines of an existing log to read."""


_MAX_FAILURES = 5
"""Maximum number of failed reads of the log."""


_PAUSE = 1.0


async def text_of(cluster: Cluster, log: AttemptLog, *, follow: bool) -> AsyncIterator[str]:
    """Stream a log as its container writes it.

    Args:
        cluster: The cluster, with the namespace of the run.
        log: The log.
        follow: Whether to continue until the container ends.

    Yields:
        Lines with their times, then the reason if no more lines can be read.
    """
    query = {"container": log.container, "timestamps": "true", "tailLines": str(TAIL)}
    if follow:
        query["follow"] = "true"
    lines, tries = LogLines(timestamps=True, pattern=None), 0
    while True:
        try:
            async for raw in cluster.runs.log(log.pod, **query):
                tries = 0
                line = lines.accept(raw)
                if line is not None:
                    yield f"{line}\n"
        except NotFoundError:
            yield "(The pod was deleted, and its log with it.)\n"
        except UnreachableError as error:
            # A container may write nothing for a minute.
            was_silent = isinstance(error.__cause__, NoResponseError) and error.__cause__.is_timeout
            tries += not was_silent
            if follow and tries < _MAX_FAILURES:
                await asyncio.sleep(_PAUSE)
                lines.resume()
                if lines.last:
                    query.pop("tailLines", None)
                    query["sinceTime"] = lines.last
                continue
            yield f"(The log cannot be read: {error})\n"
        except ClientError as error:
            yield f"(The log cannot be read: {error})\n"
        return
