"""The present topics of SMQ's broker, and their open partitions."""

from __future__ import annotations

from asyncio import CancelledError, ensure_future, gather
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import ForeignTopic, TopicNote
from kgw.backend.seaweedmq.native.names import (
    NativeTopic,
    is_offered,
    may_have_topics,
    read_topic_conf,
)
from kgw.backend.seaweedmq.native.partition_log import FollowOptions, NativePartitionLog
from kgw.backend.seaweedmq.native.publishing import Publisher
from kgw.backend.seaweedmq.topics.directories import is_ours
from kgw.backend.seaweedmq.topics.topic_conf import TOPIC_CONF, TOPICS, topics_directory
from kgw.errors import StorageError
from kgw.logs import EventLogger
from kgw.problems import UNOPENED

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable

    from kgw.backend.seaweedmq.filer import Filer
    from kgw.backend.seaweedmq.native.broker import NativeBroker
    from kgw.backend.seaweedmq.shell import Shell
    from kgw.types import PartitionKey, TopicId

ACKS_FILER: Final = "filer"
ACKS_BROKER: Final = "broker"
LEADER: Final = "SeaweedMQ's broker"
LOSS: Final = {
    ACKS_FILER: "none that was acknowledged: it was in a log file before",
    ACKS_BROKER: "what the broker has not written when it ends, however it ends: the last seconds "
    "(-logFlushInterval); it may give their offsets to other records",
}
"""The acknowledged records that may be lost, by `kgw.seaweedmq.acks`."""
_READ_ONLY: Final = (
    "topics that SeaweedMQ's broker leads are read only; kgw.seaweedmq.native.write=true lets "
    "Kafka clients write to them"
)

_log = EventLogger(__name__)


class NativeOptions(NamedTuple):
    """The topics that Kafka clients see, and how they are served."""

    patterns: tuple[str, ...]
    """Patterns `<namespace>.<topic>`, each part with `*` and `?`."""
    is_writable: bool = False
    acks: str = ACKS_FILER
    """When a record is acknowledged to producers, and shown to consumers."""
    refresh_s: float = 10.0
    """How often the topics are listed."""
    open_at_once: int = 32
    confirm_s: float = 60.0
    """Time within which a record that the broker has accepted should be in a log file."""
    follow: FollowOptions = FollowOptions()


class NativeTopics:
    """The topics of one SeaweedFS that its own broker leads. Used in the event loop alone."""

    def __init__(
        self,
        shell: Shell,
        options: NativeOptions,
        broker: NativeBroker | None,
        on_change: Callable[[], None],
    ) -> None:
        """A `broker` is needed for appends, and to read records that are not in files yet."""
        self._shell = shell
        self._options = options
        self._broker = broker
        self._on_change = on_change
        self._topics: dict[TopicId, NativeTopic] = {}
        self._seen: dict[tuple[str, str], tuple[bytes, NativeTopic | None]] = {}
        self._logs: dict[PartitionKey, NativePartitionLog] = {}
        self._past_anomalies = 0
        self._has_failed = False
        """Whether a partition could not be opened."""
        self._task: Task[None] | None = None

    async def open(self) -> None:
        """List the topics, now and from time to time. Raises FilerError."""
        options = self._options
        _log.info(
            "topics of SeaweedMQ's broker are served",
            topics=",".join(options.patterns),
            access="read and write" if options.is_writable else "read only",
            acks=options.acks,
            lost_when_the_broker_ends=LOSS[options.acks],
        )
        await self.refresh()
        self._task = ensure_future(self._refresh_regularly())

    async def aclose(self) -> None:
        """Close all partitions."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(CancelledError):
                await task
        await gather(*(log.aclose() for log in self._logs.values()))
        self._logs.clear()
        if self._broker is not None:
            await self._broker.aclose()

    # --- topics ----------------------------------------------------------------------------------

    @property
    def topics(self) -> list[ForeignTopic]:
        """All topics, as the catalogue serves them."""
        return [self._foreign(topic) for topic in self._topics.values()]

    def _foreign(self, topic: NativeTopic) -> ForeignTopic:
        options = self._options
        notes = (
            TopicNote("kgw.led.by", LEADER, "Who creates, changes and deletes the topic."),
            TopicNote(
                "kgw.seaweedmq.acks",
                options.acks,
                "From when on a record counts, for producers and consumers: once it is in a log "
                "file (filer), or in the broker's memory (broker).",
            ),
            TopicNote(
                "kgw.seaweedmq.loss",
                LOSS[options.acks],
                "What is lost of acknowledged records when SeaweedMQ's broker ends.",
            ),
        )
        return ForeignTopic(
            topic.kafka_name,
            topic.topic_id,
            len(topic.partitions),
            LEADER,
            read_only="" if options.is_writable else _READ_ONLY,
            settings={"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"},
            notes=notes,
        )

    async def refresh(self) -> None:
        """List the topics. Raises FilerError."""
        found: dict[TopicId, NativeTopic] = {}
        seen: dict[tuple[str, str], tuple[bytes, NativeTopic | None]] = {}
        filer, patterns = self._shell.filer, self._options.patterns
        async for namespace in filer.list_entries(TOPICS, chunks=False):
            if not namespace.is_directory or not may_have_topics(patterns, namespace.name):
                continue
            root = topics_directory(namespace.name)
            async for entry in filer.list_entries(root, chunks=False):
                place = (namespace.name, entry.name)
                if not entry.is_directory or not is_offered(patterns, *place):
                    continue
                conf = await filer.look_up(f"{root}/{entry.name}", TOPIC_CONF)
                if conf is None:
                    continue
                content, topic = self._seen.get(place, (b"", None))
                if content != conf.content:
                    topic = await self._read(filer, *place, conf.content)
                seen[place] = conf.content, topic
                if topic is not None:
                    found[topic.topic_id] = topic
        self._seen = seen
        is_changed = found.keys() != self._topics.keys()
        if is_changed or self._has_failed:
            # Partitions that could not be opened are tried again.
            self._has_failed = False
            self._topics = found
            self._on_change()

    async def _read(
        self, filer: Filer, namespace: str, name: str, content: bytes
    ) -> NativeTopic | None:
        """Return a topic; None if kgw leads it or it cannot be served."""
        place = f"{topics_directory(namespace)}/{name}"
        try:
            topic = read_topic_conf(namespace, name, content)
        except ValueError as error:
            text = f"{place}/{TOPIC_CONF} is not served: {error}"
            seen = (namespace, name)
            self._shell.report(
                text, UNOPENED, lambda: self._seen.get(seen, (b"", None))[0] != content
            )
            return None
        version = await filer.look_up(topic.parent, topic.version)
        if version is not None and is_ours(version):
            return None
        return topic

    async def _refresh_regularly(self) -> None:
        clock = self._shell.clock
        is_reachable = True
        while True:
            await clock.sleep_until(clock.monotonic_s() + self._options.refresh_s)
            try:
                await self.refresh()
            except StorageError as error:
                if is_reachable:
                    _log.warning("topics of SeaweedMQ's broker cannot be listed", error=error)
                is_reachable = False
            else:
                is_reachable = True

    # --- partitions ------------------------------------------------------------------------------

    def has(self, key: PartitionKey) -> bool:
        """Return whether a partition belongs to one of these topics."""
        return key.topic_id in self._topics

    async def open_partition(self, key: PartitionKey) -> NativePartitionLog:
        """Return a partition's log, opened. Raises StorageError."""
        log = self._logs.get(key)
        if log is not None:
            return log
        topic, options = self._topics[key.topic_id], self._options
        broker = self._broker
        publisher = None
        if options.is_writable and broker is not None:
            publisher = Publisher(
                topic,
                key.partition,
                broker,
                self._shell,
                waits_for_file=options.acks == ACKS_FILER,
                confirm_s=options.confirm_s,
            )
        memory = broker if options.acks == ACKS_BROKER else None
        log = NativePartitionLog(key, topic, self._shell, options.follow, publisher, memory)
        try:
            await log.open()
        except StorageError as error:
            self._has_failed = True
            self._shell.report(
                f"partition {topic}-{key.partition} cannot be served: {error}",
                UNOPENED,
                lambda: key in self._logs or key.topic_id not in self._topics,
            )
            raise
        self._logs[key] = log
        return log

    async def release(self, key: PartitionKey) -> None:
        """Stop following a partition."""
        log = self._logs.pop(key, None)
        if log is not None:
            self._past_anomalies += log.anomalies
            await log.aclose()

    @property
    def logs(self) -> dict[PartitionKey, NativePartitionLog]:
        """The partitions that are open."""
        return dict(self._logs)

    @property
    def anomalies(self) -> int:
        """Number of contradictions in the broker's logs since the start."""
        return self._past_anomalies + sum(log.anomalies for log in self._logs.values())
