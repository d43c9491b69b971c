"""The entry point of activities' pods: `python -m perdure.flow.pod etl.py etl` runs the function that the pod is for.

It has the name of the environment too, because another one of the module may have an activity of the same name.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure import activity
from perdure.api.files import EXCHANGE
from perdure.api.names import FILES_FIELD
from perdure.flow.definitions import environments_of
from perdure.flow.files import PodFiles
from perdure.flow.modules import load_in_container
from perdure.flow.workspaces import FOLDERS, folders_in_pod

if TYPE_CHECKING:
    from perdure.flow.definitions import Activity


def main() -> None:
    """Run the activity of this pod, and exit."""
    module = load_in_container(sys.argv[1])
    chosen = sys.argv[2:]  # runs that began with 0.1.0 have no environment there
    environments = [each for each in environments_of(module) if not chosen or each.name in chosen]
    known = [each for environment in environments for each in environment.activities.values()]
    activity.main({each.name: partial(_run, each) for each in known})


def _run(of_pod: Activity[..., Any], stored: Any) -> Any:
    """Run the function with the files of its arguments, and its workspaces."""
    references = stored.pop(FILES_FIELD, []) if isinstance(stored, dict) else []
    EXCHANGE.set(PodFiles(references))
    FOLDERS.set(folders_in_pod(of_pod.options.workspaces))
    return of_pod.run(stored)


if __name__ == "__main__":
    main()
