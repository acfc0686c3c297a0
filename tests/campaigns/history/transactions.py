"""Judges transactions: all of one is read or nothing, not before it is committed, in no circle."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING

from tests.campaigns.history.cycles import circles
from tests.campaigns.history.events import NO_PARTITION, AnomalyKind, Outcome, Seek
from tests.campaigns.history.fates import Judge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.campaigns.history.events import Anomaly, FinalLog, Poll, Send
    from tests.campaigns.history.fates import Fates, History


class TransactionChecker(Judge):
    """What readers of committed records get is what was committed, whole transactions of it."""

    def __init__(
        self, anomalies: list[Anomaly], fates: Fates, final: Mapping[int, FinalLog]
    ) -> None:
        super().__init__(anomalies)
        self._fates = fates
        self._final = final
        self._first_offsets = {
            number: {value: offset for offset, value in reversed(log.records)}
            for number, log in final.items()
        }
        self._committed = {
            number: {value for _, value in log.committed}
            for number, log in final.items()
            if log.committed is not None
        }
        self._torn: dict[str, tuple[int, str]] = {}
        self._aborted: dict[tuple[int, bytes], str] = {}

    def check(self, history: History) -> None:
        """Report everything that is wrong with the transactions of a history."""
        self._check_final_logs(history.sends)
        self._check_polls(history.reads)
        self._check_tears(history)
        for transaction, (partition, detail) in self._torn.items():
            self._report(
                AnomalyKind.TORN_TRANSACTION,
                partition,
                f"a part of {transaction} is visible, but {detail}",
            )
        for (partition, value), transaction in self._aborted.items():
            self._report(
                AnomalyKind.ABORTED_READ, partition, f"{value!r} of {transaction} was aborted"
            )
        for partition, log in self._final.items():
            if log.stable_end < log.high_watermark:
                self._report(
                    AnomalyKind.HANGING,
                    partition,
                    f"stable up to {log.stable_end} of {log.high_watermark}",
                )

    # --- in the end ------------------------------------------------------------------------------

    def _check_final_logs(self, sends: list[Send]) -> None:
        visible: set[str] = set()
        hidden: list[Send] = []
        for send in sends:
            if not self._is_settled(send):
                continue
            if send.value not in self._committed[send.partition]:
                hidden.append(send)
            elif send.transaction is not None:
                visible.add(send.transaction)
                self._see(send.partition, send.value, send.transaction)
        for send in hidden:
            name = send.transaction
            if name in visible and self._fates.outcome(name) is Outcome.OK:
                self._torn.setdefault(
                    name, (send.partition, f"{send.value!r} is hidden at the end")
                )
            elif self._fates.is_acknowledged(send):
                self._report(
                    AnomalyKind.ACKED_LOST,
                    send.partition,
                    f"{send.value!r} is in the log, and not among its committed records",
                )

    def _is_settled(self, send: Send) -> bool:
        """Whether what was sent is where readers of committed records get it or never will."""
        log = self._final.get(send.partition)
        if log is None or log.committed is None:
            return False
        offset = self._first_offsets[send.partition].get(send.value)
        return offset is not None and offset < log.stable_end

    # --- what was read ---------------------------------------------------------------------------

    def _see(self, partition: int, value: bytes, transaction: str) -> None:
        """Take a record that was read as committed."""
        if self._fates.outcome(transaction) is Outcome.FAIL:
            self._aborted.setdefault((partition, value), transaction)

    def _check_polls(self, reads: list[Poll | Seek]) -> None:
        """Look at each record that was read as committed, and at who reads from whom."""
        readers: dict[str, set[str]] = defaultdict(set)
        for event in reads:
            if isinstance(event, Seek) or not event.read_committed:
                continue
            partition, reader = event.partition, event.transaction
            for offset, value in event.records:
                writer = self._fates.of_value.get((partition, value))
                if writer is None:
                    continue
                if writer == reader:
                    self._report(
                        AnomalyKind.PRECOMMITTED_READ,
                        partition,
                        f"{reader} has read its own {value!r} at {offset}",
                    )
                    continue
                self._see(partition, value, writer)
                # Who has read what was aborted is accused of that already.
                if reader is not None and Outcome.FAIL not in {
                    self._fates.outcome(reader),
                    self._fates.outcome(writer),
                }:
                    readers[writer].add(reader)
        for circle in circles(readers):
            self._report(
                AnomalyKind.CIRCULAR_INFORMATION,
                NO_PARTITION,
                f"{', '.join(circle)} have read what another one of them wrote",
            )

    def _check_tears(self, history: History) -> None:
        """Look for readers that got a part of a transaction and passed over another part."""
        placed = self._placed(history.sends)
        positions: dict[tuple[str, int], int] = {}
        got: set[tuple[str, str]] = set()
        missed: dict[tuple[str, str], Send] = {}
        for event in history.reads:
            place = (event.process, event.partition)
            if isinstance(event, Seek):
                positions.pop(place, None)
                continue
            if not event.read_committed:
                continue
            offsets, sends = placed.get(event.partition, ([], []))
            for offset, value in event.records:
                name = self._fates.of_value.get((event.partition, value))
                if name is not None:
                    got.add((event.process, name))
                after = positions.get(place, offset) + 1
                positions[place] = max(offset, after - 1)
                if after < offset:
                    between = sends[bisect_left(offsets, after) : bisect_left(offsets, offset)]
                    for send in between:
                        missed[event.process, str(send.transaction)] = send
        for (process, name), send in missed.items():
            if (process, name) in got:
                self._torn.setdefault(
                    name, (send.partition, f"{process} passed over {send.value!r}")
                )

    def _placed(self, sends: list[Send]) -> dict[int, tuple[list[int], list[Send]]]:
        """Return where the records of committed transactions are, by partition and offset."""
        by_offset: dict[int, dict[int, Send]] = defaultdict(dict)
        for send in sends:
            if (
                send.transaction is None
                or send.offset is None
                or not self._fates.is_acknowledged(send)
            ):
                continue
            first_offsets = self._first_offsets.get(send.partition)
            # What is elsewhere, or gone by the end, is not passed over by who reads here.
            if first_offsets is None or first_offsets.get(send.value) == send.offset:
                by_offset[send.partition][send.offset] = send
        return {
            partition: (sorted(found), [found[offset] for offset in sorted(found)])
            for partition, found in by_offset.items()
        }
