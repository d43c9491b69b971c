"""Create and replace the frontend's own certificate authority and certificate. Pure except for new keys.

Each authority is announced long before it signs a certificate, and each certificate is replaced long before it expires::

    authority 1   |----------------------------- 10 years -----------------------------|
    authority 2                                              |-- announced --|-- signs --...
    certificate     |--- 90 days ---|
    certificate               |--- 90 days ---|

Clients need the bundle, which has all signing and announced authorities. A client with an older bundle works for at least a year
after the next authority was announced.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_AUTHORITY_LASTS = timedelta(days=3_650)
_ANNOUNCED_BEFORE_END = timedelta(days=730)
"""Remaining validity of an authority when the next one is announced."""
_SIGNS_BEFORE_END = timedelta(days=365)
"""Remaining validity of an authority when the next one starts to sign."""
_CERTIFICATE_LASTS = timedelta(days=90)
_RENEWED_BEFORE_END = timedelta(days=30)
_EARLIER = timedelta(hours=1)
"""How long before their creation certificates become valid, because clocks differ."""

CA_CERT, CA_KEY = "ca.crt", "ca.key"
NEXT_CERT, NEXT_KEY = "next-ca.crt", "next-ca.key"
TLS_CERT, TLS_KEY = "tls.crt", "tls.key"

Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def renewed(stored: Mapping[str, bytes], names: Sequence[str], time: datetime) -> dict[str, bytes]:
    """Replace missing, damaged, and expiring parts.

    Args:
        stored: The stored certificates and keys as PEM, by the keys of the Secret.
        names: DNS names and IP addresses that clients connect to.
        time: The current time.

    Returns:
        All certificates and keys; equal to `stored` if nothing was replaced.
    """
    made = {key: stored[key] for key in (CA_CERT, CA_KEY, NEXT_CERT, NEXT_KEY, TLS_CERT, TLS_KEY) if key in stored}
    authority = _pair(made, CA_CERT, CA_KEY, time)
    following = _pair(made, NEXT_CERT, NEXT_KEY, time)
    if authority is None or _remaining(authority, time) < _SIGNS_BEFORE_END:
        authority, following = following or _new_authority(time), None
    if following is None and _remaining(authority, time) < _ANNOUNCED_BEFORE_END:
        following = _new_authority(time)
    certificate = _pair(made, TLS_CERT, TLS_KEY, time)
    if certificate is None or not _serves(certificate, authority, names, time):
        certificate = _new_certificate(authority, names, time)
    return {
        **_pem(CA_CERT, CA_KEY, authority),
        **(_pem(NEXT_CERT, NEXT_KEY, following) if following is not None else {}),
        **_pem(TLS_CERT, TLS_KEY, certificate),
    }


def bundle(stored: Mapping[str, bytes]) -> str:
    """The certificates of all authorities that clients should trust, as PEM."""
    return (stored[CA_CERT] + stored.get(NEXT_CERT, b"")).decode("ascii")


def name_in(certificate: bytes) -> str:
    """A DNS name or IP address of a certificate; empty if there is none.

    Args:
        certificate: The certificate as PEM, which may be followed by its chain.
    """
    try:
        found = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except (ValueError, x509.ExtensionNotFound):
        return ""
    names = found.value.get_values_for_type(x509.DNSName)
    addresses = found.value.get_values_for_type(x509.IPAddress)
    return next(iter((*names, *map(str, addresses))), "")


def expiry_of(certificate: bytes) -> datetime:
    """When a certificate expires.

    Args:
        certificate: The certificate as PEM, which may be followed by its chain.

    Raises:
        ValueError: It is not a certificate.
    """
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _pair(stored: Mapping[str, bytes], cert: str, key: str, time: datetime) -> Pair | None:
    """A valid certificate and its key; None if there is none."""
    try:
        certificate = x509.load_pem_x509_certificate(stored[cert])
        private = serialization.load_pem_private_key(stored[key], password=None)
    except (KeyError, ValueError, TypeError):
        return None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != certificate.public_key():
        return None
    valid = certificate.not_valid_before_utc <= time < certificate.not_valid_after_utc
    return (certificate, private) if valid else None


def _remaining(pair: Pair, time: datetime) -> timedelta:
    return pair[0].not_valid_after_utc - time


def _serves(pair: Pair, authority: Pair, names: Sequence[str], time: datetime) -> bool:
    """Whether a certificate is signed by an authority, covers these names, and does not expire soon."""
    certificate = pair[0]
    try:
        certificate.verify_directly_issued_by(authority[0])
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return _remaining(pair, time) >= _RENEWED_BEFORE_END and set(found) == set(_names(names))


def _new_authority(time: datetime) -> Pair:
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Perdure {time:%Y-%m-%d}")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(name, name, private, time, _AUTHORITY_LASTS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    return builder.sign(private, hashes.SHA256()), private


def _new_certificate(authority: Pair, names: Sequence[str], time: datetime) -> Pair:
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Perdure's Temporal frontend")])
    issuer, signing = authority
    lasts = min(_CERTIFICATE_LASTS, _remaining(authority, time))
    builder = _builder(subject, issuer.subject, private, time, lasts)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName(_names(names)), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
    )
    return builder.sign(signing, hashes.SHA256()), private


def _builder(
    subject: x509.Name, issuer: x509.Name, private: ec.EllipticCurvePrivateKey, time: datetime, lasts: timedelta
) -> x509.CertificateBuilder:
    public = private.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(time - _EARLIER)
        .not_valid_after(time + lasts)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _names(names: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _pem(cert: str, key: str, pair: Pair) -> dict[str, bytes]:
    certificate, private = pair
    encoded = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {cert: certificate.public_bytes(serialization.Encoding.PEM), key: encoded}
