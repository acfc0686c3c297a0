from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.chain import ChainOptions
from kgw.backend.seaweedmq.entries.layouts import Layout
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.state.memory import MemoryStateStore
from kgw.testing.backend_faults_suite import FailedAppendSuite, UncleanStopSuite
from kgw.testing.backend_suite import BackendSuite
from kgw.testing.filer import CallKind, FilerStore, MemoryFiler
from kgw.testing.segmented_suite import SegmentedSuite
from tests.backend.seaweedmq.records_suite import RecordsSuite

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.backend.base import Backend
    from kgw.backend.seaweedmq.filer import Chunk

OPTIONS: Final = SeaweedMqOptions(chain=ChainOptions(refuse_after_s=0))
"""What fails once is refused, as after half a minute."""


class TestSeaweedMqBackend(BackendSuite, SegmentedSuite, FailedAppendSuite, UncleanStopSuite):
    """Over a filer in memory."""

    options = OPTIONS
    store_type = FilerStore

    def setup_method(self) -> None:
        """Begin each test with no store at all."""
        self._stores: dict[Path, tuple[FilerStore, MemoryStateStore]] = {}
        self._filers: dict[Backend, MemoryFiler] = {}

    def make_backend(self, directory: Path) -> Backend:
        """Return a gateway's backend on the SeaweedFS that stands for a directory."""
        store, state = self._stores.setdefault(directory, (self.store_type(), MemoryStateStore()))
        filer = MemoryFiler(store)
        backend = SeaweedMqBackend(filer, "kafka", state, self.options)
        self._filers[backend] = filer
        return backend

    def fail_next_append(self, backend: Backend) -> None:
        """Let the volume servers refuse it."""
        self._filers[backend].fail_next(CallKind.UPLOAD)

    async def stop_uncleanly(self, backend: Backend) -> None:
        """Let go, and note nothing."""
        assert isinstance(backend, SeaweedMqBackend)
        await backend.abandon()


@pytest.mark.full
class TestWithoutMemory(TestSeaweedMqBackend):
    """Every read comes from the filer, and every chunk is decoded in a thread."""

    options = OPTIONS._replace(
        cache_bytes=0,
        chunk_cache_bytes=0,
        chunk_loads=1,
        loaded_files=1,
        open_at_once=1,
        decoded_on_loop_bytes=0,
        chain=OPTIONS.chain._replace(file_chunks=3),
    )


class _SwitchedStore(FilerStore):
    """Of a filer that is restarted with and without `-encryptVolumeData`, time and again."""

    def upload(self, data: bytes, now_ns: int) -> Chunk:
        self.encrypts = not self.encrypts
        return super().upload(data, now_ns)


class TestEncrypted(TestSeaweedMqBackend):
    """Every second chunk is encrypted, and none is in memory: a lost key is a lost chunk."""

    options = OPTIONS._replace(cache_bytes=0, chunk_cache_bytes=0, loaded_files=1)
    store_type = _SwitchedStore


class TestEncryptedRecords(RecordsSuite, TestEncrypted):
    """The same, one record an entry."""

    options = TestEncrypted.options._replace(layout=Layout.RECORDS)


class TestRecords(RecordsSuite, TestSeaweedMqBackend):
    """One record an entry."""

    options = OPTIONS._replace(cache_bytes=0, layout=Layout.RECORDS)
