"""A port-forward to a Service with kubectl, which supports the authentication of any kubeconfig."""

import asyncio
import re
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress

from perdure.client.errors import CliError

_READY = re.compile(rb"Forwarding from (127\.0\.0\.1:\d+)")
_SECONDS = 30


class PortForward:
    """A forward to one port of a Service. It starts when its address is needed, and restarts after it has ended."""

    def __init__(self, namespace: str, service: str, port: int, options: Sequence[str] = ()) -> None:
        """`options`: the options of kubectl for the cluster and the user."""
        target = [f"--namespace={namespace}", "--address=127.0.0.1", f"service/{service}", f":{port}"]
        self._command = ["port-forward", *options, *target]
        self._what = f"Service `{service}` in namespace `{namespace}`"
        self.process: Process | None = None
        """The process of kubectl, once it has started."""
        self._address = ""
        self._drain: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    async def address(self) -> str:
        """Return the local URL of the Service.

        Raises:
            CliError: The Service cannot be reached.
        """
        async with self._starting:
            if self.process is None or self.process.returncode is not None:
                await self._start()
            return self._address

    async def close(self) -> None:
        """End the forward."""
        if self._drain is not None:
            self._drain.cancel()
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.terminate()
            await self.process.wait()

    async def _start(self) -> None:
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise CliError("kubectl is needed for the port-forward, and is not found; put it on the PATH")
        await self.close()
        process = await asyncio.create_subprocess_exec(kubectl, *self._command, stdout=PIPE, stderr=PIPE)
        self.process = process
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), _SECONDS)
        except TimeoutError:
            line = b""
        ready = _READY.search(line)
        if ready is None:
            raise CliError(f"cannot reach the {self._what}: {await self._complaint(process)}")
        self._address = f"http://{ready[1].decode()}"
        # kubectl prints a line for each connection: unread, they would fill the pipe and block it.
        self._drain = asyncio.create_task(_read_all(process), name="output of kubectl")

    async def _complaint(self, process: Process) -> str:
        """Return the error message of kubectl."""
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
        _, errors = await process.communicate()
        return errors.decode(errors="replace").strip() or f"`kubectl port-forward` was not ready within {_SECONDS} s"


async def _read_all(process: Process) -> None:
    assert process.stdout is not None
    assert process.stderr is not None

    async def drain(stream: asyncio.StreamReader) -> None:
        while await stream.read(4096):
            pass

    await asyncio.gather(drain(process.stdout), drain(process.stderr))
