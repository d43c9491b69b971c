"""Commands of argo, tkn, temporal, gcloud, and kubectl, with their equivalents."""

from typing import Final

OTHER_NAMES: Final = {
    "apply": "`kubectl apply -f FILE` creates Workflows, runs, and Schedules",
    "archive": "`{program} list` shows closed runs until their `ttlSecondsAfterFinished` expires",
    "convert": "use `{program} import argo FILE`, or `import tekton`",
    "create": "use `{program} start WORKFLOW`, or `{program} start -f FILE` for a manifest",
    "cron": "use `{program} schedule`",
    "dag": "use `{program} describe NAME`, which shows the tree of steps",
    "edit": "use `kubectl edit workflow NAME`; the spec of a run cannot change",
    "execute": "use `{program} start WORKFLOW --wait`",
    "get": "use `{program} describe NAME` for a run, and `{program} list` for all of them",
    "log": "use `{program} logs NAME`",
    "ls": "use `{program} list`",
    "node": "use `{program} complete NAME --step STEP`, or `{program} signal`",
    "ps": "use `{program} list`",
    "redo": "use `{program} retry NAME` for the failed steps, or `{program} rerun NAME` for the whole run",
    "restart": "use `{program} retry NAME` for the failed steps, or `{program} rerun NAME` for the whole run",
    "resubmit": "use `{program} rerun NAME`",
    "resume": "use `{program} unpause NAME`; if the run waits for a signal, `{program} signal NAME --name SIGNAL`",
    "run": "use `{program} start WORKFLOW`",
    "show": "use `{program} history NAME` for the events, or `{program} describe NAME` for the steps",
    "status": "use `{program} describe NAME`",
    "submit": "use `{program} start WORKFLOW`, or `{program} start -f FILE` for a manifest",
    "suspend": "use `{program} pause NAME`",
    "template": "use `kubectl get workflows`",
    "tree": "use `{program} describe NAME`",
    "validate": "use `{program} lint -f FILE`",
    "watch": "use `{program} wait NAME`, or `{program} describe NAME --watch`",
    "workflow": "leave out `workflow`: `{program} list`, `{program} describe NAME`, `{program} start`",
}
"""The equivalents, by the name of the command."""

OTHER_SCHEDULE_NAMES: Final = {
    "disable": "use `{program} schedule pause NAME`",
    "edit": "use `kubectl edit schedule NAME`",
    "enable": "use `{program} schedule unpause NAME`",
    "get": "use `{program} schedule describe NAME` for a Schedule, and `{program} schedule list` for all of them",
    "ls": "use `{program} schedule list`",
    "resume": "use `{program} schedule unpause NAME`",
    "run": "use `{program} schedule trigger NAME`",
    "suspend": "use `{program} schedule pause NAME`",
    "toggle": "use `{program} schedule pause NAME`, or `{program} schedule unpause NAME`",
    "update": "use `kubectl edit schedule NAME`",
}
"""The equivalents of commands about schedules."""
