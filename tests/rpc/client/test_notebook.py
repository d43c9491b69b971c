"""The notebook of the examples: its cells run in order, as in a kernel, whose main thread has an event loop that is running."""

import ast
import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from temporalio.client import Client as TemporalClient

from perdure.api.labels import INPUT_ANNOTATION
from perdure.flow import definitions
from perdure.flow.manifests import Placement, workflow_of
from perdure.flow.serve import place, serve
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from support.apiserver import kubeconfig
from support.cluster_over_http import over_http
from support.manuals import REPOSITORY
from support.operator import in_memory

FOLDER = REPOSITORY / "examples" / "flow"


@pytest.fixture
def etl(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the flow, imported as by a worker."""
    monkeypatch.syspath_prepend(str(FOLDER))
    definitions.LISTENERS.append(place)
    try:
        import etl  # noqa: PLC0415 # type: ignore[import-not-found]

        yield etl
    finally:
        definitions.LISTENERS.remove(place)
        sys.modules.pop("etl", None)


def run_pod(pod: Object) -> ContainerExit:
    etl = definitions.environment_named("etl")
    assert etl is not None
    meta = pod["metadata"]
    result = etl.activities[meta["labels"]["perdure.dev/activity"]].run(
        json.loads(meta["annotations"][INPUT_ANNOTATION])
    )
    return ContainerExit(after=0.05, message=json.dumps(result))


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last expression, which a notebook shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


async def test_the_notebook_of_the_examples_runs(
    etl: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = json.loads((FOLDER / "etl.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in notebook["cells"]), "outputs belong to no repository"
    names: dict[str, Any] = {}

    async def show_all() -> list[Any]:
        return [run_cell(cell, names) for cell in cells]

    objects = [workflow_of(etl.etl, Placement(image="x", module="etl.py"))]
    with in_memory(namespace="shop", objects=objects, pods=run_pod) as server, over_http(server.cluster) as url:
        kubeconfig(tmp_path, monkeypatch, url)
        temporal = await TemporalClient.connect(server.address, namespace="shop")
        stop = asyncio.Event()
        worker = asyncio.create_task(serve(temporal, [etl.nightly], stop))
        try:
            shown = await asyncio.to_thread(asyncio.run, show_all())
        finally:
            stop.set()
            await worker
            names["client"].close()
    client, started, ended, result, listed = shown
    assert "namespace shop" in repr(client)
    html = ended._repr_html_()
    assert html.count("<rect") >= 3, "two extracts and the load"
    assert "extract[source=eu]" in html
    assert "✓ Completed" in html
    assert repr(started).startswith("<run nightly-")
    assert result == sum([27, 11, 2]) * 2
    assert [phase for _, phase in listed] == ["Completed"]
    assert "Completed" in capsys.readouterr().out
