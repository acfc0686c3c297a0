"""The gateway over files whose failed syncs go unnoticed.

The positive control of the failing calls: `python -m tests.campaigns.hopeful_serve serve ...`.
"""

from __future__ import annotations

import os
from contextlib import suppress

from kgw.backend.embedded.files.fs import RealFile
from kgw.cli.main import main


def sync_and_hope(self: RealFile) -> None:
    """Sync, and take an error for nothing."""
    with suppress(OSError):
        os.fdatasync(self.fileno())


if __name__ == "__main__":
    RealFile.fdatasync = sync_and_hope  # type: ignore[method-assign]
    main(prog_name="kgw")
