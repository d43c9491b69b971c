"""Run the official Go SDK's integration tests against an operator, as a measure of compatibility.

Pass the folder of a checkout of temporalio/sdk-go, and the address of an operator without authentication (`make serve`)::

    python hack/go_sdk_tests.py --address 127.0.0.1:7233 ~/sdk-go                                 # TestIntegrationSuite
    python hack/go_sdk_tests.py ~/sdk-go TestWorkerTunerTestSuite 'TestNexus.*' --log build/go.log

Each test runs in a process of its own, so a crash of the client fails only one test; ``--whole`` runs each suite in one process.
The search attributes that the tests use are registered first.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client

SEARCH_ATTRIBUTES = {
    "CustomKeywordField": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "CustomStringField": IndexedValueType.INDEXED_VALUE_TYPE_TEXT,
}
DEFAULT = "TestIntegrationSuite"


def main() -> int:
    """Run the tests, and return 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", default="127.0.0.1:7233", help="address of the Temporal frontend")
    parser.add_argument("--http-address", default="127.0.0.1:7243", help="address of the HTTP API")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--timeout", type=int, default=300, help="timeout of one process, in seconds")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes run at the same time")
    parser.add_argument("--whole", action="store_true", help="one process per suite, not per test")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="where the output of failing tests goes")
    parser.add_argument("folder", type=Path, help="a checkout of temporalio/sdk-go")
    parser.add_argument("tests", nargs="*", help=f"regular expressions of Suite/Test; default {DEFAULT}")
    chosen = parser.parse_intermixed_args()
    sources = chosen.folder / "test"
    if not (sources / "integration_test.go").is_file():
        sys.exit(f"There is no test/integration_test.go in {chosen.folder}.")
    asyncio.run(register_search_attributes(chosen.address, chosen.namespace))
    environment = {
        **os.environ,
        "SERVICE_ADDR": chosen.address,
        "SERVICE_HTTP_ADDR": chosen.http_address,
        "TEMPORAL_NAMESPACE": chosen.namespace,
    }
    wanted = re.compile("|".join(f"(?:{each})(?:/.*)?" for each in chosen.tests or [DEFAULT]))
    names = [name for name in found(sources) if wanted.fullmatch(name)]
    if chosen.whole:
        names = list(dict.fromkeys(name.partition("/")[0] for name in names))
    with tempfile.TemporaryDirectory(prefix="go-sdk-tests-") as work, chosen.log.open("w") as log:
        program = Program(Path(work) / "sdk.test", sources, environment, chosen.timeout, log)
        subprocess.run(["go", "test", "-c", "-o", program.path, "."], cwd=sources, check=True)
        with ThreadPoolExecutor(chosen.jobs) as pool:
            results = [how for each in pool.map(program.run, names) for how in each]
    print("; ".join(f"{results.count(how)} {how.lower()}" for how in ("PASS", "FAIL", "CRASH", "SKIP")))
    return 1 if {"FAIL", "CRASH"} & set(results) else 0


async def register_search_attributes(address: str, namespace: str) -> None:
    """Register the search attributes that the tests use, if they are not registered yet."""
    client = await Client.connect(address, namespace=namespace)
    request = AddSearchAttributesRequest(namespace=namespace, search_attributes=SEARCH_ATTRIBUTES)
    await client.operator_service.add_search_attributes(request)


def found(sources: Path) -> Iterator[str]:
    """Return names such as ``TestIntegrationSuite/TestBasic``, in the order of the sources."""
    text = "\n".join(file.read_text() for file in sorted(sources.glob("*_test.go")))
    suites = dict(
        re.findall(r"^func (Test\w+)\(t \*testing\.T\) \{\n\tsuite\.Run\(t, (?:new\(|&)(\w+)", text, re.MULTILINE)
    )
    for name in re.findall(r"^func (Test\w+)\(t \*testing\.T\)", text, re.MULTILINE):
        if name in suites:
            methods = re.findall(rf"^func \(\w+ \*{suites[name]}\) (Test\w*)\(\)", text, re.MULTILINE)
            yield from (f"{name}/{method}" for method in methods)
        else:
            yield name


@dataclass(frozen=True)
class Program:
    """The compiled tests, and how to run them."""

    path: Path
    folder: Path
    environment: dict[str, str]
    timeout: int
    log: TextIO

    def run(self, name: str) -> list[str]:
        """Run one test or suite in a process, and return the outcome of each test."""
        pattern = "/".join(f"^{part}$" for part in name.split("/"))
        done = subprocess.run(
            [self.path, "-test.v", "-test.run", pattern, f"-test.timeout={self.timeout}s"],
            cwd=self.folder,
            env=self.environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        # A suite reports the outcome of each of its tests, and then its own.
        ended = {test: how for how, test in re.findall(r"--- (PASS|FAIL|SKIP): (\S+)", done.stdout)}
        below = {test: how for test, how in ended.items() if test.startswith(f"{name}/") and test.count("/") == 1}
        results = below or {name: ended.get(name) or ended.get(name.partition("/")[0], "CRASH")}
        print("".join(f"{how} {test}\n" for test, how in results.items()), end="", flush=True)
        if done.returncode:
            self.log.write(f"===== {name}\n{done.stdout}\n")
            self.log.flush()
        return list(results.values())


if __name__ == "__main__":
    sys.exit(main())
