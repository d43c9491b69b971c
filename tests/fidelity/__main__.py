"""Serve SDKs without a cluster, until interrupted: `make serve`, or `python -m fidelity --help`."""

import argparse
import logging
import signal
from dataclasses import replace

import structlog

from fidelity.perdure import NAMESPACE, OPEN, in_memory
from fidelity.reference import reference


def main() -> None:
    """Start the server that the arguments choose, print its addresses and namespace, and stop it at an interrupt."""
    parser = argparse.ArgumentParser(prog="fidelity", description=__doc__)
    parser.add_argument("--address", default="127.0.0.1:7233", help="where Perdure serves (default: %(default)s)")
    parser.add_argument("--http-address", default="", help="where Perdure serves the HTTP API (default: nowhere)")
    parser.add_argument(
        "--namespace", default=NAMESPACE, help="the namespace that Perdure serves (default: %(default)s)"
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
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    settings = replace(OPEN, suggest_events=options.suggest_events, http_address=options.http_address)
    in_this_process = in_memory(namespace=options.namespace, address=options.address, settings=settings)
    stopping = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping)
    with reference(*options.dynamic_config) if options.reference else in_this_process as server:
        print(server.address, server.namespace, server.http_address or "(no HTTP API)", flush=True)
        signal.sigwait(stopping)


if __name__ == "__main__":
    main()
