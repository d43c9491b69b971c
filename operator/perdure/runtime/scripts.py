"""The container of a script: its image, with the interpreter and the file of the script as the command."""

from typing import Any, Final

from perdure.api.reserved import SCRIPT_PATH
from perdure.api.work import Script, ScriptResult
from perdure.runtime.attempts import KubeObject

_OWN_FIELDS: Final = ("source", "result")
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
_KEPT: Final = {ScriptResult.LAST_LINE: "-n 1", ScriptResult.OUTPUT: "-c 4096"}
"""The arguments of `tail` that select the result from stdout; a longer result fills the termination message and is too large."""
_ALL_KEPT: Final = {ScriptResult.LAST_LINE: "-n 1", ScriptResult.OUTPUT: "-c +1"}


def script_container(script: Script, *, large_results: bool = False) -> KubeObject:
    """The container that runs a script.

    Args:
        script: The script, whose expressions are evaluated.
        large_results: Whether a large result becomes a file.
    """
    fields: dict[str, Any] = {key: value for key, value in script.dump().items() if key not in _OWN_FIELDS}
    command = [*script.command, SCRIPT_PATH]
    if script.result is not ScriptResult.FILE:
        # `$$` is a dollar sign in a command of Kubernetes.
        wrapper, kept = (_LARGE_WRAPPER, _ALL_KEPT) if large_results else (_WRAPPER, _KEPT)
        command = ["sh", "-c", (wrapper % kept[script.result]).replace("$", "$$"), "sh", *command]
    return {**fields, "command": command}
