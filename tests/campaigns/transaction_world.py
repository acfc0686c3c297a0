"""A data directory through the lives of its gateway, and what everybody must see in it."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.handlers.context import Session
from kgw.protocol.api_keys import ApiKey
from kgw.records.batch import split_batches
from kgw.state.base import Change
from kgw.state.kinds import TRANSACTION
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from kgw.transactions.machine import LAST_EPOCH
from kgw.transactions.rows import decode_row
from tests import patience
from tests.campaigns.crash_model import random_options
from tests.campaigns.retries import KeptState
from tests.campaigns.transaction_steps import Kill
from tests.handlers.support import (
    batch,
    create_topic,
    fetch_request,
    produce_request,
    request_of,
)
from tests.partitions.committed import not_aborted
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from kgw.protocol.schema import Request
    from tests.campaigns.support import Report

ROOT = "/data"
TOPIC = "moved"
PARTITIONS = 3
TIMEOUT_MS = 30_000
CATCH_UP_S = 5.0
"""So long after its time-out the last transaction holds readers back no more."""
RELAXED_SHARE = 0.15
ANSWER_S = 30.0
"""Of real time: whoever waits longer is not answered at all."""


class DeadError(Exception):
    """The gateway is dead: there is no answer."""


class WrongError(Exception):
    """Something was answered that must not be."""


class Batch(NamedTuple):
    """A batch as its producer sends it, every time with the same bytes."""

    producer_id: int
    producer_epoch: int
    partition: int
    base_sequence: int
    values: tuple[bytes, ...]

    def records(self) -> bytearray:
        """Return the bytes to send."""
        return batch(
            *self.values,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            is_transactional=True,
        )


class Frame(NamedTuple):
    """A request as it was sent, which may arrive once more, at any time."""

    kind: str
    request: Request
    version: int
    producer: tuple[int, int]
    session: Session
    life: int
    """In which life of the gateway: a connection does not outlive it."""


class Transaction:
    """What is to be done in it, and what is known of it."""

    def __init__(self, name: str, producer: tuple[int, int], *, is_commit: bool) -> None:
        self.name = name
        self.producer = producer
        self.is_commit = is_commit
        self.steps: list[tuple[str, Any]] = []
        self.done = 0
        """How many of them were answered."""
        self.batches: list[Batch] = []
        self.offsets: dict[int, int] = {}
        self.answered: dict[Batch, int] = {}
        self.is_end_asked = False
        """Whether it may be committed by now."""
        self.is_told = False
        """Whether its end was answered."""
        self.fate: bool | None = None
        """Whether it must be committed; None while it goes on."""

    def __repr__(self) -> str:
        return f"<{self.name} of {self.producer}, {'commit' if self.is_commit else 'abort'}>"


class World:
    """One data directory, through its lives, and everybody who uses it."""

    def __init__(self, report: Report, random: Random) -> None:
        self.report = report
        self.random = random
        self.is_relaxed = random.random() < RELAXED_SHARE
        self._options = random_options(random)
        self._fs = SimulatedFs()
        self._fs.make_directory_durably(ROOT)
        self._state = KeptState()
        self._wall_ms = 1_700_000_000_000
        self.gateway: InProcessGateway
        self.clock: ManualClock
        self.kill: Kill
        self.life = 0
        self.given: set[tuple[int, int]] = set()
        """Every producer id and epoch that somebody was told is its own."""
        self.transactions: list[tuple[str, Transaction]] = []
        """Those of all producers, in order, each with its group."""
        self.plain: dict[bytes, tuple[int, int]] = {}
        """Records of nobody's transaction, with the partitions and offsets that were answered."""
        self.frames: dict[str, list[Frame]] = {}
        """By transactional id, what was sent."""
        self._number = 0

    @asynccontextmanager
    async def living(self, *, crash_at: int = 0) -> AsyncIterator[None]:
        """Serve, until the crash; at the end go on from what it has left.

        It may come after so many operations on files, which those of the start are the first of.
        """
        backend = EmbeddedBackend(ROOT, self._options, fs=self._fs, state=self._state)
        self.clock = ManualClock(wall_ms=self._wall_ms)
        # A relaxed log has answered what a power loss may take; a kill takes nothing of it.
        is_kill = self.is_relaxed or self.random.random() < 0.4
        # What is drawn there depends on the threads: not from what draws all the rest.
        loss = Random(self.random.random())
        self.kill = Kill(loss, self._fs, self._state, is_kill=is_kill)
        self.report.count("kills" if is_kill else "power_losses")
        if crash_at:
            self.kill.arm_operation(crash_at)
        self.gateway = InProcessGateway(Config(), backend, self.clock)
        self.life += 1
        with self.kill.watching(self.gateway.gateway):
            async with self.gateway:
                try:
                    yield
                except DeadError:
                    pass
                finally:
                    self.kill.come()
                    self._wall_ms = self.clock.wall_ms()
                    self.kill.release()
        for api in self.gateway.internal_errors:
            self.report.fail(f"BUG: {api}")
        assert self.kill.left is not None
        self._fs, self._state = self.kill.left

    async def start(self) -> None:
        """Make the topic, in the first life."""
        mode = "relaxed" if self.is_relaxed else "strict"
        await create_topic(
            self.gateway, TOPIC, PARTITIONS, kgw_durability=mode, segment_bytes="4096"
        )

    @property
    def groups(self) -> list[str]:
        """The groups whose offsets are committed."""
        return list(dict.fromkeys(group for group, _ in self.transactions))

    async def wear_out(self, transactional_id: str) -> None:
        """Between two lives: let the epochs of a transactional id be nearly used up."""
        rows = await self._state.load(TRANSACTION)
        row = decode_row(rows[transactional_id].value)
        worn = row.producer._replace(epoch=LAST_EPOCH - self.random.randint(0, 3))
        value = row._replace(producer=worn).encode()
        await self._state.apply([Change(TRANSACTION, transactional_id, value)])

    # --- requests --------------------------------------------------------------------------------

    async def ask(self, request: Request, version: int, session: Session | None = None) -> Any:
        """Return the answer. Raises DeadError when there is none any more.

        Time passes while somebody waits for it: some answers come by a timer.
        """
        answer = asyncio.ensure_future(
            self.gateway.request(request, version, session=session or Session())
        )
        loop = asyncio.get_running_loop()
        until_s = loop.time() + patience.seconds(ANSWER_S)
        await asyncio.wait([answer], timeout=0.02)
        while not answer.done():
            if self.kill.has_come:
                self.kill.release()
            elif loop.time() > until_s:
                raise WrongError(f"HANGING: {type(request).__name__} v{version} is not answered")
            self.clock.advance(0.02)
            await asyncio.wait([answer], timeout=0.005)
        response = answer.result()
        if self.kill.has_come:
            raise DeadError
        return response

    async def call(self, api: ApiKey, version: int, **fields: Any) -> Any:
        """Ask with a request that is given as dictionaries."""
        return await self.ask(request_of(api, **fields), version)

    async def pass_time(self, seconds: float) -> None:
        """Let time go by, and everybody do what is due."""
        self.clock.advance(seconds)
        await asyncio.sleep(0.001)

    async def until_dead(self) -> None:
        """Wait for the crash, which comes by itself. Raises DeadError; WrongError if it does not.

        Little time passes, and only when the machine has had some: threads write meanwhile, and
        the row of a complete transaction waits for a moment.
        """
        for _ in range(2_000):
            if self.kill.has_come:
                raise DeadError
            await self.pass_time(0.001)
        raise WrongError("the step was not reached")

    def values(self) -> tuple[bytes, ...]:
        """Return values that nobody has used."""
        count = self.random.choice((1, 1, 2, 4))
        first = self._number
        self._number += count
        padding = b"." * self.random.choice((0, 30, 400))
        return tuple(b"%d%s" % (number, padding) for number in range(first, first + count))

    async def write_plain(self) -> None:
        """Append what is of no transaction."""
        partition = self.random.randrange(PARTITIONS)
        values = self.values()
        response = await self.ask(produce_request(batch(*values), name=TOPIC, index=partition), 9)
        (answer,) = response.responses[0].partition_responses
        if answer.error_code:
            raise WrongError(f"{ErrorCode(answer.error_code).name} for a plain batch")
        for offset, value in enumerate(values, answer.base_offset):
            self.plain[value] = partition, offset

    async def new_id(self) -> None:
        """Get an id for an idempotent producer."""
        answer = await self.call(
            ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=0
        )
        self.give((answer.producer_id, answer.producer_epoch))

    def give(self, producer: tuple[int, int]) -> None:
        """Note what somebody is told to be."""
        self.report.count("producers_given")
        if producer in self.given or producer[0] < 0:
            self.report.fail(f"HANDED OUT TWICE: {producer}")
        self.given.add(producer)

    # --- what readers see ------------------------------------------------------------------------

    async def ends(self, isolation: int) -> list[int]:
        """Return the high watermark, or the last stable offset, of each partition."""
        partitions = [{"partition_index": one, "timestamp": -1} for one in range(PARTITIONS)]
        response = await self.call(
            ApiKey.LIST_OFFSETS,
            5,
            replica_id=-1,
            isolation_level=isolation,
            topics=[{"name": TOPIC, "partitions": partitions}],
        )
        return [one.offset for one in response.topics[0].partitions]

    async def read(self, partition: int, isolation: int) -> list[tuple[int, bytes]]:
        """Return offset and value of everything that a reader of an isolation level gets."""
        offset = 0
        found: list[tuple[int, bytes]] = []
        size = self.random.choice((200, 2_000, 1 << 20))
        while True:
            request = fetch_request(
                offset,
                name=TOPIC,
                index=partition,
                partition_max_bytes=size,
                isolation_level=isolation,
            )
            data = (await self.ask(request, 12)).responses[0].partitions[0]
            code = ErrorCode(data.error_code)
            if code not in {ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE}:
                raise WrongError(f"{code.name} for a fetch at {offset}")
            end = data.last_stable_offset if isolation else data.high_watermark
            if offset >= end:
                return found
            aborted = [
                (one.producer_id, one.first_offset) for one in data.aborted_transactions or ()
            ]
            buffers = [data.records] if data.records else []
            found += [one for one in not_aborted(buffers, aborted) if one[0] >= offset]
            # A relaxed log leaves offsets out after a crash.
            offset = max(offset + 1, _end_of(data.records))

    async def look(self) -> None:
        """Be a reader of committed records, in the middle of it all."""
        hidden: dict[bytes, str] = {}
        for _, one in self.transactions:
            if one.fate is False or (one.fate is None and not (one.is_commit and one.is_end_asked)):
                kind = "ABORTED" if one.fate is False or one.is_end_asked else "PRECOMMITTED"
                hidden |= {
                    value: f"{kind} read of {one}" for b in one.batches for value in b.values
                }
        for partition in range(PARTITIONS):
            for offset, value in await self.read(partition, 1):
                if value in hidden:
                    self.report.fail(f"{hidden[value]}: {value[:20]!r} at {partition}/{offset}")
        self.report.count("looks_of_readers")

    async def offsets(self, group: str) -> dict[int, int]:
        """Return what a group has committed; -2 for what is not stable."""
        response = await self.call(
            ApiKey.OFFSET_FETCH,
            7,
            group_id=group,
            topics=[{"name": TOPIC, "partition_indexes": list(range(PARTITIONS))}],
            require_stable=True,
        )
        return {
            one.partition_index: -2 if one.error_code else one.committed_offset
            for topic in response.topics
            for one in topic.partitions
        }

    async def until_stable(self, limit_s: float) -> None:
        """Wait until everything is stable; a finding if that takes longer than it may."""
        started_s = self.clock.monotonic_s()
        graces = 0
        while True:
            ends, stable = await self.ends(0), await self.ends(1)
            waiting = [one for one in self.groups if -2 in (await self.offsets(one)).values()]
            if ends == stable and not waiting:
                break
            if self.clock.monotonic_s() - started_s < limit_s:
                await self.pass_time(0.5)
            elif graces < 100:
                # The machine may be slower than the simulated time.
                graces += 1
                await asyncio.sleep(0.01)
            else:
                raise WrongError(
                    f"HANGING: stable up to {stable} of {ends}, without {waiting}, "
                    f"after {limit_s:g} s"
                )
        self.report.count("times_that_all_became_stable")

    # --- the verdict -----------------------------------------------------------------------------

    async def judge(self) -> None:
        """Compare everything with what was told. Everything has ended by now."""
        seen: list[tuple[int, int, bytes]] = []
        committed: list[tuple[int, int, bytes]] = []
        for partition in range(PARTITIONS):
            seen += [(partition, *one) for one in await self.read(partition, 0)]
            committed += [(partition, *one) for one in await self.read(partition, 1)]
        for broken in self.broken_records(seen, committed):
            self.report.fail(broken)
        for group in self.groups:
            found = await self.offsets(group)
            for broken in self.broken_offsets(group, found):
                self.report.fail(broken)
        self.report.count("records_looked_at", len(seen) + len(committed))

    def broken_records(
        self, seen: list[tuple[int, int, bytes]], committed: list[tuple[int, int, bytes]]
    ) -> Iterator[str]:
        """Yield what is wrong with all (partition, offset, value), and the committed ones of them.

        Every transaction has a fate by now, or has not been ended.
        """
        places = {value: (partition, offset) for partition, offset, value in seen}
        for value, count in Counter(value for _, _, value in seen).items():
            if count > 1:
                yield f"DUPLICATE: {value[:20]!r} is stored {count} times"
        readable = {value for _, _, value in committed}
        for partition, offset, value in sorted(set(committed) - set(seen)):
            yield f"COMMITTED ALONE: {value[:20]!r} at {partition}/{offset}"
        for value, expected in self.plain.items():
            if value not in readable:
                yield f"LOST: a plain record {value[:20]!r} of {expected}"
            elif places.get(value, expected) != expected:
                yield f"MOVED: a plain record {value[:20]!r} to {places[value]}, not {expected}"
        known = set(self.plain)
        for _, one in self.transactions:
            values = [value for b in one.batches for value in b.values]
            known.update(values)
            there = [value for value in values if value in readable]
            if one.fate and len(there) < len(values):
                kind = "TORN" if there else "COMMIT LOST"
                yield f"{kind}: {len(there)} of {len(values)} records of {one}"
            elif not one.fate and there:
                kind = "ABORTED" if one.fate is False else "PRECOMMITTED"
                yield f"{kind} read: {len(there)} of {len(values)} records of {one}"
            for b, base_offset in one.answered.items():
                for number, value in enumerate(b.values):
                    expected = b.partition, base_offset + number
                    # Aborted or not: it was acknowledged.
                    if places.get(value) != expected:
                        yield f"MOVED: {value[:20]!r} to {places.get(value)}, answered {expected}"
        for value in places.keys() - known:
            yield f"PHANTOM: {value[:20]!r}"

    def broken_offsets(self, group: str, found: dict[int, int]) -> Iterator[str]:
        """Yield what is wrong with the offsets of a group, -2 for one that is not stable."""
        expected = dict.fromkeys(range(PARTITIONS), -1)
        others: dict[int, set[int]] = {}
        for of, one in self.transactions:
            if of == group and one.fate:
                expected.update(one.offsets)
            elif of == group:
                for partition, offset in one.offsets.items():
                    others.setdefault(partition, set()).add(offset)
        for partition, offset in expected.items():
            told = found[partition]
            if told == -2:
                yield f"HANGING: the offset of {group}/{partition} is not stable"
            elif told in others.get(partition, ()):
                yield f"COMMIT INVENTED: {group}/{partition} is at {told}, which was aborted"
            elif told != offset:
                yield f"COMMIT LOST: {group}/{partition} is at {told}, not {offset}"


def _end_of(records: Any) -> int:
    last = -1
    for one in split_batches(records) if records else ():
        last = one.last_offset
    return last + 1
