"""The sidecar: it gives any program, through files, the features that `perdure.activity` gives Python code.

$PERDURE_FILES/heartbeat    written by the activity for each heartbeat; contains the details, JSON or text
$PERDURE_FILES/cancelled    written by the sidecar when the activity should stop; contains the reason
$PERDURE_FILES/result       written by the activity before it ends with exit code 0; contains the result, JSON or text

The activity controls the folder, and the sidecar has a token that the activity does not have. So the sidecar reads only regular
files, and neither reads nor writes through links.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from ._context import LARGE_RESULTS, Context, current
from ._errors import ApplicationError, CancelledError, PayloadTooLargeError, SupersededError
from ._payloads import decode_output, encode, error_document

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOOK_SECONDS = 0.25
_LARGEST_RESULT = 252 * 1024
_LARGEST_FILE = 8 * 1024 * 1024
"""The size of the folder, in bytes."""
_READ = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)  # non-blocking, so that opening a pipe without a writer does not hang
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FILE = "`{}` is not a regular file: links, pipes, and folders are not read"


class SidecarLoop:
    """The loop that transfers data between the files and the Lease."""

    def __init__(self, context: Context, environ: Mapping[str, str]) -> None:
        self._context = context
        folder = environ.get("PERDURE_FILES") or "/perdure-files"
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._auto = environ.get("PERDURE_AUTO_HEARTBEAT") == "true"
        self._last_heartbeat_file: tuple[int, int, int] | None = None
        self._last_message = ""

    def run(self) -> int:
        """Run until SIGTERM, which the caller has blocked, report the result, and return the exit code."""
        heartbeats = self._context.heartbeats
        if heartbeats is not None:
            heartbeats.on_stop = self._write_cancelled
            if self._auto:
                heartbeats.begin()
        while True:
            self._forward_heartbeat()
            if signal.sigtimedwait({signal.SIGTERM}, _LOOK_SECONDS):
                break
        self._forward_heartbeat()
        return self._deliver_result()

    def _forward_heartbeat(self) -> None:
        """Send a heartbeat if the activity has written the file again."""
        heartbeats = self._context.heartbeats
        try:
            found = os.stat("heartbeat", dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return
        version = found.st_mtime_ns, found.st_size, found.st_ino
        if version == self._last_heartbeat_file or heartbeats is None:
            return
        try:
            text = self._read("heartbeat")
            heartbeats.beat(decode_output(text))
        except CancelledError:
            self._write_cancelled()
        except (OSError, ValueError, TypeError, PayloadTooLargeError) as error:
            self._log_once(f"The heartbeat could not be forwarded: {error}")
            return
        self._last_heartbeat_file = version

    def _write_cancelled(self) -> None:
        """Write the file that requests the activity to stop. It is renamed into place, so that nobody reads a partial file."""
        reason = self._context.cancelled() or ""
        try:
            with suppress(FileNotFoundError):
                os.unlink(".cancelled", dir_fd=self._folder)
            with os.fdopen(os.open(".cancelled", _WRITE, 0o666, dir_fd=self._folder), "w", encoding="utf-8") as file:
                file.write(reason + "\n")
            os.replace(".cancelled", "cancelled", src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError as error:
            self._log_once(f"The cancellation could not be passed to the activity: {error}")

    def _deliver_result(self) -> int:
        heartbeats = self._context.heartbeats
        if heartbeats is not None:
            heartbeats.flush(3.0)
        try:
            text = self._read("result")
        except FileNotFoundError:
            return 0  # the operator uses the termination message of the activity's container
        except PayloadTooLargeError as error:
            return self._fail(error)
        except (OSError, ValueError) as error:
            return self._fail(ApplicationError(f"the result cannot be read: {error}", type="ResultMissing"))
        try:
            text = encode(decode_output(text))
            if len(text.encode()) <= self._context.message_limit:
                self._context.write_message(text)
            elif heartbeats is None or len(text.encode()) > _LARGEST_RESULT:
                size = len(text.encode())
                message = f"the result has {size} bytes, but the limit is {_LARGEST_RESULT}: {LARGE_RESULTS}"
                raise PayloadTooLargeError(message)  # noqa: TRY301 - reported like the others
            else:
                heartbeats.write_result(text, drop_details=True)
        except SupersededError:
            return 0  # the run no longer waits for it
        except Exception as error:  # noqa: BLE001 - every error must be reported to the operator
            return self._fail(error)
        return 0

    def _fail(self, error: Exception) -> int:
        self._context.write_message(error_document(error, self._context.message_limit))
        return 1

    def _read(self, name: str) -> str:
        """Read a file.

        Raises:
            OSError: The file does not exist, or is not a regular file.
            PayloadTooLargeError: The file is too large to pass on.
            UnicodeDecodeError: The file is not text.
        """
        try:
            opened = os.open(name, _READ, dir_fd=self._folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(_NO_FILE.format(name)) from None
            raise
        with os.fdopen(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise OSError(_NO_FILE.format(name))
            held = file.read(_LARGEST_FILE + 1)
        if len(held) > _LARGEST_FILE:
            message = f"`{name}` has more than {_LARGEST_FILE} bytes: pass a reference to the data instead"
            raise PayloadTooLargeError(message)
        return held.decode()

    def _log_once(self, message: str) -> None:
        """Log a message once, not each time the problem is seen."""
        if message != self._last_message:
            self._last_message = message
            sys.stderr.write(message + "\n")


def main() -> None:
    """Entry point of the sidecar's container: `python -m perdure.activity.sidecar`."""
    # SIGTERM is blocked in all threads and waited for: a handler that sets an Event can deadlock with the interrupted wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    sys.exit(SidecarLoop(current(), os.environ).run())


if __name__ == "__main__":
    main()
