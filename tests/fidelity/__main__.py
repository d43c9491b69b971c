"""Serve SDKs without a cluster, until interrupted: `make serve`, or `python -m fidelity --help`."""

import argparse
import logging
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from perdure.handlers.main import tune_garbage_collector
from support.fleet import in_memory_fleet
from support.operator import NAMESPACE, OPEN, in_memory
from support.temporal_server import temporal_server

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def main() -> None:
    """Start the server that the arguments choose, print its addresses and namespace, and stop it at an interrupt."""
    parser = argparse.ArgumentParser(prog="fidelity", description=__doc__)
    parser.add_argument("--address", default="127.0.0.1:7233", help="where Perdure serves (default: %(default)s)")
    parser.add_argument("--http-address", default="", help="where Perdure serves the HTTP API (default: nowhere)")
    parser.add_argument(
        "--namespace", default=NAMESPACE, help="the namespace that Perdure serves (default: %(default)s)"
    )
    parser.add_argument(
        "--operators", type=int, default=1, metavar="N", help="serve by N operators together (default: %(default)s)"
    )
    parser.add_argument(
        "--suggest-events",
        type=int,
        default=OPEN.suggest_events,
        metavar="N",
        help="suggest to continue as new after N events (default: %(default)s)",
    )
    parser.add_argument(
        "--reference",
        action="store_true",
        help="serve by Temporal's server, which chooses its own addresses and namespace",
    )
    parser.add_argument(
        "--dynamic-config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Temporal's server, with a value in YAML; can be repeated",
    )
    options = parser.parse_args()
    if options.operators > 1 and (options.http_address or options.reference):
        parser.error("--operators cannot be used with --http-address or --reference")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    stopping = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping)
    with _serving(options) as server:
        tune_garbage_collector()  # as the operator does: a full collection of these modules stops everything for 0.1 s and more
        http = f", HTTP API: {server.http_address}" if server.http_address else ""
        print(f"Temporal's gRPC API: {server.address}, namespace: {server.namespace}{http}", flush=True)
        signal.sigwait(stopping)


def _serving(options: argparse.Namespace) -> "AbstractContextManager[Any]":
    """Run the server within a block."""
    if options.reference:
        return temporal_server(*options.dynamic_config)
    settings = replace(OPEN, suggest_events=options.suggest_events, http_address=options.http_address)
    namespace, address = options.namespace, options.address
    if options.operators > 1:
        return in_memory_fleet(options.operators, namespace=namespace, address=address, settings=settings)
    return in_memory(namespace=namespace, address=address, settings=settings)


if __name__ == "__main__":
    main()
