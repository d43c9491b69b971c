"""The examples of Tekton that are not compared, or have another outcome; the documentation says why (docs/from-tekton.md)."""

from typing import Final

NOT_IMPORTED: Final = frozenset(
    {
        "pipelineruns/6139-regression.yaml",
        "pipelineruns/alpha/consume-artifacts-from-task.yaml",
        "pipelineruns/alpha/pipelines-in-pipelines-ref-complex.yaml",
        "pipelineruns/beta/git-resolver.yaml",
        "pipelineruns/beta/http-resolver-credentials.yaml",
        "pipelineruns/beta/http-resolver.yaml",
        "pipelineruns/beta/pipelinerun-with-matrix-and-taskrunspecs-param-substitution.yaml",
        "pipelineruns/no-ci/cluster-resolver.yaml",
        "pipelineruns/no-ci/git-resolver-custom-apiurl.yaml",
        "pipelineruns/no-ci/git-resolver-custom-secret.yaml",
        "pipelineruns/no-ci/git-resolver.yaml",
        "pipelineruns/no-ci/hub-resolver.yaml",
        "pipelineruns/pipelinerun-with-final-results.yaml",
        "taskruns/alpha/produce-consume-artifacts.yaml",
        "taskruns/alpha/task-artifacts.yaml",
        "taskruns/authenticating-git-commands.yaml",
        "taskruns/beta/authenticating-git-commands.yaml",
        "taskruns/beta/bundles-resolver.yaml",
        "taskruns/beta/git-resolver.yaml",
        "taskruns/beta/hub-resolver.yaml",
        "taskruns/beta/stepaction-git-resolver.yaml",
        "taskruns/no-ci/cluster-resolver.yaml",
        "taskruns/no-ci/default-workspaces.yaml",
        "taskruns/stepaction-passing-results.yaml",
    }
)
"""The examples of which parts have no counterpart, or that a resolver fetches."""
DIFFERENT: Final = frozenset({"pipelineruns/no-ci/compressed-results-pipeline.yaml"})
"""The examples with another outcome."""
