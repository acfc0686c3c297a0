"""What the model of a compacted log lets a run remove, and when."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kgw.backend.base import CompactionJob
from kgw.records.compaction import KEY_BYTES
from tests.campaigns.crash_compaction import RETENTION_MS, CompactingMachine
from tests.campaigns.crash_model import random_options
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.types import PartitionKey

FIRST_MS = 1_000
"""When the first run is."""
FAR = 1 << 40
ENOUGH_BYTES = 1 << 20
ROOM_FOR_TWO_BYTES = 2 * KEY_BYTES
"""A run ends before the record that has a third key."""
ANOTHER_KEY = tuple(b"%d-" % number for number in range(1, 51, 5))
"""More records of one key than a batch has: what lies before them and after them is in two."""


class TellingMachine(CompactingMachine):
    """One that does what it is told: it appends given values to the one log that it has."""

    relaxed_share = 0.0

    def __init__(self, *values: bytes) -> None:
        super().__init__(Random(1), SimulatedFs(), random_options(Random(1)))
        self._values_left = self._all(values)
        self.begin_life(self.fs)
        while not self.partitions:
            self.step()
        while self.partitions[self.key].end < len(values):
            self.append_once()
        store = self.started()
        store.roll(store.logs[self.key])

    @staticmethod
    def _all(values: tuple[bytes, ...]) -> Iterator[bytes]:
        yield from values
        # A batch may have more, of a key that no test looks at.
        for number in range(1_000, 10_000, 5):
            yield b"%d-" % number

    @property
    def key(self) -> PartitionKey:
        return next(iter(self.partitions))

    @property
    def compacted_end(self) -> int:
        return self.started().logs[self.key].compacted_end

    def value(self) -> bytes:
        return next(self._values_left)

    def drop_before(self) -> None:
        """Drop nothing: what is dropped nobody misses."""

    def compact_up_to(
        self,
        upper_bound: int,
        now_ms: int,
        *,
        retention_ms: int = RETENTION_MS,
        memory_bytes: int = ENOUGH_BYTES,
    ) -> None:
        """Run compaction in a life that begins with it: whatever might go before has gone."""
        assert [] == self.begin_life(self.fs.clone())
        job = CompactionJob(upper_bound, now_ms, retention_ms, key_memory_bytes=memory_bytes)
        self.compact_log(self.key, job)

    def served(self) -> tuple[set[int], list[str]]:
        """Return the offsets that are served after a kill, and what is wrong with that."""
        store, contents = self.recover(self.fs.clone())
        return set(contents[self.key].records), self.judge(store, contents)


def test_a_tombstone_may_go_that_a_run_reached_which_ended_early() -> None:
    """A newer record of its key lay below the end that was asked for, above the one it came to."""
    values = (b"T3", *ANOTHER_KEY, b"2-", b"3-")
    machine = TellingMachine(*values)
    reached = values.index(b"2-")
    machine.compact_up_to(FAR, FIRST_MS, memory_bytes=ROOM_FOR_TWO_BYTES)
    assert reached == machine.compacted_end
    machine.compact_up_to(reached + 1, FIRST_MS + RETENTION_MS)
    offsets, wrong = machine.served()
    assert 0 not in offsets
    assert [] == wrong


def test_a_tombstone_that_goes_before_its_time_is_lost() -> None:
    """The run that reached it first ended early."""
    values = (b"T3", *ANOTHER_KEY, b"2-", b"3-")
    machine = TellingMachine(*values)
    reached = values.index(b"2-")
    machine.compact_up_to(FAR, FIRST_MS, retention_ms=0, memory_bytes=ROOM_FOR_TWO_BYTES)
    assert reached == machine.compacted_end
    machine.compact_up_to(reached + 1, FIRST_MS + RETENTION_MS - 1, retention_ms=0)
    offsets, wrong = machine.served()
    assert 0 not in offsets
    assert any("LOST offset 0" in one for one in wrong)


def test_the_time_of_a_tombstone_begins_with_a_run_that_reaches_it() -> None:
    """One that was to reach it and ended before it does not count."""
    values = (*ANOTHER_KEY, b"2-", b"4-", b"T3", *ANOTHER_KEY)
    machine = TellingMachine(*values)
    tombstone = values.index(b"T3")
    machine.compact_up_to(FAR, FIRST_MS, retention_ms=0, memory_bytes=ROOM_FOR_TWO_BYTES)
    assert tombstone - 1 == machine.compacted_end
    machine.compact_up_to(FAR, FIRST_MS + RETENTION_MS, retention_ms=0)
    assert tombstone in machine.served()[0]
    machine.compact_up_to(FAR, FIRST_MS + RETENTION_MS + 1, retention_ms=0)
    offsets, wrong = machine.served()
    assert tombstone not in offsets
    assert any(f"LOST offset {tombstone} " in one for one in wrong)
