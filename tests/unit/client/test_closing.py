"""A client that nobody closes, and what a closed one does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.client import Client, ClientError
from support.manuals import REPOSITORY

PROGRAM = """
from perdure.client import Client


async def forever():
    while True:
        yield 1


client = Client(namespace="shop", kubeconfig={kubeconfig!r})
items = client._loop.each(forever())  # as `Run.watch` does
next(items)
"""
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""


def test_a_program_ends_that_has_neither_closed_its_client_nor_finished_an_iterator(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    program = PROGRAM.format(kubeconfig=str(file))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "operator")}
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False, env=environment)
    assert done.returncode == 0


def test_a_closed_client_says_so(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    with Client(namespace="shop", kubeconfig=str(file)) as client:
        run = client.run("nightly")
    with pytest.raises(RuntimeError, match="the client is closed"):
        run.describe()


def test_errors_of_a_client_are_client_errors(tmp_path: Path) -> None:
    with pytest.raises(ClientError) as caught:
        Client(kubeconfig=str(tmp_path / "missing"))
    assert type(caught.value) is ClientError
