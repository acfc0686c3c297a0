"""Encrypts and decrypts chunks as SeaweedFS's own clients do.

If a filer runs with `-encryptVolumeData`, its clients encrypt each chunk by AES-256-GCM with a new
random key. The key is stored in the chunk's metadata (`FileChunk.cipher_key`). A volume server
stores the nonce, the encrypted bytes and the tag, without associated data. Some clients compress a
chunk before they encrypt it, and set `FileChunk.is_compressed`. (Facts: SeaweedFS,
weed/util/cipher.go, weed/operation/upload_content.go.)

Needs the package cryptography. It is imported for the first encrypted chunk, because the import
takes 30 ms and 8 MB.
"""

from __future__ import annotations

import zlib
from os import urandom
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.filer import ChunkMissingError, FilerError
from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.types import Buffer

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
ADDED_BYTES: Final = NONCE_BYTES + TAG_BYTES
"""Number of bytes by which an encrypted chunk is longer than its content."""

_GZIP: Final = 16 + zlib.MAX_WBITS


class Encrypted(NamedTuple):
    """A chunk as a volume server stores it."""

    key: bytes
    pieces: list[Buffer]
    size_bytes: int


def check_can_encrypt() -> None:
    """Raise DataDirectoryError if the package cryptography is not installed."""
    try:
        import cryptography.hazmat.primitives.ciphers  # noqa: F401
    except ModuleNotFoundError as error:
        raise DataDirectoryError(_what_is_missing(error)) from error


def _what_is_missing(error: ModuleNotFoundError) -> str:
    from kgw.version import install_command

    return (
        "the filer encrypts what is stored in volumes (weed filer -encryptVolumeData), and "
        f"that needs the package {error.name}: {install_command('seaweedmq')}"
    )


def encrypt(pieces: Sequence[Buffer]) -> Encrypted:
    """Return a chunk encrypted with a new key. The buffers are neither joined nor kept.

    Raises FilerError if the package cryptography is missing, for example because the filer was
    restarted with encryption.
    """
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ModuleNotFoundError as error:
        raise FilerError(_what_is_missing(error)) from error

    key, nonce = urandom(KEY_BYTES), urandom(NONCE_BYTES)
    encryptor = Cipher(algorithms.AES(key), modes.GCM(nonce)).encryptor()
    encrypted: list[Buffer] = [nonce]
    encrypted += [encryptor.update(piece) for piece in pieces]
    encrypted += [encryptor.finalize(), encryptor.tag]
    return Encrypted(key, encrypted, sum(map(len, encrypted)))


def decrypt(key: bytes, data: bytes, size_bytes: int, *, is_compressed: bool) -> bytes:
    """Return the content of an encrypted chunk, whose length must be `size_bytes`.

    Raises ChunkMissingError if the data was not encrypted with this key or has another length;
    FilerError if the package cryptography is missing.
    """
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as error:
        raise FilerError(_what_is_missing(error)) from error

    try:
        # ValueError: a key or a nonce of an impossible length.
        clear = AESGCM(key).decrypt(data[:NONCE_BYTES], memoryview(data)[NONCE_BYTES:], None)
    except (InvalidTag, ValueError) as error:
        raise ChunkMissingError(
            "it cannot be decrypted with the key that its entry has: it is not what was stored"
        ) from error
    if is_compressed:
        clear = _decompressed(clear, size_bytes)
    if len(clear) != size_bytes:
        raise ChunkMissingError(f"{len(clear)} bytes are encrypted in it, not {size_bytes}")
    return clear


def _decompressed(data: bytes, size_bytes: int) -> bytes:
    """Return the decompressed data, at most one byte more than expected."""
    try:
        return zlib.decompressobj(_GZIP).decompress(data, size_bytes + 1)
    except zlib.error as error:
        raise ChunkMissingError(
            f"what is encrypted in it cannot be decompressed: {error}"
        ) from error
