"""Delete the artifacts of runs that no longer exist. The operator starts this program in a pod of its own.

$PERDURE_FOLDERS           the folders to delete: a JSON list of key prefixes
$PERDURE_STORE_…           the artifact store
$PERDURE_TERMINATION_LOG   the file for the report

Its termination message is `{}` if everything is deleted, otherwise `{"failed": [indexes of folders], "error": …}` with the first
error. Repeating a deletion is harmless.
"""

import json
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Final

from perdure.runner.artifacts.programs import ArtifactError
from perdure.runner.artifacts.store import ArtifactStore

_PATIENCE: Final = timedelta(minutes=1)
"""How long a request is retried if the store does not respond."""
_SECONDS: Final = 480.0
"""The time after which no further folder is begun; Kubernetes stops the pod after ten minutes."""
_LONGEST: Final = 900
"""Maximum length of an error, in characters."""


def deleted(
    environ: Mapping[str, str], *, patience: timedelta = _PATIENCE, seconds: float = _SECONDS
) -> dict[str, Any]:
    """Delete the folders, each independently of the others, and return the report.

    Args:
        environ: The folders, and the artifact store.
        patience: How long a request is retried if the store does not respond.
        seconds: The time after which no further folder is begun.
    """
    folders, errors = json.loads(environ["PERDURE_FOLDERS"]), dict[int, str]()
    try:
        store = ArtifactStore(environ, patience=patience)
    except ArtifactError as error:
        return _report(dict.fromkeys(range(len(folders)), str(error)))
    end = monotonic() + seconds
    for index, folder in enumerate(folders):
        if monotonic() > end:
            errors[index] = "there was not enough time"
            continue
        try:
            count = store.delete(folder)
        except ArtifactError as error:
            errors[index] = str(error)
            sys.stderr.write(f"{error}\n")
        else:
            sys.stdout.write(f"deleted {count} objects below {folder}/\n")
    return _report(errors)


def _report(errors: dict[int, str]) -> dict[str, Any]:
    return {"failed": list(errors), "error": next(iter(errors.values()))[:_LONGEST]} if errors else {}


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Delete the folders, write the report, and return the exit code."""
    report = deleted(environ)
    text = json.dumps(report, ensure_ascii=False, separators=(",", ":"))
    Path(environ["PERDURE_TERMINATION_LOG"]).write_text(text, encoding="utf-8")
    return 1 if report else 0


if __name__ == "__main__":
    sys.exit(main())
