"""Seal an artifact for the user who reads it through the log of a pod, which log collectors and other users can read.

The reader creates a key pair for one download, and the pod gets the public key only. A sealed text begins with a line that has
the public key of its sender; each further line has a piece. All lines are base64. Keys are of X25519, and the pieces are
encrypted with ChaCha20-Poly1305, under a key that both derive with HKDF.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PIECE: Final = 5_984
"""Bytes in a line, which has 8,000 characters: container runtimes split lines of 16 KiB."""


class UnsealedError(ValueError):
    """A line was not sealed for this reader, or not at this place."""


def seal(pieces: Iterable[bytes], reader: str) -> Iterator[str]:
    """Encrypt a content as lines.

    Args:
        pieces: The content, in pieces of any size.
        reader: The public key of the reader.
    """
    sender = X25519PrivateKey.generate()
    public = sender.public_key().public_bytes_raw()
    cipher = _Cipher(sender, _decoded(reader), public + _decoded(reader))
    yield base64.b64encode(public).decode()
    for piece in split(pieces):
        yield base64.b64encode(cipher.encrypt(piece)).decode()


def split(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Divide a content into pieces that fit into a line.

    Args:
        pieces: The content, in pieces of any size.
    """
    rest = b""
    for piece in pieces:
        rest += piece
        complete = len(rest) - len(rest) % PIECE
        for start in range(0, complete, PIECE):
            yield rest[start : start + PIECE]
        rest = rest[complete:]
    if rest:
        yield rest


class Reader:
    """The key pair of a reader."""

    def __init__(self, private: X25519PrivateKey) -> None:
        self._private = private
        self.public_key = base64.b64encode(private.public_key().public_bytes_raw()).decode()

    @classmethod
    def generate(cls) -> Self:
        """Create a key pair, which only this process has."""
        return cls(X25519PrivateKey.generate())

    def open(self, first: str | bytes) -> "Opener":
        """Begin to read a sealed text.

        Args:
            first: Its first line.

        Raises:
            UnsealedError: It is not the first line of a sealed text.
        """
        sender = _decoded(first)
        return Opener(_Cipher(self._private, sender, sender + _decoded(self.public_key)))


class Opener:
    """Decrypts the lines of one sealed text, in their order."""

    def __init__(self, cipher: "_Cipher") -> None:
        self._cipher = cipher

    def piece(self, line: str | bytes) -> bytes:
        """Decrypt the next line.

        Raises:
            UnsealedError: It is not the next line of this text.
        """
        return self._cipher.decrypt(_decoded(line))


class _Cipher:
    def __init__(self, private: X25519PrivateKey, other: bytes, both: bytes) -> None:
        try:
            shared = private.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError as error:
            raise UnsealedError(f"not a public key: {error}") from None
        key = HKDF(SHA256(), length=32, salt=None, info=b"perdure artifact " + both).derive(shared)
        self._cipher = ChaCha20Poly1305(key)
        self._number = 0

    def encrypt(self, piece: bytes) -> bytes:
        return self._cipher.encrypt(self._nonce(), piece, None)

    def decrypt(self, sealed: bytes) -> bytes:
        try:
            return self._cipher.decrypt(self._nonce(), sealed, None)
        except InvalidTag:
            raise UnsealedError("not the next line for this reader") from None

    def _nonce(self) -> bytes:
        """The number of the line: a key is used for one text only."""
        self._number += 1
        return self._number.to_bytes(12, "big")


def _decoded(line: str | bytes) -> bytes:
    try:
        return base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnsealedError(f"not base64: {error}") from None
