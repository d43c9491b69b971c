"""The entry point of activities' pods: `python -m perdure.flow.pod etl.py` runs the function that the pod is for."""

from __future__ import annotations

import sys

from perdure import activity
from perdure.flow.definitions import environments_of
from perdure.flow.modules import load


def main() -> None:
    """Run the activity of this pod, and exit."""
    module = load(sys.argv[1])
    activity.main({each.name: each.run for known in environments_of(module) for each in known.activities.values()})


if __name__ == "__main__":
    main()
