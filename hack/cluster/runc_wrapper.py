"""OCI runtime for hosts whose root lacks CAP_SYS_RESOURCE: runc with fewer requirements.

Docker tells runc to give a privileged container every capability, to lower its OOM score,
and to raise its limits. Without CAP_SYS_RESOURCE, the kernel rejects each of these, and no
kind node would start. This program removes these settings from what Docker wrote, and then
executes runc. Docker runs a copy of this file; it must not import anything of the project.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

MISSING = "CAP_SYS_RESOURCE"


def without_privilege(process: dict[str, Any], oom_score: int) -> dict[str, Any]:
    """Remove what needs the missing capability from an OCI process."""
    stripped = {key: value for key, value in process.items() if key != "rlimits"}
    if capabilities := process.get("capabilities"):
        stripped["capabilities"] = {
            kind: [name for name in names if name != MISSING] for kind, names in capabilities.items() if names
        }
    # Everyone may raise the score, but not lower it.
    if (wanted := process.get("oomScoreAdj")) is not None:
        stripped["oomScoreAdj"] = max(wanted, oom_score)
    return stripped


def option(arguments: list[str], *names: str) -> str | None:
    """Return the value of an option, written as two arguments or as one with ``=``."""
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names:
            return value if equals else next(iter(arguments[position + 1 :]), None)
    return None


def rewrite(arguments: list[str], oom_score: int) -> None:
    """Rewrite the files that a runc command will read."""
    if "create" in arguments or "run" in arguments:
        file = Path(option(arguments, "--bundle", "-b") or ".") / "config.json"
        config = json.loads(file.read_text())
        config["process"] = without_privilege(config["process"], oom_score)
        file.write_text(json.dumps(config))
    elif "exec" in arguments and (name := option(arguments, "--process", "-p")):
        file = Path(name)
        process = json.loads(file.read_text())
        file.write_text(json.dumps(without_privilege(process, oom_score)))


def main() -> None:
    """Rewrite the files, and then execute runc with the same arguments."""
    arguments = sys.argv[1:]
    rewrite(arguments, int(Path("/proc/self/oom_score_adj").read_text()))
    os.execvp("runc", ["runc", *arguments])  # noqa: S606  (the host's runc, wherever it is)


if __name__ == "__main__":
    main()
