from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.state_place import ServerState
from kgw.backend.memory import MemoryBackend
from kgw.clock import SystemClock
from kgw.state.memory import MemoryStateStore
from kgw.state.sql.stores import server_store
from kgw.testing.backend_faults_suite import FailedAppendSuite, UncleanStopSuite
from kgw.testing.backend_suite import BackendSuite
from kgw.testing.segmented_suite import SegmentedSuite
from tests.simulated_fs import Fault, FaultKind, SimulatedFs

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.backend.base import Backend
    from tests.state.servers import DatabaseServer


class TestMemoryBackend(BackendSuite, SegmentedSuite, FailedAppendSuite, UncleanStopSuite):
    """The reference passes its own contract."""

    def setup_method(self) -> None:
        """Begin each test with no store at all."""
        self._stores: dict[Path, MemoryBackend] = {}

    def make_backend(self, directory: Path) -> Backend:
        """Return the one object that stands for the store of a directory."""
        return self._stores.setdefault(directory, MemoryBackend())

    def fail_next_append(self, backend: Backend) -> None:
        """Ask the backend for it."""
        assert isinstance(backend, MemoryBackend)
        backend.fail_next_append()

    async def stop_uncleanly(self, backend: Backend) -> None:
        """Forget what was not committed."""
        assert isinstance(backend, MemoryBackend)
        await backend.crash()


class TestEmbeddedBackend(BackendSuite, SegmentedSuite, UncleanStopSuite):
    """Segments on disk, small appends through the journal, a cache for readers at the tail."""

    options = EmbeddedOptions(journal_bytes=64 << 10, min_free_bytes=0)

    def make_backend(self, directory: Path) -> Backend:
        """Return a backend over a real directory."""
        return EmbeddedBackend(directory / "data", self.options)

    async def stop_uncleanly(self, backend: Backend) -> None:
        """Let go of the files as they are."""
        assert isinstance(backend, EmbeddedBackend)
        await backend.abandon()


@pytest.mark.slow
class TestEmbeddedBackendWithStateOnAServer(TestEmbeddedBackend):
    """Records on disk, checkpoints and the rest in PostgreSQL or MariaDB."""

    @pytest.fixture(autouse=True)
    def use_server(self, database_server: DatabaseServer) -> None:
        """Have the state of each directory in a place of its own."""
        self._server = database_server
        self._urls: dict[Path, str] = {}

    def make_backend(self, directory: Path) -> Backend:
        """Return a backend over a real directory and a real server."""
        if directory not in self._urls:
            self._urls[directory] = self._server.url(self._server.new_place())
        url = self._urls[directory]
        return EmbeddedBackend(
            directory / "data",
            self.options,
            server_state=ServerState(url, server_store(url, SystemClock())),
        )


class TestEmbeddedBackendWithoutJournalAndCache(TestEmbeddedBackend):
    """Every append syncs its segment, every read goes to the disk, files are closed early."""

    options = EmbeddedOptions(
        journal_append_bytes=0, cache_bytes=0, min_free_bytes=0, open_files=1, group_bytes=1
    )


class TestEmbeddedBackendOnAFailingDisk(FailedAppendSuite):
    """Files in memory, one write of which finds no space."""

    options = EmbeddedOptions(journal_append_bytes=0, min_free_bytes=0)

    def setup_method(self) -> None:
        """Begin each test with an empty disk."""
        self._fs = SimulatedFs()
        self._state = MemoryStateStore()

    def make_backend(self, directory: Path) -> Backend:
        """Return a backend over the simulated disk."""
        return EmbeddedBackend("/data", self.options, fs=self._fs, state=self._state)

    def fail_next_append(self, backend: Backend) -> None:
        """Let the next write fail."""
        self._fs.inject(Fault(FaultKind.ENOSPC, 1))


class TestEmbeddedBackendWithoutRoomInGroups(TestEmbeddedBackendOnAFailingDisk):
    """Each append is a group of its own: those behind the first reach the flusher later."""

    options = EmbeddedOptions(journal_append_bytes=0, min_free_bytes=0, group_bytes=1)
