"""JSON files with a checksum, written completely or not at all; a changed file is refused."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from kgw.migrate.errors import MigrationError
from kgw.system import sync

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VERSION = 1
"""The version of every format; files of another version are refused."""


def write_sealed(path: Path, document: Mapping[str, object]) -> None:
    """Write a document with its checksum, completely or not at all; it is durable on return.

    Raises MigrationError.
    """
    content = json.dumps({**document, "checksum": checksum_of(document)}, indent=1) + "\n"
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("w") as file:
            file.write(content)
            file.flush()
            sync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            sync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise MigrationError(f"{path}: {error.strerror}") from None


def read_sealed(path: Path, expected_format: str) -> dict[str, Any]:
    """Read a document.

    Raises MigrationError if the file is unreadable, was changed, or has another format or version.
    """
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise MigrationError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise MigrationError(f"{path}: not JSON") from None
    if not isinstance(document, dict) or document.get("format") != expected_format:
        raise MigrationError(f"{path}: not a file of format {expected_format}")
    if document.get("version") != VERSION:
        raise MigrationError(
            f"{path}: version {document.get('version')}; this program knows {VERSION}"
        )
    checksum = document.pop("checksum", None)
    if checksum != checksum_of(document):
        raise MigrationError(f"{path}: its checksum does not match: it was changed or damaged")
    return document


def checksum_of(document: Mapping[str, object]) -> str:
    """Return the checksum of a document."""
    content = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(content.encode()).hexdigest()
