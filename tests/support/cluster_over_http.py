"""The API server in memory over HTTP, for clients outside of the process of its operator."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from perdure.simulation.cluster.apiserver import ApiServer, Request, Response
from support.threads import join


@contextmanager
def over_http(cluster: ApiServer) -> Iterator[str]:
    """Serve an API server whose loop runs in another thread; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_request(self) -> None:
            where = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = Request(
                method=self.command,
                url=where.path,
                query=dict(parse_qsl(where.query)),
                headers=dict(self.headers),
                body=body,
                actor="user",
            )
            answer: Future[Response] = Future()

            def handle() -> None:
                try:
                    answer.set_result(cluster.handle(asked))
                except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
                    answer.set_exception(error)

            cluster.loop.call_soon_threadsafe(handle)
            found = answer.result()
            self.send_response(found.status)
            self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_request  # noqa: N815 - the names of the base class

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        join(thread)
        http.server_close()
