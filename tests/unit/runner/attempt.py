"""The environment of the attempt that the runner performs."""

ENVIRONMENT = {
    "PERDURE_RUN": "order-1",
    "PERDURE_RUN_ID": "uid-1",
    "PERDURE_NAMESPACE": "shop",
    "PERDURE_WORKFLOW_ID": "order",
    "PERDURE_ACTIVITY": "work",
    "PERDURE_ACTIVITY_ID": "step",
    "PERDURE_ATTEMPT": "2",
}
