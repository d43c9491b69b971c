"""The operator for one namespace, in a separate process whose requests are counted.

Usage: counted.py NAMESPACE PORT. A line on standard input asks for the figures so far: one line of JSON with seconds of CPU,
bytes of memory, and requests by verb and kind. The end of standard input stops it.
"""

import asyncio
import json
import resource
import sys
from collections import Counter
from pathlib import Path

import perdure.handlers.main as operator
from bench.counting import TALLY, CountingClient
from perdure.kube.access import find_access
from perdure.observe import json_logs


def figures() -> str:
    used = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    memory = pages * resource.getpagesize()
    requests = Counter(f"{asked.verb} {asked.kind}" for asked in TALLY.requests)
    return json.dumps({"cpu": used.ru_utime + used.ru_stime, "memory": memory, "requests": requests})


async def main(namespace: str, port: int) -> None:
    operator.Client = CountingClient  # type: ignore[misc]
    stop = asyncio.Event()
    options = operator.OperatorOptions(namespaces=(namespace,), port=port, log_level="warning")
    work = asyncio.create_task(operator.operate(options, find_access(), stop=stop))
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        print(figures(), flush=True)
    stop.set()
    await work


if __name__ == "__main__":
    sys.setrecursionlimit(60_000)
    json_logs.configure("warning")
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
