"""The activities of an approval: what runs in the pods. Needs an image with Python and `perdure.activity`."""

import hashlib
import json
from typing import Any

from perdure import activity


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """Ask a person."""
    info = activity.info()
    print(f"To: {request['person']}\n\nMay we have {request['document']}? Please tell workflow {info.workflow_id}.")
    return {"asked": request["person"]}


def file(decision: dict[str, Any]) -> dict[str, Any]:
    """File a decision with a seal, so that a change is noticed."""
    seal = hashlib.sha256(json.dumps(decision, sort_keys=True).encode()).hexdigest()[:16]
    return {**decision, "seal": seal}


if __name__ == "__main__":
    activity.main({"ask": ask, "file": file})
