"""The token of the admin listener: reads its file, and checks it in requests (RFC 6750)."""

from __future__ import annotations

import os
import stat
from hmac import compare_digest
from typing import TYPE_CHECKING

from kgw.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_CHARACTERS = 16
MAX_CHARACTERS = 4_096


def read_token(path: str) -> bytes:
    """Return the token in a file: its whole content without the line end.

    Raises ConfigError, whose text never contains the token.
    """
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - pathlib costs start-up time
            status = os.fstat(stream.fileno())
            content = stream.read(MAX_CHARACTERS + 3)
    except OSError as error:
        raise ConfigError(f"the token file {path} cannot be read: {error.strerror}") from None
    if os.name == "posix" and status.st_mode & stat.S_IRWXO:
        raise ConfigError(
            f"the token file {path} is open to every user (mode {status.st_mode & 0o777:03o}); "
            f"chmod o= {path}"
        )
    token = content.removesuffix(b"\n").removesuffix(b"\r")
    if not MIN_CHARACTERS <= len(token) <= MAX_CHARACTERS:
        raise ConfigError(
            f"the token file {path} has to hold {MIN_CHARACTERS} to {MAX_CHARACTERS} characters "
            "in one line"
        )
    if not all(0x21 <= character <= 0x7E for character in token):
        raise ConfigError(
            f"the token file {path} has to hold one line of ASCII without blanks: an HTTP header "
            "carries nothing else"
        )
    return token


def given_token(headers: Sequence[bytes]) -> bytes | None:
    """Return the token in the Authorization headers; None unless there is exactly one."""
    if len(headers) != 1:
        return None
    scheme, _, token = headers[0].partition(b" ")
    return token.strip(b" ") if scheme.lower() == b"bearer" else None


def _look_of(path: str) -> tuple[int, ...]:
    """Return values that change when a file changes; empty if the file does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return ()
    # The inode's change time also shows a change of the file's mode.
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def is_told(headers: Sequence[bytes], token: bytes) -> bool:
    """Return whether the Authorization headers contain the token."""
    given = given_token(headers)
    return given is not None and compare_digest(given, token)


class TokenFile:
    """A token's file, which is read again after it was changed."""

    def __init__(self, path: str) -> None:
        """Raise ConfigError if the file is missing or has no valid token."""
        self._path = path
        self._known: tuple[tuple[int, ...], bytes] | None = None
        self.token()

    def token(self) -> bytes:
        """Return the token; can be called in any thread.

        Raises ConfigError if the file has no valid token.
        """
        look, known = _look_of(self._path), self._known
        if known is None or known[0] != look:
            known = self._known = (look, read_token(self._path))
        return known[1]
