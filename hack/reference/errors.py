"""The page of failures: their kinds, the types that Perdure sets itself, and what to do about each."""

from typing import Final

from perdure.api.crdgen import member_docs
from perdure.engine.failures import FailureKind, RetryState
from reference.markdown import page, table

OF_THE_OPERATOR: Final = {
    "AcceptedUpdateCompletedWorkflow": (
        "The workflow closed before an update that it had accepted completed.",
        "Wait for handlers before the workflow returns, or send the update to the next run.",
    ),
    "ActivityNotFound": (
        "The program in the pod does not define an activity with that name.",
        "Compare the name of the activity with the functions that `activity.main` or `@activity.defn` registers.",
    ),
    "AlreadyExists": (
        "The object that a `resource` activity creates exists, and another client has created it.",
        "Choose another name, or use the action `Apply`.",
    ),
    "ApiServerUnreachable": (
        "A `resource` activity could not reach the API server.",
        "Nothing if the problem is temporary: the attempt is retried. Otherwise check the NetworkPolicies of the namespace.",
    ),
    "ArtifactsNotStored": (
        "The activity succeeded, but the sidecar that uploads its artifacts failed or was killed.",
        "See the message; the attempt is retried. Check that the store is reachable from the namespace and has room.",
    ),
    "BlockDepthExceeded": (
        "Blocks call each other too deeply.",
        "End the recursion earlier, or continue in a child workflow or with `continueAsNew`.",
    ),
    "BranchesFailed": (
        "Too many branches of a `parallel` step failed for its `wait` to be met.",
        "See the failures of the branches in the causes; handle them with `catch`.",
    ),
    "CallError": (
        "A Nexus operation was not reached in time, or the handler's response is not valid.",
        "Check the handler's workers, and raise the timeout of the operation.",
    ),
    "ChildDepthExceeded": (
        "Children start children too deeply.",
        "Start the run without a parent, or continue in the same run with `continueAsNew`.",
    ),
    "ConditionFailed": (
        "The `failureCondition` of a `resource` activity is true, or the `successCondition` of an `http` activity is false.",
        "See the object or the response in the message.",
    ),
    "ExpressionError": (
        "An expression failed, for example because a field is missing. The step is not retried.",
        "Correct the expression or the input. Handle missing values with `has(…)` or `orValue(…)`.",
    ),
    "INTERNAL": ("The handler of a Nexus operation sent a response that is not valid.", "Correct the handler."),
    "InitContainerFailed": (
        "An init container of the pod failed.",
        "See the log of the init container in the failure; correct its command or image.",
    ),
    "InvalidActivity": (
        "The activity cannot run as it was scheduled: its definition does not compile.",
        "See the message for the field; correct the Workflow and start or retry the run.",
    ),
    "InvalidActivityDefinition": (
        "The definition of the activity recorded in the run cannot be read.",
        "See the message; start the run again with the current definition.",
    ),
    "InvalidClaim": (
        "The API server rejects the PersistentVolumeClaim of a workspace.",
        "See the message for the field; correct `volumeClaimTemplate`.",
    ),
    "InvalidInput": (
        "The input of a block, a child, or a run does not match its schema.",
        "Correct the input; `perdure lint` finds this for constants.",
    ),
    "InvalidPod": (
        "The API server rejects the pod of the activity.",
        "See the message for the field; correct `container` or `podTemplate`.",
    ),
    "InvalidUrl": (
        "The URL of an `http` activity is not valid.",
        "Correct `http.url`, or the input that it contains.",
    ),
    "NoToken": (
        "The pod of a `resource` activity has no token for the API server.",
        "Remove `automountServiceAccountToken: false` from its ServiceAccount.",
    ),
    "OutputTooLarge": (
        "The outputs of the items of a `forEach` are too large together.",
        "Return less from each item, or keep the data [elsewhere](../data.md).",
    ),
    "PayloadTooLarge": (
        "A result, an input, or a heartbeat is larger than its limit.",
        "Set `resultSize: Large`, or pass a reference to the data; see [Files and large data](../data.md).",
    ),
    "PendingLimitExceeded": (
        "Too many steps and items of the run wait at the same time.",
        "Limit `forEach.maxConcurrency`, or divide the work into child workflows.",
    ),
    "Rejected": (
        "A person rejected the approval that a `waitForSignal` step waited for; the details name them.",
        "Handle it with `catch`, or retry the run when the reason is resolved.",
    ),
    "RequestFailed": (
        "An `http` activity got no response, for example because the host refused the connection.",
        "Check the URL and the NetworkPolicies; the attempt is retried.",
    ),
    "RequestTimeout": (
        "An `http` activity got no response within `http.timeout`.",
        "Raise `http.timeout`, or check the server; the attempt is retried.",
    ),
    "ResponseTooLarge": (
        "The response to an `http` activity exceeds its limit.",
        "Request less, or use a `script`.",
    ),
    "ResultMissing": (
        "The activity succeeded, but its result was not delivered.",
        "Check that the container writes its result where the helper does, and the log of the sidecar.",
    ),
    "ServiceEnded": (
        "The pod of a service of steps ended, or was lost, before the steps had ended.",
        "The cause says how; see its log. A retry repeats all steps that used the service.",
    ),
    "ServiceNotReady": (
        "A service of steps was not ready within its `readyTimeout`.",
        "The message says what it waited for. Correct its image or `readinessProbe`, or raise `readyTimeout`.",
    ),
    "TooManyLosses": (
        "More attempts of an activity were lost to the infrastructure than `maximumLosses` allows.",
        "Find out what stops the pods: the cause names the last one. Raise `maximumLosses`, or handle the failure with `catch`.",
    ),
    "UPSTREAM_TIMEOUT": (
        "The handler of a Nexus operation did not respond in time.",
        "Check the handler's workers; the call is retried.",
    ),
    "UnknownKind": (
        "The API server does not serve the kind that a `resource` activity names.",
        "Correct `apiVersion` and `kind`, or install the CRD.",
    ),
    "WorkspaceLost": (
        "The PersistentVolumeClaim of a workspace is gone, and with it the files of steps that have completed.",
        "[Retry](../operations.md#retry) the run, and name in `from` the steps that the message names.",
    ),
}
"""Types that the operator and the Python helper set: what happened, and what to do."""

OF_KUBERNETES: Final = {
    "CreateContainerConfigError": (
        "The pod names a ConfigMap, Secret, key, or user that does not exist, and waited until its deadline.",
        "Create what the message names.",
    ),
    "Evicted": (
        "The pod exceeded its storage limit.",
        "Write less, or raise `resources.limits.ephemeral-storage` or the `sizeLimit` of the volume.",
    ),
    "ExitCode<n>": (
        "The container exited with that code.",
        "See the log in the failure. `failureTypes` gives exit codes names that retry policies can match.",
    ),
    "ImagePullBackOff, ErrImagePull": (
        "The image could not be pulled until the deadline of the pod.",
        "Correct the image name, push the image, or set `imagePullSecrets`.",
    ),
    "InvalidImageName": ("The image name is not valid. Not retried.", "Correct the image name."),
    "NotStarted": (
        "The pod did not start before its deadline, for example because of a volume or a full cluster.",
        "See the Events of the pod: `kubectl describe pod`.",
    ),
    "OOMKilled": ("The container used too much memory.", "Raise `resources.limits.memory`, or use less."),
    "SIGKILL, SIGSEGV": ("A signal, such as these, killed the container.", "See the log in the failure."),
    "StartError, ContainerCannotRun": (
        "The container could not be started.",
        "Check that the image contains its `command`.",
    ),
}
"""Types from reasons of Kubernetes."""

_HEAD: Final = """\
`status.failure` of a run, `perdure describe`, and the Event `AttemptFailed` show a failure with its `kind`, its
`type`, and its causes. Retry policies and `catch` match the type. Your own code can use any other type.
[Runs](../runs.md#failures) shows a failure; [Conditions and Events](reasons.md) explains what a run waits for."""


def pages() -> dict[str, str]:
    """Write the page."""
    return {
        "errors.md": page(
            "Failures",
            "hack/reference/errors.py",
            _HEAD,
            "## Types that Perdure sets",
            _types(OF_THE_OPERATOR),
            "## Types from Kubernetes",
            _types(OF_KUBERNETES),
            "## Kinds",
            table(("kind", "meaning"), ((f"`{kind}`", text) for kind, text in member_docs(FailureKind).items())),
            "## Retry states",
            "`retryState` says why no further attempt follows.",
            table(("state", "meaning"), ((f"`{state}`", text) for state, text in member_docs(RetryState).items())),
        )
    }


def _types(types: dict[str, tuple[str, str]]) -> str:
    rows = ((", ".join(f"`{each}`" for each in name.split(", ")), *texts) for name, texts in types.items())
    return table(("type", "what happened", "what to do"), rows)
