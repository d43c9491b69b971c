"""A real API server accepts the manifests of the documentation and the examples."""

from pathlib import Path

import pytest
import yaml

from support.cluster.namespace import Cluster
from support.manuals import REPOSITORY, Block, blocks, example_files, example_folders

pytestmark = pytest.mark.cluster


def check(cluster: Cluster, text: str) -> None:
    """Have the API server look at manifests, without keeping them: what it is to name is created, the rest applied.

    A namespace in a manifest need not exist. A Kustomization is not an object of the API server, and the cluster has no CRDs of
    KEDA.
    """
    for manifest in yaml.safe_load_all(text):
        if manifest is not None and not (
            manifest["kind"] == "Kustomization" or manifest["apiVersion"].startswith("keda.sh/")
        ):
            manifest["metadata"].pop("namespace", None)
            ask = cluster.objects.create if "generateName" in manifest["metadata"] else cluster.objects.apply
            ask(cluster.namespace, manifest, dryRun="All")


def relative(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("block", blocks(), ids=str)
def test_the_api_server_accepts_each_manifest_of_the_documentation(cluster: Cluster, block: Block) -> None:
    check(cluster, block.text)


@pytest.mark.parametrize("file", example_files(), ids=relative)
def test_the_api_server_accepts_each_example(cluster: Cluster, file: Path) -> None:
    check(cluster, file.read_text())


@pytest.mark.parametrize("folder", example_folders(), ids=relative)
def test_the_api_server_accepts_the_folder_of_each_example(cluster: Cluster, folder: Path) -> None:
    cluster("apply", "--dry-run=server", "-k", str(folder))
