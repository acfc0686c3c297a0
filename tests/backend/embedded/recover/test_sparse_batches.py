"""Batches over offsets of which many have no record: as loaded with original offsets."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.records.batch import RecordBatch, read_batch
from kgw.testing.batches import make_sparse_batch
from tests.backend.embedded.driver import DIRECT, JOURNALED, SMALL_SEGMENTS, Driver, flush_group
from tests.simulated_disk import CrashMode

if TYPE_CHECKING:
    from kgw.backend.embedded.options import EmbeddedOptions

FAR = (1 << 31) - 1


def sparse_batches(random: Random, count: int) -> list[tuple[RecordBatch, list[bytes]]]:
    """Return batches one after the other, and the values of each: some are empty, some far."""
    made = []
    end = 0
    for number in range(count):
        length = random.choice([1, 3, 10, 1000, FAR])
        places = sorted(random.sample(range(length), min(length, random.choice([0, 0, 1, 3]))))
        values = {end + place: b"%d-%d" % (number, place) for place in places}
        batch = read_batch(make_sparse_batch(end, end + length, values, timestamp_ms=number))
        made.append((batch, list(values.values())))
        end += length
    return made


@pytest.mark.slow
@pytest.mark.parametrize("options", [DIRECT, JOURNALED], ids=["direct", "journaled"])
@pytest.mark.parametrize("mode", CrashMode)
def test_a_crash_leaves_what_was_answered(mode: CrashMode, options: EmbeddedOptions) -> None:
    """A power loss while more is written leaves whole batches, and offsets go on behind them."""
    for seed in range(12):
        random = Random(seed)
        driver = Driver(options, SMALL_SEGMENTS)
        made = sparse_batches(random, 24)
        answered = random.randrange(16)
        for number, (batch, _) in enumerate(made):
            append = driver.store.writes.submit(driver.log(), [batch])
            if number < answered:
                flush_group(driver.store.writes)
                assert append.error is None
                if random.random() < 0.2:
                    driver.checkpoint()
        # The others are written, and no sync has made them durable.
        log = driver.log()
        group = driver.store.writes.take_group()
        log.begin_write()
        log.write([one for append in group for one in append.batches])
        driver.lose_power(mode, seed)

        log = driver.log()
        ends = [0, *(batch.next_offset for batch, _ in made)]
        kept = ends.index(log.offsets.next_offset)
        assert kept >= answered
        assert [value for _, values in made[:kept] for value in values] == driver.values()
        assert log.offsets.next_offset == driver.append(b"next").result.base_offset
        assert [] == driver.problems()
