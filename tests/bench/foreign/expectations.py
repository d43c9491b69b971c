"""What the examples need, and how they end, as their own documentation says."""

from typing import Any, Final

from bench.foreign.examples import Example

NO_TEST: Final = "workflows.argoproj.io/no-test"
"""A label of Argo's examples; its value `expected-failure` says that the run fails."""
_FAILURES: Final = frozenset({"Failed", "TimedOut"})
_RANDOM: Final = frozenset({"resubmit.yaml", "retry-on-error.yaml", "template-defaults.yaml", "work-avoidance.yaml"})
"""Their containers fail at random, with few or no retries."""
_COMPLETED: Final = frozenset({"continue-on-fail.yaml"})
"""The failure that their label means is one that the workflow continues after."""
_FAILED: Final = frozenset(
    {
        "loops-arbitrary-sequential-steps.yaml",
        "pod-gc-strategy.yaml",
        "pod-gc-strategy-with-label-selector.yaml",
        "timeouts-workflow.yaml",
    }
)
"""They fail by design, without the label."""
SIGNALS: Final[dict[str, dict[str, Any]]] = {
    "intermediate-parameters.yaml": {"approval": {"approve": "YES"}},
    "suspend-template.yaml": {"approve": None},
    "suspend-template-outputs.yaml": {"approve": {"message": "go on"}},
}
"""The signals that a user sends, by example."""
INPUTS: Final[dict[str, Any]] = {
    "workflow-template/templates.yaml": {"message": "hello"},
    "workflow-event-binding/event-consumer-workflowtemplate.yaml": {"appellation": "Mr. Argo"},
}
"""The input that a user gives, by example."""
NEEDS: Final[dict[str, str]] = {
    "arguments-artifacts.yaml": "a download from the Internet",
    "http-hello-world.yaml": "the Internet",
    "http-success-condition.yaml": "the Internet",
    "input-artifact-gcs.yaml": "an object in a bucket",
    "input-artifact-http.yaml": "a download from the Internet",
    "input-artifact-s3.yaml": "an object in a bucket",
    "life-cycle-hooks-tmpl-level.yaml": "the Internet",
    "life-cycle-hooks-wf-level.yaml": "the Internet",
    "workflow-template/input-artifacts.yaml": "an object in a bucket",
    "forever.yaml": "17 minutes",
    "cron-backfill.yaml": "Argo's controller",
    "k8s-owner-reference.yaml": "Argo's controller",
    "k8s-wait-wf.yaml": "Argo's controller",
    "pod-resources-template-override.yaml": "a node with more processors",
    "pod-spec-from-previous-step.yaml": "a node with more processors",
    "resource-claims.yaml": "a device driver",
    "resource-claims-template-override.yaml": "a device driver",
    "resource-flags.yaml": "the kind Route of OpenShift",
    "workflow-of-workflows.yaml": "Argo's controller",
}
"""What a cluster without access to the Internet lacks, by example."""

OBJECTS: Final = (
    {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "my-secret"},
        "stringData": {"mypassword": "S00perS3cretPa55word"},
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "my-existing-volume"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    },
)
"""What the comments in the examples tell users to create."""


def phases(example: Example) -> frozenset[str]:
    """The phases that a run of an example may end in."""
    if example.name in _RANDOM:
        return _FAILURES | {"Completed"}
    fails = example.labels.get(NO_TEST) == "expected-failure" or example.name in _FAILED
    return _FAILURES if fails and example.name not in _COMPLETED else frozenset({"Completed"})


def needs(example: Example) -> str | None:
    """What an example needs that a cluster without a registry and the Internet does not have."""
    if example.name in NEEDS:
        return NEEDS[example.name]
    return f"the image {', '.join(sorted(example.images))}" if example.images else None
