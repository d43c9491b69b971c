"""An HTTP server that stands in for an API server."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from perdure.kube import clock
from perdure.simulation.cluster.apiserver import as_table
from support.threads import join


@dataclass(frozen=True)
class Log:
    """Text, as a pod's log; `broken`: the connection ends before the text does."""

    text: str
    broken: bool = False


Answer = dict[str, Any] | tuple[int, dict[str, Any]] | Log | Callable[[], Any]


@dataclass
class ApiServer:
    """Answers by path, and stores created objects; other paths are not found."""

    answers: dict[str, Answer] = field(
        default_factory=lambda: {"/api/v1/namespaces/shop": {"metadata": {"name": "shop"}}}
    )
    asked: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    created: list[dict[str, Any]] = field(default_factory=list)
    status: Callable[[dict[str, Any]], dict[str, Any]] = lambda _: {}
    """The status that a created object has when it is read."""
    tried: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    """Where objects were to be created in dry runs, with the query."""
    deleted: list[str] = field(default_factory=list)
    stays: set[str] = field(default_factory=set)
    """Paths of objects that still exist after they were deleted: they have finalizers."""
    reviews: Callable[[dict[str, Any]], bool] = lambda _: True
    """Which requests it permits, by the spec of the review."""
    refuses: Callable[[dict[str, Any]], bool] = lambda _: False
    """Which objects it does not create."""

    def answer(self, path: str) -> tuple[int, Any]:
        where = urlsplit(path)
        self.asked.append((where.path, parse_qs(where.query)))
        found = self.answers.get(where.path)
        found = found() if callable(found) else found
        if isinstance(found, tuple):
            return found
        if found is not None:
            return 200, found
        kind, _, name = where.path.removeprefix("/api/v1/").rpartition("/")
        plural = kind.rpartition("/")[2]
        group = "" if where.path.startswith("/api/v1/") else ".perdure.dev"
        return 404, {"kind": "Status", "reason": "NotFound", "message": f'{plural}{group} "{name}" not found'}

    def replace(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Replace an object, if it has not changed since it was read."""
        status, found = self.answer(path)
        if status == 200 and found["metadata"].get("resourceVersion") != body["metadata"]["resourceVersion"]:
            message = "the object has been modified; please apply your changes to the latest version and try again"
            return 409, {"kind": "Status", "reason": "Conflict", "message": message}
        if status == 200:
            self.answers[path] = body
        return status, body if status == 200 else found

    def delete(self, path: str, options: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Delete an object, if it is still the one that the options name."""
        status, found = self.answer(path)
        wanted = (options.get("preconditions") or {}).get("uid")
        if status == 200 and wanted is not None and found["metadata"]["uid"] != wanted:
            return 409, {"kind": "Status", "reason": "Conflict", "message": "the UID differs"}
        if status == 200:
            self.deleted.append(path.rpartition("/")[2])
            if path not in self.stays:
                del self.answers[path]
        return status, found

    def create(self, path: str, body: dict[str, Any], query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        if path.startswith("/apis/authorization.k8s.io/"):
            return 201, {**body, "status": {"allowed": self.reviews(body["spec"])}}
        if self.refuses(body):
            return 422, {"kind": "Status", "reason": "Invalid", "message": "it must not be"}
        meta = body["metadata"]
        if meta.get("name") and f"{path}/{meta['name']}" in self.answers:
            return 409, {"kind": "Status", "reason": "AlreadyExists", "message": f'"{meta["name"]}" already exists'}
        name = meta.get("name") or f"{meta['generateName']}{len(self.created) + 1}"
        made = {**body, "metadata": {**meta, "name": name, "namespace": "shop", "uid": f"uid-of-{name}"}}
        if "dryRun" in query:
            self.tried.append((path, query))
            return 201, made
        self.created.append(made)
        self.answers[f"{path}/{name}"] = lambda: {**made, "status": self.status(made)}
        return 201, made


class _Server(ThreadingHTTPServer):
    """A server whose clients may disconnect before the response, as a command does at its timeout."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error on stderr, where tests read the output of commands, unless the client has disconnected."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """Serve, and have the kubeconfig name the server."""
    api = ApiServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, found = api.answer(self.path)
            if status == HTTPStatus.OK and "as=Table" in self.headers.get("Accept", ""):
                where = urlsplit(self.path)
                found = tabled(where.path, found, parse_qs(where.query))
            self.reply(status, found)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            where = urlsplit(self.path)
            self.reply(*api.create(where.path, body, parse_qs(where.query)))

        def do_DELETE(self) -> None:
            options = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(*api.delete(urlsplit(self.path).path, options))

        def do_PUT(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(*api.replace(urlsplit(self.path).path, body))

        def reply(self, status: int, body: dict[str, Any] | Log) -> None:
            broken = isinstance(body, Log) and body.broken
            data = body.text.encode() if isinstance(body, Log) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data) + broken))
            self.close_connection = broken
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    http = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    kubeconfig(folder, monkeypatch, f"http://127.0.0.1:{http.server_port}")
    try:
        yield api
    finally:
        http.shutdown()
        join(thread)
        http.server_close()


def kubeconfig(folder: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Write a kubeconfig for a server, and have it used."""
    data = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        "current-context": "c",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(data))
    use_kubeconfig(folder / "kubeconfig", monkeypatch)


def use_kubeconfig(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a kubeconfig used."""
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def tabled(path: str, found: dict[str, Any], query: dict[str, list[str]]) -> dict[str, Any]:
    """A list of objects as a table."""
    plural, metadata = path.rpartition("/")[2], query["includeObject"] == ["Metadata"]
    return as_table(plural, found["items"], found["metadata"], clock.now(), metadata=metadata)


def items(*found: dict[str, Any]) -> dict[str, Any]:
    """A list, as the API server answers with one."""
    return {"metadata": {}, "items": list(found)}
