"""The modules that a command imports before its first request, which delay the user. Modules are counted, not seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from perdure import __version__
from perdure.cli.app import VERBS

SLOW = {
    "aiohttp",
    "cel_expr_python",
    "croniter",
    "cryptography",
    "grpc",
    "jsonschema_rs",
    "kopf",
    "kubernetes",
    "msgspec",
    "orjson",
    "pydantic",
    "pydantic_core",
    "rich.console",
    "rich.text",
    "structlog",
    "temporalio",
    "urllib.request",
}
OPERATORS = {f"perdure.{room}" for room in ("controller", "frontend", "handlers", "observe", "postgres", "runner")}
"""Rooms of the operator."""
MAX_MODULES = 285
"""Modules, most of them of the standard library; those of `rerun` have the most, 281."""

OFFLINE = {
    "completion",
    "console",
    "deploy",
    "explain",
    "import",
    "lint",
    "migrate",
    "options",
    "replay",
    "schemas",
    "simulate",
    "test",
    "ui",
    "version",
}
"""Verbs that make no request, or run for long."""

CALLS: dict[str, list[str]] = {
    "artifacts": ["list", "run"],
    "artifacts get": ["run", "make/report"],
    "batch": ["list"],
    "cancel": ["run"],
    "complete": ["run", "--step", "a", "--result", "1"],
    "count": [],
    "deadletters": ["list"],
    "deadletters redrive": ["letter"],
    "delete": ["run"],
    "deployment": ["list"],
    "describe": ["run"],
    "doctor": [],
    "fleet": [],
    "history": ["run"],
    "list": [],
    "logs": ["run", "--follow"],
    "move": ["export"],
    "operations": [],
    "pause": ["run"],
    "prune": ["--keep", "1"],
    "query": ["run", "status"],
    "rerun": ["run"],
    "reset": ["run", "--event-id", "4"],
    "reset-activity": ["run", "--step", "a"],
    "result": ["run"],
    "retry": ["run"],
    "retrypolicy": ["preview", "policy"],
    "schedule": ["list"],
    "schedule backfill": ["s", "--start-time", "2026-01-01T00:00:00Z", "--end-time", "2026-01-02T00:00:00Z"],
    "schedule describe": ["s"],
    "schedule next": ["s"],
    "schedule trigger": ["s"],
    "search-attributes": ["list"],
    "set-version": ["run"],
    "signal": ["run", "--name", "go"],
    "stack": ["run"],
    "start": ["flow", "-p", "a=1"],
    "stop": ["run"],
    "task-queue": ["describe", "orders"],
    "terminate": ["run"],
    "top": [],
    "trace": ["run"],
    "unpause": ["run"],
    "update": ["run", "pay"],
    "wait": ["run"],
    "webhooks": [],
    "worker": ["list"],
    "workflow": ["history", "flow"],
    "workflow diff": ["flow"],
    "workflow rollback": ["flow", "--to", "2"],
}

EXECUTED = """
def executed():
    return sorted(name for name, module in sys.modules.items() if type(module).__name__ != "_LazyModule")
"""
"""A function for the modules that were imported, without those that `perdure.lazy` has postponed."""

PROGRAM = f"""
import json, os, sys
{EXECUTED}from perdure.cli.app import main
calls = json.loads(sys.argv[1])
for call in calls:
    reader, writer = os.pipe()
    if os.fork() == 0:
        sys.argv = ["perdure", *call]
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        def report(event, _):
            if event == "socket.connect":
                os.write(writer, json.dumps(executed()).encode())
                os._exit(0)
        sys.addaudithook(report)
        try:
            main()
        except BaseException as error:
            os.write(writer, json.dumps([f"no request: {{error!r}}"]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        print(answer.read())
    os.wait()
"""


def imported(folder: Path) -> dict[str, set[str]]:
    """The modules that each call imports before its first request, or why it made no request."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(config))
    calls = [[*verb.split(), *arguments] for verb, arguments in CALLS.items()]
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(calls)],
        env={**kept, "KUBECONFIG": str(file), "KUBERNETES_SERVICE_HOST": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return {verb: set(json.loads(line)) for verb, line in zip(CALLS, done.stdout.splitlines(), strict=True)}


def wrong(modules: set[str]) -> list[str]:
    """Problems with the imported modules of a call."""
    found = [each for each in modules if each.startswith("no request")] + sorted(SLOW & modules)
    return found + ([f"{len(modules)} modules"] if len(modules) > MAX_MODULES else [])


def test_every_verb_that_makes_requests_is_checked() -> None:
    assert {verb.split()[0] for verb in CALLS} | OFFLINE == VERBS.keys()


def test_verbs_import_little_before_their_first_request(tmp_path: Path) -> None:
    found = {verb: wrong(modules) for verb, modules in imported(tmp_path).items()}
    assert {verb: faults for verb, faults in found.items() if faults} == {}


@pytest.mark.parametrize("name", ["perdure.client", "perdure.flow"])
def test_a_package_for_programs_imports_nothing_slow(name: str) -> None:
    """What needs Temporal's SDK or pydantic is imported when it is first used."""
    code = f"import json, sys, {name}\n{EXECUTED}print(json.dumps(executed()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stdout))
    assert name in modules
    assert sorted((SLOW | OPERATORS) & modules - {"msgspec"}) == []
    assert len(modules) <= MAX_MODULES


def executed(*arguments: str) -> tuple[str, set[str]]:
    """What a call without requests prints, and the modules that it imports."""
    code = (
        f"import json, sys; sys.argv = ['perdure', *{arguments!r}]\n"
        "from perdure.cli.app import main\n"
        f"{EXECUTED}"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(json.dumps(executed()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout, set(json.loads(done.stderr))


@pytest.mark.parametrize("arguments", [["--help"], ["list", "-h"]], ids=" ".join)
def test_help_imports_nothing_slow_and_only_the_called_verb(arguments: list[str]) -> None:
    _, modules = executed(*arguments)
    assert sorted((SLOW | OPERATORS) & modules) == []
    verbs = {name for name in modules if name.startswith("perdure.cli.verbs.")}
    assert verbs == ({"perdure.cli.verbs.lists"} if "list" in arguments else set())


def test_the_version_needs_neither_asyncio_nor_yaml() -> None:
    printed, modules = executed("version")
    assert printed == f"perdure {__version__}\n"
    assert sorted((SLOW | {"asyncio", "yaml"}) & modules) == []
