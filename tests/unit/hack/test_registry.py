import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cluster.registry import NodeImage, choose_node_image, registry_answers
from support.threads import join

OWN = "perdure.local/node:v1-abc"
STOCK = "kindest/node:v1.37.0"


@pytest.mark.parametrize(
    ("chosen", "minor", "local", "reachable", "want"),
    [
        ("mine:1", "", {STOCK, OWN}, True, NodeImage.CHOSEN),
        ("", "", {STOCK, OWN}, False, NodeImage.STOCK),
        ("", "", {OWN}, True, NodeImage.OWN),
        ("", "", {"perdure.local/node:v1-old"}, False, NodeImage.OWN),
        ("", "", set(), True, NodeImage.STOCK),
        ("", "", set(), False, NodeImage.OWN),
        ("", "1.32", {STOCK}, True, NodeImage.OWN),
    ],
    ids=[
        "an image chosen by the user comes first",
        "a stock image pulled earlier needs no registry",
        "an existing local image is used even if a registry is reachable",
        "a local image of other sources is built again",
        "a reachable registry provides the stock image",
        "without a registry, the image is built",
        "the image of another version of Kubernetes is built",
    ],
)
def test_the_node_image_is_chosen(chosen: str, minor: str, local: set[str], reachable: bool, want: NodeImage) -> None:
    choice = choose_node_image(
        chosen=chosen,
        minor=minor,
        local_images=frozenset(local),
        project_image=OWN,
        registry_reachable=lambda: reachable,
    )
    assert choice.image is want
    assert choice.reason


def test_the_registry_is_not_queried_if_the_image_exists() -> None:
    def ask() -> bool:
        pytest.fail("asked")

    choose_node_image(chosen="", minor="", local_images=frozenset({OWN}), project_image=OWN, registry_reachable=ask)


@contextmanager
def server(status: int) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}/v2/"
        finally:
            listening.shutdown()
            join(thread)


@pytest.mark.parametrize(("status", "want"), [(200, True), (401, True), (403, False), (502, False)])
def test_only_a_registry_is_recognized_as_one(status: int, want: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with server(status) as url:
        assert registry_answers(url, timeout=5) is want


def test_a_closed_port_is_not_a_registry() -> None:
    assert not registry_answers("http://127.0.0.1:1/v2/", timeout=1)
