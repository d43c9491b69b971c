"""A TCP proxy that breaks connections, as a network does."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Forwards bytes to a port up to a limit, then closes every connection."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.left: int | None = None
        """Bytes that clients may still send; None: any number."""
        self.cut = threading.Event()
        """A connection was cut."""

    def serve(self) -> None:
        """Accept connections until the listener is closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _connect(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target)) as server:
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            with suppress(OSError):
                while piece := client.recv(65_536):
                    if self.left is not None:
                        self.left -= len(piece)
                        if self.left < 0:
                            self.cut.set()
                            break
                    server.sendall(piece)
            for each in (client, server):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def proxied(target: int) -> Iterator[Proxy]:
    """A proxy for a port, until the end of the block."""
    proxy = Proxy(target)
    threading.Thread(target=proxy.serve, daemon=True).start()
    yield proxy
    proxy.close()
