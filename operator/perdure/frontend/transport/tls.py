"""TLS of the frontend: the source of its certificate, and how clients get the authorities to trust.

The operator's own certificate is stored in a Secret, which the chart creates empty. The authorities to trust are published as a
ConfigMap in each served namespace, so that pods can mount it.
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
from perdure.frontend.settings import Settings
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.lazy import lazily
from perdure.observe import metrics

with lazily():  # 10 MB that operators without a certificate of their own do without
    from perdure.frontend.transport import certificates

_EVERY_SECONDS = 20.0
"""Seconds between publications, after which a pod in a new namespace can mount the authorities."""
_RETRY_SECONDS = 2.0
_TRIES = 15
"""Timeout for reading the Secret first: permissions take a moment to apply after an installation."""
CA = "ca.crt"


@dataclass(frozen=True, slots=True)
class Material:
    """The certificates and keys for a server's TLS handshakes, as PEM."""

    key: bytes
    certificate: bytes
    clients: bytes | None
    """Authorities of client certificates; None: clients need no certificate."""

    def configuration(self) -> Any:
        """The configuration for gRPC."""
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.clients)

    def context(self) -> ssl.SSLContext:
        """The SSL context for asyncio."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        # OpenSSL reads keys only from files; this file is in memory.
        with os.fdopen(os.memfd_create("certificate"), "wb") as file:
            file.write(self.certificate + b"\n" + self.key)
            file.flush()
            made.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        if self.clients is not None:
            made.load_verify_locations(cadata=self.clients.decode("ascii"))
            made.verify_mode = ssl.CERT_REQUIRED
        return made


class Certificate(Protocol):
    """The source of a certificate."""

    def material(self) -> Material:
        """Return the certificate to serve from now on."""

    def bundle(self) -> str:
        """The authorities that clients should trust, as PEM; empty if unknown."""

    async def renew(self) -> None:
        """Replace the certificate if necessary."""


@dataclass(frozen=True, slots=True)
class Files:
    """A certificate in files that another program renews, such as a mounted Secret."""

    certificate: Path
    key: Path
    clients: Path | None
    """File with the authorities of client certificates."""

    def material(self) -> Material:
        """Read the current files."""
        clients = self.clients.read_bytes() if self.clients else None
        return Material(self.key.read_bytes(), self.certificate.read_bytes(), clients)

    def bundle(self) -> str:
        """Read cert-manager's file with the authorities next to the certificate."""
        authority = self.certificate.with_name(CA)
        return authority.read_text(encoding="ascii") if authority.exists() else ""

    async def renew(self) -> None:
        """Do nothing."""


class OperatorCertificate:
    """A certificate in a Secret that the operator creates and renews with its own authority."""

    def __init__(self, client: kube.Client, secret: str, names: Sequence[str], clients: Path | None) -> None:
        """`secret` is the API path of the Secret; `names` are the names and addresses that clients connect to."""
        self._client = client
        self._secret = secret
        self._names = names
        self._clients = clients
        self._data: dict[str, bytes] = {}

    def material(self) -> Material:
        """Return the stored certificate."""
        clients = self._clients.read_bytes() if self._clients else None
        return Material(self._data[certificates.TLS_KEY], self._data[certificates.TLS_CERT], clients)

    def bundle(self) -> str:
        """Return the stored authorities."""
        return certificates.bundle(self._data) if self._data else ""

    async def renew(self) -> None:
        """Read the Secret, and replace missing or expiring parts.

        Raises:
            ApiError: The Secret does not exist, or the operator may not read or write it.
        """
        while True:
            found = await self._client.get(self._secret)
            stored = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
            made = certificates.renewed(stored, self._names, now())
            if made != stored:
                data = {key: base64.b64encode(value).decode() for key, value in made.items()}
                try:
                    await self._client.replace(self._secret, {**found, "data": data})
                except kube.ConflictError:
                    continue  # another operator was first; use its certificate
                structlog.get_logger("perdure.frontend").info("Renewed the TLS certificate", secret=self._secret)
            self._data = made
            return

    async def first(self) -> None:
        """Ensure that a certificate exists.

        Raises:
            RuntimeError: The Secret cannot be read or written; the message says what to do.
        """
        for left in reversed(range(_TRIES)):
            try:
                await self.renew()
            except kube.RequestError as error:
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
    """Keeps a ConfigMap with the authorities in every served namespace."""

    def __init__(
        self, client: kube.Client, name: str, operator_namespace: str, served: ServedNamespaces | None
    ) -> None:
        """Create it.

        Args:
            client: Reads and writes the ConfigMaps.
            name: The name of the ConfigMap.
            operator_namespace: The operator's namespace.
            served: The other namespaces; None: no others.
        """
        self._client = client
        self._name = name
        self._operator_namespace = operator_namespace
        self._others = served

    async def publish(self, bundle: str) -> None:
        """Write missing and outdated ConfigMaps."""
        wanted = {self._operator_namespace, *(await self._served())}
        found = {each["metadata"]["namespace"]: each async for each in self._found(wanted)}
        for namespace in sorted(wanted):
            known = found.get(namespace)
            if known is not None and (known.get("data") or {}).get(CA) == bundle:
                continue
            try:
                await self._write(namespace, known, bundle)
            except (kube.AlreadyExistsError, kube.ConflictError):
                pass  # another operator was first; the next publication compares again
            except kube.RequestError as error:  # a terminating namespace, or a quota
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

    async def _found(self, namespaces: set[str]) -> AsyncIterator[kube.Object]:
        """List the ConfigMaps with the name. The permission is limited to this name, so lists must select it."""
        for namespace in [None] if self._others is not None and not self._others.names else sorted(namespaces):
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
async def encryption(
    settings: Settings, client: kube.Client, served: ServedNamespaces
) -> AsyncIterator["ServerCertificate | None"]:
    """Yield the certificate of the servers, and renew it within the block; None: serve without TLS.

    Args:
        settings: The settings.
        client: Reads and writes the Secret and the ConfigMaps.
        served: The namespaces whose clients must trust the certificate.

    Raises:
        RuntimeError: The Secret cannot be read or written.
    """
    clients = Path(settings.client_authority) if settings.client_authority else None
    certificate: Certificate
    if settings.secret:
        secret = kube.path(kube.CORE, settings.namespace, "secrets", settings.secret)
        certificate = created = OperatorCertificate(client, secret, settings.names, clients)
        await created.first()
    elif settings.certificate:
        certificate = Files(Path(settings.certificate), Path(settings.key), clients)
    else:
        yield None
        return
    trust = None
    if settings.authorities:
        trust = Trust(client, settings.authorities, settings.namespace, served if settings.publish else None)
    shown = ServerCertificate(certificate.material(), certificate.bundle())
    renewing = asyncio.create_task(_renew(certificate, shown, trust), name="certificates")
    try:
        yield shown
    finally:
        renewing.cancel()
        await asyncio.wait({renewing})


class ServerCertificate:
    """The certificate that servers present in their handshakes.

    At each handshake, gRPC requests a new configuration, from several threads, and replaces its own without a lock, so that
    simultaneous handshakes can crash the process. So a configuration is returned only once after each change.
    """

    def __init__(self, material: Material, bundle: str = "") -> None:
        """`bundle` has the authorities that signed the certificate, as PEM; empty if unknown."""
        self.material = material
        self._bundle = bundle
        self._changed: deque[Material] = deque(maxlen=1)
        self._twins: list[ServerCertificate] = []

    def for_members(self) -> "ServerCertificate":
        """Return a copy for the server of other operators, which share the certificate and need no client certificate."""
        twin = ServerCertificate(replace(self.material, clients=None), self._bundle)
        self._twins.append(twin)
        return twin

    @property
    def trusted(self) -> bytes:
        """The certificates that operators with the same certificate trust, as PEM: its authorities, and itself."""
        return self._bundle.encode("ascii") + b"\n" + self.material.certificate

    @property
    def name(self) -> str:
        """A name in the certificate; empty if it has none."""
        return certificates.name_in(self.material.certificate)

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
        """Serve another certificate, starting with the next handshake."""
        self._bundle = bundle
        if material != self.material:
            self.material = material
            self._changed.append(material)
        for twin in self._twins:
            twin.update(replace(material, clients=None), bundle)

    def fetch(self) -> Any:
        """Return the configuration for gRPC's next handshake; None if nothing has changed."""
        try:
            return self._changed.popleft().configuration()
        except IndexError:
            return None


class _RenewedContext(ssl.SSLContext):
    """Uses the current context for each connection, because authorities cannot be removed from a context."""

    _served: ServerCertificate
    _material: Material
    _current: ssl.SSLContext

    def __new__(cls, served: ServerCertificate) -> Self:
        """Create a context that uses the certificate of `served`."""
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


async def _renew(certificate: Certificate, served: ServerCertificate, trust: Trust | None) -> None:
    """Renew the certificate in time, and publish the authorities to trust."""
    while True:
        try:
            await certificate.renew()
            bundle = certificate.bundle()
            served.update(certificate.material(), bundle)
            metrics.CERTIFICATE_EXPIRY.set(certificates.expiry_of(served.material.certificate).timestamp())
            if trust is not None and bundle:
                await trust.publish(bundle)
        except kube.RequestError as error:
            structlog.get_logger("perdure.frontend").warning(
                "The TLS certificate could not be checked", error=repr(error)
            )
        except ValueError as error:
            structlog.get_logger("perdure.frontend").warning("The TLS certificate cannot be read", error=repr(error))
        await asyncio.sleep(_EVERY_SECONDS)
