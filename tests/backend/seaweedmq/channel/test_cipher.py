from __future__ import annotations

import gzip
from base64 import b64decode
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.channel.cipher import (
    ADDED_BYTES,
    KEY_BYTES,
    check_can_encrypt,
    decrypt,
    encrypt,
)
from kgw.backend.seaweedmq.filer import ChunkMissingError, FilerError
from kgw.errors import DataDirectoryError
from tests.backend.seaweedmq.channel.missing import without_package

if TYPE_CHECKING:
    from kgw.types import Buffer

CLEAR = b"The filer asked for it."
# Made by a filer of SeaweedFS 4.48 with -encryptVolumeData, of the content above.
KEY = b64decode("sayPtQorhi9Axx1TtaWfZE3r9G9jl6SFW64Ta9ogymA=")
STORED = b64decode("RSh9Q9bEkHEg5BcpH5CgKBh9YyZ5bK6mHUnA2piy8Q6ebzMAH7nm+9cSJOsa/rLLW+dK")


def test_what_seaweedfs_has_encrypted_is_decrypted() -> None:
    """Nonce, encrypted bytes, tag: as a volume server of SeaweedFS had them."""
    assert CLEAR == decrypt(KEY, STORED, len(CLEAR), is_compressed=False)
    assert len(CLEAR) + ADDED_BYTES == len(STORED)


def test_pieces_are_encrypted_as_one_chunk() -> None:
    """However they are cut, and whatever kind of buffer each is."""
    pieces: list[Buffer] = [b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3], b""]
    encrypted = encrypt(pieces)
    stored = b"".join(encrypted.pieces)
    assert encrypted.size_bytes == len(stored)
    assert b"abcdef" == decrypt(encrypted.key, stored, 6, is_compressed=False)
    nothing = encrypt([])
    assert b"" == decrypt(nothing.key, b"".join(nothing.pieces), 0, is_compressed=False)


def test_each_chunk_has_a_key_and_a_nonce_of_its_own() -> None:
    """The same bytes are stored differently each time."""
    chunks = [encrypt([CLEAR]) for _ in range(50)]
    assert {KEY_BYTES} == {len(chunk.key) for chunk in chunks}
    assert 50 == len({chunk.key for chunk in chunks})
    assert 50 == len({bytes(chunk.pieces[0]) for chunk in chunks})
    assert 50 == len({b"".join(chunk.pieces)[12:] for chunk in chunks})


@pytest.mark.parametrize("position", [0, 12, len(CLEAR) + ADDED_BYTES - 1])
def test_an_altered_chunk_is_no_chunk(position: int) -> None:
    """In the nonce, in what is encrypted, in the tag."""
    altered = bytearray(STORED)
    altered[position] ^= 1
    with pytest.raises(ChunkMissingError, match="not what was stored"):
        decrypt(KEY, bytes(altered), len(CLEAR), is_compressed=False)


@pytest.mark.parametrize("stored", [b"", STORED[:11], STORED[:20], STORED[:-1], STORED + b"x"])
def test_a_chunk_of_another_length_is_no_chunk(stored: bytes) -> None:
    """Not even one that is shorter than what encryption adds."""
    with pytest.raises(ChunkMissingError, match="not what was stored"):
        decrypt(KEY, stored, len(CLEAR), is_compressed=False)


def test_another_key_or_none_that_can_be_one_decrypts_nothing() -> None:
    """An entry that has the key of another chunk, or part of a key."""
    for key in (bytes(KEY_BYTES), KEY[:5]):
        with pytest.raises(ChunkMissingError, match="not what was stored"):
            decrypt(key, STORED, len(CLEAR), is_compressed=False)


def test_what_was_compressed_first_is_decompressed() -> None:
    """As SeaweedFS's clients do with what looks like text; never more than the entry says."""
    text = b"again and " * 10_000
    encrypted = encrypt([gzip.compress(text)])
    stored = b"".join(encrypted.pieces)
    assert text == decrypt(encrypted.key, stored, len(text), is_compressed=True)
    for wrong in (len(text) - 1, len(text) + 1):
        with pytest.raises(ChunkMissingError, match=f"not {wrong}"):
            decrypt(encrypted.key, stored, wrong, is_compressed=True)
    with pytest.raises(ChunkMissingError, match="cannot be decompressed"):
        decrypt(KEY, STORED, len(CLEAR), is_compressed=True)


def test_the_length_in_the_entry_is_that_of_the_content() -> None:
    """A chunk of which an entry expects another length is another one."""
    with pytest.raises(ChunkMissingError, match=f"{len(CLEAR)} bytes are encrypted in it, not 3"):
        decrypt(KEY, STORED, 3, is_compressed=False)


def test_without_the_package_nothing_is_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever installed kgw by itself is told what is missing, and why."""
    check_can_encrypt()
    without_package(monkeypatch)
    with pytest.raises(
        DataDirectoryError, match=r"encryptVolumeData.* package cryptography: .*pip"
    ):
        check_can_encrypt()


def test_without_the_package_a_filer_that_encrypts_later_is_an_error_of_the_storage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever appends or reads is answered: it was no bug."""
    without_package(monkeypatch)
    with pytest.raises(FilerError, match=r"encryptVolumeData.* package cryptography: .*pip"):
        encrypt([CLEAR])
    with pytest.raises(FilerError, match="package cryptography") as found:
        decrypt(KEY, STORED, len(CLEAR), is_compressed=False)
    assert not isinstance(found.value, ChunkMissingError)
