"""Reads the logs of all attempts of a run, and follows them if requested.

Archived logs are read by means of pods, which get the credentials of the artifact store from its Secret.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import click
from click.exceptions import Exit

from perdure.api.labels import IMAGE_ANNOTATION
from perdure.api.lenient import mapping
from perdure.api.names import artifact_set_name, attempt_in, log_key
from perdure.cli.connection import LOG_STREAMS
from perdure.client.cluster import Cluster
from perdure.client.errors import CliError, ExitCode, GoneError, UnreachableError
from perdure.kube import clock
from perdure.runtime.chains import reset_of
from perdure.view.logs import Choice, Lines, LogOf, earlier, gone, is_part_of, logs_of
from perdure.view.run import ShownRun, read_run

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object
    from perdure.view.run import ShownRun


_MOST: Final = 500
"""The most logs that one pod sends: it gets their keys in a variable, which has at most 128 KiB."""
_SECONDS: Final = 180
_USER: Final = 65532
_GZIP: Final = 31
_LONGEST: Final = 16 * 1024 * 1024
"""The most bytes of a log that are unpacked; archived logs have at most 10 MiB."""


class ArchivedLogError(Exception):
    """An archived log cannot be read; the message says why."""


class ArchivedLogs:
    """The archived logs of one run."""

    def __init__(self, cluster: Cluster, run: ShownRun) -> None:
        self._cluster = cluster
        self._run = run

    async def read(self, pods: Iterable[str]) -> dict[str, list[str] | ArchivedLogError]:
        """Read logs.

        Args:
            pods: The names of the pods that wrote them.

        Returns:
            The lines of each log, or the reason why it cannot be read, by the name of its pod; nothing about logs that are not
            archived.

        Raises:
            CliError: The user may not read them, or the store cannot be used.
        """
        try:
            artifacts = await self._cluster.read("ArtifactSet", "artifactsets", artifact_set_name(self._run.uid))
        except GoneError:
            return {}
        image = mapping(artifacts["metadata"].get("annotations")).get(IMAGE_ANNOTATION)
        if image is None:
            return {}
        keys = {log_key(self._run.namespace, self._run.uid, *attempt_in(pod)): pod for pod in pods}
        found: dict[str, list[str] | ArchivedLogError] = {}
        for store in artifacts["spec"]["stores"]:
            left = [key for key, pod in keys.items() if pod not in found]
            while left:
                answers = objects_in(await self._send(store, left[:_MOST], image))
                if not answers:
                    raise CliError("the pod that reads archived logs has sent nothing")
                for key, answer in answers.items():
                    if key in keys and answer is not None:
                        found[keys[key]] = self._checked(key, answer)
                left = [key for key in left if key not in answers]
        return found

    async def _send(self, store: str, keys: Sequence[str], image: str) -> list[bytes]:
        from perdure.runtime.pods.artifacts import build_store_pod

        pod = build_store_pod(
            {"generateName": "perdure-logs-", "namespace": self._run.namespace},
            "log_export",
            store,
            {"PERDURE_KEYS": json.dumps(keys)},
            image=image,
            user=_USER,
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
            text = zlib.decompressobj(wbits=_GZIP).decompress(answer, _LONGEST)
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
        raise CliError(f"the pod that reads archived logs has sent something else: {error}") from error
    if key:
        answers[key] = b"".join(parts)
    return answers


_PAUSE = 1.0
"""Seconds between two reads of the run and its pods."""
_TRIES = 5
"""Maximum number of failed reads of the log of a closed run."""

_NOT_ARCHIVED = (
    "these attempts have no archived logs: `artifacts.archiveLogs` of an activity stores the logs of its pods, and "
    "`podRetention` sets how long its pods are kept"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The logs at one point in time."""

    runs: list[ShownRun]
    logs: list[LogOf]
    gone: list[LogOf]
    earlier: list[LogOf]
    """The logs of steps whose results were kept from earlier runs."""


@dataclass(kw_only=True)
class LogReader:
    """Reads the logs of a run."""

    cluster: Cluster
    run: Object
    choice: Choice
    children: bool
    prefix: bool = True
    """Whether each line begins with the step and the attempt."""
    query: dict[str, str]
    lines: Callable[[], Lines]
    to_stderr: bool = False
    """Whether the lines go to standard error."""
    closed: bool = False
    """Whether the run and its children have ended."""
    unread: bool = False
    """Whether archived logs could not be read."""
    streams: asyncio.Semaphore
    """Limits the number of logs that are read at the same time."""

    @staticmethod
    def of(cluster: Cluster, run: Object, *, to_stderr: bool) -> LogReader:
        """Create a reader of all logs of a run."""
        return LogReader(
            cluster=cluster,
            run=run,
            choice=Choice(),
            children=False,
            query={},
            lines=lambda: Lines(timestamps=False, pattern=None),
            to_stderr=to_stderr,
            streams=asyncio.Semaphore(LOG_STREAMS),
        )

    async def check_steps(self) -> None:
        """Check that the selected steps exist.

        Raises:
            CliError: The run has no such step, and children are not included.
        """
        known = [step.path for step in read_run(self.run, now=clock.now()).every_step()]
        for step in self.choice.steps:
            if self.children or not known or any(is_part_of(path, step) or is_part_of(step, path) for path in known):
                continue
            steps = ", ".join(f"`{path}`" for path in known[:10]) + (", …" if len(known) > 10 else "")  # noqa: PLR2004
            raise CliError(f"--step: the run `{self._name}` has no step `{step}`; its steps are {steps}")

    async def read(self) -> None:
        """Show the existing lines."""
        look = await self._look(past=True)
        archived = await self._show_archived(look)
        wanted = [log for log in (*look.earlier, *look.logs) if self.choice.takes(log)]
        for log in wanted:
            if not log.pod:
                command = f"{self.cluster.runs.program} logs -n {self.run['metadata']['namespace']} {log.run}"
                _report(f"{log.step}: ran in the earlier run `{log.run}`, and its pod was deleted; see `{command}`")
            elif log.readable:
                await self._show(log)
            elif log.waits:
                _report(f"{self._title(log)}: pod {log.pod} has not started yet")
        self._end(look, archived, shown=bool(archived) or any(log.readable for log in wanted))

    async def follow(self, *, required: bool = True) -> None:
        """Show new lines until the run has ended.

        Args:
            required: Whether to exit with 1 if there are no logs.
        """
        tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        try:
            while True:
                look = await self._look_on()
                self.closed = all(run.closed for run in look.runs)
                for log in look.logs:
                    where = log.pod, log.container
                    if log.readable and where not in tasks and self.choice.takes(log):
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
        last = await self._look(past=True)
        seen = {pod for pod, _ in tasks}
        missed = [log for log in last.gone if log.pod not in seen]
        if required or missed:
            last = replace(last, gone=missed)
            archived = await self._show_archived(last)
            self._end(last, archived, shown=bool(tasks) or bool(archived) or not required)

    async def _look_on(self) -> _Look:
        """Read again; wait if the API server does not respond."""
        away = False
        while True:
            try:
                self.run = await self.cluster.runs.named(self._name)
                return await self._look(past=False)
            except UnreachableError as error:
                if not away:
                    _report(f"{error}; still waiting")
                away = True
            await asyncio.sleep(_PAUSE)

    async def _look(self, *, past: bool) -> _Look:
        """Read the run and its children; `past`: also find missing pods, which needs the whole history."""
        runs, logs, missing, todo, known = [], list[LogOf](), list[LogOf](), [self.run], set[str]()
        kept = list[LogOf]()
        while todo:
            found = todo.pop(0)
            known.add(found["metadata"]["uid"])
            run = read_run(await self.cluster.runs.with_past(found) if past else found, now=clock.now())
            pods = await self.cluster.runs.pods(found)
            runs.append(run)
            logs += logs_of(run, pods)
            if past:
                missing += gone(run, pods)
                kept += await self._kept(found, run)
            if self.children:
                todo += [
                    child for child in await self.cluster.runs.children(found) if child["metadata"]["uid"] not in known
                ]
        return _Look(runs=runs, logs=sorted(logs, key=lambda log: log.order), gone=missing, earlier=kept)

    async def _kept(self, found: Object, run: ShownRun) -> list[LogOf]:
        """Read the pods of the steps that ran in earlier runs."""
        reset, logs = reset_of(dict(found)), list[LogOf]()
        for ancestor in reset.lineage if reset is not None else ():
            if any(step.earlier_run == ancestor.name for step in run.every_step()):
                metadata = {"uid": ancestor.run_id, "namespace": run.namespace}
                logs += earlier(run, ancestor.name, await self.cluster.runs.pods({"metadata": metadata}))
        return logs

    async def _show(self, log: LogOf, *, follow: bool = False) -> None:
        """Show a log. Following it continues until its container ends, and resumes after a lost connection."""
        lines, title, tries = self.lines(), self._title(log), 0
        query = {**self.query, "container": log.container, **({"follow": "true"} if follow else {})}
        async with self.streams:
            while True:
                try:
                    async for raw in self.cluster.runs.log(log.pod, **query):
                        text = lines.take(raw)
                        tries = 0
                        if text is not None:
                            click.echo(f"{title}: {text}" if self.prefix else text, err=self.to_stderr)
                except GoneError:
                    _report(f"{title}: pod {log.pod} was deleted, and its log with it")
                except UnreachableError as error:
                    tries += 1
                    if follow and (tries < _TRIES or not self.closed):
                        await asyncio.sleep(_PAUSE)
                        lines.again()
                        if lines.last:
                            query = {
                                key: each for key, each in query.items() if key not in {"sinceSeconds", "tailLines"}
                            }
                            query["sinceTime"] = lines.last
                        continue
                    _report(f"{title}: the log cannot be read: {error}")
                return

    async def _show_archived(self, look: _Look) -> set[str]:
        """Show the archived logs of pods that no longer exist, and return the names of these pods."""
        shown = set[str]()
        for run in look.runs:
            wanted = [log for log in look.gone if log.run == run.name and self.choice.takes(log)]
            if not wanted:
                continue
            try:
                found = await ArchivedLogs(self.cluster, run).read(log.pod for log in wanted)
            except CliError as error:
                _report(f"archived logs cannot be read: {error}")
                self.unread = True
                continue
            for log in wanted:
                if log.pod in found:
                    self._show_lines(self._title(log), found[log.pod])
            shown |= found.keys()
        return shown

    def _show_lines(self, title: str, lines: list[str] | ArchivedLogError) -> None:
        if isinstance(lines, ArchivedLogError):
            _report(f"{title}: the archived log cannot be read: {lines}")
            return
        if "sinceSeconds" in self.query:
            _report(f"{title}: the lines of archived logs have no times; leave out --since to show them")
            return
        take = self.lines().matches
        last = int(self.query.get("tailLines", len(lines)))
        for text in lines[max(len(lines) - last, 0) :]:
            if take(text):
                click.echo(f"{title}: {text}" if self.prefix else text, err=self.to_stderr)

    def _end(self, look: _Look, archived: Collection[str], *, shown: bool) -> None:
        """Report missing logs; exit with 1 if there was none to show.

        Args:
            look: The logs.
            archived: The pods whose archived logs were found.
            shown: Whether there was a log to show.

        Raises:
            Exit: There was no log to show.
        """
        missing = [log for log in look.gone if log.pod not in archived and self.choice.takes(log)]
        for log in missing:
            _report(f"{self._title(log)}: pod {log.pod} was deleted, and its log with it")
        if missing and not self.unread:
            _report(_NOT_ARCHIVED)
        if shown:
            return
        if not missing:
            if all(run.code is not None for run in look.runs):
                _report(f"workers run the steps of `{self._name}`; look for their logs there")
            elif look.logs or look.earlier:
                _report("no matching attempt has a log")
            else:
                _report(f"no step of `{self._name}` has started a pod")
        raise Exit(ExitCode.NO)

    def _title(self, log: LogOf) -> str:
        return log.title(with_run=self.children)

    @property
    def _name(self) -> str:
        return str(self.run["metadata"]["name"])


def _raise_first(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Raise the first error of the tasks."""
    for task in tasks:
        if task.done():
            task.result()


def _report(text: str) -> None:
    click.echo(text, err=True)
