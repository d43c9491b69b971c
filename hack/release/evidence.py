"""What proves an artifact: checksums, provenance, and signatures with a key.

The signatures are those of ECDSA on P-256 with SHA-256, as `cosign verify-blob` and `openssl dgst` check them. They are
deterministic (RFC 6979), so the same key and the same artifacts give the same bytes.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from cluster.errors import ClusterError
from release.image import PlatformImage
from release.source import Source

CHECKSUMS = "SHA256SUMS"
PROVENANCE = "provenance.intoto.jsonl"
PUBLIC_KEY = "release.pub"

_STATEMENT = "application/vnd.in-toto+json"

Json = dict[str, object]


def write_checksums(digests: Mapping[str, str], target: Path) -> Path:
    """Write the digests of all artifacts by name, as `sha256sum --check` reads them."""
    file = target / CHECKSUMS
    file.write_text("".join(f"{digest}  {name}\n" for name, digest in digests.items()), encoding="ascii")
    return file


def statement(source: Source, images: Sequence[PlatformImage], digests: Mapping[str, str], parameters: Json) -> Json:
    """Return the provenance of the artifacts with these digests, by name: an in-toto statement with the predicate of SLSA 1.0.

    It has no times and no machine, so that everyone who builds the same commit from the same packages gets the same statement.
    """
    materials: list[Json] = [{"uri": "git+https://perdure.dev/source", "digest": {"gitCommit": source.commit}}]
    packages: dict[str, str] = {}
    for image in images:
        packages |= {
            f"pkg:pypi/{each.name}@{quote(each.version)}?file_name={each.file}": each.sha256 for each in image.wheels
        }
        packages |= {
            f"pkg:deb/debian/{quote(each.name)}@{quote(each.version)}?arch={each.architecture}": each.sha256
            for each in image.debs
        }
    materials += [{"uri": uri, "digest": {"sha256": digest}} for uri, digest in sorted(packages.items())]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://perdure.dev/make-release/v1",
                "externalParameters": parameters,
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": "https://perdure.dev/make-release"}},
        },
    }


class Signer:
    """Signs with a private key."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key

    @classmethod
    def load(cls, file: Path) -> "Signer":
        """Read an unencrypted key on P-256 in PEM.

        Raises:
            ClusterError: The file has no such key.
        """
        try:
            key = load_pem_private_key(file.read_bytes(), None)
        except (OSError, TypeError, ValueError, UnsupportedAlgorithm) as error:
            raise ClusterError(f"KEY={file} cannot be read as a private key in PEM: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ClusterError(
                f"KEY={file} must be a key on P-256: openssl ecparam -name prime256v1 -genkey -noout -out {file.name}"
            )
        return cls(key)

    def sign(self, content: bytes) -> str:
        """Return the signature in DER, as base64."""
        signature = self._key.sign(content, ec.ECDSA(SHA256(), deterministic_signing=True))
        return base64.b64encode(signature).decode()

    @property
    def public_key(self) -> bytes:
        """The public key in PEM."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def write_provenance(content: Json, signer: Signer | None, target: Path) -> Path:
    """Write the provenance: in an envelope with a signature (DSSE) if there is a key, and otherwise as it is."""
    payload = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    file = target / PROVENANCE
    if signer is None:
        file.write_bytes(payload + b"\n")
        return file
    signed = b"DSSEv1 %d %s %d %s" % (len(_STATEMENT), _STATEMENT.encode(), len(payload), payload)
    envelope = {
        "payloadType": _STATEMENT,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"sig": signer.sign(signed)}],
    }
    file.write_text(json.dumps(envelope, separators=(",", ":")) + "\n", encoding="ascii")
    return file


def write_signatures(files: Sequence[Path], signer: Signer, target: Path) -> None:
    """Sign files, and write the public key beside the signatures."""
    (target / PUBLIC_KEY).write_bytes(signer.public_key)
    for file in files:
        (target / f"{file.name}.sig").write_text(signer.sign(file.read_bytes()) + "\n", encoding="ascii")
