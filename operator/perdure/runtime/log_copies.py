"""The command of an activity's container that also copies its log to a file, which the sidecar stores.

    container of the activity                                volume perdure-log        sidecar of Perdure
    the command ──▶ pipe ──▶ tee ──▶ stdout                       log          ──▶     keeps the end, stores it
                              └─────────────────────────────────▶  │
    sh waits for both, and exits like the command            ──▶  ended

The sidecar cannot see what another container prints, and to read it from the API server it would need the permission to read
all logs of the namespace.
"""

from typing import Final

from perdure.api.reserved import LOG, LOG_PATH
from perdure.runtime.attempts import InvalidDefinitionError, KubeObject
from perdure.runtime.workspaces import list_in

WRAPPER: Final = """perdure_folder=$1 && shift
for perdure_tool in mkfifo tee sleep; do command -v "$perdure_tool" >/dev/null 2>&1 || exec "$@"; done
(umask 0 && : >>"$perdure_folder/log" && mkfifo "$perdure_folder/pipe") 2>/dev/null || exec "$@"
perdure_stop= perdure_work= perdure_code=127 perdure_again=yes
for perdure_signal in TERM INT HUP QUIT USR1 USR2; do
  trap "perdure_again=yes perdure_stop=$perdure_signal
    [ -z \\"\\$perdure_work\\" ] || kill -$perdure_signal \\"\\$perdure_work\\" 2>/dev/null" "$perdure_signal"
done
tee -a "$perdure_folder/log" <"$perdure_folder/pipe" &
perdure_copy=$!
"$@" >"$perdure_folder/pipe" 2>&1 &
perdure_work=$!
[ -z "$perdure_stop" ] || kill "-$perdure_stop" "$perdure_work"
while [ "$perdure_again" ]; do
  perdure_again=
  wait "$perdure_work"
  perdure_ended=$?
  [ "$perdure_ended" = 127 ] || perdure_code=$perdure_ended
done
(sleep 5; kill "$perdure_copy") >/dev/null 2>&1 &
wait "$perdure_copy"
: >"$perdure_folder/ended"
exit "$perdure_code"
"""
"""Runs its arguments after the first, the folder for the copy; without the tools for that, it only runs them.
Its variables have a prefix: one with the name of a variable of the container would change that.

A signal interrupts `wait`, so it is called again; after the end it returns 127. Processes that the command leaves behind keep
the pipe open; like without the wrapper, they are killed, but after five seconds.
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
    command = list_in(main, "command")
    if not command:
        raise InvalidDefinitionError(
            f"activity {activity}: `artifacts.archiveLogs` needs the `command` of the container: set it to the entrypoint of "
            "its image"
        )
    # `$$` is a dollar sign in a command of Kubernetes.
    main["command"] = ["sh", "-c", WRAPPER.replace("$", "$$"), "sh", LOG_PATH, *command]
    mount = {"name": LOG, "mountPath": LOG_PATH}
    main["volumeMounts"] = [*list_in(main, "volumeMounts"), mount]
    spec["volumes"] = [*list_in(spec, "volumes"), {"name": LOG, "emptyDir": {}}]
    return mount
