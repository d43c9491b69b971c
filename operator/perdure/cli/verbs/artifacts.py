"""`artifacts`: the output artifacts of a run."""

import asyncio
import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import click

from perdure.api.labels import IMAGE_ANNOTATION
from perdure.api.names import artifact_set_name
from perdure.api.pods import ARTIFACTS, OUTPUTS
from perdure.cli.command import argument, group, option
from perdure.cli.connection import connect
from perdure.cli.options import (
    check_named,
    color_option,
    context_option,
    namespace_option,
    output_option,
    run_argument,
    workflow_id_option,
)
from perdure.cli.terminal import Color, Output, Screen, page_of, program_of
from perdure.client.cluster import Cluster
from perdure.client.errors import CliError, NotFoundError
from perdure.client.requests import Object
from perdure.lazy import lazily

with lazily():
    from perdure.runner.artifacts import seals
    from perdure.runtime.pods import artifacts as export_pods
    from perdure.view import tables
    from perdure.view.runs import run as run_view

PART = 6 * 1024 * 1024
"""Bytes of an artifact that one container writes to its log: nodes rotate logs at 10 MiB, and base64 takes a third more."""

PARTS_PER_POD = 8

_SECONDS = 180


@group()
def artifacts() -> None:
    """List and download the output artifacts of a run.

    \b
    Examples:
      {program} artifacts list order-42
      {program} artifacts get order-42 make/report
    """


@artifacts.command("list")
@run_argument
@workflow_id_option
@namespace_option
@output_option
@color_option
@context_option
@click.pass_context
def list_(
    context: click.Context,
    *,
    name: str | None,
    workflow_id: str | None,
    namespace: str | None,
    output: Output,
    color: Color,
    cluster: str | None,
) -> None:
    """List the output artifacts of a run.

    \b
    Examples:
      {program} artifacts list order-42
      {program} artifacts list order-42 --output json
    """
    check_named(name, workflow_id)

    async def read() -> tuple[str, dict[str, Any]]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            run = await found.runs.find(name, workflow_id)
            return run["metadata"]["name"], await _artifacts(found, run)

    run, artifacts = asyncio.run(read())
    screen = Screen(color)
    screen.show_all(
        output,
        artifacts,
        lambda: tables.artifacts(artifacts, page_of(context, screen)),
        otherwise=f"The steps of `{run}` have left no artifacts.",
        names=artifacts,
    )


@artifacts.command("get")
@argument("name", metavar="NAME", help="Name of the WorkflowRun")
@argument("artifact", metavar="STEP/ARTIFACT", help="As `artifacts list` shows it")
@option("--file", "-f", help="Where to write it; -: standard output; default: its name")
@option("--image", help="Image of the pod; default: that of the run")
@namespace_option
@context_option
@click.pass_context
def get(
    context: click.Context,
    *,
    name: str,
    artifact: str,
    file: str | None,
    image: str | None,
    namespace: str | None,
    cluster: str | None,
) -> None:
    """Download an output artifact of a run.

    A pod in the namespace of the run reads the artifact from its store and writes
    it to its logs, encrypted for this command. So you need permission to create
    pods, but no access to the store. A large artifact needs several pods, one after the other, for 48 MiB
    each. If the download fails, the same command continues it from the file that
    ends with `.part`. A folder is a tar archive.

    \b
    Examples:
      {program} artifacts get order-42 make/report
      {program} artifacts get order-42 'write[0]/log' --file log.tar.gz
      {program} artifacts get order-42 make/report --file - | less
    """

    async def read(folder: Path) -> Path:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            run = await found.runs.get(name)
            artifacts = await _artifacts(found, run)
            if artifact not in artifacts:
                known = ", ".join(f"`{each}`" for each in list(artifacts)[:10]) or "(none)"
                raise CliError(f"`{name}` has no artifact `{artifact}`; choose one of {known}")
            reference = artifacts[artifact]
            target = folder / (reference["key"].rpartition("/")[2] if file in {None, "-"} else str(file))
            download = ArtifactDownload(found, reference, image or await _image(found, run))
            await download.save(target)
            return target

    if file == "-":
        with TemporaryDirectory() as folder, asyncio.run(read(Path(folder))).open("rb") as content:
            shutil.copyfileobj(content, sys.stdout.buffer)
        return
    target = asyncio.run(read(Path()))
    click.echo(f"{target}: {target.stat().st_size} bytes", err=True)


async def _artifacts(cluster: Cluster, run: Object) -> dict[str, Any]:
    """Return the references to the output artifacts of a run, by step and name."""
    past = await cluster.runs.history(run)

    return run_view.artifacts_of(past.events)


class ArtifactDownload:
    """Reads an artifact by means of pods, which write it to their logs, encrypted."""

    def __init__(
        self,
        cluster: Cluster,
        reference: Object,
        image: str,
        *,
        part: int = PART,
        parts_per_pod: int = PARTS_PER_POD,
    ) -> None:
        """`cluster`: with the namespace of the run; `image`: an image with Perdure."""
        self._cluster = cluster
        self._reference = reference
        self._image = image
        self._size: int = reference["size"]
        self._part = part
        self._parts_per_pod = parts_per_pod

    async def save(self, target: Path) -> None:
        """Write the artifact to a file, and check its hash. Continues an attempt that has failed.

        Raises:
            CliError: The artifact cannot be read or written, or has another hash.
        """
        incomplete = target.with_name(f"{target.name}.part")
        try:
            with incomplete.open("ab") as file:
                await self._append(file, target)
            with incomplete.open("rb") as written:
                digest = hashlib.file_digest(written, "sha256").hexdigest()
            if digest != self._reference["sha256"]:
                incomplete.unlink()
                key = self._reference["key"]
                raise CliError(f"the SHA-256 of the object `{key}` is not the recorded one: it was changed")
            incomplete.replace(target)
        except OSError as error:
            raise CliError(f"`{target}` cannot be written: {error}") from error

    async def _append(self, file: BinaryIO, target: Path) -> None:
        """Append what is missing to a file, after its last complete part."""
        size, part = self._size, self._part
        file.truncate(min(file.tell(), size) // part * part if size > part else 0)
        if size <= part:
            await self._append_parts(file, ())
            return
        while (done := file.seek(0, os.SEEK_END)) < size:
            click.echo(f"{target}: {done} of {size} bytes", err=True)
            ranges = [(first, min(first + part, size)) for first in range(done, size, part)]
            await self._append_parts(file, ranges[: self._parts_per_pod])

    async def _append_parts(self, file: BinaryIO, ranges: Sequence[tuple[int, int]]) -> None:
        """Append parts of the artifact, or all of it if there are none. Incomplete parts are removed.

        Raises:
            CliError: A part cannot be read.
        """
        reader = seals.Reader.generate()
        openers: dict[int, seals.Opener] = {}
        key, store = self._reference["key"], self._reference["store"]
        pod = export_pods.build_export_pod(
            {"generateName": "perdure-artifact-get-", "namespace": self._cluster.namespace},
            store,
            key,
            ranges,
            reader=reader.public_key,
            image=self._image,
            seconds=_SECONDS,
        )
        try:
            async with aclosing(self._cluster.one_time_pods.lines(pod)) as lines:
                async for number, line in lines:
                    if ranges and file.tell() < ranges[number][0]:
                        break  # the log of the container before is too short
                    if number not in openers:
                        openers[number] = reader.open(line)
                    else:
                        file.write(openers[number].piece(line))
        except seals.UnsealedError as error:
            raise CliError(f"the log of the pod is not the artifact: {error}") from error
        finally:
            done = file.tell()
            if ranges:
                file.truncate(max([ranges[0][0], *(end for _, end in ranges if end <= done)]))
        if ranges and done != ranges[-1][1]:
            sent, wanted = done - ranges[0][0], ranges[-1][1] - ranges[0][0]
            raise CliError(
                f"the logs of the pod have {sent} of {wanted} bytes: the node may keep less than 10 MiB of a log; read `{key}` "
                f"from the bucket in the Secret `{store}`"
            )


async def _image(cluster: Cluster, run: Object) -> str:
    """Return the image of Perdure's containers in a pod of the run, or the one that its ArtifactSet names.

    Raises:
        CliError: There is neither, or they cannot be read.
    """
    for pod in await cluster.runs.pods(run):
        for container in pod["spec"].get("initContainers") or ():
            if container["name"] in {ARTIFACTS, OUTPUTS}:
                return str(container["image"])
    with suppress(NotFoundError):
        artifacts = await cluster.read("ArtifactSet", "artifactsets", artifact_set_name(run["metadata"]["uid"]))
        image = (artifacts["metadata"].get("annotations") or {}).get(IMAGE_ANNOTATION)
        if image:
            return str(image)
    raise CliError("no pod of the run is left to take the image of Perdure from; set it with --image")
