"""What `pip install perdure` brings: all that commands, flows, and the client import. What only some need is in extras."""

import json
import pkgutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import perdure
from support.manuals import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ROOMS = ("api", "cli", "client", "flow", "importing", "simulation", "view")
"""What users run and import."""
EXAMPLES = REPOSITORY / "examples"

WITHOUT = """
import json, sys
left_out = set(json.loads(sys.argv.pop(1)))
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in left_out or name.partition(".")[0] in left_out:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
"""Hides the packages that the first argument lists, as if they were not installed."""


def distributions(requirements: list[str]) -> set[str]:
    """The names of packages that are installed with some requirements."""
    found: set[str] = set()
    wanted = list(map(Requirement, requirements))
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if name in found and not requirement.extras:
            continue
        found.add(name)
        extras = requirement.extras or {""}
        wanted.extend(
            each
            for each in map(Requirement, metadata.requires(name) or ())
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras)
        )
    return found


MODULES = {
    "googleapis-common-protos": "google.api",
    "grpcio": "grpc",
    "python-json-logger": "pythonjsonlogger",
    "websocket-client": "websocket",
}
"""The modules of packages that are named otherwise."""


def modules_without(*extras: str) -> list[str]:
    """The modules of the packages that other extras bring."""
    optional = PROJECT["optional-dependencies"]
    brought = distributions([*PROJECT["dependencies"], *(line for extra in extras for line in optional[extra])])
    every = distributions([line for lines in optional.values() for line in lines])
    return sorted(MODULES.get(name, name.replace("-", "_")) for name in every - brought)


def run(code: str, *arguments: str, without: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program where some modules are not installed."""
    command = [sys.executable, "-c", f"{WITHOUT}{code}", json.dumps(without), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=120)


def test_an_installation_without_extras_lacks_what_only_operators_need() -> None:
    assert {"kopf", "kubernetes", "grpc", "uvloop", "obstore", "alembic", "psycopg", "starlette", "uvicorn"} <= {
        *modules_without()
    }
    assert {"kopf", "grpc", "starlette"}.isdisjoint(modules_without("operator", "console"))


def test_users_modules_need_no_extra() -> None:
    names = [f"perdure.{room}" for room in ROOMS]
    for name in list(names):
        folder = Path(perdure.__path__[0], name.partition(".")[2])
        names += [each.name for each in pkgutil.walk_packages([str(folder)], f"{name}.")]
    code = """
import importlib
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(f"{name}: {error}")
"""
    # pytest loads its plugin, so pytest is where that is imported.
    names.remove("perdure.flow.pytest_plugin")
    done = run(code, *names, without=modules_without())
    assert (done.stdout, done.stderr) == ("", "")


COMMAND = "from perdure.cli.app import main; main()"


def test_the_command_works_without_extras() -> None:
    listed = run(COMMAND, "--help", without=modules_without())
    assert "simulate" in listed.stdout, listed.stderr
    tested = run(COMMAND, "test", str(EXAMPLES / "order-flow"), without=modules_without())
    assert tested.returncode == 0, tested.stdout + tested.stderr
    linted = run(COMMAND, "lint", "--file", str(EXAMPLES / "order-flow"), without=modules_without())
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_a_flow_runs_locally_without_extras() -> None:
    code = """
import perdure.flow as pf
pure = pf.Environment("pure")
@pure.activity()
def double(value: int) -> int:
    return 2 * value
@pure.flow
async def doubled(value: int) -> int:
    await pf.sleep("30d")
    return await double(value)
print(doubled.run_local(21))
"""
    done = run(code, without=modules_without())
    assert done.stdout == "42\n", done.stderr


def test_the_client_is_imported_without_extras() -> None:
    code = "import perdure.client as client\nfor name in client.__all__: getattr(client, name)\nprint('imported')"
    done = run(code, without=modules_without())
    assert done.stdout == "imported\n", done.stderr


@pytest.mark.parametrize(
    ("code", "arguments", "extra"),
    [
        (COMMAND, ["console"], "console"),
        ("from perdure.programs import operator; operator()", [], "operator"),
        ("from perdure.programs import console; console()", [], "console"),
        (COMMAND, ["list", "--kubeconfig", "config"], "auth-provider"),
    ],
    ids=["perdure console", "perdure-operator", "perdure-console", "an auth-provider"],
)
def test_what_needs_an_extra_names_it(code: str, arguments: list[str], extra: str, tmp_path: Path) -> None:
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"auth-provider": {"name": "oidc"}}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    (tmp_path / "config").write_text(json.dumps(kubeconfig))
    done = run(code, *arguments, without=modules_without(), folder=tmp_path)
    assert done.returncode != 0
    assert f"pip install 'perdure[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
