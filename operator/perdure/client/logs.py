"""Reads the logs of all attempts of a run, and follows them if requested.

Archived logs are read by pods, which get the credentials of the artifact store from its Secret.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from perdure.api.json_values import mapping
from perdure.api.labels import IMAGE_ANNOTATION
from perdure.api.names import artifact_set_name, attempt_in, log_key
from perdure.client.cluster import Cluster
from perdure.client.connection import LOG_STREAMS
from perdure.client.errors import ClientError, NotFoundError, UnreachableError
from perdure.kube import clock
from perdure.lazy import lazily
from perdure.runtime.chains import reset_of
from perdure.runtime.pods.artifacts import build_store_pod
from perdure.view.runs.logs import (
    AttemptLog,
    LogLines,
    LogSelection,
    earlier_logs,
    is_in_closed_loop,
    is_part_of,
    logs_of,
    may_have_had_pods,
    missing_logs,
    names_of,
)
from perdure.view.runs.run import RunView, read_run

with lazily():
    from perdure.view.runs import replay

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object
    from perdure.view.runs.run import RunView

_PAUSE = 1.0
"""Seconds between two reads of the run and its pods."""
_MAX_FAILURES = 5
"""Maximum number of failed reads of the log of a closed run."""

_NOT_ARCHIVED = (
    "these attempts have no archived logs: `artifacts.archiveLogs` of an activity stores the logs of its pods, and "
    "`podRetention` sets how long its pods are kept"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """The logs at one point in time."""

    runs: list[RunView]
    logs: list[AttemptLog]
    missing: list[AttemptLog]
    earlier: list[AttemptLog]
    """The logs of steps whose results were kept from earlier runs."""


@dataclass(kw_only=True)
class LogReader:
    """Reads the logs of a run."""

    cluster: Cluster
    run: Object
    selection: LogSelection = field(default_factory=LogSelection)
    children: bool = False
    """Whether the logs of its children are included."""
    write: Callable[[AttemptLog, str], object]
    """Called with each line."""
    report: Callable[[str], object]
    """Called with each sentence about logs that are missing, or cannot be read now."""
    query: dict[str, str] = field(default_factory=dict)
    """Parameters of the requests for logs."""
    lines: Callable[[], LogLines] = lambda: LogLines(timestamps=False, pattern=None)
    """Makes what selects and formats the lines of a log."""
    closed: bool = False
    """Whether the run and its children have ended."""
    unread: bool = False
    """Whether archived logs could not be read."""
    titles: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """The names of steps by run and path, from histories that were read for items of closed loops."""
    streams: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOG_STREAMS))
    """Limits the number of logs that are read at the same time."""

    async def check_steps(self) -> None:
        """Check that the selected steps exist.

        Raises:
            ClientError: The run has no such step, and children are not included.
        """
        titles = (await self._read(self.run)).titles
        known = list(titles)
        names = [name for path, title in titles.items() for name in names_of(path, title)]
        for step in self.selection.steps:
            if self.children or not known or any(is_part_of(name, step) or is_part_of(step, name) for name in names):
                continue
            steps = ", ".join(f"`{path}`" for path in known[:10]) + (", …" if len(known) > 10 else "")  # noqa: PLR2004
            raise ClientError(f"--step: the run `{self._name}` has no step `{step}`; its steps are {steps}")

    async def read(self) -> bool:
        """Show the existing lines. Return whether there was a log to show."""
        snapshot = await self._snapshot(with_history=True)
        archived = await self._show_archived(snapshot)
        wanted = [log for log in (*snapshot.earlier, *snapshot.logs) if self.selection.matches(log)]
        for log in wanted:
            if not log.pod:
                command = f"{self.cluster.runs.program} logs -n {self.run['metadata']['namespace']} {log.run}"
                self.report(
                    f"{log.label}: ran in the earlier run `{log.run}`, and its pod was deleted; see `{command}`"
                )
            elif log.readable:
                await self._show(log)
            elif log.waits:
                self.report(f"{self._title(log)}: pod {log.pod} has not started yet")
        return self._end(snapshot, archived, shown=bool(archived) or any(log.readable for log in wanted))

    async def follow(self, *, required: bool = True) -> bool:
        """Show new lines until the run has ended.

        Args:
            required: Whether to report that there are no logs.

        Returns:
            Whether there was a log to show, or none is required.
        """
        tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        try:
            while True:
                snapshot = await self._poll()
                self.closed = all(run.closed for run in snapshot.runs)
                for log in snapshot.logs:
                    where = log.pod, log.container
                    if log.readable and where not in tasks and self.selection.matches(log):
                        tasks[where] = asyncio.create_task(self._show(log, follow=True))
                if self.closed:
                    break
                _raise_first(tasks.values())
                await asyncio.sleep(_PAUSE)
            while any(not task.done() for task in tasks.values()):
                await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
            _raise_first(tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()
        last = await self._snapshot(with_history=True)
        followed = {pod for pod, _ in tasks}
        missed = [log for log in last.missing if log.pod not in followed]
        if required or missed:
            last = replace(last, missing=missed)
            archived = await self._show_archived(last)
            return self._end(last, archived, shown=bool(tasks) or bool(archived) or not required)
        return True

    async def _poll(self) -> _Snapshot:
        """Read again; wait if the API server does not respond."""
        unreachable = False
        while True:
            try:
                self.run = await self.cluster.runs.get(self._name)
                return await self._snapshot(with_history=False)
            except UnreachableError as error:
                if not unreachable:
                    self.report(f"{error}; still waiting")
                unreachable = True
            await asyncio.sleep(_PAUSE)

    async def _snapshot(self, *, with_history: bool) -> _Snapshot:
        """Read the run and its children; `with_history`: also find missing pods, which needs the whole history."""
        runs, logs, missing, todo, known = [], list[AttemptLog](), list[AttemptLog](), [self.run], set[str]()
        earlier = list[AttemptLog]()
        while todo:
            found = todo.pop(0)
            known.add(found["metadata"]["uid"])
            run = await self._read(found) if with_history else read_run(found, now=clock.now())
            pods = await self.cluster.runs.pods(found)
            runs.append(run)
            of_run = logs_of(run, pods)
            logs += of_run if with_history else await self._with_titles(found, of_run)
            if with_history:
                missing += missing_logs(run, pods)
                earlier += await self._earlier(found, run)
            if self.children:
                todo += [
                    child for child in await self.cluster.runs.children(found) if child["metadata"]["uid"] not in known
                ]
        return _Snapshot(runs=runs, logs=sorted(logs, key=lambda log: log.order), missing=missing, earlier=earlier)

    async def _with_titles(self, run: Object, logs: list[AttemptLog]) -> list[AttemptLog]:
        """Name the items of closed loops by their values, which are in the history."""
        name = run["metadata"]["name"]
        closed = {log.step: log.step for log in logs if is_in_closed_loop(log.step, run)}
        titles = self.titles.get(name, {})
        if closed.keys() - titles.keys():
            self.titles[name] = titles = {**closed, **(await self._read(run)).titles}
        return [replace(log, label=titles[log.step]) if log.step in closed else log for log in logs]

    async def _read(self, found: Object) -> RunView:
        """Read a run with its history, and with the values of the items of its loops."""
        found = await self.cluster.runs.with_history(found)
        trace = replay.trace  # imported before the thread starts
        return await asyncio.to_thread(lambda: read_run(found, now=clock.now(), trace=trace(found)))

    async def _earlier(self, found: Object, run: RunView) -> list[AttemptLog]:
        """Read the pods of the steps that ran in earlier runs."""
        reset, logs = reset_of(dict(found)), list[AttemptLog]()
        for ancestor in reset.lineage if reset is not None else ():
            if any(step.earlier_run == ancestor.name for step in run.every_step()):
                metadata = {"uid": ancestor.run_id, "namespace": run.namespace}
                logs += earlier_logs(run, ancestor.name, await self.cluster.runs.pods({"metadata": metadata}))
        return logs

    async def _show(self, log: AttemptLog, *, follow: bool = False) -> None:
        """Show a log. Following it continues until its container ends, and resumes after a lost connection."""
        lines, title, failures = self.lines(), self._title(log), 0
        query = {**self.query, "container": log.container, **({"follow": "true"} if follow else {})}
        async with self.streams:
            while True:
                try:
                    async for raw in self.cluster.runs.log(log.pod, **query):
                        text = lines.accept(raw)
                        failures = 0
                        if text is not None:
                            self.write(log, text)
                except NotFoundError:
                    self.report(f"{title}: pod {log.pod} was deleted, and its log with it")
                except UnreachableError as error:
                    failures += 1
                    if follow and (failures < _MAX_FAILURES or not self.closed):
                        await asyncio.sleep(_PAUSE)
                        lines.resume()
                        if lines.last:
                            query = {
                                key: each for key, each in query.items() if key not in {"sinceSeconds", "tailLines"}
                            }
                            query["sinceTime"] = lines.last
                        continue
                    self.report(f"{title}: the log cannot be read: {error}")
                return

    async def _show_archived(self, snapshot: _Snapshot) -> set[str]:
        """Show the archived logs of pods that no longer exist, and return the names of these pods."""
        shown = set[str]()
        for run in snapshot.runs:
            wanted = [log for log in snapshot.missing if log.run == run.name and self.selection.matches(log)]
            if not wanted:
                continue
            try:
                found = await ArchivedLogs(self.cluster, run).read(log.pod for log in wanted)
            except ClientError as error:
                self.report(f"archived logs cannot be read: {error}")
                self.unread = True
                continue
            for log in wanted:
                if log.pod in found:
                    self._show_lines(log, found[log.pod])
            shown |= found.keys()
        return shown

    def _show_lines(self, log: AttemptLog, lines: list[str] | ArchivedLogError) -> None:
        title = self._title(log)
        if isinstance(lines, ArchivedLogError):
            self.report(f"{title}: the archived log cannot be read: {lines}")
            return
        if "sinceSeconds" in self.query:
            self.report(f"{title}: the lines of archived logs have no times; leave out --since to show them")
            return
        take = self.lines().matches
        last = int(self.query.get("tailLines", len(lines)))
        for text in lines[max(len(lines) - last, 0) :]:
            if take(text):
                self.write(log, text)

    def _end(self, snapshot: _Snapshot, archived: Collection[str], *, shown: bool) -> bool:
        """Report missing logs, and return whether there was a log to show.

        Args:
            snapshot: The logs.
            archived: The pods whose archived logs were found.
            shown: Whether there was a log to show.
        """
        missing = [log for log in snapshot.missing if log.pod not in archived and self.selection.matches(log)]
        for log in missing:
            end = "; this is its end, as the failure has it:" if log.end else ""
            self.report(f"{self._title(log)}: pod {log.pod} was deleted, and its log with it{end}")
            self._show_lines(log, log.end.splitlines())
        if missing and not self.unread:
            self.report(_NOT_ARCHIVED)
        if not shown and not missing:
            self.report(self._why_none(snapshot))
        return shown or any(log.end for log in missing)

    def _why_none(self, snapshot: _Snapshot) -> str:
        """The reason why no log is shown."""
        attempts = [*snapshot.logs, *snapshot.missing, *snapshot.earlier]
        if all(run.code is not None for run in snapshot.runs):
            return f"workers run the steps of `{self._name}`; look for their logs there"
        if attempts and self.selection.failed and not any(log.failed for log in attempts):
            others = any(step.kind == "childWorkflow" for step in snapshot.runs[0].every_step()) and not self.children
            more = "; pass --children for the logs of its children" if others else ""
            return f"no attempt of `{self._name}` has failed{more}"
        if attempts:
            return "no matching attempt has a log"
        if any(map(may_have_had_pods, snapshot.runs)):
            return (
                f"`{self._name}` has no pods: those of a closed run are deleted after its `podRetention`, and their logs with "
                "them; `artifacts.archiveLogs` of an activity stores its logs"
            )
        return f"no step of `{self._name}` has started a pod"

    def _title(self, log: AttemptLog) -> str:
        return log.title(with_run=self.children)

    @property
    def _name(self) -> str:
        return str(self.run["metadata"]["name"])


def _raise_first(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Raise the first error of the tasks."""
    for task in tasks:
        if task.done():
            task.result()


# Archived logs

_LOGS_PER_POD: Final = 500
"""The most logs that one pod sends: it gets their keys in a variable, which has at most 128 KiB."""
_SECONDS: Final = 180
_GZIP: Final = 31
_MAX_LOG_SIZE: Final = 16 * 1024 * 1024
"""The most bytes of a log that are unpacked; archived logs have at most 10 MiB."""


class ArchivedLogError(Exception):
    """An archived log cannot be read; the message says why."""


class ArchivedLogs:
    """The archived logs of one run."""

    def __init__(self, cluster: Cluster, run: RunView, *, logs_per_pod: int = _LOGS_PER_POD) -> None:
        self._cluster = cluster
        self._run = run
        self._logs_per_pod = logs_per_pod

    async def read(self, pods: Iterable[str]) -> dict[str, list[str] | ArchivedLogError]:
        """Read logs.

        Args:
            pods: The names of the pods that wrote them.

        Returns:
            The lines of each log, or the reason why it cannot be read, by the name of its pod; nothing about logs that are not
            archived.

        Raises:
            ClientError: The user may not read them, or the store cannot be used.
        """
        try:
            artifacts = await self._cluster.read("ArtifactSet", "artifactsets", artifact_set_name(self._run.uid))
        except NotFoundError:
            return {}
        image = mapping(artifacts["metadata"].get("annotations")).get(IMAGE_ANNOTATION)
        if image is None:
            return {}
        keys = {log_key(self._run.namespace, self._run.uid, *attempt_in(pod)): pod for pod in pods}
        found: dict[str, list[str] | ArchivedLogError] = {}
        for store in artifacts["spec"]["stores"]:
            left = [key for key, pod in keys.items() if pod not in found]
            while left:
                answers = objects_in(await self._send(store, left[: self._logs_per_pod], image))
                if not answers:
                    raise ClientError("the pod that reads archived logs has sent nothing")
                for key, answer in answers.items():
                    if key in keys and answer is not None:
                        found[keys[key]] = self._checked(key, answer)
                left = [key for key in left if key not in answers]
        return found

    async def _send(self, store: str, keys: Sequence[str], image: str) -> list[bytes]:
        pod = build_store_pod(
            {"generateName": "perdure-logs-", "namespace": self._run.namespace},
            "log_export",
            store,
            {"PERDURE_KEYS": json.dumps(keys)},
            image=image,
            seconds=_SECONDS,
        )
        return await self._cluster.one_time_pods.output(pod)

    def _checked(self, key: str, answer: bytes | ArchivedLogError) -> list[str] | ArchivedLogError:
        """Return the lines of an object, if it has the recorded hash."""
        if isinstance(answer, ArchivedLogError):
            return answer
        recorded = next((each for each in self._recorded() if each.get("key") == key), {})
        if recorded and hashlib.sha256(answer).hexdigest() != recorded.get("sha256"):
            return ArchivedLogError(f"the SHA-256 of the object `{key}` is not the recorded one: it was changed")
        try:
            text = zlib.decompressobj(wbits=_GZIP).decompress(answer, _MAX_LOG_SIZE)
        except zlib.error as error:
            return ArchivedLogError(f"the object `{key}` is not a log: {error}")
        return text.decode(errors="replace").removesuffix("\n").split("\n") if text else []

    def _recorded(self) -> Iterator[Mapping[str, object]]:
        yield from map(mapping, mapping(self._run.artifacts).values())


def objects_in(lines: Iterable[bytes]) -> dict[str, bytes | ArchivedLogError | None]:
    """Read the log of a pod that sends logs: the object of each key, the reason for its absence, or None if it does not exist."""
    answers: dict[str, bytes | ArchivedLogError | None] = {}
    key, parts = "", list[bytes]()
    try:
        for line in lines:
            if not line.startswith(b"{"):
                parts.append(base64.b64decode(line, validate=True))
                continue
            if key:
                answers[key] = b"".join(parts)
            header = json.loads(line)
            key, parts = header.get("found", ""), []
            if "missing" in header:
                answers[header["missing"]] = None
            elif "failed" in header:
                answers[header["failed"]] = ArchivedLogError(header["error"])
            elif "large" in header:
                why = f"it is too large for this command; read `{header['large']}` from the bucket"
                answers[header["large"]] = ArchivedLogError(why)
    except (binascii.Error, ValueError) as error:
        raise ClientError(f"the pod that reads archived logs has sent something else: {error}") from error
    if key:
        answers[key] = b"".join(parts)
    return answers
