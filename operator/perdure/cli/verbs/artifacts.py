"""`artifacts`: the output artifacts of a run."""

import asyncio
import base64
import binascii
import hashlib
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

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
from perdure.cli.terminal import Color, Output, Screen, is_for_users, page_of, program_of
from perdure.client.cluster import Cluster
from perdure.client.errors import CliError, NotFoundError
from perdure.client.requests import Object

MAX_BYTES = 6 * 1024 * 1024
"""The largest artifact: its base64 must fit into a log, which nodes rotate at 10 MiB."""


_SECONDS = 180


_USER = 65532


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
    if not is_for_users(output):
        screen.write_data(output, artifacts, artifacts)
    elif not artifacts:
        click.echo(f"The steps of `{run}` have left no artifacts.", err=True)
    else:
        from perdure.view.tables import artifacts as table

        screen.show(table(artifacts, page_of(context, screen)))


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
    it to its log, so you need permission to create pods, but no access to the
    store. For artifacts of up to 6 MiB. A folder is a tar archive.

    \b
    Examples:
      {program} artifacts get order-42 make/report
      {program} artifacts get order-42 'write[0]/log' --file log.tar.gz
      {program} artifacts get order-42 make/report --file - | less
    """

    async def read() -> tuple[Object, bytes]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            run = await found.runs.get(name)
            artifacts = await _artifacts(found, run)
            if artifact not in artifacts:
                known = ", ".join(f"`{each}`" for each in list(artifacts)[:10]) or "(none)"
                raise CliError(f"`{name}` has no artifact `{artifact}`; choose one of {known}")
            reference = artifacts[artifact]
            return reference, await _fetch(found, run, reference, image)

    reference, content = asyncio.run(read())
    if file == "-":
        sys.stdout.buffer.write(content)
        return
    target = Path(file or reference["key"].rpartition("/")[2])
    try:
        target.write_bytes(content)
    except OSError as error:
        raise CliError(f"`{target}` cannot be written: {error}") from error
    click.echo(f"{target}: {len(content)} bytes", err=True)


async def _artifacts(cluster: Cluster, run: Object) -> dict[str, Any]:
    """Return the references to the output artifacts of a run, by step and name."""
    past = await cluster.runs.history(run)
    from perdure.view.run import artifacts_of

    return artifacts_of(past.events)


async def _fetch(cluster: Cluster, run: Object, reference: Object, image: str | None) -> bytes:
    """Read an artifact by means of a pod, and check its hash.

    Raises:
        CliError: The artifact is too large, cannot be read, or has another hash.
    """
    if reference["size"] > MAX_BYTES:
        raise CliError(
            f"the artifact has {reference['size']} bytes, and this command reads up to {MAX_BYTES}; "
            f"read `{reference['key']}` from the bucket in the Secret `{reference['store']}`"
        )
    from perdure.runtime.pods.artifacts import build_store_pod

    pod = build_store_pod(
        {"generateName": "perdure-artifact-get-", "namespace": run["metadata"]["namespace"]},
        "export",
        reference["store"],
        {"PERDURE_KEY": reference["key"]},
        image=image or await _image(cluster, run),
        user=_USER,
        seconds=_SECONDS,
    )
    lines = await cluster.one_time_pods.output(pod)
    try:
        content = b"".join(base64.b64decode(line, validate=True) for line in lines)
    except binascii.Error as error:
        raise CliError(f"the log of the pod is not the artifact: {error}") from error
    if hashlib.sha256(content).hexdigest() != reference["sha256"]:
        raise CliError(f"the SHA-256 of the object `{reference['key']}` is not the recorded one: it was changed")
    return content


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
