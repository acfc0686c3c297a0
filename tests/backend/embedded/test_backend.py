from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.testing.backend_suite import BackendSuite, UncleanStopSuite

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.backend.base import Backend

OPTIONS = EmbeddedOptions(journal_bytes=1 << 20, min_free_bytes=0)


class TestEmbeddedBackend(BackendSuite, UncleanStopSuite):
    """The embedded backend keeps the contract."""

    def make_backend(self, directory: Path) -> Backend:
        """Return a backend over the files of a directory."""
        return EmbeddedBackend(directory / "data", OPTIONS)

    async def stop_uncleanly(self, backend: Backend) -> None:
        """Stop as a killed process does, with everything in the page cache."""
        assert isinstance(backend, EmbeddedBackend)
        await backend.abandon()
