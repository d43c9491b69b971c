"""Shell programs around the command of a container: they run it as if the container had no shell, and keep what it prints.

    sh (first process)        sh (keeper)                 sh (starter), then the command
    passes signals on   ──▶   ignores them; waits   ──▶   writes its process ID, then becomes the command
    reads the exit code ◀──   writes the exit code

The first process does not wait for the command itself: a signal interrupts `wait`, and shells then differ in whether they
still know the exit code. The keeper has nothing to do but wait, so its answer is exact, no matter how many signals arrive.

Kubernetes starts all containers of a pod together. If some of them wait for others, a shell in each waits for the containers that
it needs, starts the command of its own, and leaves a file in a shared folder when the command has ended. If a container dies
without leaving a file, the operator sees that and stops the others.

To archive a log, the program also copies the output to a file, which the sidecar stores:

    container of the activity                                volume perdure-log        sidecar of Perdure
    the command ──▶ pipe ──▶ tee ──▶ stdout                       log          ──▶     keeps the end, stores it
                              └─────────────────────────────────▶
    sh waits for both, and exits like the command

The sidecar cannot see what another container prints, and to read it from the API server it would need the permission to read
all logs of the namespace.

The command of a script is the interpreter with the file of the script; its program keeps the end of the output as the result.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from perdure.api.kinds.workflow import Script, ScriptResult
from perdure.api.pods import LOG, LOG_PATH, NEEDS, ORDER, ORDER_PATH, SCRIPT_PATH, ContainerOrderError, needs_of
from perdure.runtime.attempts import InvalidDefinitionError, KubeObject

SIGNALS: Final = "HUP INT QUIT USR1 USR2 ALRM WINCH TERM"
"""The signals that are passed on: those that images have as their stop signal, and others that programs use."""

_STARTER: Final = """echo "$$" >"$0.pid"
while read -r perdure_signal; do kill -s "$perdure_signal" "$$"; done 2>/dev/null <"$0.stop"
exec "$@"
"""
"""Its name is the path of the files of the command. It sends itself the signals that came before its process ID was known."""

_RUNNING: Final = """perdure_pass() {
  echo "$1" >>"$perdure_state.stop"
  if read -r perdure_work <"$perdure_state.pid"; then kill -s "$1" "$perdure_work"; fi
} 2>/dev/null
for perdure_signal in %(signals)s; do trap "perdure_pass $perdure_signal" "$perdure_signal"; done
{
  trap : %(signals)s
  (trap - %(signals)s; exec sh -c '%(starter)s' "$perdure_state" "$@" 2>&3 3>&-)
  perdure_code=$?
  echo "$perdure_code" >"$perdure_state.code"
  exit "$perdure_code"
} %(output)s 3>&2 2>/dev/null &
perdure_keeper=$!
while
  wait "$perdure_keeper" 2>/dev/null
  perdure_code=$?
  kill -0 "$perdure_keeper" 2>/dev/null
do :; done
trap '' %(signals)s
if read -r perdure_ended <"$perdure_state.code"; then perdure_code=$perdure_ended; fi 2>/dev/null
"""


def command_runner(*, output: str = "") -> str:
    """Return the lines of a shell program that run the command in its arguments, and set `perdure_code` to its exit code.

    Before them, the program sets `perdure_state` to the path of files that they can write. After them, it ignores signals.
    All variables have the prefix: one with the name of a variable of the container would change that.

    Args:
        output: Redirections of the output of the command.
    """
    return _RUNNING % {"signals": SIGNALS, "starter": _STARTER, "output": output}


def wrap(container: KubeObject, program: str, *arguments: str) -> None:
    """Put a shell program around the command of a container.

    Args:
        container: The container, modified in place.
        program: The program.
        arguments: Its name, and the arguments before the command.
    """
    # `$$` is a dollar sign in a command of Kubernetes.
    container["command"] = ["sh", "-c", program.replace("$", "$$"), *arguments, *container["command"]]


def list_in(parent: KubeObject, key: str) -> list[Any]:
    """Return a list from a part of a pod; an empty list if it does not exist.

    Raises:
        InvalidDefinitionError: The value is not a list.
    """
    value = parent.get(key) or []
    if not isinstance(value, list):
        raise InvalidDefinitionError(f"`{key}` must be a list of objects")
    return value


_SIZE: Final = "1Mi"
NOT_NEEDED: Final = 1
STOPPED: Final = 143
"""Exit codes of a container that does not start its command, because another one has failed, or because the pod is stopped."""
_WAITING: Final = f"""perdure_state={ORDER_PATH}/$0
trap 'exit {STOPPED}' {SIGNALS}
if [ "$1" ] && ! command -v sleep >/dev/null 2>&1; then
  echo >"$perdure_state.failed"
  echo "container $0 cannot wait for others, because its image has no program named sleep" >&2
  exit 127
fi
for perdure_name in $1; do
  until [ -e {ORDER_PATH}/"$perdure_name".succeeded ]; do
    if [ -e {ORDER_PATH}/"$perdure_name".failed ]; then
      echo >"$perdure_state.failed"
      echo "container $perdure_name failed, so container $0 did not start its command" >&2
      exit {NOT_NEEDED}
    fi
    sleep 0.5 2>/dev/null || sleep 1
  done
done
shift
{command_runner()}if [ "$perdure_code" = 0 ]; then echo >"$perdure_state.succeeded"; else echo >"$perdure_state.failed"; fi
exit "$perdure_code"
"""
"""Waits for the containers in the first argument, and runs the other arguments. The name of the script is the container's own."""


def order_containers(spec: KubeObject) -> Mapping[str, Sequence[str]]:
    """Make the containers of a pod wait for those in their `needs`.

    Args:
        spec: The spec of the pod, modified in place.

    Returns:
        The containers that are the activity together, with the containers that each one needs; empty if there is only one.

    Raises:
        InvalidDefinitionError: The containers have no valid order.
    """
    containers: list[dict[str, Any]] = spec["containers"]
    try:
        needs = needs_of(containers)
    except ContainerOrderError as error:
        raise InvalidDefinitionError(f"`{error.field}`: {error.message}") from error
    needed = {other for others in needs.values() for other in others}
    for container in containers:
        container.pop(NEEDS, None)
        name = container.get("name")
        if name in needed or needs.get(str(name)):
            wrap(container, _WAITING, str(name), " ".join(needs[str(name)]))
            mounts = [*(container.get("volumeMounts") or []), {"name": ORDER, "mountPath": ORDER_PATH}]
            container["volumeMounts"] = mounts
    if needed:
        spec["volumes"] = [*(spec.get("volumes") or []), {"name": ORDER, "emptyDir": {"sizeLimit": _SIZE}}]
    return needs


WRAPPER: Final = f"""perdure_folder=$1 && shift
for perdure_tool in mkfifo tee sleep; do command -v "$perdure_tool" >/dev/null 2>&1 || exec "$@"; done
(umask 0 && : >>"$perdure_folder/log" && mkfifo "$perdure_folder/pipe") 2>/dev/null || exec "$@"
perdure_state=$perdure_folder/command
(trap '' {SIGNALS}; exec tee -a "$perdure_folder/log" <"$perdure_folder/pipe") &
perdure_copy=$!
{command_runner(output='>"$perdure_folder/pipe" 2>&1')}(sleep 5; kill -s KILL "$perdure_copy") >/dev/null 2>&1 &
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


_SCRIPT_FIELDS: Final = ("source", "result")
_WRAPPER: Final = """exec 5>&1
all=$({ { { "$@" 3>&- 4>&- 5>&-; echo "$?" >&4; } | tee /dev/fd/3 >&5; } 3>&1 | tail %s; } 4>&1)
code=${all%%%%
*}
if [ "$code" = 0 ] && [ "$all" != 0 ] && [ ! -s "$PERDURE_TERMINATION_LOG" ]; then
  printf %%s "${all#*
}" >"$PERDURE_TERMINATION_LOG"
fi
exit "$code"
"""
"""Runs its arguments and keeps the end of their output: `tee` copies stdout to `tail`, whose output follows the exit code."""
_LARGE_WRAPPER: Final = """exec 5>&1
kept=$PERDURE_RESULT_FILE.part
code=$({ { { "$@" 3>&- 4>&- 5>&-; echo "$?" >&4; } | tee /dev/fd/3 >&5; } 3>&1 | tail %s >"$kept" || echo 74 >&4; } 4>&1)
code=${code##*
}
if [ "$code" = 0 ] && [ ! -s "$PERDURE_TERMINATION_LOG" ] && [ ! -e "$PERDURE_RESULT_FILE" ]; then
  if [ "$(wc -c <"$kept")" -le "$PERDURE_MESSAGE_LIMIT" ]; then
    cat "$kept" >"$PERDURE_TERMINATION_LOG"
  else
    mv "$kept" "$PERDURE_RESULT_FILE"
  fi
fi
exit "$code"
"""
"""The same for results of any size. If `tail` fails, because the disk is full, it exits with 74 (input/output error)."""
_RESULT: Final = {ScriptResult.LAST_LINE: "-n 1", ScriptResult.OUTPUT: "-c 4096"}
"""The arguments of `tail` that select the result from stdout; a longer result fills the termination message and is too large."""
_LARGE_RESULT: Final = {ScriptResult.LAST_LINE: "-n 1", ScriptResult.OUTPUT: "-c +1"}


def script_container(script: Script, *, large_results: bool = False) -> KubeObject:
    """The container that runs a script.

    Args:
        script: The script, whose expressions are evaluated.
        large_results: Whether a large result becomes a file.
    """
    fields: dict[str, Any] = {key: value for key, value in script.dump().items() if key not in _SCRIPT_FIELDS}
    command = [*script.command, SCRIPT_PATH]
    if script.result is not ScriptResult.FILE:
        # `$$` is a dollar sign in a command of Kubernetes.
        wrapper, kept = (_LARGE_WRAPPER, _LARGE_RESULT) if large_results else (_WRAPPER, _RESULT)
        command = ["sh", "-c", (wrapper % kept[script.result]).replace("$", "$$"), "sh", *command]
    return {**fields, "command": command}
