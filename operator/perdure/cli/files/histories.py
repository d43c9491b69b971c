"""Histories in files: as `history -o json` writes them, or in a file of the archive, which can be compressed."""

import gzip
import json
import sys
import zlib
from pathlib import Path
from typing import Any

from perdure.api import state_versions
from perdure.api.json_values import mapping, mappings
from perdure.archive.rows import OMITTED
from perdure.client.errors import CliError
from perdure.runtime import status_encoding


def read_text(file: str) -> str:
    """Read a file, or standard input for `-`.

    Raises:
        CliError: It cannot be read.
    """
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {error}") from error


def events_in(content: str, source: str) -> list[dict[str, Any]]:
    """Return the events of a history.

    Args:
        content: JSON: the history, or two lines as in a file of the archive, of which the last one is a WorkflowRun.
        source: The source, for messages.

    Raises:
        CliError: The text is not a history, or the archive has the run without its history.
    """
    try:
        data = json.loads(content.rstrip().rpartition("\n")[2] if _is_archived(content) else content)
    except ValueError as error:
        raise CliError(f"{source} is not a valid history ({error}); write it with `history --output json`") from error
    if isinstance(data, dict) and data.get("kind") == "WorkflowRun":
        status = mapping(status_encoding.decode(data).get("status"))
        if why := state_versions.unreadable(state_versions.version_of(status), state_versions.NEWEST):
            raise CliError(f"a newer version of Perdure has written {source} ({why}); update `perdure`")
        data = mapping(status.get("history"))
        if OMITTED in data:
            raise CliError(f"{source} has the run without its history, which exceeded `archive.maxHistoryMiB`")
    found = data.get("events") if isinstance(data, dict) else data
    if not isinstance(found, list) or len(mappings(found)) < len(found):
        raise CliError(f"{source} is not a valid history (no list of events); write it with `history --output json`")
    return found


def _is_archived(content: str) -> bool:
    """Whether a text has the two lines of a file of the archive."""
    first, _, rest = content.partition("\n")
    return first.startswith("{") and first.endswith("}") and rest.startswith("{")
