"""Readers who get something else than they should, and directories that should hold something else.

What a judge of damaged directories must find, planted on either side of its comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.embedded import layout
from tests.campaigns.client_reads import CACHE_BYTES, Batch, ClientReads, Clients
from tests.campaigns.crash_model import ROOT, partition_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.store import Store
    from tests.campaigns.stored_logs import StoredBatch, StoredDirectory, StoredLog
    from tests.simulated_fs import SimulatedFs

KEY = partition_key(1)
"""The partition of which something else is expected."""


class Fetch(NamedTuple):
    """What a reader asks for, and where the log begins and ends."""

    offset: int
    max_bytes: int
    upper_bound: int
    log_start_offset: int
    high_watermark: int


class AlteredReads(ClientReads):
    """Readers that get something else than they should."""

    alter: Callable[[ClientReads, Fetch, list[Batch]], list[Batch]]

    def fetch(
        self, log: SegmentedLog, offset: int, max_bytes: int, upper_bound: int
    ) -> list[Batch]:
        """Read as clients do, and alter that."""
        found = super().fetch(log, offset, max_bytes, upper_bound)
        asked = Fetch(
            offset, max_bytes, upper_bound, log.offsets.log_start_offset, log.offsets.high_watermark
        )
        return self.alter(self, asked, found)


class AlteredClients(Clients):
    """Clients of whom each has such readers."""

    def __init__(self, alter: Callable[[ClientReads, Fetch, list[Batch]], list[Batch]]) -> None:
        super().__init__()
        self._alter = alter

    def of(self, store: Store, cache_bytes: int = CACHE_BYTES) -> ClientReads:
        reads = AlteredReads(self, store, cache_bytes)
        reads.alter = self._alter
        return reads


def as_it_is(_: ClientReads, __: Fetch, found: list[Batch]) -> list[Batch]:
    """Alter nothing."""
    return found


def expecting(
    directory: StoredDirectory, alter: Callable[[StoredLog], StoredLog]
) -> StoredDirectory:
    """Return a directory of which something else is expected than there is."""
    return directory._replace(logs=directory.logs | {KEY: alter(directory.logs[KEY])})


def one_more(log: StoredLog) -> StoredLog:
    """Expect a batch behind the last one."""
    last = log.batches[-1]
    another = last._replace(
        base_offset=last.next_offset,
        next_offset=last.next_offset + 1,
        content=b"another " + last.content,
    )
    return log._replace(batches=[*log.batches, another])


def garbled(_: ClientReads, __: Fetch, found: list[Batch]) -> list[Batch]:
    """Serve other bytes than are stored, always the same."""
    return [one._replace(content=one.content[:-1] + b"?") for one in found]


def flip(fs: SimulatedFs, batch: StoredBatch) -> tuple[bytearray, int]:
    """Flip a bit of the last byte of a batch; return where that is."""
    (place,) = [
        (fs.content(path), start + len(batch.content) - 1)
        for path in fs.files(ROOT)
        if path.endswith(layout.LOG_SUFFIX)
        if (start := bytes(fs.content(path)).find(batch.content)) >= 0
    ]
    content, position = place
    content[position] ^= 1
    return place
