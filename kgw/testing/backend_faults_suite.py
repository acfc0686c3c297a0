"""The promises of a backend for a stop without warning, and for a failed append."""

# ruff: noqa: S101 - assert is how a suite speaks
from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING

from kgw.backend.append import AppendResult
from kgw.backend.base import EpochEnd
from kgw.errors import StorageError
from kgw.state.base import Change, Row
from kgw.testing.backend_harness import (
    KEY,
    OTHER_KEY,
    SETTINGS,
    SMALL_SEGMENTS,
    TOPIC,
    BackendHarness,
    assert_append_fails,
    batches,
    contents,
    fill_sparsely,
    records_in,
)
from kgw.testing.batches import make_batch

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.backend.base import Backend


class FailedAppendSuite(BackendHarness):
    """The promises of a backend for an append that fails while the store goes on."""

    @abstractmethod
    def fail_next_append(self, backend: Backend) -> None:
        """Make the next append fail once, as on a full disk."""

    async def test_what_was_submitted_before_a_failure_was_known_fails_too(
        self, tmp_path: Path
    ) -> None:
        """Appends after the failed one fail, too: they would have wrong offsets."""
        async with self.opened(tmp_path) as backend:
            log = await backend.create_partition(KEY, TOPIC, SETTINGS)
            await log.append([make_batch([b"before"])])
            self.fail_next_append(backend)
            futures = [log.append([make_batch([b"%d" % number, b"x"])]) for number in range(5)]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            assert [True] * 5 == [isinstance(each, StorageError) for each in outcomes]
            assert (1, 1) == (log.high_watermark, log.end_offset)
            assert [(0, b"before")] == await contents(log)

    async def test_the_offsets_of_a_failed_append_are_given_again(self, tmp_path: Path) -> None:
        """The next appends get the failed offsets, which nobody has read, also after a restart."""
        expected = [(0, b"before"), (1, b"after")]
        async with self.opened(tmp_path) as backend:
            log = await backend.create_partition(KEY, TOPIC, SETTINGS)
            await log.append([make_batch([b"before"])])
            self.fail_next_append(backend)
            await assert_append_fails(log)
            assert 1 == (await log.append([make_batch([b"after"])])).base_offset
            assert expected == await contents(log)
            assert backend.health.writable
        async with self.reopened(tmp_path) as log:
            assert expected == await contents(log)

    async def test_a_failure_of_one_partition_leaves_the_others_alone(self, tmp_path: Path) -> None:
        """Appends to another partition are stored, or fail for a reason of their own."""
        async with self.opened(tmp_path) as backend:
            log = await backend.create_partition(KEY, TOPIC, SETTINGS)
            other = await backend.create_partition(OTHER_KEY, TOPIC, SETTINGS)
            await other.append([make_batch([b"first"])])
            self.fail_next_append(backend)
            await assert_append_fails(log)
            assert 1 == (await other.append([make_batch([b"second"])])).base_offset
            assert [(0, b"first"), (1, b"second")] == await contents(other)
            assert [] == await contents(log)


class UncleanStopSuite(BackendHarness):
    """The promises of a backend for a stop without warning."""

    @abstractmethod
    async def stop_uncleanly(self, backend: Backend) -> None:
        """Stop as a killed process does: nothing is finished or marked as clean."""

    async def test_what_was_answered_survives(self, tmp_path: Path) -> None:
        """Every append that was answered is at its offset after an unclean stop."""
        backend = self.make_backend(tmp_path)
        await backend.open()
        log = await backend.create_partition(KEY, TOPIC, SMALL_SEGMENTS)
        for number in range(30):
            await log.append([make_batch([b"%d" % number])])
        await self.stop_uncleanly(backend)
        async with self.opened(tmp_path) as reopened:
            log = await reopened.open_partition(KEY, TOPIC, SMALL_SEGMENTS)
            assert [(n, b"%d" % n) for n in range(30)] == await contents(log)
            assert 30 == (await log.append([make_batch([b"30"])])).base_offset

    async def test_offsets_that_were_left_out_are_not_given_again(self, tmp_path: Path) -> None:
        """Batches with offsets that have no records are complete after an unclean stop."""
        backend = self.make_backend(tmp_path)
        await backend.open()
        log = await backend.create_partition(KEY, TOPIC, SMALL_SEGMENTS)
        records = await fill_sparsely(log)
        end = log.end_offset
        await self.stop_uncleanly(backend)
        async with self.reopened(tmp_path, SMALL_SEGMENTS) as log:
            assert records == await records_in(log)
            assert end == (await log.append([make_batch([b"next"])])).base_offset

    async def test_the_leader_epoch_rises(self, tmp_path: Path) -> None:
        """Each unclean start begins an epoch, and the history has the end of each one."""
        async with self.created(tmp_path) as log:
            first = log.leader_epoch
            await log.append([make_batch([b"a", b"b"])])
        for number in range(2):
            backend = self.make_backend(tmp_path)
            await backend.open()
            log = await backend.open_partition(KEY, TOPIC, SETTINGS)
            await log.append([make_batch([b"%d" % number])])
            await self.stop_uncleanly(backend)
        async with self.reopened(tmp_path) as log:
            assert first + 2 == log.leader_epoch
            result = await log.append([make_batch([b"e"])])
            assert AppendResult(4, 4, first + 2) == result
            assert EpochEnd(first, 3) == log.epoch_end(first)
            assert EpochEnd(first + 1, 4) == log.epoch_end(first + 1)
            assert EpochEnd(first + 2, 5) == log.epoch_end(first + 2)
            assert log.epoch_end(first + 3) is None
            epochs = [first, first, first, first + 1, first + 2, first + 2]
            assert epochs == [log.epoch_at(offset) for offset in range(6)]
            stored = await batches(log)
            assert [first, first, first + 1, first + 2] == [b.leader_epoch for b in stored]

    async def test_the_state_survives(self, tmp_path: Path) -> None:
        """Applied changes of the state are present after an unclean stop."""
        backend = self.make_backend(tmp_path)
        await backend.open()
        await backend.state.apply([Change("suite", "a", b"1"), Change("suite", "b", b"2")])
        await self.stop_uncleanly(backend)
        async with self.opened(tmp_path) as reopened:
            expected = {"a": Row(b"1", 1), "b": Row(b"2", 1)}
            assert expected == await reopened.state.load("suite")
