from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.memory import MemoryBackend
from kgw.testing.backend_suite import BackendSuite, UncleanStopSuite

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.backend.base import Backend


class TestMemoryBackend(BackendSuite, UncleanStopSuite):
    """The reference passes its own contract."""

    def setup_method(self) -> None:
        """Begin each test with no store at all."""
        self._stores: dict[Path, MemoryBackend] = {}

    def make_backend(self, directory: Path) -> Backend:
        """Return the one object that stands for the store of a directory."""
        return self._stores.setdefault(directory, MemoryBackend())

    async def stop_uncleanly(self, backend: Backend) -> None:
        """Forget what was not committed."""
        assert isinstance(backend, MemoryBackend)
        await backend.crash()
