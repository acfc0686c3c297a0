"""The file that `kgw tokens create` writes the HMAC of a new token into."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from kgw.cli.shared.errors import CommandError, ExitCode

if TYPE_CHECKING:
    from types import TracebackType


class HmacFile:
    """A new file that only its owner can read.

    It is made before the token, so that no token is created whose HMAC nobody gets. If the token is
    not created, the file is removed.
    """

    def __init__(self, path: str) -> None:
        """Make the file, empty. Raises CommandError, also if the file exists."""
        self._path = path
        self._is_written = False
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(path, flags, 0o600)
        except FileExistsError:
            text = f"{path} exists: give the name of a new file"
            raise CommandError(text, ExitCode.USAGE) from None
        except OSError as error:
            raise CommandError(f"cannot write {path}: {_why(error)}", ExitCode.USAGE) from None

    def __enter__(self) -> Self:
        return self

    def write(self, token_id: str, password: str) -> None:
        """Write the password of the token as the only line. Raises CommandError."""
        try:
            with open(self._descriptor, "w", encoding="ascii", closefd=False) as stream:
                stream.write(f"{password}\n")
            os.fsync(self._descriptor)
        except OSError as error:
            raise CommandError(
                f"the token {token_id} was created, and its HMAC could not be written to "
                f"{self._path}: {_why(error)}"
            ) from None
        self._is_written = True

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)
        if not self._is_written:
            os.unlink(self._path)  # noqa: PTH108 - pathlib costs start-up time


def _why(error: OSError) -> str:
    return (error.strerror or "unknown").lower()
