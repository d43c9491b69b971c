"""The activity of the polling: what runs in the pods. Needs an image with Python and `perdure.activity`."""

from pathlib import Path
from typing import Any

from perdure import activity

STATUS = Path("/status")
"""The path of the ConfigMap `export-status` in the pod, if it exists."""


def look() -> dict[str, Any]:
    """Check whether the export is done."""
    rows, file = STATUS / "rows", STATUS / "file"
    if not (rows.exists() and file.exists()):
        return {"ready": False}
    return {"ready": True, "rows": int(rows.read_text()), "file": file.read_text().strip()}


if __name__ == "__main__":
    activity.main({"look": look})
