"""A real API server takes what the documentation and the examples show."""

from pathlib import Path

import pytest

from kube import Cluster
from manuals import REPOSITORY, Block, blocks, example_files, example_folders

pytestmark = pytest.mark.cluster

DRY = "--dry-run=server"


def verb_for(text: str) -> str:
    """kubectl's verb: what gets its name from the API server is created, not applied."""
    return "create" if "generateName:" in text else "apply"


def relative(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("block", blocks(), ids=str)
def test_the_api_server_takes_a_manifest_of_the_documentation(namespace: Cluster, block: Block) -> None:
    namespace(verb_for(block.text), DRY, "-f", "-", stdin=block.text)


@pytest.mark.parametrize("file", example_files(), ids=relative)
def test_the_api_server_takes_an_example(namespace: Cluster, file: Path) -> None:
    namespace(verb_for(file.read_text()), DRY, "-f", str(file))


@pytest.mark.parametrize("folder", example_folders(), ids=relative)
def test_the_api_server_takes_the_folder_of_an_example(namespace: Cluster, folder: Path) -> None:
    namespace("apply", DRY, "-k", str(folder))
