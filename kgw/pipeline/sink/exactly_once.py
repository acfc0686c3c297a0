"""Writes each row of a stream exactly once: tasks write transactions, the driver commits them.

A task writes its rows and leaves its transaction open. When all tasks of a micro-batch are done,
the driver stores the list of their transactions in a transaction of its own; this is the decision.
Then it commits the listed transactions. After a crash Spark runs the batch again. If the batch has
a decision, no row is written again and the listed transactions are committed. Otherwise each task's
new producer, with the same transactional id, aborts the old transaction.
docs/decisions/0120-exactly-once-sink.md has the steps and the reasons.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.client import (
    ClientError,
    GroupClient,
    ServerRefusedError,
    TransactionalClient,
    TransactionalProducer,
    TransactionClient,
)
from kgw.errors import ErrorCode
from kgw.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kgw.client import GroupOffset
    from kgw.pipeline.options import TransactionOptions
    from kgw.pipeline.wire import WireClient

_METADATA_CHARS: Final = 4000
"""The longest metadata text for one offset: servers accept 4,096 bytes
(`offset.metadata.max.bytes`)."""
_DECISION_TIMEOUT_MS: Final = 60_000
_ENDED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
    }
)


class TaskAttempt(NamedTuple):
    """Identifies a task: its micro-batch, its partition of the batch, and its attempt."""

    query_id: str
    """The query's id in its checkpoint, which stays the same after a restart."""
    batch_id: int
    partition: int
    attempt: int


class BatchDecision(NamedTuple):
    """The list of transactions that belong to a micro-batch."""

    query_id: str
    batch_id: int
    producers: tuple[TransactionalProducer, ...]


def encode_decision(decision: BatchDecision) -> list[str]:
    """Encode a decision as texts of at most 4,000 characters, for offset metadata."""
    whole = json.dumps([decision.query_id, decision.producers], separators=(",", ":"))
    text = base64.b85encode(zlib.compress(whole.encode(), 9)).decode()
    starts = range(0, len(text), _METADATA_CHARS - 20)
    return [
        f"{number}/{len(starts)} {text[start : start + starts.step]}"
        for number, start in enumerate(starts, 1)
    ]


def decode_decision(batch_id: int, parts: Iterable[str]) -> BatchDecision:
    """Return the decision that is encoded in the texts.

    Raises PipelineError for texts that encode none.
    """
    try:
        found = {}
        of = set()
        for part in parts:
            place, text = part.split(" ")
            number, count = place.split("/")
            found[int(number)] = text
            of.add(int(count))
        (count_of_all,) = of
        text = "".join(found[number] for number in range(1, count_of_all + 1))
        query_id, producers = json.loads(zlib.decompress(base64.b85decode(text)))
        return BatchDecision(
            str(query_id),
            batch_id,
            tuple(TransactionalProducer(str(name), int(pid), int(e)) for name, pid, e in producers),
        )
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise PipelineError(
            f"what is noted of batch {batch_id} cannot be read: {error!r}"
        ) from None


class ExactlyOnce:
    """Begins, decides and ends the transactions of one streaming query.

    Every method raises ClientError and PipelineError.
    """

    def __init__(self, wire: WireClient, options: TransactionOptions) -> None:
        """`options` has the transactional id, which no other query may use."""
        self._wire = wire
        self._id = options.transactional_id
        self._timeout_ms = options.timeout_ms
        self.group_id = f"kgw-sink-{self._id}"
        """The group whose committed offset is the number of the last decided batch."""
        # `-task-` makes the prefix unique: all transactions with the prefix may be aborted, and
        # other programs may use ids such as ID-0-0.
        self._task_prefix = f"{self._id}-task-"
        self._transactions = TransactionalClient(wire.client)

    def begin(self, place: TaskAttempt) -> TransactionalProducer | None:
        """Return the producer for a task's rows; None if its batch was decided before."""
        decision = self._wire.call(self._decision())
        if decision is not None:
            self._check(decision, place.query_id, place.batch_id)
            if decision.batch_id == place.batch_id:
                return None
        return self._wire.call(
            self._transactions.begin(
                f"{self._task_prefix}{place.partition}-{place.attempt}",
                timeout_ms=self._timeout_ms,
            )
        )

    def commit(
        self,
        query_id: str,
        batch_id: int,
        producers: Sequence[TransactionalProducer],
        topic: str | None,
    ) -> None:
        """Commit the transactions of a micro-batch, or those of its earlier decision.

        The decision is stored as offset metadata of partitions of `topic`; None is for a batch
        without rows.
        """
        self._wire.call(self._commit(query_id, batch_id, tuple(producers), topic))

    def abort(self, producers: Iterable[TransactionalProducer]) -> None:
        """Try to abort transactions; the server aborts the rest after their timeout."""
        self._wire.call(self._abort(producers))

    async def _commit(
        self,
        query_id: str,
        batch_id: int,
        producers: tuple[TransactionalProducer, ...],
        topic: str | None,
    ) -> None:
        # The new producer epoch fences an older driver that is still running: it can make no more
        # decisions.
        decider = await self._transactions.begin(self._id, timeout_ms=_DECISION_TIMEOUT_MS)
        decision = await self._decision()
        if decision is not None:
            self._check(decision, query_id, batch_id)
        if decision is None or decision.batch_id < batch_id:
            if topic is None or not producers:
                return
            decision = BatchDecision(query_id, batch_id, producers)
            await self._decide(decider, decision, topic)
            producers = ()
        await asyncio.gather(*(self._finish(decision, one) for one in decision.producers))
        await self._abort(producers)
        await self._abort_left(decision)

    async def _decide(
        self, decider: TransactionalProducer, decision: BatchDecision, topic: str
    ) -> None:
        parts = encode_decision(decision)
        client = self._wire.client
        # Retry without a limit, so that a restart of the gateway does not end the query.
        described = await client.retrying(lambda: client.find_topic(topic))
        partitions = 0 if described is None else len(described.partitions)
        if len(parts) > partitions:
            await self._abort(decision.producers)
            raise PipelineError(
                f"batch {decision.batch_id} was written by {len(decision.producers)} tasks, more "
                f"than can be noted at the {partitions} partitions of topic {topic}: coalesce the "
                "rows before they are written, or give the topic more partitions"
            )
        offsets = {(topic, index): (decision.batch_id, part) for index, part in enumerate(parts)}
        await asyncio.gather(*(self._check_open(decision, one) for one in decision.producers))
        await self._transactions.commit_offsets(decider, self.group_id, offsets)
        await self._transactions.end(decider, is_commit=True)

    async def _check_open(self, decision: BatchDecision, producer: TransactionalProducer) -> None:
        """Raise PipelineError if a transaction has ended before the decision."""
        name = producer.transactional_id
        client = self._wire.client
        found = await client.retrying(lambda: TransactionClient(client).describe(name))
        is_same = (found.producer_id, found.producer_epoch) == producer[1:]
        if found.state != "Ongoing" or not is_same:
            raise PipelineError(
                f"batch {decision.batch_id}: transaction {name} was ended before all tasks had "
                "written, by the server after kafka.transaction.timeout.ms, or by another query "
                "with the same kafka.transactional.id. Nothing of the batch is committed; start "
                "the query again to have it written anew"
            )

    async def _finish(self, decision: BatchDecision, producer: TransactionalProducer) -> None:
        try:
            await self._transactions.end(producer, is_commit=True)
        except ServerRefusedError as error:
            if error.code not in _ENDED:
                raise
            raise PipelineError(
                f"batch {decision.batch_id} was decided, but a transaction of it cannot be "
                f"committed: {error}. The server ends one that is open for longer than "
                "kafka.transaction.timeout.ms, and another query with the same "
                "kafka.transactional.id ends it, too. Records of the batch may be missing: write "
                "it again with another kafka.transactional.id and a new checkpoint, and remove "
                "what is there twice"
            ) from error

    async def _abort(self, producers: Iterable[TransactionalProducer]) -> None:
        for one in producers:
            with suppress(ClientError):
                await self._transactions.end(one, is_commit=False)

    async def _abort_left(self, decision: BatchDecision) -> None:
        """Abort open transactions of failed attempts: they block readers of committed records."""
        decided = {one.transactional_id for one in decision.producers}
        of_tasks = re.compile(re.escape(self._task_prefix) + r"\d+-\d+")
        with suppress(ClientError):
            for found in await TransactionClient(self._wire.client).transactions(
                states=["Ongoing"]
            ):
                name = found.transactional_id
                if of_tasks.fullmatch(name) and name not in decided:
                    await self._transactions.begin(name, timeout_ms=self._timeout_ms)

    # Decisions

    async def _decision(self) -> BatchDecision | None:
        """Return the last decision, after any unfinished one has ended."""
        client, groups = self._wire.client, GroupClient(self._wire.client)

        async def read() -> dict[tuple[str, int], GroupOffset] | None:
            try:
                return await groups.offsets(self.group_id, require_stable=True)
            except ServerRefusedError as error:
                if error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    return None
                raise

        found = await client.retrying(read)
        if found is None:
            # A driver that died left its transaction open: a new producer with the same id ends it.
            await self._transactions.begin(self._id, timeout_ms=_DECISION_TIMEOUT_MS)
            found = await client.retrying(
                lambda: groups.offsets(self.group_id, require_stable=True)
            )
        if not found:
            return None
        batch_id = max(one.offset for one in found.values())
        return decode_decision(
            batch_id, (one.metadata for one in found.values() if one.offset == batch_id)
        )

    def _check(self, decision: BatchDecision, query_id: str, batch_id: int) -> None:
        if decision.query_id != query_id:
            raise PipelineError(
                f"kafka.transactional.id {self._id} belongs to the query of another checkpoint "
                f"({decision.query_id}): give each query one of its own"
            )
        if decision.batch_id > batch_id:
            raise PipelineError(
                f"batch {batch_id} was written before, and batch {decision.batch_id} after it: the "
                "checkpoint is older than what has been written. Restore the newest one, or begin "
                "with a new checkpoint and another kafka.transactional.id"
            )
