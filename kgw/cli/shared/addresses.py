"""Addresses in arguments: directories, files, and namespaces of a SeaweedFS."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kgw.cli.shared.errors import CommandError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_namespace(place: str) -> bool:
    """Return whether an address is a namespace of a SeaweedFS."""
    return place.startswith("seaweedmq:")


@contextmanager
def usable(path: str) -> Iterator[None]:
    """Turn a system error about a path into a one-line error with its own exit code."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(
            f"{error.filename or path}: {(error.strerror or str(error)).lower()}",
            ExitCode.DATA_DIRECTORY,
        ) from None
