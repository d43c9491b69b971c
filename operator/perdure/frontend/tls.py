"""TLS of the frontend: the source of its certificate, and how clients get the authorities to trust.

A certificate of its own is stored in one Secret, which the chart creates empty. What clients should trust is published as a
ConfigMap in each namespace that is served, so that pods can mount it.
"""

import asyncio
import base64
import os
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import grpc
import structlog

from perdure.controller.namespaces import ServedNamespaces
from perdure.frontend.configuration import Settings
from perdure.kube import client as kube
from perdure.kube.clock import now

_EVERY_SECONDS = 20.0
"""How soon a pod in a new namespace can mount the authorities."""
_RETRY_SECONDS = 2.0
_TRIES = 15
"""Timeout for reading the Secret first: permissions take a moment to apply after an installation."""
CA = "ca.crt"


@dataclass(frozen=True, slots=True)
class Material:
    """What a server needs for its handshakes, PEM."""

    key: bytes
    certificate: bytes
    clients: bytes | None
    """Authorities of the certificates that clients must show; None: they need none."""

    def configuration(self) -> Any:
        """The configuration for gRPC."""
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.clients)

    def context(self) -> ssl.SSLContext:
        """The SSL context for asyncio."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        # OpenSSL reads keys from files only: this one is in memory.
        with os.fdopen(os.memfd_create("certificate"), "wb") as file:
            file.write(self.certificate + b"\n" + self.key)
            file.flush()
            made.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        if self.clients is not None:
            made.load_verify_locations(cadata=self.clients.decode("ascii"))
            made.verify_mode = ssl.CERT_REQUIRED
        return made


class Certificate(Protocol):
    """Where a certificate comes from."""

    def material(self) -> Material:
        """Return the certificate to serve from now on."""

    def bundle(self) -> str:
        """The authorities that clients should trust, PEM; empty where that is not known."""

    async def renew(self) -> None:
        """Replace the certificate if necessary."""


@dataclass(frozen=True, slots=True)
class Files:
    """A certificate that someone else renews in files, such as those of a mounted Secret."""

    certificate: Path
    key: Path
    clients: Path | None
    """Authorities of the certificates that clients must show."""

    def material(self) -> Material:
        """The files, as they are now."""
        clients = self.clients.read_bytes() if self.clients else None
        return Material(self.key.read_bytes(), self.certificate.read_bytes(), clients)

    def bundle(self) -> str:
        """The file next to the certificate in which cert-manager stores the authorities."""
        beside = self.certificate.with_name(CA)
        return beside.read_text(encoding="ascii") if beside.exists() else ""

    async def renew(self) -> None:
        """Nothing to do."""


class Own:
    """A certificate that the operator makes and renews, with an authority of its own, in a Secret."""

    def __init__(self, client: kube.Client, secret: str, names: Sequence[str], clients: Path | None) -> None:
        """`secret` is the Secret's path in the API; `names` are what clients connect to."""
        self._client = client
        self._secret = secret
        self._names = names
        self._clients = clients
        self._data: dict[str, bytes] = {}

    def material(self) -> Material:
        """The certificate that is stored."""
        from perdure.frontend.certificates import TLS_CERT, TLS_KEY  # noqa: PLC0415 (10 MB that others do without)

        clients = self._clients.read_bytes() if self._clients else None
        return Material(self._data[TLS_KEY], self._data[TLS_CERT], clients)

    def bundle(self) -> str:
        """The authorities that are stored."""
        from perdure.frontend.certificates import bundle  # noqa: PLC0415

        return bundle(self._data) if self._data else ""

    async def renew(self) -> None:
        """Read the Secret, and replace in it what is missing or about to end.

        Raises:
            ApiError: There is no such Secret, or it may not be read or written.
        """
        from perdure.frontend.certificates import renewed  # noqa: PLC0415

        while True:
            found = await self._client.get(self._secret)
            stored = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
            made = renewed(stored, self._names, now())
            if made != stored:
                data = {key: base64.b64encode(value).decode() for key, value in made.items()}
                try:
                    await self._client.replace(self._secret, {**found, "data": data})
                except kube.ConflictError:
                    continue  # another operator was first; its certificate will do
                structlog.get_logger("perdure.frontend").info("Renewed the TLS certificate", secret=self._secret)
            self._data = made
            return

    async def first(self) -> None:
        """Ensure that there is a certificate.

        Raises:
            RuntimeError: The Secret cannot be read or written; the message says what to do.
        """
        for left in reversed(range(_TRIES)):
            try:
                await self.renew()
            except (kube.ApiError, *kube.TRANSIENT) as error:
                if not left:
                    raise RuntimeError(
                        f"the TLS certificate of the Temporal frontend could not be read or stored at {self._secret}: {error}. "
                        "Re-create the Secret and the operator's Role for it with `helm upgrade`, or set "
                        "temporal.tls.secretName to a Secret of your own"
                    ) from error
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return


class Trust:
    """Keeps a ConfigMap with the authorities in every namespace that is served."""

    def __init__(self, client: kube.Client, name: str, own: str, served: ServedNamespaces | None) -> None:
        """`name` is the ConfigMap's, `own` the operator's namespace, `served` which others have it, too; None: none."""
        self._client = client
        self._name = name
        self._own = own
        self._others = served

    async def publish(self, bundle: str) -> None:
        """Write the ConfigMaps that are missing or differ."""
        wanted = {self._own, *(await self._served())}
        found = {each["metadata"]["namespace"]: each async for each in self._found(wanted)}
        for namespace in sorted(wanted):
            known = found.get(namespace)
            if known is not None and (known.get("data") or {}).get(CA) == bundle:
                continue
            try:
                await self._write(namespace, known, bundle)
            except (kube.ApiError, *kube.TRANSIENT) as error:  # one that is being deleted, a quota: others have theirs
                structlog.get_logger("perdure.frontend").warning(
                    "The TLS authority could not be published",
                    namespace=namespace,
                    configmap=self._name,
                    error=repr(error),
                )

    async def _served(self) -> Iterable[str]:
        if self._others is None:
            return ()
        if self._others.names:
            return self._others.names
        found = await self._client.lists.all(f"{kube.CORE}/namespaces")
        names = (each["metadata"]["name"] for each in found if not each["metadata"].get("deletionTimestamp"))
        return (name for name in names if name in self._others)

    async def _found(self, wanted: set[str]) -> AsyncIterator[kube.Object]:
        """The ConfigMaps of that name. The rights are bound to the name, which such lists have to name, too."""
        for namespace in [None] if self._others is not None and not self._others.names else sorted(wanted):
            url = kube.path(kube.CORE, namespace, "configmaps")
            for each in await self._client.lists.all(url, fieldSelector=f"metadata.name={self._name}"):
                yield each

    async def _write(self, namespace: str, known: kube.Object | None, bundle: str) -> None:
        url = kube.path(kube.CORE, namespace, "configmaps")
        if known is not None:
            await self._client.replace(f"{url}/{self._name}", {**known, "data": {CA: bundle}})
            return
        meta = {"name": self._name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "perdure"}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {CA: bundle}}
        await self._client.create(url, body)


@asynccontextmanager
async def encryption(chosen: Settings, client: kube.Client, served: ServedNamespaces) -> AsyncIterator["Served | None"]:
    """The certificate of the servers, renewed for the length of the block; None to serve without TLS.

    Args:
        chosen: Settings.
        client: Reads and writes the Secret and the ConfigMaps.
        served: Where clients may run, who have to trust the certificate.

    Raises:
        RuntimeError: The Secret cannot be read or written.
    """
    clients = Path(chosen.client_authority) if chosen.client_authority else None
    certificate: Certificate
    if chosen.secret:
        secret = kube.path(kube.CORE, chosen.namespace, "secrets", chosen.secret)
        certificate = own = Own(client, secret, chosen.names, clients)
        await own.first()
    elif chosen.certificate:
        certificate = Files(Path(chosen.certificate), Path(chosen.key), clients)
    else:
        yield None
        return
    trust = None
    if chosen.authorities:
        trust = Trust(client, chosen.authorities, chosen.namespace, served if chosen.publish else None)
    shown = Served(certificate.material(), certificate.bundle())
    renewing = asyncio.create_task(_renew(certificate, shown, trust), name="certificates")
    try:
        yield shown
    finally:
        renewing.cancel()
        await asyncio.wait({renewing})


class Served:
    """The certificate that servers present in their handshakes.

    At each handshake, gRPC asks for a new configuration, from several threads, and replaces its own without a lock, so that
    simultaneous handshakes can crash the process. Therefore a configuration is returned only once after each change.
    """

    def __init__(self, material: Material, bundle: str = "") -> None:
        """`bundle` has the authorities that have signed the certificate, PEM; empty if they are not known."""
        self.material = material
        self._bundle = bundle
        self._changed: deque[Material] = deque(maxlen=1)
        self._twins: list[Served] = []

    def for_members(self) -> "Served":
        """The same for a further server, whose clients are other operators with the same certificate: they show none."""
        twin = Served(replace(self.material, clients=None), self._bundle)
        self._twins.append(twin)
        return twin

    @property
    def trusted(self) -> bytes:
        """What operators trust that have the same certificate, PEM: its authorities, and the certificate itself."""
        return self._bundle.encode("ascii") + b"\n" + self.material.certificate

    @property
    def name(self) -> str:
        """A name in the certificate; empty if it has none."""
        from perdure.frontend.certificates import name_in  # noqa: PLC0415 (10 MB that others do without)

        return name_in(self.material.certificate)

    def credentials(self) -> Any:
        """The credentials for a gRPC server."""
        return grpc.dynamic_ssl_server_credentials(
            self.material.configuration(),
            self.fetch,
            require_client_authentication=self.material.clients is not None,
        )

    def context(self) -> ssl.SSLContext:
        """The SSL context for an asyncio server."""
        return _RenewedContext(self)

    def update(self, material: Material, bundle: str = "") -> None:
        """Serve another certificate from the next handshake on."""
        self._bundle = bundle
        if material != self.material:
            self.material = material
            self._changed.append(material)
        for twin in self._twins:
            twin.update(replace(material, clients=None), bundle)

    def fetch(self) -> Any:
        """What gRPC asks at each handshake; None: nothing has changed."""
        try:
            return self._changed.popleft().configuration()
        except IndexError:
            return None


class _RenewedContext(ssl.SSLContext):
    """Makes each connection by the context of what is served at that time: a context cannot be told to forget an authority."""

    _served: Served
    _material: Material
    _current: ssl.SSLContext

    def __new__(cls, served: Served) -> Self:
        """Serve what `served` has."""
        made = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        made._served, made._material = served, served.material
        made._current = served.material.context()
        return made

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Begin a connection."""
        if self._served.material is not self._material:
            material = self._served.material
            self._material, self._current = material, material.context()
        return self._current.wrap_bio(*args, **kwargs)


async def _renew(certificate: Certificate, served: Served, trust: Trust | None) -> None:
    """Renew the certificate in time, and publish the authorities to trust."""
    while True:
        try:
            await certificate.renew()
            bundle = certificate.bundle()
            served.update(certificate.material(), bundle)
            if trust is not None and bundle:
                await trust.publish(bundle)
        except (kube.ApiError, *kube.TRANSIENT) as error:
            structlog.get_logger("perdure.frontend").warning(
                "The TLS certificate could not be checked", error=repr(error)
            )
        except ValueError as error:
            structlog.get_logger("perdure.frontend").warning("The TLS certificate cannot be read", error=repr(error))
        await asyncio.sleep(_EVERY_SECONDS)
