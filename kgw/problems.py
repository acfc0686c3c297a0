"""The table of reasons why records are refused, or cannot be read as usual.

Readiness, the log, the metric `kgw_problem`, the alerts, `kgw doctor` and the page
docs/reference/problems.md use this table. A test causes each problem and checks that all of them
show it.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

REFUSED_LATELY_S: Final = 300.0
"""How long the reason of a refusal is shown after the last refusal.

Producers retry a batch for two minutes by default, and alerts and operators must still find the
reason after that.
"""


_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})

_TOLD: Final = 100
"""The most problems that `Reports` shows for one reason."""
_REPORTS: Final = 10_000
"""The most problems that `Reports` keeps. Others are not logged, so that the log stays small."""


class Reason(NamedTuple):
    """One row of the table: a reason for problems."""

    name: str
    """The value of the label `reason`."""
    stops: bool
    """Whether the server accepts no records at all while it exists, so that it is not ready."""
    refuses: bool
    """Whether some records are refused or cannot be read while it exists, or will be lost.

    If not, the problem is harmless so far.
    """
    meaning: str
    ends: str
    """The condition under which the problem ends, and how an operator can reach it."""
    is_told_at_once: bool = False
    """Whether the code that finds such a problem logs it, so that `ProblemWatch` does not."""


class Problem(NamedTuple):
    """A problem with its reason, as a sentence."""

    reason: Reason
    text: str


STARTING: Final = Reason(
    "starting",
    True,
    True,
    "What is kept is being opened and recovered.",
    "When that is done. A start after a kill reads what was written last.",
    is_told_at_once=True,
)
STOPPING: Final = Reason(
    "stopping",
    True,
    True,
    "The process is about to end.",
    "With the process.",
    is_told_at_once=True,
)
NOT_LEADING: Final = Reason(
    "not-leading",
    True,
    True,
    "Another server leads what this one serves, or it could not be confirmed in time that this one "
    "does: requests are refused.",
    "When this one leads again, or with the process: see [two gateways](../two-gateways.md).",
    is_told_at_once=True,
)
CLOSED: Final = Reason(
    "closed", True, True, "What is kept is not open.", "When it is opened by the next start."
)
ROOM: Final = Reason(
    "room",
    True,
    True,
    "The disk has less free space than `kgw.min.free.bytes`: every append is refused.",
    "When there is room: it is looked at every few seconds. Make room, see "
    "[disk full](../troubleshooting.md#storage-error-disk-full).",
)
BATCH_ROOM: Final = Reason(
    "batch-room",
    True,
    True,
    "A batch, with those that came at the same time, was refused because it would have taken the "
    "disk below `kgw.min.free.bytes`. Smaller ones may still fit.",
    "When there is room for as much, or five minutes after the last refusal. Make room.",
)
NO_SPACE: Final = Reason(
    "no-space",
    False,
    True,
    "The system has refused a write for want of space although more than `kgw.min.free.bytes` is "
    "free: a quota, or no inodes are left.",
    "Five minutes after the last refusal. Look at `df -i` and at quotas.",
)
DESCRIPTORS: Final = Reason(
    "descriptors",
    False,
    True,
    "A file could not be opened, or no connection can be accepted, because the process, or the "
    "system, has too many open.",
    "Five minutes after the last refusal. Raise the limit of open files (`ulimit -Hn`), or lower "
    "`max.connections`.",
)
DISK_ERROR: Final = Reason(
    "disk-error",
    False,
    True,
    "The disk has refused a read, a write or a look at its room, with another error than those "
    "above, or does not say how much room it has: it hangs.",
    "Five minutes after the last refusal. Find out what the disk has.",
)
DISK: Final = Reason(
    "disk",
    True,
    True,
    "A sync has failed, or a bug was met in the middle of a write: what is on the disk is unknown, "
    "and nothing is written any more.",
    "With the next start, which recovers what was acknowledged. Find out first what the disk has.",
    is_told_at_once=True,
)
STATE: Final = Reason(
    "state",
    True,
    True,
    "The state store takes no writes: topics, settings, committed offsets and transactions cannot "
    "be stored.",
    "When a database server is back; of another failure with the next start.",
)
STATE_ROOM: Final = Reason(
    "state-room",
    False,
    True,
    "The state store has refused its last commit for want of space: committed offsets and changes "
    "of topics are refused.",
    "When a commit is stored. Make room where the state store is.",
)
DAMAGE: Final = Reason(
    "damage",
    False,
    True,
    "Stored records fail their checksum or are missing. They are never served; all others are.",
    "When retention or DeleteRecords has removed them or their topic is deleted. "
    "`kgw log check` says what is damaged, `kgw consume` how to read past it.",
    is_told_at_once=True,
)
STORAGE: Final = Reason(
    "storage",
    False,
    False,
    "Something about the storage was not as it should be and was put right, or is left over.",
    "With the next start, unless that finds it again.",
    is_told_at_once=True,
)
UNOPENED: Final = Reason(
    "unopened",
    False,
    True,
    "Partitions are not open yet, or cannot be opened: requests to them are refused.",
    "When they are open: it is tried again.",
)
UNCLAIMED: Final = Reason(
    "unclaimed",
    False,
    True,
    "Partitions that hold records belong to no topic: nobody can read them.",
    "When they are adopted with `kgw log adopt`, or removed.",
)
NO_PARTITION: Final = Reason(
    "no-partition",
    True,
    True,
    "No partition takes records: each has waited for SeaweedFS for too long, or has another writer "
    "by now.",
    "When SeaweedFS takes them again. A partition that another gateway writes stays with it.",
)
STOPPED: Final = Reason(
    "stopped-partition",
    False,
    True,
    "A partition takes no more writes: in SeaweedFS its files are not as its writer left them, or "
    "another gateway writes it. What it has is read as far as it is there.",
    "With a start that finds them in order, or without the partition's topic. `kgw log check` says "
    "what is wrong with them; bring back from a backup what is gone.",
)
SEAWEEDFS: Final = Reason(
    "seaweedfs",
    False,
    True,
    "Appends have waited for SeaweedFS for more than ten seconds, or are refused.",
    "When SeaweedFS takes them. `kgw doctor --backend ...` says what is wrong there.",
)
NO_VOLUME: Final = Reason(
    "no-volume",
    True,
    True,
    "SeaweedFS has no volume that can be written: every append waits, and is refused in the end.",
    "When the master gives one: it is asked every few seconds. Make room on the volume servers, or "
    "start more of them; see whether volumes are read-only (`volume.list` in `weed shell`).",
)
VOLUME_SERVER: Final = Reason(
    "volume-server",
    False,
    True,
    "A volume server of SeaweedFS does not answer reads or uploads: chunks that no other one has "
    "are not served meanwhile. Reads try it last.",
    "When it answers, or a minute after it was asked last. Look at that server; "
    "`volume.fix.replication` makes copies elsewhere of what it had.",
)
READS: Final = Reason(
    "reads",
    False,
    True,
    "Reads wait for the storage, or have failed: what clients ask for is not served, or is late.",
    "When the storage answers; of a read that has failed five minutes after the last one. "
    "Look at the disk; of a SeaweedFS at the volume server that is named.",
)
WAITING: Final = Reason(
    "waiting",
    False,
    True,
    "An append was refused because `kgw.seaweedmq.waiting.bytes` wait for SeaweedFS already.",
    "Five minutes after the last refusal. See why SeaweedFS is slow.",
)
FILERS: Final = Reason(
    "filers",
    True,
    True,
    "The SeaweedFS has more than one filer: they give each other older states of entries, so that "
    "acknowledged records could be lost. Every write is refused, reads go on. Do not restart kgw "
    "meanwhile: it alone knows what is to be put back.",
    "When one filer has been the only one for eight seconds: writes go on by themselves. Stop the "
    "others, or put kgw's filer into a group of its own (`weed filer -filerGroup=NAME`).",
    is_told_at_once=True,
)
RULES: Final = Reason(
    "rules",
    True,
    True,
    "A rule of the filer (`fs.configure`) for the namespace's directories would delete what is "
    "stored, or lets nothing be stored. Every write is refused, reads go on.",
    "Within seconds when the rule is taken away: writes go on by themselves.",
    is_told_at_once=True,
)
EXPIRING: Final = Reason(
    "expiring",
    False,
    True,
    "A rule of the filer (`fs.configure`) had a TTL for the namespace's directories while kgw "
    "wrote: SeaweedFS will delete what was stored in the time that is named, and what is named of "
    "each partition, though the rule is gone.",
    "When retention has removed all that will be deleted, and what names a time with the next "
    "start. Copy the records before: see [SeaweedMQ](../seaweedmq.md#when-something-is-wrong).",
    is_told_at_once=True,
)
FILES: Final = Reason(
    "files",
    False,
    True,
    "A partition has so many files in SeaweedFS that its appends are refused, or soon will be.",
    "When some are joined or removed: the log says why they are not.",
)
STRANGERS: Final = Reason(
    "strangers",
    False,
    False,
    "Others write in SeaweedFS where kgw does.",
    "When what they have written is gone. See "
    "[SeaweedMQ](../seaweedmq.md#when-something-is-wrong).",
    is_told_at_once=True,
)
STANDBYS: Final = Reason(
    "standbys",
    False,
    False,
    "Clients are not told of a gateway that stands by: it has the node id of another one, or an "
    "address without a host. Those that know no other address do not find it when it takes over.",
    "When each gateway has a `node.id` of its own, and an address that clients can reach: see "
    "[two gateways](../two-gateways.md#what-each-gateway-needs).",
)
UNWATCHED: Final = Reason(
    "unwatched",
    False,
    False,
    "SeaweedFS does not say whether a second filer has joined, or which rules and options the "
    "filer has: what would stop writes is not seen.",
    "When it answers. Let kgw reach the masters and the filer; install what the problem names.",
)
TRANSACTIONS: Final = Reason(
    "transactions",
    False,
    True,
    "Transactions are decided and their ends could not be written: readers of committed records "
    "wait at their beginning.",
    "When they are written: it is tried again.",
)
CLOCK_HELD: Final = Reason(
    "clock",
    False,
    False,
    "The wall clock has jumped: retention and compaction go by the time that passes.",
    "After `kgw.clock.hold.ms` of steady running. Set the clock right.",
)
HELD: Final = Reason(
    "held",
    False,
    False,
    "Retention keeps records for the archive that `kgw.archive.hold` names.",
    "When its group has read them.",
)
REWRITING: Final = Reason(
    "rewriting",
    False,
    False,
    "Partitions could not be compacted or recompressed, and are left alone for a while.",
    "When a later run succeeds. The metrics of their failures say why.",
)
CONNECTIONS: Final = Reason(
    "connections",
    False,
    True,
    "A connection was refused: `max.connections` or `max.connections.per.ip` was reached.",
    "Five minutes after the last refusal. See [connections](../troubleshooting.md"
    "#connections-are-closed).",
)
BUG: Final = Reason(
    "bug",
    False,
    True,
    "A request, or work behind it, has failed through a bug of kgw.",
    "Five minutes after the last one. The log has a traceback: please report it.",
)

REASONS: Final = (
    STARTING,
    STOPPING,
    NOT_LEADING,
    CLOSED,
    ROOM,
    BATCH_ROOM,
    NO_SPACE,
    DESCRIPTORS,
    DISK_ERROR,
    DISK,
    STATE,
    STATE_ROOM,
    DAMAGE,
    UNOPENED,
    UNCLAIMED,
    NO_PARTITION,
    STOPPED,
    NO_VOLUME,
    SEAWEEDFS,
    VOLUME_SERVER,
    READS,
    FILERS,
    RULES,
    EXPIRING,
    WAITING,
    FILES,
    TRANSACTIONS,
    CONNECTIONS,
    BUG,
    STORAGE,
    STRANGERS,
    STANDBYS,
    UNWATCHED,
    CLOCK_HELD,
    HELD,
    REWRITING,
)
"""All reasons, the harmful ones first."""


USUAL: Final = frozenset({STARTING, STOPPING, NOT_LEADING})
"""The reasons that occur on every server at times.

They are no faults, although clients are not served.
"""


class Refusals:
    """The last refusal for each reason, with its message. Thread-safe."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._last: dict[Reason, tuple[float, str]] = {}

    def note(self, reason: Reason, text: str) -> None:
        """Record a refusal at the current time."""
        self._last[reason] = self._monotonic_s(), text

    def forget(self, reason: Reason) -> None:
        """Remove the refusal for a reason, if there is one: the reason is over."""
        self._last.pop(reason, None)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """One problem for each reason with a refusal in the last `REFUSED_LATELY_S`."""
        since_s = self._monotonic_s() - REFUSED_LATELY_S
        return tuple(
            Problem(reason, text)
            for reason, (when_s, text) in list(self._last.items())
            if when_s > since_s
        )


def _is_never_over() -> bool:
    return False


class Reports:
    """Problems that were found, each text once, until they are over. Thread-safe."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Problem, Callable[[], bool]]] = {}
        self._reasons: set[Reason] = set()

    def add(self, reason: Reason, text: str, is_over: Callable[[], bool] = _is_never_over) -> bool:
        """Add a problem until it `is_over`. Return whether it is new and should be logged.

        A problem that was over and is found again is new.
        """
        known = self._found.get(text)
        if known is not None:
            _, was_over = known
            if not was_over():
                return False
        # The first problem of each reason is always kept, so that many problems of one reason
        # cannot hide it.
        elif len(self._found) >= _REPORTS and reason in self._reasons:
            return False
        self._reasons.add(reason)
        self._found[text] = Problem(reason, text), is_over
        return True

    @property
    def problems(self) -> list[Problem]:
        """The first problems of each reason that are not over, and the number of the others."""
        counts: dict[Reason, int] = {}
        told: list[Problem] = []
        for problem, is_over in list(self._found.values()):
            if not is_over():
                counts[problem.reason] = count = counts.get(problem.reason, 0) + 1
                if count <= _TOLD:
                    told.append(problem)
        left_out = {reason: count - _TOLD for reason, count in counts.items() if count > _TOLD}
        return told + [
            Problem(reason, f"{count} more are in the log") for reason, count in left_out.items()
        ]


def is_out_of_descriptors(error: OSError) -> bool:
    """Return whether nothing could be opened because too much is open: the reason DESCRIPTORS."""
    return error.errno in _OUT_OF_DESCRIPTORS


def is_ready(problems: Iterable[Problem]) -> bool:
    """Return whether the server accepts records: no problem has a reason that `stops` it."""
    return not any(problem.reason.stops for problem in problems)


def texts(problems: Iterable[Problem]) -> list[str]:
    """Return the sentences of problems."""
    return [problem.text for problem in problems]


def count_by_reason(problems: Iterable[Problem]) -> dict[str, int]:
    """Return how many problems there are for each reason of the table."""
    counts = dict.fromkeys((reason.name for reason in REASONS), 0)
    for problem in problems:
        counts[problem.reason.name] += 1
    return counts


class ReportedReasons:
    """The reasons that were reported last, so that each begin and each end is reported once."""

    def __init__(self) -> None:
        self._reasons: set[Reason] = set()

    def step(self, problems: Iterable[Problem]) -> tuple[list[Problem], list[Reason]]:
        """Compare the current problems with those of the previous call.

        Returns the first problem of each new reason, and the reasons that are over.
        """
        found: dict[Reason, Problem] = {}
        for problem in problems:
            found.setdefault(problem.reason, problem)
        began = [problem for reason, problem in found.items() if reason not in self._reasons]
        over = [reason for reason in REASONS if reason in self._reasons and reason not in found]
        self._reasons = set(found)
        return began, over
