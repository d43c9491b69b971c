"""The example of the archive with Debian's PostgreSQL: its script, its commands, its settings, and TLS with a verified name."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
import yaml
from temporalio.client import Client

from perdure.archive.rows import ArchiveUnavailableError
from perdure.postgres.archive import Connection, PostgresArchive
from rpc.archive.archiving import in_cluster, until
from support.histories import EXAMPLES
from support.operator import in_memory
from support.ports import free_port
from support.postgres import AS_NOBODY, programs

EXAMPLE = EXAMPLES / "archive"
RUNS = 40
KUBECTL = f"""#!{sys.executable}
import pathlib, shutil, sys
assert sys.argv[1:5] == ["--namespace=perdure-system", "create", "secret", "generic"], sys.argv
folder = pathlib.Path({{folder!r}}, sys.argv[5])
folder.mkdir()
for option in sys.argv[6:]:
    kind, _, rest = option.partition("=")
    if kind == "--from-file":
        shutil.copy(rest, folder)
    else:
        key, _, value = rest.partition("=")
        (folder / key).write_text(value)
"""
"""Stores Secrets as folders."""


class Postgres:
    """The containers of the example's pod as processes, with its Secrets in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        tool = folder / "bin" / "kubectl"
        tool.parent.mkdir()
        tool.write_text(KUBECTL.format(folder=str(folder)))
        tool.chmod(0o755)
        environment = {**os.environ, "PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}"}
        subprocess.run(["sh", EXAMPLE / "secrets.sh"], check=True, env=environment, capture_output=True, cwd=folder)
        (folder / "data").mkdir()
        (folder / "tmp").mkdir()
        (folder / "config").mkdir()
        (folder / "config" / "pg_hba.conf").write_bytes((EXAMPLE / "pg_hba.conf").read_bytes())
        if AS_NOBODY:
            subprocess.run(["chown", "-R", "65534:65534", folder], check=True)
        for file in (folder / "perdure-postgres").iterdir():
            file.chmod(stat.S_IRUSR)
        (self._pod,) = [
            each["spec"]["template"]["spec"]
            for each in yaml.safe_load_all((EXAMPLE / "postgres.yaml").read_text(encoding="utf-8"))
            if each["kind"] == "StatefulSet"
        ]
        self._running: subprocess.Popen[bytes] | None = None

    def _here(self, command: list[str]) -> list[str]:
        """A command of the pod with the paths of this machine."""
        paths = {
            "=/tmp": f"={self.folder}/tmp",
            "/usr/lib/postgresql/17/bin": str(programs()),
            "=/data/": f"={self.folder}/data/",
            "-D/data/": f"-D{self.folder}/data/",
            " /data/": f" {self.folder}/data/",
            "=/secret/": f"={self.folder}/perdure-postgres/",
            "=/config/": f"={self.folder}/config/",
        }
        for there, here in paths.items():
            command = [part.replace(there, here) for part in command]
        return [*AS_NOBODY, *command]

    def start(self) -> None:
        """Start the containers, and wait until the probe of the pod succeeds."""
        (create,), (main,) = self._pod["initContainers"], self._pod["containers"]
        subprocess.run(self._here(create["command"]), check=True, cwd=self.folder, capture_output=True)
        with (self.folder / "log").open("ab") as log:
            serve = [*self._here(main["command"]), f"--port={self.port}"]
            self._running = subprocess.Popen(serve, cwd=self.folder, stdout=log, stderr=log)
        probe = [*self._here(main["readinessProbe"]["exec"]["command"]), f"--port={self.port}"]
        deadline = time.monotonic() + 60
        while subprocess.run(probe, check=False, capture_output=True).returncode:
            assert self._running.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def kill(self) -> None:
        """End the server like a lost pod."""
        if self._running is not None:
            self._running.send_signal(signal.SIGQUIT)
            self._running.wait(60)
            self._running = None

    def url(self, authority: str = "perdure-archive/ca.crt", **more: str) -> str:
        """The address in the Secret, with the settings of the chart, and where the name leads to."""
        there = (self.folder / "perdure-archive" / "url").read_text()
        options = {"hostaddr": "127.0.0.1", "port": str(self.port), "sslmode": "verify-full"}
        options |= {"sslrootcert": str(self.folder / authority), **more}
        return f"{there}?{'&'.join(f'{name}={value}' for name, value in options.items())}"

    def statement(self, text: str) -> tuple[Any, ...]:
        with psycopg.connect(self.url()) as connection:
            found = connection.execute(text).fetchone()
        assert found is not None
        return found

    def archive(self) -> AbstractAsyncContextManager[PostgresArchive]:
        return PostgresArchive(Connection(conninfo=self.url()), timedelta(0)).run()


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with TemporaryDirectory(prefix="perdure-example-") as folder:
        Path(folder).chmod(0o755)
        server = Postgres(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()


def run(name: str, ttl: int) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLE / "run.yaml").read_text(encoding="utf-8"))
    return {**found, "metadata": {"name": name}, "spec": {**found["spec"], "ttlSecondsAfterFinished": ttl}}


async def test_a_killed_database_loses_no_run_and_stores_none_twice(postgres: Postgres) -> None:
    with in_memory(objects=[run(f"r-{n}", 1 + n % 10) for n in range(RUNS)], archive=postgres.archive) as server:
        until(lambda: len(in_cluster(server)) < RUNS)  # the first ones are archived, and removed
        postgres.kill()
        left = in_cluster(server)
        postgres.start()
        until(lambda: not in_cluster(server))
        assert left
        assert postgres.statement("SELECT count(*), count(DISTINCT name) FROM perdure.runs") == (RUNS, RUNS)
        client = await Client.connect(server.address)
        found = {each.id async for each in client.list_workflows("City = 'Oslo'")}
        assert found == {f"r-{n}" for n in range(RUNS)}
        history = await client.get_workflow_handle("r-7").fetch_history()
        assert history.events[-1].HasField("workflow_execution_completed_event_attributes")


@contextmanager
def refused(message: str) -> Iterator[None]:
    with pytest.raises(ArchiveUnavailableError, match=message):
        yield


async def test_a_server_with_another_certificate_or_without_encryption_is_refused(postgres: Postgres) -> None:
    async def ask(url: str) -> None:
        async with PostgresArchive(Connection(conninfo=url), timedelta(0)).run() as archive:
            await archive.versions([])

    await ask(postgres.url())
    with refused("certificate verify failed"):
        await ask(postgres.url("perdure-postgres/tls.crt"))
    with refused("no pg_hba.conf entry|no encryption"):
        await ask(postgres.url(sslmode="disable"))
    with refused("does not match host name"):
        await ask(postgres.url().replace("perdure-postgres.perdure-system.svc", "other.svc"))
