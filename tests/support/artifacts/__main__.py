"""Start an S3 server in a pod of the cluster, and create the Secret of the artifact store: `make store`.

For trying out artifacts without a bucket: everything in it is lost with the pod.
"""

import argparse
from dataclasses import replace

from support.cluster.artifacts import store
from support.cluster.namespace import find_cluster


def main() -> None:
    """Start the server, and print how to remove it."""
    parser = argparse.ArgumentParser(
        prog="artifacts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--namespace", default="default", help="namespace of the pod and the Secret (default: default)")
    namespace: str = parser.parse_args().namespace
    store(replace(find_cluster(), namespace=namespace))
    print(
        f"The Secret `perdure-artifacts` in namespace `{namespace}` names an S3 server in the pod `store`. To remove both:"
    )
    print(f"  kubectl -n {namespace} delete pod/store secret/perdure-artifacts")


if __name__ == "__main__":
    main()
