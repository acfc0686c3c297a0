"""What a machine must have before a data directory is opened on it."""

from __future__ import annotations

import sys
from typing import Final

from kgw.errors import DataDirectoryError

LEAST_DESCRIPTORS: Final = 256
"""Half of them for files with unsynced bytes, which stay open."""


def check_descriptors() -> None:
    """Raise DataDirectoryError where this process may not open enough files."""
    if sys.platform == "win32":
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < LEAST_DESCRIPTORS:
        raise DataDirectoryError(
            f"this process may open {limit} files, and needs {LEAST_DESCRIPTORS}; see ulimit -n"
        )
