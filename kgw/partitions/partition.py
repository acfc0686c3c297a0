"""One partition: what may enter, in which order, and who waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kgw.backend.base import PartitionLog
    from kgw.clock import Clock
    from kgw.partitions.topic import Topic
    from kgw.partitions.topic_config import TopicConfig
    from kgw.partitions.waits import FetchWait


class Partition:
    """The write and read path of one partition of one topic."""

    __slots__ = ("_clock", "_config", "index", "log", "topic", "waits")

    def __init__(self, topic: Topic, index: int, log: PartitionLog, clock: Clock) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.waits: dict[FetchWait, None] = {}
        self._clock = clock
        self._config = topic.config

    def __repr__(self) -> str:
        return f"<Partition {self.topic.name}-{self.index} {self.log!r}>"

    async def open(self) -> None:
        """Rebuild derived state from the log."""

    @property
    def is_dirty(self) -> bool:
        """Whether a snapshot would say something new."""
        return False

    async def save_snapshot(self) -> None:
        """Keep derived state for the next start."""

    def configure(self, config: TopicConfig) -> None:
        """Take a changed configuration from the next append on."""
        self._config = config

    def retire(self) -> None:
        """End what waits for this partition: its topic has been deleted."""
        for wait in list(self.waits):
            wait.fire()

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise KafkaError when a client's idea of the leader epoch is not ours (KIP-320).

        -1 is no idea, and always right.
        """
        if current_leader_epoch < 0:
            return
        leader_epoch = self.log.leader_epoch
        if current_leader_epoch < leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {leader_epoch} by now"
            )
        if current_leader_epoch > leader_epoch:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"the leader epoch is only {leader_epoch}"
            )
