"""What a running operator uses and reports: its memory, and its metrics."""

import asyncio
import os
import urllib.request
from pathlib import Path

from support.sdk.server import Operator


def memory(operator: Operator) -> int:
    """Bytes that the operator's process has in memory."""
    assert operator.running is not None
    pages = Path(f"/proc/{operator.running.pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def figure(operator: Operator, name: str) -> float:
    """A metric of the operator."""

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{operator.health}/metrics", timeout=60) as answer:
            return str(answer.read(), "utf-8")

    lines = (await asyncio.to_thread(read)).splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))
