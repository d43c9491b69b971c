"""Ports that stay free while the server that uses them is down, so that a test can start it again at the same one."""

import random
import socket

_CANDIDATES = range(10_000, 30_000)
"""Below the range from which Linux takes the local ports of outgoing connections (32768 to 60999): such a
connection could otherwise occupy the port of a server while it is down."""
_RESERVED: list[socket.socket] = []
"""One abstract UNIX socket for each port that this process was given; the kernel removes them with the process."""


def free_port() -> int:
    """A TCP port on which nothing listens, and which no other process of the tests is given while this one runs."""
    for port in random.SystemRandom().sample(_CANDIDATES, k=len(_CANDIDATES)):
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0perdure-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("", port))
        except OSError:
            reservation.close()
            continue
        _RESERVED.append(reservation)
        return port
    raise OSError("no free port is left between 10000 and 29999")
