"""Transactional producers of both versions (KIP-98, KIP-890), and what they know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode
from kgw.handlers.context import Session
from kgw.protocol.api_keys import ApiKey
from tests.campaigns.transaction_steps import Step
from tests.campaigns.transaction_world import (
    PARTITIONS,
    TIMEOUT_MS,
    TOPIC,
    Batch,
    DeadError,
    Frame,
    Transaction,
    World,
    WrongError,
)
from tests.handlers.support import produce_request, request_of

if TYPE_CHECKING:
    from kgw.protocol.schema import Request

AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""What clients ask again after, for both versions."""


class Producer:
    """A client that uses a transactional id, which may fence others or be fenced."""

    def __init__(self, world: World, transactional_id: str, offset: int = 0) -> None:
        """`offset` is how far the group had got before."""
        self._world = world
        self.transactional_id = transactional_id
        self.group = f"{transactional_id}-group"
        self.is_version_2 = world.random.random() < 0.5
        self.producer = (-1, -1)
        """The id and epoch that it was told."""
        self.ended: tuple[tuple[int, int], bool] | None = None
        """Who ended the last transaction, if that raised the epoch and nothing has come since, and
        whether it was committed: whoever asks for it again is told so."""
        self._sequences: dict[int, int] = {}
        self._session = Session()
        self._life = world.life
        self._offset = offset
        self.hides_answer = False
        """Whether the answer to the end of its transaction does not arrive."""
        world.report.count(f"producers_of_version_{self.is_version_2 + 1}")

    def successor(self) -> Producer:
        """Return another one that comes with the same transactional id."""
        return Producer(self._world, self.transactional_id, self._offset)

    async def _send(self, kind: str, request: Request, version: int) -> Any:
        world = self._world
        if self._life != world.life:
            self._life, self._session = world.life, Session()
        frames = world.frames.setdefault(self.transactional_id, [])
        if kind:
            frames.append(Frame(kind, request, version, self.producer, self._session, world.life))
        return await world.ask(request, version, self._session)

    def _version(self, first: int, last: int, version_2: int) -> int:
        return version_2 if self.is_version_2 else self._world.random.randint(first, last)

    async def _until_taken(self, kind: str, request: Request, version: int, code_of: Any) -> Any:
        """Ask until nobody says to ask again. Raises WrongError for a refusal."""
        for _ in range(1_000):
            response = await self._send(kind, request, version)
            code = ErrorCode(code_of(response))
            if code is ErrorCode.NONE:
                return response
            if code not in AGAIN:
                raise WrongError(f"{code.name} for {kind or 'InitProducerId'} of {self.producer}")
            self._world.report.count("asked_again")
            await self._world.pass_time(0.1)
        raise WrongError(f"HANGING: {kind} of {self.producer} is never taken")

    async def begin(self, *, goes_on: bool = False) -> None:
        """Get the id and epoch; whoever had the transactional id is fenced.

        A producer that goes on says what it has (KIP-360).
        """
        producer_id, producer_epoch = self.producer if goes_on else (-1, -1)
        request = request_of(
            ApiKey.INIT_PRODUCER_ID,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        version = self._version(3 if goes_on else 0, 4, 5)
        answer = await self._until_taken("", request, version, lambda one: one.error_code)
        self.producer = answer.producer_id, answer.producer_epoch
        self._world.give(self.producer)
        self.ended = None
        self._sequences.clear()

    # --- a transaction ---------------------------------------------------------------------------

    def plan(self, *, is_commit: bool, has_offsets: bool) -> Transaction:
        """Return the next transaction: two batches at least, of two partitions at least."""
        world, random = self._world, self._world.random
        one = Transaction(
            f"{self.transactional_id}-{len(world.transactions)}", self.producer, is_commit=is_commit
        )
        world.transactions.append((self.group, one))
        places = random.sample(range(PARTITIONS), random.randint(2, PARTITIONS))
        if not self.is_version_2:
            half = random.randint(1, len(places))
            one.steps += [("add", part) for part in (places[:half], places[half:]) if part]
        steps: list[tuple[str, Any]] = []
        for place in [*places, *random.choices(places, k=random.randint(0, 2))]:
            one.batches.append(self._next(place))
            steps.append(("batch", one.batches[-1]))
        if has_offsets:
            self._offset += 1
            of = random.sample(range(PARTITIONS), random.randint(1, PARTITIONS))
            one.offsets = dict.fromkeys(of, self._offset)
            position = random.randint(1, len(steps))
            steps.insert(position, ("offsets", one.offsets))
            if not self.is_version_2:
                steps.insert(random.randint(0, position), ("group", None))
        one.steps += [*steps, ("end", None)]
        return one

    def _next(self, partition: int) -> Batch:
        values = self._world.values()
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        return Batch(*self.producer, partition, sequence, values)

    async def perform(self, one: Transaction, count: int | None = None) -> None:
        """Do what is left of a transaction, or of its first steps."""
        while one.done < (len(one.steps) if count is None else count):
            kind, what = one.steps[one.done]
            if kind == "add":
                await self._add(what)
            elif kind == "batch":
                if one.answered:
                    self._world.kill.reach(Step.BETWEEN_BATCHES)
                await self._write(one, what)
            elif kind == "group":
                await self._add_group()
            elif kind == "offsets":
                await self._commit_offsets(what)
            else:
                await self._end(one)
            one.done += 1

    def lapse(self, *, is_commit: bool) -> None:
        """Its transaction has ended, and it has not heard of it: the epoch was raised."""
        self.ended = self.producer, is_commit
        self.producer = self.producer[0], self.producer[1] + 1

    def _who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer[0],
            "producer_epoch": self.producer[1],
        }

    async def _add(self, places: list[int]) -> None:
        request = request_of(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            **{f"v3_and_below_{name}": value for name, value in self._who().items()},
            v3_and_below_topics=[{"name": TOPIC, "partitions": places}],
        )
        version = self._world.random.randint(0, 3)
        self.ended = None
        await self._until_taken("add", request, version, code_of_add)

    async def _add_group(self) -> None:
        request = request_of(ApiKey.ADD_OFFSETS_TO_TXN, **self._who(), group_id=self.group)
        version = self._world.random.randint(0, 4)
        await self._until_taken("group", request, version, lambda one: one.error_code)

    async def _write(self, one: Transaction, what: Batch) -> None:
        request = produce_request(
            what.records(), name=TOPIC, index=what.partition, transactional_id=self.transactional_id
        )
        version = self._version(3, 11, 12)
        kill = self._world.kill
        kill.expect(Step.BATCH)
        self.ended = None
        response = await self._until_taken("batch", request, version, code_of_produce)
        kill.reach(Step.BATCH)
        if kill.has_come:
            raise DeadError
        (answer,) = response.responses[0].partition_responses
        one.answered[what] = answer.base_offset

    async def _commit_offsets(self, offsets: dict[int, int]) -> None:
        partitions = [
            {"partition_index": one, "committed_offset": offset} for one, offset in offsets.items()
        ]
        request = request_of(
            ApiKey.TXN_OFFSET_COMMIT,
            **self._who(),
            group_id=self.group,
            topics=[{"name": TOPIC, "partitions": partitions}],
        )
        await self._until_taken("offsets", request, self._version(0, 4, 5), code_of_offsets)

    async def _end(self, one: Transaction) -> None:
        request = request_of(ApiKey.END_TXN, **self._who(), committed=one.is_commit)
        version = self._version(0, 4, 5)
        one.is_end_asked = True
        world = self._world
        answer = await self._until_taken("end", request, version, lambda one: one.error_code)
        world.kill.reach(Step.ANSWERED)
        if self.hides_answer:
            await world.until_dead()
        one.is_told, one.fate = True, one.is_commit
        if self.is_version_2:
            self.ended = self.producer, one.is_commit
            self.producer = answer.producer_id, answer.producer_epoch
            world.give(self.producer)
            self._sequences.clear()


def code_of_add(response: Any) -> int:
    """Return the code of an AddPartitionsToTxn, versions 0 to 3."""
    return int(
        response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    )


def code_of_produce(response: Any) -> int:
    """Return the code of a Produce of one batch."""
    return int(response.responses[0].partition_responses[0].error_code)


def code_of_offsets(response: Any) -> int:
    """Return the code of a TxnOffsetCommit."""
    return int(response.topics[0].partitions[0].error_code)
