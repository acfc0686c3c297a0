"""Judges records: where they are, where they were, and in which order they came."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from tests.campaigns.history.events import AnomalyKind, Bounds, Outcome, Seek
from tests.campaigns.history.fates import Judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.campaigns.history.events import Anomaly, FinalLog, Poll, Send
    from tests.campaigns.history.fates import Fates, History

_NO_EPOCH: Final = -1
"""The final reading of a log asks for no epoch."""


class RecordChecker(Judge):
    """What was acknowledged is where it was acknowledged, and what was read stays what it was."""

    def __init__(
        self,
        anomalies: list[Anomaly],
        fates: Fates,
        final: Mapping[int, FinalLog],
        *,
        drained: bool,
        ordered_sends: bool,
        keeps_all: bool,
    ) -> None:
        super().__init__(anomalies)
        self._fates = fates
        self._final = final
        self._drained = drained
        self._ordered_sends = ordered_sends
        self._kept_from = {
            number: 0 if keeps_all else log.log_start_offset for number, log in final.items()
        }
        """From where on each log has what was acknowledged."""
        self._final_values = {number: dict(log.records) for number, log in final.items()}
        self._committed_values = {
            number: dict(log.committed)
            for number, log in final.items()
            if log.committed is not None
        }
        self._offsets_of: dict[tuple[int, bytes], set[int]] = defaultdict(set)
        self._seen: dict[tuple[int, int], bytes] = {}
        self._polled: set[tuple[int, bytes]] = set()

    def check(self, history: History) -> None:
        """Report everything that is wrong with the records of a history."""
        self._read_final_logs()
        self._check_polls(history.reads)
        self._check_sends(history.sends)
        self._check_values(history.sends)
        self._check_bounds(history.bounds)

    def _read_final_logs(self) -> None:
        for partition, log in self._final.items():
            self._read_final_log(partition, log, log.records, log.high_watermark)
            if log.committed is None:
                continue
            self._read_final_log(partition, log, log.committed, log.stable_end)
            values = self._final_values[partition]
            for offset, value in log.committed:
                if values.get(offset) != value:
                    self._report(
                        AnomalyKind.INCONSISTENT_OFFSETS,
                        partition,
                        f"{offset} is {value!r} among the committed records, and "
                        f"{values.get(offset)!r} among all",
                    )

    def _read_final_log(
        self, partition: int, log: FinalLog, records: Sequence[tuple[int, bytes]], end: int
    ) -> None:
        previous = log.log_start_offset - 1
        for offset, value in records:
            self._offsets_of[partition, value].add(offset)
            # Two comparisons, not a chain: the test of the checker leaves out each in turn.
            if offset <= previous or offset >= end:
                self._report(
                    AnomalyKind.INCONSISTENT_OFFSETS,
                    partition,
                    f"the final log has {offset} after {previous}, below {end}",
                )
            previous = offset

    def _check_polls(self, reads: list[Poll | Seek]) -> None:
        positions: dict[tuple[str, int], int] = {}
        # Dense positions: a hole in the offsets (a marker, compaction, and for readers of committed
        # records what was aborted) is not a skip.
        dense = _dense({partition: log.records for partition, log in self._final.items()})
        dense_committed = _dense(
            {number: log.committed for number, log in self._final.items() if log.committed}
        )
        for event in reads:
            place = (event.process, event.partition)
            if isinstance(event, Seek):
                positions.pop(place, None)
                continue
            order = (dense_committed if event.read_committed else dense).get(event.partition, {})
            for offset, value in event.records:
                self._see(event, offset, value)
                previous = positions.get(place)
                positions[place] = offset
                if previous is None:
                    continue
                if offset <= previous:
                    self._report(
                        AnomalyKind.NONMONOTONIC_POLL,
                        event.partition,
                        f"{event.process} got {offset} after {previous}",
                    )
                    continue
                if offset in order and previous in order and order[offset] > order[previous] + 1:
                    self._report(
                        AnomalyKind.POLL_SKIP,
                        event.partition,
                        f"{event.process} got {offset} after {previous}",
                    )

    def _see(self, poll: Poll, offset: int, value: bytes) -> None:
        """Take one (offset, value) that a consumer saw."""
        partition = poll.partition
        self._polled.add((partition, value))
        self._offsets_of[partition, value].add(offset)
        known = self._seen.setdefault((partition, offset), value)
        if known != value:
            self._report(
                AnomalyKind.INCONSISTENT_OFFSETS,
                partition,
                f"{offset} was {known!r} and then {value!r}",
            )
            return
        if not self._is_kept(partition, offset):
            return
        last = self._final_values[partition].get(offset)
        if last != value:
            self._report(
                AnomalyKind.TIME_TRAVEL,
                partition,
                f"{offset} was read as {value!r} and is {last!r} at the end",
            )
        elif poll.read_committed and self._is_taken_back(partition, offset, value):
            self._report(
                AnomalyKind.TIME_TRAVEL,
                partition,
                f"{offset} was read as {value!r} among committed records, and is none at the end",
            )

    def _is_kept(self, partition: int, offset: int) -> bool:
        """Whether somebody looked where an offset is, and nothing may have been removed there."""
        return partition in self._kept_from and offset >= self._kept_from[partition]

    def _is_taken_back(self, partition: int, offset: int, value: bytes) -> bool:
        """Whether what was read as committed is not at the end; what was aborted is told apart."""
        committed = self._committed_values.get(partition)
        if committed is None or offset in committed:
            return False
        transaction = self._fates.of_value.get((partition, value))
        return transaction is None or self._fates.outcome(transaction) is not Outcome.FAIL

    def _check_sends(self, sends: list[Send]) -> None:
        last_offsets: dict[tuple[str, int], int] = {}
        for send in sends:
            if send.outcome is Outcome.OK and send.offset is not None:
                place = (send.process, send.partition)
                previous = last_offsets.get(place, -1)
                last_offsets[place] = send.offset
                if self._ordered_sends and send.offset <= previous:
                    self._report(
                        AnomalyKind.NONMONOTONIC_SEND,
                        send.partition,
                        f"{send.process} was told {send.offset} after {previous}",
                    )
            if not self._fates.is_acknowledged(send):
                continue
            if send.offset is not None:
                self._check_acknowledged(send, send.offset)
            elif (send.partition, send.value) not in self._offsets_of:
                self._report(AnomalyKind.ACKED_LOST, send.partition, f"{send.value!r}")
            if self._drained and (send.partition, send.value) not in self._polled:
                self._report(AnomalyKind.UNSEEN, send.partition, f"{send.value!r}")

    def _check_acknowledged(self, send: Send, offset: int) -> None:
        if not self._is_kept(send.partition, offset):
            return
        if self._final_values[send.partition].get(offset) == send.value:
            return
        elsewhere = self._offsets_of.get((send.partition, send.value), set()) - {offset}
        if elsewhere:
            self._report(
                AnomalyKind.ACKED_MOVED,
                send.partition,
                f"{send.value!r} was acknowledged at {offset} and is at {sorted(elsewhere)}",
            )
        else:
            self._report(
                AnomalyKind.ACKED_LOST, send.partition, f"{send.value!r}, acknowledged at {offset}"
            )

    def _check_values(self, sends: list[Send]) -> None:
        outcomes = {(send.partition, send.value): send.outcome for send in sends}
        for (partition, value), offsets in self._offsets_of.items():
            outcome = outcomes.get((partition, value))
            if outcome is None:
                self._report(AnomalyKind.PHANTOM, partition, f"nobody sent {value!r}")
            elif outcome is Outcome.FAIL:
                self._report(AnomalyKind.ABORTED_READ, partition, f"{value!r} was refused")
            if len(offsets) > 1:
                self._report(AnomalyKind.DUPLICATE, partition, f"{value!r} is at {sorted(offsets)}")

    def _check_bounds(self, bounds: list[Bounds]) -> None:
        last: dict[int, Bounds] = {}
        stable: dict[int, int] = {}
        at_the_end = [
            Bounds(
                partition,
                log.log_start_offset,
                log.high_watermark,
                _NO_EPOCH,
                log.last_stable_offset,
            )
            for partition, log in self._final.items()
        ]
        for now in [*bounds, *at_the_end]:
            if now.last_stable_offset is not None:
                self._check_stable(now, now.last_stable_offset, stable)
            before = last.get(now.partition)
            last[now.partition] = now
            if before is None:
                continue
            epoch_went_back = _NO_EPOCH < now.leader_epoch < before.leader_epoch
            # On one node nothing durable is ever given up, so not even a new epoch excuses it.
            if (
                now.log_start_offset < before.log_start_offset
                or now.high_watermark < before.high_watermark
                or epoch_went_back
            ):
                self._report(AnomalyKind.BOUNDS_WENT_BACK, now.partition, f"{before} then {now}")

    def _check_stable(self, now: Bounds, offset: int, stable: dict[int, int]) -> None:
        before = stable.get(now.partition, offset)
        stable[now.partition] = offset
        if offset < before:
            self._report(
                AnomalyKind.BOUNDS_WENT_BACK,
                now.partition,
                f"the last stable offset was {before} and then {offset}",
            )
        if offset > now.high_watermark:
            self._report(
                AnomalyKind.INCONSISTENT_OFFSETS,
                now.partition,
                f"the last stable offset is {offset}, above {now.high_watermark}",
            )


def _dense(
    logs: Mapping[int, Sequence[tuple[int, bytes]]],
) -> dict[int, dict[int, int]]:
    """Return the place of each offset among those that there are, by partition."""
    return {
        partition: {offset: at for at, (offset, _) in enumerate(records)}
        for partition, records in logs.items()
    }
