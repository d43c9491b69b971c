"""The notebook of the examples, as nbconvert runs it: in a kernel, with the client of users."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client as TemporalClient

from perdure.api.labels import INPUT_ANNOTATION
from perdure.flow import definitions
from perdure.flow.manifests import Placement, workflow_of
from perdure.flow.serve import serve
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from support.apiserver import kubeconfig
from support.cluster_over_http import over_http
from support.manuals import REPOSITORY
from support.operator import in_memory

FOLDER = REPOSITORY / "examples" / "flow"


@pytest.fixture
def etl(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the flow."""
    monkeypatch.syspath_prepend(str(FOLDER))
    try:
        import etl  # noqa: PLC0415 # type: ignore[import-not-found]

        yield etl
    finally:
        sys.modules.pop("etl", None)


def run_pod(pod: Object) -> ContainerExit:
    etl = definitions.environment_named("etl")
    assert etl is not None
    meta = pod["metadata"]
    result = etl.activities[meta["labels"]["perdure.dev/activity"]].run(
        json.loads(meta["annotations"][INPUT_ANNOTATION])
    )
    return ContainerExit(after=0.05, message=json.dumps(result))


async def executed(notebook: Path) -> list[dict[str, Any]]:
    """Run a notebook with nbconvert, and return its cells with code, with their outputs."""
    options = ("--to", "notebook", "--execute", "--stdout", str(notebook))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nbconvert", *options),
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY / "operator"), str(FOLDER)))},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return [cell for cell in json.loads(output)["cells"] if cell["cell_type"] == "code"]


def shown(cell: dict[str, Any], kind: str = "text/plain") -> str:
    """What a cell shows as its value, or has printed."""
    texts = [
        each["text"] if kind == "stream" else each["data"].get(kind, "")
        for each in cell["outputs"]
        if (each["output_type"] == "stream") == (kind == "stream")
    ]
    return "".join("".join(each) for each in texts)


async def test_the_notebook_of_the_examples_runs(etl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = FOLDER / "etl.ipynb"
    assert not any(cell.get("outputs") for cell in json.loads(notebook.read_text())["cells"])
    objects = [workflow_of(etl.etl, Placement(image="x", module="etl.py"))]
    with in_memory(namespace="shop", objects=objects, pods=run_pod) as server, over_http(server.cluster) as url:
        kubeconfig(tmp_path, monkeypatch, url)
        temporal = await TemporalClient.connect(server.address, namespace="shop")
        stop = asyncio.Event()
        worker = asyncio.create_task(serve(temporal, [etl.nightly], stop))
        try:
            client, started, ended, result, listed = await executed(notebook)
        finally:
            stop.set()
            await worker
    assert "namespace shop" in shown(client)
    assert shown(started).startswith("<run nightly-")
    html = shown(ended, "text/html")
    assert html.count("<rect") >= 3, "two extracts and the load"
    assert "extract[source=eu]" in html
    assert "✓ Completed" in html
    assert "Completed" in shown(ended, "stream")
    assert shown(result) == str(sum([27, 11, 2]) * 2)
    assert "Completed" in shown(listed)
