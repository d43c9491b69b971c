"""The process `perdure-frontend`, with a fleet of operators on an API server in memory."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import yaml
from temporalio.client import Client, WorkflowExecutionStatus

from perdure.frontend.apart.main import FrontendOptions
from support.cluster_over_http import over_http
from support.fleet import in_memory_fleet
from support.operator import OPEN
from support.ports import free_port

REQUIRED = {"PERDURE_TEMPORAL_ADDRESS": "[::]:7233", "PERDURE_FLEET": "perdure"}


def test_environment_variables_set_the_options() -> None:
    options = FrontendOptions.from_environment(
        {
            **REQUIRED,
            "PERDURE_LEASE_SECONDS": "15",
            "PERDURE_WATCH_NAMESPACES": "shop, bank",
            "PERDURE_EXCLUDE_NAMESPACES": "bank",
            "PERDURE_LINGER_SECONDS": "6",
            "PERDURE_HTTP_PORT": "9090",
            "PERDURE_LOG_LEVEL": "debug",
            "PERDURE_TEMPORAL_MAX_CONNECTIONS": "7",
        }
    )
    assert (options.address, options.observer.fleet, options.observer.seconds) == ("[::]:7233", "perdure", 15)
    assert ("shop" in options.served, "bank" in options.served) == (True, False)
    assert (options.linger, options.port, options.log_level) == (6.0, 9090, "debug")
    assert options.settings.max_connections == 7


@pytest.mark.parametrize("missing", REQUIRED)
def test_the_address_and_the_fleet_are_required(missing: str) -> None:
    with pytest.raises(ValueError, match=f"perdure-frontend requires {missing}"):
        FrontendOptions.from_environment({name: value for name, value in REQUIRED.items() if name != missing})


async def test_the_process_serves_and_stops(tmp_path: Path) -> None:
    port, probes = free_port(), free_port()
    with (
        in_memory_fleet(1, settings=replace(OPEN, apart=True), lease_seconds=10) as fleet,
        over_http(fleet.fleet.kubernetes) as server,
    ):
        config = {
            "current-context": "memory",
            "contexts": [{"name": "memory", "context": {"cluster": "memory", "user": "me", "namespace": "default"}}],
            "clusters": [{"name": "memory", "cluster": {"server": server}}],
            "users": [{"name": "me", "user": {}}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "KUBERNETES_"))},
            "KUBECONFIG": str(tmp_path / "config"),
            "POD_NAME": "frontend-0",
            "PERDURE_FLEET": "fleet",
            "PERDURE_TEMPORAL_ADDRESS": f"127.0.0.1:{port}",
            "PERDURE_TEMPORAL_AUTHENTICATION": "None",
            "PERDURE_HTTP_PORT": str(probes),
        }
        program = [sys.executable, "-c", "from perdure.programs import frontend; frontend()"]
        log = tmp_path / "log"
        with log.open("w") as output:
            process = await asyncio.create_subprocess_exec(*program, env=environment, stderr=output, stdout=output)
        try:
            await ready(process, probes)
            client = await Client.connect(f"127.0.0.1:{port}")
            handle = await client.start_workflow("Any", id="by-process", task_queue="nobody")
            assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
            print(log.read_text())


async def ready(process: asyncio.subprocess.Process, port: int) -> None:
    """Wait until the process is ready."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(120):
        while True:
            assert process.returncode is None
            with suppress(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)
