"""The verbs of ``python3 hack/cluster``."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster import doctor, lifecycle, projectimage
from cluster.console import say
from cluster.docker import find_docker
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from cluster.tools import DEFAULT_TOOLS, TOOLS, ensure_tools


def parser() -> argparse.ArgumentParser:
    """Build the argument parser."""
    result = argparse.ArgumentParser(
        prog="python3 hack/cluster",
        description="A real kind cluster, with or without an image registry.",
    )
    verbs = result.add_subparsers(dest="verb", required=True, metavar="verb")

    def verb(name: str, help_text: str, *, named: bool = True) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=help_text, description=help_text)
        if named:
            added.add_argument("--name", default=lifecycle.DEFAULT_NAME, help="name of the cluster")
        return added

    starting = verb("up", "create a cluster, or check that it exists and works")
    starting.add_argument("--workers", type=int, help="number of worker nodes (default: 2)")
    starting.add_argument("--audit", action="store_true", help="log writes to the API server")
    verb("env", "print the shell commands that select a running cluster")
    ending = verb("down", "delete a cluster and, with the last one, our Docker daemon")
    ending.add_argument("--all", action="store_true", help="delete all clusters that were created here")
    loading = verb("load", "load image archives into every node of a cluster")
    loading.add_argument("archives", nargs="+", type=Path, metavar="IMAGE_ARCHIVE")
    image = verb("image", "build the project's image into an image archive", named=False)
    image.add_argument("--tag", required=True, help="name of the image, for example perdure:dev")
    image.add_argument("--out", required=True, type=Path, help="archive to write")
    image.add_argument("--file", type=Path, help="Dockerfile (default: the project's)")
    image.add_argument("--context", type=Path, default=REPOSITORY, help="build context")
    getting = verb("tools", "print the path of a folder with kind, kubectl, and helm", named=False)
    getting.add_argument(
        "--with", dest="extra", action="append", default=[], choices=sorted(set(TOOLS) - set(DEFAULT_TOOLS))
    )
    verb("doctor", "print what is available on this machine", named=False)
    return result


def run(arguments: argparse.Namespace, cache: Cache) -> None:
    """Execute one verb. Output for scripts goes to stdout."""
    match arguments.verb:
        case "up":
            lifecycle.up(cache, arguments.name, arguments.workers, audit=arguments.audit)
            print_exports(cache, arguments.name)
        case "env":
            print_exports(cache, arguments.name)
        case "down":
            names = lifecycle.known_clusters(cache) if arguments.all else [arguments.name]
            lifecycle.down(cache, names)
        case "load":
            lifecycle.load(cache, arguments.name, arguments.archives)
        case "image":
            dockerfile = arguments.file or arguments.context / "Dockerfile"
            projectimage.build(cache, dockerfile, arguments.context, arguments.tag, arguments.out)
        case "tools":
            print(ensure_tools(cache, (*DEFAULT_TOOLS, *arguments.extra)))
        case "doctor":
            print("\n".join(doctor.report(cache)))


def print_exports(cache: Cache, name: str) -> None:
    """Print the shell commands that select a cluster."""
    docker = find_docker(cache)
    if not docker or not cache.cluster(name).kubeconfig.exists():
        raise ClusterError(f"There is no cluster {name}; run `up` first.")
    say(f"Kubeconfig: {cache.cluster(name).kubeconfig}")
    for line in lifecycle.exports(cache, name, docker):
        print(line)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    try:
        run(parser().parse_args(argv), Cache.from_environment(os.environ))
    except ClusterError as error:
        say(f"Error: {error}")
        return 1
    except KeyboardInterrupt:
        say("Interrupted.")
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return 0
