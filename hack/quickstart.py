"""`make quickstart`: create a cluster, run a workflow, and show what happened.

An example workflow processes an order. The script kills the pod of the first activity halfway through, and the next pod resumes
from the last heartbeat. The second activity fails twice and is retried, and a durable sleep precedes the third. Meanwhile, a
schedule starts a run every ten seconds.
"""

import argparse
import json
import os
import sys
import time

from cluster.console import say, stage
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from deploy import IMAGE, Target, existing_cluster, install, kind_cluster

EXAMPLE = "examples/order-flow"
RUN = "order-1001"
SCHEDULES = "examples/schedules"
SCHEDULE = "counter"
ACCOUNT = "web-ui"
LEASE = f"{RUN}-2-1"
"""The Lease of the first attempt of the activity that the run's second event has scheduled; its pod has the same name."""

NEXT = """
The Web UI, in your browser, with the permissions of the ServiceAccount {account}:
  perdure ui --service-account {account}

What to try next
  perdure describe {run}                     show this overview again
  perdure history {run} --detailed           every event with its attributes
  kubectl explain wfr.spec                       the fields of a run
  perdure schedule next -f {schedules}/schedules.yaml nightly --after 2027-03-26
                                                 its next times, across the start of daylight saving time
  kubectl get wfr,pods                           runs, and the pods of failed attempts, kept for their logs
  kubectl -n perdure-system delete pod --all --force
                                                 kill the operator in the middle of a run: nothing is lost
  $EDITOR examples/order-flow/workflow.yaml      change the flow, then: kubectl apply -k examples/order-flow
{down}To use these commands in your shell:
  {export}
"""


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Create a cluster, install Perdure, and run an example order.")
    parser.add_argument("--install-only", action="store_true", help="only install Perdure")
    arguments = parser.parse_args()
    began = time.monotonic()
    try:
        cache = Cache.from_environment(os.environ)
        target = _target(cache)
        install(cache, target, web_ui=True)
        if arguments.install_only:
            return 0
        create_account(target)
        run_schedule(target)
        status = run_order(target)
    except ClusterError as error:
        say(f"Error: {error}")
        return 1
    say(f"Total time: {time.monotonic() - began:.0f} s.")
    return status


def _target(cache: Cache) -> Target:
    if os.environ.get("CLUSTER") == "existing":
        return existing_cluster(cache, os.environ.get("IMAGE"))
    return kind_cluster(cache, os.environ.get("NAME", "perdure"))


def create_account(target: Target) -> None:
    """Create a ServiceAccount for the Web UI: kind's kubeconfig has a certificate, not a token."""
    with stage(f"kubectl create serviceaccount {ACCOUNT}"):
        binding = ["--clusterrole=edit", f"--serviceaccount=default:{ACCOUNT}"]
        for command in (["serviceaccount", ACCOUNT], ["rolebinding", ACCOUNT, *binding]):
            manifest = target.run(
                "kubectl", "create", *command, "--namespace=default", "--dry-run=client", "-o", "yaml"
            )
            target.run("kubectl", "apply", "-f", "-", text=manifest)


def run_schedule(target: Target) -> None:
    """Create a Schedule that starts a run every ten seconds, while the order runs."""
    with stage(f"kubectl apply -k {SCHEDULES}"):
        target.run("kubectl", "delete", "schedule", SCHEDULE, "--ignore-not-found", "--wait")
        target.run("kubectl", "apply", "-k", SCHEDULES)


def show_schedule(target: Target) -> None:
    """Show the runs of the schedule, and delete it."""
    with stage(f"kubectl wait wsch/{SCHEDULE}: a run has passed its result to the next"):
        of_result = "--for=jsonpath={.status.lastCompletionResult.number}"
        target.run("kubectl", "wait", f"wsch/{SCHEDULE}", of_result, "--timeout=2m")
    print()
    target.show(str(REPOSITORY / ".venv" / "bin" / "perdure"), "schedule", "describe", SCHEDULE)
    with stage(f"kubectl delete -k {SCHEDULES}: the schedules and their runs"):
        target.run("kubectl", "delete", "-k", SCHEDULES)


def run_order(target: Target) -> int:
    """Run the example and show it. The exit status is 0 if it completed."""
    with stage(f"kubectl apply -k {EXAMPLE}"):
        target.run("kubectl", "delete", "workflowrun", RUN, "--ignore-not-found", "--wait")
        manifests = target.run("kubectl", "kustomize", EXAMPLE).replace(IMAGE, target.image)
        target.run("kubectl", "apply", "-f", "-", text=manifests)
    with stage(f"kubectl apply -f {EXAMPLE}/run.yaml"):
        target.run("kubectl", "apply", "-f", f"{EXAMPLE}/run.yaml")
    with stage("wait until the heartbeat of the first activity reports two picked items"):
        _until_heartbeat(target, items=2)
    with stage(f"kubectl delete pod {LEASE}: its pod is killed"):
        target.run("kubectl", "delete", "pod", LEASE, "--grace-period=1", "--wait=false")
    with stage("kubectl wait wfr/order-1001 --for=condition=Succeeded"):
        target.run("kubectl", "wait", f"wfr/{RUN}", "--for=condition=Succeeded", "--timeout=5m")
    perdure = str(REPOSITORY / ".venv" / "bin" / "perdure")
    print()
    target.show(perdure, "describe", RUN)
    print()
    target.show(perdure, "history", RUN)
    show_schedule(target)
    print(
        NEXT.format(
            run=RUN, account=ACCOUNT, schedules=SCHEDULES, down=_how_to_remove(target), export=_how_to_find(target)
        )
    )
    return 0


def _how_to_remove(target: Target) -> str:
    """Return a line with the command that deletes the cluster; empty if these scripts did not create it."""
    if target.name is None:
        return ""
    return f"{f'  make cluster-down NAME={target.name}':<49}remove the cluster\n"


def _how_to_find(target: Target) -> str:
    """Return a shell command that puts kubectl and perdure on the PATH and selects the cluster."""
    kubeconfig = target.environment.get("KUBECONFIG", "~/.kube/config")
    tools = target.environment.get("PATH", "").split(os.pathsep)[0]
    return f"export KUBECONFIG={kubeconfig} PATH={tools}:$PWD/.venv/bin:$PATH"


def _until_heartbeat(target: Target, *, items: int, seconds: float = 120.0) -> None:
    """Wait until the heartbeat of the first attempt reports that number of picked items."""
    deadline = time.monotonic() + seconds
    last = "no heartbeat yet"
    while time.monotonic() < deadline:
        found = target.run("kubectl", "get", "lease", LEASE, "--ignore-not-found", "-o", "json")
        notes = json.loads(found)["metadata"].get("annotations", {}) if found else {}
        last = notes.get("perdure.dev/heartbeat-details", last)
        if last.startswith("{") and len(json.loads(last)["picked"]) >= items:
            return
        time.sleep(0.2)
    raise ClusterError(f"the first activity did not report that it picked the items within {seconds:.0f} s: {last}")


if __name__ == "__main__":
    sys.exit(main())
