"""What a history is made of, and what must never be seen in one."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_PARTITION: Final = -1
"""The partition of an anomaly that is of none, or of several."""
NO_OFFSET: Final = -1
"""What OffsetFetch tells where nothing is committed."""


class Outcome(Enum):
    """How an operation ended, as far as its client knows."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Send(NamedTuple):
    """One record sent; listed in the order in which its process sent them.

    No other send has the same value. What is sent again in another transaction needs another
    value, such as one that ends with the name of the transaction.
    """

    process: str
    partition: int
    value: bytes
    outcome: Outcome
    offset: int | None = None
    """Where it landed, when the outcome is OK and the client asked."""
    transaction: str | None = None
    """The transaction in which it was sent, by a name that no other one of the history has. Such a
    record counts as acknowledged only if its transaction is committed."""


class TransactionEnd(NamedTuple):
    """How a transaction ended.

    OK is committed for certain; FAIL aborted for certain, by an abort that was answered or a
    definite fencing; INFO unknown, as it is without any end: all of it counts or none of it. Of
    several ends of a transaction the last one counts.
    """

    process: str
    transaction: str
    outcome: Outcome


class Poll(NamedTuple):
    """Records that a consumer got in one go from one partition."""

    process: str
    partition: int
    records: tuple[tuple[int, bytes], ...]
    """(offset, value) in the order of delivery."""
    transaction: str | None = None
    """The transaction in which its process polled."""
    read_committed: bool = False


class Seek(NamedTuple):
    """A consumer was told to go on elsewhere: its next poll may jump.

    A rebalance that gives it the partition is one, too.
    """

    process: str
    partition: int


class Commit(NamedTuple):
    """An offset that a process committed for a group.

    In a transaction it is OK when the group took it; whether it counts, and from when on, says the
    transaction's end. FAIL is a definite refusal. What is INFO may count from then on. Two commits
    of one partition of a group, of which neither was refused, are never under way at once.
    """

    process: str
    group: str
    partition: int
    offset: int
    outcome: Outcome
    transaction: str | None = None


class FetchedOffset(NamedTuple):
    """What OffsetFetch told of an offset; -1 where none is committed.

    It was asked with `require_stable`, and not while the partition's owner might commit.
    """

    group: str
    partition: int
    offset: int


class Bounds(NamedTuple):
    """What a broker said about a partition.

    The last stable offset is of the same answer as the high watermark, or was asked before it.
    """

    partition: int
    log_start_offset: int
    high_watermark: int
    leader_epoch: int
    last_stable_offset: int | None = None


Event: TypeAlias = Send | TransactionEnd | Poll | Seek | Commit | FetchedOffset | Bounds


class FinalLog(NamedTuple):
    """A partition read from start to end after everything has healed."""

    log_start_offset: int
    high_watermark: int
    records: Sequence[tuple[int, bytes]]
    committed: Sequence[tuple[int, bytes]] | None = None
    """What a reader of committed records gets of it, or None where nobody looked."""
    last_stable_offset: int | None = None

    @property
    def records_end(self) -> int:
        """The offset after the last record."""
        return self.records[-1][0] + 1 if self.records else self.log_start_offset

    @property
    def stable_end(self) -> int:
        """Where readers of committed records get no further."""
        return self.high_watermark if self.last_stable_offset is None else self.last_stable_offset


class AnomalyKind(Enum):
    """What must never be seen."""

    ACKED_LOST = "acked-lost"
    ACKED_MOVED = "acked-moved"
    DUPLICATE = "duplicate"
    ABORTED_READ = "aborted-read"
    PHANTOM = "phantom"
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    TIME_TRAVEL = "time-travel"
    BOUNDS_WENT_BACK = "bounds-went-back"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    POLL_SKIP = "poll-skip"
    UNSEEN = "unseen"
    TORN_TRANSACTION = "torn-transaction"
    PRECOMMITTED_READ = "precommitted-read"
    CIRCULAR_INFORMATION = "circular-information"
    HANGING = "hanging"
    COMMIT_LOST = "commit-lost"
    COMMIT_INVENTED = "commit-invented"
    STUCK = "stuck"


class Anomaly(NamedTuple):
    """One finding."""

    kind: AnomalyKind
    partition: int
    detail: str
