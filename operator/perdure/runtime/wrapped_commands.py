"""A shell program around the command of a container: the part that runs the command as if the container had no shell.

    sh (first process)        sh (keeper)                 sh (starter), then the command
    passes signals on   ──▶   ignores them; waits   ──▶   writes its process ID, then becomes the command
    reads the exit code ◀──   writes the exit code

The first process does not wait for the command itself: a signal interrupts `wait`, and shells then differ in whether they
still know the exit code. The keeper has nothing to do but wait, so its answer is exact, no matter how many signals arrive.
"""

from typing import Final

from perdure.runtime.attempts import KubeObject

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


def running(*, output: str = "") -> str:
    """Return the lines of a shell program that run the command in its arguments, and set `perdure_code` to its exit code.

    Before them, the program sets `perdure_state` to the path of files that they can write. After them, it ignores signals.
    All variables have the prefix: one with the name of a variable of the container would change that.

    Args:
        output: Redirections of the output of the command.
    """
    return _RUNNING % {"signals": SIGNALS, "starter": _STARTER, "output": output}


def wrap(container: KubeObject, program: str, *words: str) -> None:
    """Put a shell program around the command of a container.

    Args:
        container: The container, modified in place.
        program: The program.
        words: Its name, and the arguments before the command.
    """
    # `$$` is a dollar sign in a command of Kubernetes.
    container["command"] = ["sh", "-c", program.replace("$", "$$"), *words, *container["command"]]
