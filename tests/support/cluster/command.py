"""The command line, as a user calls it, for a namespace of a cluster."""

import os
import subprocess
import sys

from support.cluster.namespace import Cluster


def perdure(namespace: Cluster, *arguments: str) -> str:
    """What `perdure` prints for arguments; it must succeed."""
    command = [sys.executable, "-c", "from perdure.cli.app import main; main()", *arguments, "-n", namespace.namespace]
    environment = {**os.environ, "KUBECONFIG": str(namespace.kubeconfig)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
