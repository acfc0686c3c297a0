"""Finds logs that end before their known end, and continues them after the lost records.

This is the work of `kgw log accept-loss` on a namespace. No offset is assigned twice: empty batches
replace the lost records, and a log without any records begins after them.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import EpochStart
from kgw.backend.log_copy import LogFacts
from kgw.backend.seaweedmq.offline.check import known_topics
from kgw.backend.seaweedmq.offline.log_place import NamespaceLogs
from kgw.backend.seaweedmq.offline.views import LogView
from kgw.backend.seaweedmq.topics.directories import TopicDirectories
from kgw.backend.seaweedmq.topics.known_ends import KnownEnds
from kgw.errors import CorruptionError
from kgw.records.compaction import make_filler
from kgw.types import PartitionKey

if TYPE_CHECKING:
    from collections.abc import Collection

    from kgw.backend.seaweedmq.offline.opening import Namespace
    from kgw.types import TopicName

_FILLER_OFFSETS: Final = 1 << 31
"""The most offsets that one empty batch covers."""


class Loss(NamedTuple):
    """A partition whose log has lost records at its end."""

    topic: TopicName
    partition: int
    key: PartitionKey
    end_offset: int
    """The present end of the log."""
    lost_end: int
    """The known end of the log before the loss; the log may have ended later."""
    facts: LogFacts | None = None
    """The facts of the log after the repair; None if it cannot be repaired."""
    obstacle: str | None = None
    """The reason why it cannot be repaired."""


async def find_losses(namespace: Namespace, topics: Collection[str]) -> list[Loss]:
    """Return the logs of the given topics, or of all topics, that have lost their end.

    Raises FilerError, DamagedStateError.
    """
    state = namespace.state()
    await state.open()
    async with aclosing(state):
        known, _ = await known_topics(state)
        ends = KnownEnds(state)
        await ends.open()
    directories = TopicDirectories(namespace.filer, namespace.name)
    found = []
    for topic in sorted(known):
        if topics and topic.name not in topics:
            continue
        place = await directories.find(topic.name, topic.topic_id)
        for partition in range(topic.partitions):
            key = PartitionKey(topic.topic_id, partition)
            directory = None if place is None else place.partition(partition)
            loss = await _loss(namespace, topic.name, key, directory, ends.of(key))
            if loss is not None:
                found.append(loss)
    return found


async def accept_losses(namespace: Namespace, losses: Collection[Loss]) -> None:
    """Let logs continue after their lost records. Raises StorageError.

    After an interruption, call it again; `find_losses` still finds the unfinished logs.
    """
    logs = NamespaceLogs(namespace)
    async with aclosing(logs):
        for loss in losses:
            facts = loss.facts
            if facts is None:
                continue
            start_offset = await logs.begin(facts) or 0
            # Record the end of the lost records. Until the log reaches it, the log counts as too
            # short.
            await logs.promise(facts)
            for start in range(start_offset, loss.lost_end, _FILLER_OFFSETS):
                end = min(start + _FILLER_OFFSETS, loss.lost_end)
                filler = make_filler(start, end, facts.epochs[-1].leader_epoch)
                await logs.append(facts.key, [filler])
            await logs.finish(facts)


async def _loss(
    namespace: Namespace, topic: TopicName, key: PartitionKey, directory: str | None, known_end: int
) -> Loss | None:
    view = None
    end_offset = 0
    try:
        if directory is not None:
            view = await LogView.open(namespace.filer, directory)
        if view is not None:
            end_offset = await view.end_offset()
    except CorruptionError as error:
        return Loss(topic, key.partition, key, 0, known_end, obstacle=str(error))
    detail = None if view is None else view.detail
    lost_end = known_end if detail is None else max(known_end, detail.clean_end)
    if end_offset >= lost_end:
        return None
    log_start_offset = lost_end if detail is None or not end_offset else detail.log_start_offset
    # Consumers may have read other records under the earlier epochs.
    epochs = (EpochStart(0, 0),) if detail is None else detail.epochs
    begun = EpochStart(epochs[-1].leader_epoch + 1, end_offset)
    kept = tuple(one for one in epochs if one.start_offset < end_offset)
    facts = LogFacts(topic, key, log_start_offset, lost_end, 0, (*kept, begun))
    if detail is not None:
        facts = facts._replace(
            log_start_offset=max(log_start_offset, detail.log_start_offset),
            compacted_end=detail.compacted_end,
            recompressed=detail.recompressed,
        )
    return Loss(topic, key.partition, key, end_offset, lost_end, facts)
