"""The command of an activity's container that also copies its log to a file, which the sidecar stores.

    container of the activity                                volume perdure-log        sidecar of Perdure
    the command ──▶ pipe ──▶ tee ──▶ stdout                       log          ──▶     keeps the end, stores it
                              └─────────────────────────────────▶
    sh waits for both, and exits like the command

The sidecar cannot see what another container prints, and to read it from the API server it would need the permission to read
all logs of the namespace.
"""

from typing import Final

from perdure.api.reserved import LOG, LOG_PATH
from perdure.runtime.attempts import InvalidDefinitionError, KubeObject
from perdure.runtime.workspaces import list_in
from perdure.runtime.wrapped_commands import SIGNALS, running, wrap

WRAPPER: Final = f"""perdure_folder=$1 && shift
for perdure_tool in mkfifo tee sleep; do command -v "$perdure_tool" >/dev/null 2>&1 || exec "$@"; done
(umask 0 && : >>"$perdure_folder/log" && mkfifo "$perdure_folder/pipe") 2>/dev/null || exec "$@"
perdure_state=$perdure_folder/command
(trap '' {SIGNALS}; exec tee -a "$perdure_folder/log" <"$perdure_folder/pipe") &
perdure_copy=$!
{running(output='>"$perdure_folder/pipe" 2>&1')}(sleep 5; kill -s KILL "$perdure_copy") >/dev/null 2>&1 &
while kill -0 "$perdure_copy" 2>/dev/null; do wait "$perdure_copy"; done 2>/dev/null
exit "$perdure_code"
"""
"""Runs its arguments after the first, the folder for the copy; without the tools for that, it only runs them.

`tee` ignores signals, because the command may send one to all processes of its group. Processes that the command leaves behind
keep the pipe open; like without the wrapper, they are killed, but after five seconds.
"""


def copy_log(activity: str, spec: KubeObject, main: KubeObject) -> KubeObject:
    """Make a container copy its log to a volume, and return the mount of the volume for the sidecar.

    Args:
        activity: Name of the activity.
        spec: The spec of the pod, modified in place.
        main: The container, modified in place.

    Raises:
        InvalidDefinitionError: The container has no command.
    """
    if not list_in(main, "command"):
        raise InvalidDefinitionError(
            f"activity {activity}: `artifacts.archiveLogs` needs the `command` of the container: set it to the entrypoint of "
            "its image"
        )
    wrap(main, WRAPPER, "sh", LOG_PATH)
    mount = {"name": LOG, "mountPath": LOG_PATH}
    main["volumeMounts"] = [*list_in(main, "volumeMounts"), mount]
    spec["volumes"] = [*list_in(spec, "volumes"), {"name": LOG, "emptyDir": {}}]
    return mount
