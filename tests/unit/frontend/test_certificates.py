"""The generated certificate of the frontend: its rotation, and the clients that trust it."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import trustme
from cryptography import x509
from structlog.testing import capture_logs

from perdure.controller.namespaces import ServedNamespaces
from perdure.frontend.server import serve
from perdure.frontend.settings import Settings
from perdure.frontend.transport.certificates import bundle, expiry_of, renewed
from perdure.frontend.transport.tls import Material, OperatorCertificate, ServerCertificate, Trust, encryption
from perdure.kube import client as kube
from perdure.kube.clock import now
from support.managers import client_without_server, frontend_over

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("perdure-temporal.perdure-system", "localhost", "127.0.0.1")
SECRET = "/api/v1/namespaces/perdure-system/secrets/perdure-temporal-tls"


def after(days: int) -> datetime:
    return BEGIN + timedelta(days=days)


def read(made: dict[str, bytes], key: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(made[key])


def authorities(made: dict[str, bytes]) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(bundle(made).encode())


def test_a_certificate_has_the_names_and_is_signed_by_the_authority() -> None:
    made = renewed({}, NAMES, BEGIN)
    certificate = read(made, "tls.crt")
    certificate.verify_directly_issued_by(read(made, "ca.crt"))
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert named.get_values_for_type(x509.DNSName) == ["perdure-temporal.perdure-system", "localhost"]
    assert [str(address) for address in named.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert renewed(made, NAMES, after(59)) == made


def test_a_certificate_is_replaced_a_month_before_its_end_by_the_same_authority() -> None:
    made = renewed({}, NAMES, BEGIN)
    later = renewed(made, NAMES, after(61))
    assert later["tls.crt"] != made["tls.crt"]
    assert bundle(later) == bundle(made)


@pytest.mark.parametrize(
    "damage",
    [
        {"tls.key": b""},
        {"tls.crt": b"x"},
        {"tls.key": None},
        {"ca.key": None},
        {"ca.crt": b"-----BEGIN CERTIFICATE-----"},
    ],
    ids=str,
)
def test_missing_or_damaged_parts_are_replaced(damage: dict[str, bytes | None]) -> None:
    made = renewed({}, NAMES, BEGIN)
    damaged = {key: value for key, value in {**made, **damage}.items() if value is not None}
    again = renewed(damaged, NAMES, BEGIN)
    read(again, "tls.crt").verify_directly_issued_by(read(again, "ca.crt"))
    assert again["tls.crt"] != made["tls.crt"]
    assert (again["ca.crt"] == made["ca.crt"]) == (not any(key.startswith("ca.") for key in damage))


def test_the_end_of_a_certificate_is_that_of_the_first_in_its_file() -> None:
    made = renewed({}, NAMES, BEGIN)
    assert expiry_of(made["tls.crt"] + made["ca.crt"]) == read(made, "tls.crt").not_valid_after_utc


def test_additional_names_cause_a_new_certificate() -> None:
    made = renewed({}, NAMES, BEGIN)
    assert renewed(made, (*NAMES, "flows.example.com"), BEGIN)["tls.crt"] != made["tls.crt"]


def test_bundles_of_the_last_year_trust_the_certificate_for_thirty_years() -> None:
    made: dict[str, bytes] = {}
    bundles: list[tuple[datetime, list[x509.Certificate]]] = []
    signers = set()
    for day in range(0, 365 * 30, 20):
        time = after(day)
        made = renewed(made, NAMES, time)
        bundles = [
            *((since, known) for since, known in bundles if time - since < timedelta(days=365)),
            (time, authorities(made)),
        ]
        certificate = read(made, "tls.crt")
        assert certificate.not_valid_before_utc <= time < certificate.not_valid_after_utc - timedelta(days=9)
        signers.add(certificate.issuer)
        for _, known in bundles[:1]:
            (signer,) = [each for each in known if each.subject == certificate.issuer]
            certificate.verify_directly_issued_by(signer)
            assert time < signer.not_valid_after_utc
    assert len(signers) == 4


def test_grpc_gets_a_new_configuration_once_after_a_change() -> None:
    made = renewed({}, NAMES, BEGIN)
    first = Material(made["tls.key"], made["tls.crt"], None)
    served = ServerCertificate(first)
    assert served.fetch() is None
    served.update(first)
    assert served.fetch() is None
    later = renewed({}, NAMES, BEGIN)
    served.update(Material(later["tls.key"], later["tls.crt"], None))
    assert served.fetch() is not None
    assert served.fetch() is None


class Store:
    """Secrets, ConfigMaps and namespaces of an API server, with resourceVersions."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.interrupt: dict[str, Any] | None = None
        self.lists = self

    def put(self, url: str, body: dict[str, Any]) -> None:
        meta = {**body.get("metadata", {}), "resourceVersion": str(len(self.writes))}
        self.objects[url] = {**body, "metadata": meta}

    async def get(self, url: str) -> dict[str, Any]:
        return self.objects[url]

    async def all(self, url: str, **_: str) -> list[dict[str, Any]]:
        kind = url.rpartition("/")[2]
        return [each for key, each in self.objects.items() if key.split("/")[-2] == kind]

    async def create(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        where = f"{url}/{body['metadata']['name']}"
        if where in self.objects:
            raise kube.AlreadyExistsError(409, "AlreadyExists", "exists")
        self.writes.append(url)
        self.put(where, body)
        return body

    async def replace(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.interrupt is not None:
            other, self.interrupt = self.interrupt, None
            self.writes.append(url)
            self.put(url, other)
        if body["metadata"]["resourceVersion"] != self.objects[url]["metadata"]["resourceVersion"]:
            raise kube.ConflictError(409, "Conflict", "changed")
        self.writes.append(url)
        self.put(url, body)
        return body


async def test_two_operators_agree_on_one_certificate() -> None:
    store = Store()
    store.put(SECRET, {"metadata": {"name": "perdure-temporal-tls"}})
    other = renewed({}, NAMES, now())
    store.interrupt = {"data": {key: base64.b64encode(value).decode() for key, value in other.items()}}
    certificate = OperatorCertificate(store, SECRET, NAMES, None)  # type: ignore[arg-type]
    await certificate.renew()
    assert certificate.material() == Material(other["tls.key"], other["tls.crt"], None)
    assert certificate.bundle() == bundle(other)
    assert len(store.writes) == 1


async def test_the_bundle_is_written_only_to_namespaces_where_it_differs() -> None:
    store = Store()
    for name in ("a", "b", "own-1", "perdure-system"):
        store.put(f"/api/v1/namespaces/{name}", {"metadata": {"name": name}})
    store.put("/api/v1/namespaces/c", {"metadata": {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    meta = {"name": "perdure-temporal-ca", "namespace": "perdure-system"}
    store.put("/api/v1/namespaces/perdure-system/configmaps/perdure-temporal-ca", {"metadata": meta})
    trust = Trust(store, "perdure-temporal-ca", "perdure-system", ServedNamespaces(excluded=("own-*",)))  # type: ignore[arg-type]
    await trust.publish("first")
    assert len(store.writes) == 3
    await trust.publish("first")
    assert len(store.writes) == 3
    await trust.publish("second")
    found = {url.split("/")[4]: each["data"]["ca.crt"] for url, each in store.objects.items() if "/configmaps/" in url}
    assert found == {"a": "second", "b": "second", "perdure-system": "second"}


@pytest.mark.parametrize("exists", [False, True], ids=["created", "replaced"])
async def test_an_operator_that_is_not_the_first_to_publish_does_not_warn(exists: bool) -> None:
    store = Store()
    url = "/api/v1/namespaces/perdure-system/configmaps/perdure-temporal-ca"
    if exists:
        store.put(url, {"metadata": {"name": "perdure-temporal-ca", "namespace": "perdure-system"}})
        store.writes.append(url)
    first, second = (Trust(store, "perdure-temporal-ca", "perdure-system", None) for _ in range(2))  # type: ignore[arg-type]
    listed = store.all

    async def overtaken(url: str, **query: str) -> list[dict[str, Any]]:
        found = await listed(url, **query)
        store.all = listed  # type: ignore[method-assign]
        await first.publish("bundle")
        return found

    store.all = overtaken  # type: ignore[method-assign]
    with capture_logs() as logs:
        await second.publish("bundle")
    assert (logs, store.objects[url]["data"]) == ([], {"ca.crt": "bundle"})


# --- By real handshakes -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def listening(credentials: grpc.ServerCredentials) -> AsyncIterator[str]:
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def reached(address: str, trusted: str, *, key: bytes | None = None, chain: bytes | None = None) -> bool:
    """Whether a new connection succeeds."""
    credentials = grpc.ssl_channel_credentials(trusted.encode(), key, chain)
    async with grpc.aio.secure_channel(address, credentials, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            await channel.unary_unary("/any/Method")(b"", timeout=60)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED
    return True


async def test_a_new_certificate_is_served_without_a_restart() -> None:
    time = now()
    first, second = renewed({}, NAMES, time), renewed({}, NAMES, time)
    served = ServerCertificate(Material(first["tls.key"], first["tls.crt"], None))
    credentials = grpc.dynamic_ssl_server_credentials(served.material.configuration(), served.fetch)
    async with listening(credentials) as address:
        assert await reached(address, bundle(first))
        assert not await reached(address, bundle(second))
        served.update(Material(second["tls.key"], second["tls.crt"], None))
        assert await reached(address, bundle(second))
        assert not await reached(address, bundle(first))


async def test_client_certificates_are_required_if_a_client_ca_is_set(tmp_path: Path) -> None:
    server, authority = trustme.CA(), trustme.CA()
    pair, mine = server.issue_cert("127.0.0.1"), authority.issue_cert("worker")
    pair.private_key_pem.write_to_path(tmp_path / "tls.key")
    pair.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    authority.cert_pem.write_to_path(tmp_path / "clients.crt")
    chosen = Settings(
        certificate=str(tmp_path / "tls.crt"),
        key=str(tmp_path / "tls.key"),
        client_authority=str(tmp_path / "clients.crt"),
    )
    trusted = server.cert_pem.bytes().decode()
    async with encryption(chosen, Store(), ServedNamespaces()) as shown, listening(shown.credentials()) as address:  # type: ignore[arg-type]
        key, chain = mine.private_key_pem.bytes(), mine.cert_chain_pems[0].bytes()
        assert await reached(address, trusted, key=key, chain=chain)
        assert not await reached(address, trusted)
        other = server.issue_cert("worker")
        key, chain = other.private_key_pem.bytes(), other.cert_chain_pems[0].bytes()
        assert not await reached(address, trusted, key=key, chain=chain)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
async def test_authentication_without_tls_is_rejected(address: str) -> None:
    async with client_without_server() as client:
        frontend = frontend_over(client, Settings())
        with pytest.raises(ValueError, match="PERDURE_TEMPORAL_TLS=None"):
            async with serve(frontend, address):
                pass
