"""Lets a backup ask the server to fill a stage, through a socket in the data directory."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded.backup.control import NotYetError, short_path
from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ANSWER_BYTES: Final = 1 << 20


@contextmanager
def asked_stage(root: str, stage: str) -> Iterator[None]:
    """Ask the server to fill a stage, and stay connected while the stage is in use.

    Blocks. Raises ConnectionRefusedError and FileNotFoundError if no server listens, NotYetError if
    the caller should retry, DataDirectoryError if the server refuses or ends.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        with short_path(root) as path:
            connection.connect(path)
        request = json.dumps({"stage": Path(stage).name}).encode() + b"\n"
        try:
            connection.sendall(request)
            with connection.makefile("rb") as answers:
                line = answers.readline(_ANSWER_BYTES)
        except OSError as error:
            raise DataDirectoryError(f"the server of {root} went away: {error}") from error
        if not line.endswith(b"\n"):
            raise DataDirectoryError(f"the server of {root} went away")
        answer = json.loads(line)
        if answer["error"] is not None:
            kind = NotYetError if answer.get("is_not_yet") else DataDirectoryError
            raise kind(str(answer["error"]))
        yield
