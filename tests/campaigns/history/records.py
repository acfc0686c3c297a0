"""Judges records: where they are, where they were, and in which order they came."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from tests.campaigns.history.events import (
    Anomaly,
    AnomalyKind,
    Bounds,
    Event,
    FinalLog,
    Outcome,
    Poll,
    Seek,
    Send,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NO_EPOCH: Final = -1
"""The final reading of a log asks for no epoch."""


class RecordChecker:
    def __init__(self, final: Mapping[int, FinalLog], drained: bool, ordered_sends: bool) -> None:
        self._final = final
        self._drained = drained
        self._ordered_sends = ordered_sends
        self._anomalies: list[Anomaly] = []
        self._final_values = {number: dict(log.records) for number, log in final.items()}
        self._offsets_of: dict[tuple[int, bytes], set[int]] = defaultdict(set)
        self._seen: dict[tuple[int, int], bytes] = {}
        self._polled: set[tuple[int, bytes]] = set()

    def check(self, events: Iterable[Event]) -> list[Anomaly]:
        sends: list[Send] = []
        polls: list[Poll | Seek] = []
        bounds: list[Bounds] = []
        for event in events:
            match event:
                case Send():
                    sends.append(event)
                case Poll() | Seek():
                    polls.append(event)
                case Bounds():
                    bounds.append(event)
        self._read_final_logs()
        self._check_polls(polls)
        self._check_sends(sends)
        self._check_values(sends)
        self._check_bounds(bounds)
        return self._anomalies

    def _report(self, kind: AnomalyKind, partition: int, detail: str) -> None:
        self._anomalies.append(Anomaly(kind, partition, detail))

    def _read_final_logs(self) -> None:
        for partition, log in self._final.items():
            previous = log.log_start_offset - 1
            for offset, value in log.records:
                self._offsets_of[partition, value].add(offset)
                # Two comparisons, not a chain: the test of the checker leaves out each in turn.
                if offset <= previous or offset >= log.high_watermark:
                    self._report(
                        AnomalyKind.INCONSISTENT_OFFSETS,
                        partition,
                        f"the final log has {offset} after {previous}, below {log.high_watermark}",
                    )
                previous = offset

    def _check_polls(self, polls: list[Poll | Seek]) -> None:
        positions: dict[tuple[str, int], int] = {}
        # Dense positions: a hole in the offsets (a control batch, compaction) is not a skip.
        dense = {
            partition: {offset: at for at, (offset, _) in enumerate(log.records)}
            for partition, log in self._final.items()
        }
        for event in polls:
            place = (event.process, event.partition)
            if isinstance(event, Seek):
                positions.pop(place, None)
                continue
            for offset, value in event.records:
                self._see(event.partition, offset, value)
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
                order = dense.get(event.partition, {})
                if offset in order and previous in order and order[offset] > order[previous] + 1:
                    self._report(
                        AnomalyKind.POLL_SKIP,
                        event.partition,
                        f"{event.process} got {offset} after {previous}",
                    )

    def _see(self, partition: int, offset: int, value: bytes) -> None:
        """Take one (offset, value) that a consumer saw."""
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
        log = self._final.get(partition)
        if log is None or offset < log.log_start_offset:
            return
        last = self._final_values[partition].get(offset)
        if last != value:
            self._report(
                AnomalyKind.TIME_TRAVEL,
                partition,
                f"{offset} was read as {value!r} and is {last!r} at the end",
            )

    def _check_sends(self, sends: list[Send]) -> None:
        last_offsets: dict[tuple[str, int], int] = {}
        for send in sends:
            if send.outcome is not Outcome.OK:
                continue
            if send.offset is not None:
                self._check_acknowledged(send, send.offset)
                place = (send.process, send.partition)
                previous = last_offsets.get(place, -1)
                last_offsets[place] = send.offset
                if self._ordered_sends and send.offset <= previous:
                    self._report(
                        AnomalyKind.NONMONOTONIC_SEND,
                        send.partition,
                        f"{send.process} was told {send.offset} after {previous}",
                    )
            elif (send.partition, send.value) not in self._offsets_of:
                self._report(AnomalyKind.ACKED_LOST, send.partition, f"{send.value!r}")
            if self._drained and (send.partition, send.value) not in self._polled:
                self._report(AnomalyKind.UNSEEN, send.partition, f"{send.value!r}")

    def _check_acknowledged(self, send: Send, offset: int) -> None:
        log = self._final.get(send.partition)
        if log is None or offset < log.log_start_offset:
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
        for partition, log in self._final.items():
            bounds.append(Bounds(partition, log.log_start_offset, log.high_watermark, _NO_EPOCH))
        for now in bounds:
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
