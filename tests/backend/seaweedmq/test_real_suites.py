"""The backend suites over a real SeaweedFS, through the real channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.channel.channel import FilerChannel
from kgw.backend.seaweedmq.channel.options import ChannelOptions
from kgw.backend.seaweedmq.entries.layouts import Layout
from kgw.backend.seaweedmq.filer import FilerError
from kgw.clock import SystemClock
from kgw.metrics import Metrics
from kgw.state.memory import MemoryStateStore
from kgw.testing.backend_faults_suite import FailedAppendSuite, UncleanStopSuite
from kgw.testing.backend_suite import BackendSuite
from kgw.testing.segmented_suite import SegmentedSuite
from tests.backend.seaweedmq.gateways import REFUSE_AT_ONCE
from tests.backend.seaweedmq.records_suite import RecordsSuite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kgw.backend.base import Backend
    from kgw.backend.seaweedmq.filer import Chunk
    from kgw.types import Buffer
    from tests.seaweedfs.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


class _Channel(FilerChannel):
    """The real one, which can be told to fail an upload as one to full volumes does."""

    fails_next = False

    async def upload(self, pieces: Sequence[Buffer], *, deadline_s: float | None = None) -> Chunk:
        if self.fails_next:
            self.fails_next = False
            raise FilerError("no volume has room")
        return await super().upload(pieces, deadline_s=deadline_s)


class TestSeaweedMqBackend(BackendSuite, SegmentedSuite, FailedAppendSuite, UncleanStopSuite):
    """Each test has a namespace of its own."""

    # Nothing is cached, so that every read reaches the filer.
    options = REFUSE_AT_ONCE._replace(cache_bytes=0, chunk_cache_bytes=0)

    @pytest.fixture(autouse=True)
    def started(self, seaweedfs: Cluster) -> None:
        """Say where the filer is."""
        self._address = seaweedfs.address("filer")
        self._states: dict[Path, MemoryStateStore] = {}
        self._channels: dict[Backend, _Channel] = {}

    def make_backend(self, directory: Path) -> Backend:
        """Return a gateway's backend on a namespace that stands for a directory."""
        clock = SystemClock()
        channel = _Channel(ChannelOptions(self._address), clock, Metrics())
        state = self._states.setdefault(directory, MemoryStateStore())
        backend = SeaweedMqBackend(channel, directory.name, state, self.options, clock)
        self._channels[backend] = channel
        return backend

    def fail_next_append(self, backend: Backend) -> None:
        """Let the volume servers refuse it."""
        self._channels[backend].fails_next = True

    async def stop_uncleanly(self, backend: Backend) -> None:
        """Let go, and note nothing."""
        assert isinstance(backend, SeaweedMqBackend)
        await backend.abandon()


@pytest.mark.full
class TestRecords(RecordsSuite, TestSeaweedMqBackend):
    """One record an entry; over a filer in memory in the short run."""

    options = TestSeaweedMqBackend.options._replace(layout=Layout.RECORDS)
