"""Reads archived logs by means of pods, which get the credentials of the artifact store from its Secret."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from typing import TYPE_CHECKING, Final

from perdure.api.json_values import mapping
from perdure.api.labels import IMAGE_ANNOTATION
from perdure.api.names import artifact_set_name, attempt_in, log_key
from perdure.client.errors import CliError, NotFoundError
from perdure.runtime.pods.artifacts import build_store_pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from perdure.client.cluster import Cluster
    from perdure.view.run import RunView

_LOGS_PER_POD: Final = 500
"""The most logs that one pod sends: it gets their keys in a variable, which has at most 128 KiB."""
_SECONDS: Final = 180
_GZIP: Final = 31
_MAX_LOG_SIZE: Final = 16 * 1024 * 1024
"""The most bytes of a log that are unpacked; archived logs have at most 10 MiB."""


class ArchivedLogError(Exception):
    """An archived log cannot be read; the message says why."""


class ArchivedLogs:
    """The archived logs of one run."""

    def __init__(self, cluster: Cluster, run: RunView, *, logs_per_pod: int = _LOGS_PER_POD) -> None:
        self._cluster = cluster
        self._run = run
        self._logs_per_pod = logs_per_pod

    async def read(self, pods: Iterable[str]) -> dict[str, list[str] | ArchivedLogError]:
        """Read logs.

        Args:
            pods: The names of the pods that wrote them.

        Returns:
            The lines of each log, or the reason why it cannot be read, by the name of its pod; nothing about logs that are not
            archived.

        Raises:
            CliError: The user may not read them, or the store cannot be used.
        """
        try:
            artifacts = await self._cluster.read("ArtifactSet", "artifactsets", artifact_set_name(self._run.uid))
        except NotFoundError:
            return {}
        image = mapping(artifacts["metadata"].get("annotations")).get(IMAGE_ANNOTATION)
        if image is None:
            return {}
        keys = {log_key(self._run.namespace, self._run.uid, *attempt_in(pod)): pod for pod in pods}
        found: dict[str, list[str] | ArchivedLogError] = {}
        for store in artifacts["spec"]["stores"]:
            left = [key for key, pod in keys.items() if pod not in found]
            while left:
                answers = objects_in(await self._send(store, left[: self._logs_per_pod], image))
                if not answers:
                    raise CliError("the pod that reads archived logs has sent nothing")
                for key, answer in answers.items():
                    if key in keys and answer is not None:
                        found[keys[key]] = self._checked(key, answer)
                left = [key for key in left if key not in answers]
        return found

    async def _send(self, store: str, keys: Sequence[str], image: str) -> list[bytes]:
        pod = build_store_pod(
            {"generateName": "perdure-logs-", "namespace": self._run.namespace},
            "log_export",
            store,
            {"PERDURE_KEYS": json.dumps(keys)},
            image=image,
            seconds=_SECONDS,
        )
        return await self._cluster.one_time_pods.output(pod)

    def _checked(self, key: str, answer: bytes | ArchivedLogError) -> list[str] | ArchivedLogError:
        """Return the lines of an object, if it has the recorded hash."""
        if isinstance(answer, ArchivedLogError):
            return answer
        recorded = next((each for each in self._recorded() if each.get("key") == key), {})
        if recorded and hashlib.sha256(answer).hexdigest() != recorded.get("sha256"):
            return ArchivedLogError(f"the SHA-256 of the object `{key}` is not the recorded one: it was changed")
        try:
            text = zlib.decompressobj(wbits=_GZIP).decompress(answer, _MAX_LOG_SIZE)
        except zlib.error as error:
            return ArchivedLogError(f"the object `{key}` is not a log: {error}")
        return text.decode(errors="replace").removesuffix("\n").split("\n") if text else []

    def _recorded(self) -> Iterator[Mapping[str, object]]:
        yield from map(mapping, mapping(self._run.artifacts).values())


def objects_in(lines: Iterable[bytes]) -> dict[str, bytes | ArchivedLogError | None]:
    """Read the log of a pod that sends logs: the object of each key, the reason for its absence, or None if it does not exist."""
    answers: dict[str, bytes | ArchivedLogError | None] = {}
    key, parts = "", list[bytes]()
    try:
        for line in lines:
            if not line.startswith(b"{"):
                parts.append(base64.b64decode(line, validate=True))
                continue
            if key:
                answers[key] = b"".join(parts)
            header = json.loads(line)
            key, parts = header.get("found", ""), []
            if "missing" in header:
                answers[header["missing"]] = None
            elif "failed" in header:
                answers[header["failed"]] = ArchivedLogError(header["error"])
            elif "large" in header:
                why = f"it is too large for this command; read `{header['large']}` from the bucket"
                answers[header["large"]] = ArchivedLogError(why)
    except (binascii.Error, ValueError) as error:
        raise CliError(f"the pod that reads archived logs has sent something else: {error}") from error
    if key:
        answers[key] = b"".join(parts)
    return answers
