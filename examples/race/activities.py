"""The activity of the race: what runs in the pods. Needs an image with Python and `perdure.activity`."""

import hashlib
import time
from typing import Any

from perdure import activity

BLOCK = 65_536


def fetch(wish: dict[str, Any]) -> dict[str, Any]:
    """Fetch a file block by block. Each heartbeat reports the progress, and its response a cancellation."""
    digest, speed = hashlib.sha256(), wish["speed"]
    for number in range(speed["blocks"]):
        for _ in range(10):
            time.sleep(speed["blockTime"] / 10)
            activity.heartbeat({"blocks": number})
        digest.update(f"{wish['file']} {number}".encode().ljust(BLOCK))
    return {"mirror": wish["mirror"], "bytes": speed["blocks"] * BLOCK, "sha256": digest.hexdigest()[:16]}


if __name__ == "__main__":
    activity.main({"fetch": fetch})
