"""Decides which gateway leads a namespace, and until when. Pure; time is an argument.

The lease is one entry on the filer, which the leader renews by conditional updates. Each update
expects the present holder, epoch and count, and raises the count by one. For the leader the lease
begins when it sends a renewal, for a standby when it sees the renewal. So if their clocks run at
the same rate, at most one gateway believes that it leads. Otherwise no data is lost, because the
chains prevent other gateways from writing.

A leader that is about to stop offers the lease, which a standby may take at once. From then on the
leader keeps looking up the entry. It leads only for OFFER_S after each request that found that
nobody has taken the lease. A gateway that takes an offered lease does not lead before OFFER_S have
passed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.lease.standby_rules import decode_node, encode_node
from kgw.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.config import Node

NAME: Final = "gateway"
RENEWALS_PER_LEASE: Final = 10 / 3
"""The number of renewals during one lease, for example every 3 s in a lease of 10 s."""

OFFER_S: Final = 0.3
"""How long a leader relies on an answer that its offered lease is not taken."""

_VERSION: Final = 1
_IDENTITY: Final = b"kgw gateway"


class LeaseEntry(NamedTuple):
    """The lease as it is stored on the filer."""

    holder: bytes
    """A random token of one run of a gateway."""
    epoch: int
    """The number of the holder; each new holder raises it."""
    change: int
    """The number of changes of the entry."""
    lease_ms: int
    """How long the holder leads after a renewal."""
    node: Node | None = None
    """The address at which clients reach the holder, if it is known."""
    is_released: bool = False
    """Whether the holder has given the lease back."""
    boot_id: str = ""
    """The boot id of the machine on which the holder has its run file (`run_files`), or ""."""
    is_offered: bool = False
    """Whether the holder is about to stop, and leads until another gateway has taken the lease."""

    @property
    def expected(self) -> Mapping[str, bytes]:
        """The attributes that a conditional update expects, so that the entry is unchanged."""
        return {
            "kgw-identity": _IDENTITY,
            "kgw-holder": self.holder,
            "kgw-epoch": self.epoch.to_bytes(8, "big"),
            "kgw-count": self.change.to_bytes(8, "big"),
        }

    def is_same(self, other: LeaseEntry | None) -> bool:
        """Return whether both entries are the result of the same change."""
        return other is not None and self[:3] == other[:3]

    def encode(self) -> FilerEntry:
        fields = {
            "version": _VERSION,
            "lease_ms": self.lease_ms,
            "node": None if self.node is None else encode_node(self.node),
            "is_released": self.is_released,
            "boot_id": self.boot_id,
            "is_offered": self.is_offered,
        }
        return FilerEntry(NAME, content=json.dumps(fields).encode(), extended=self.expected)

    @classmethod
    def decode(cls, entry: FilerEntry) -> LeaseEntry:
        """Return what `encode` wrote. Raises CorruptionError for anything else."""
        try:
            extended = entry.extended
            if extended["kgw-identity"] != _IDENTITY:
                raise ValueError("it is another's")
            fields = json.loads(entry.content)
            if fields["version"] != _VERSION:
                raise ValueError(f"version {fields['version']!r} is not known")
            node = fields["node"]
            return cls(
                extended["kgw-holder"],
                int.from_bytes(extended["kgw-epoch"], "big"),
                int.from_bytes(extended["kgw-count"], "big"),
                int(fields["lease_ms"]),
                None if node is None else decode_node(node),
                bool(fields["is_released"]),
                str(fields.get("boot_id", "")),
                bool(fields.get("is_offered", False)),
            )
        except (LookupError, TypeError, ValueError) as error:
            raise CorruptionError(f"{NAME} is not a lease of kgw: {error!r}") from error


class LeaseWrite(NamedTuple):
    """A change of the entry, made only if the entry equals `before`, or is missing for None.

    The same write may be sent repeatedly, but takes effect only once.
    """

    before: LeaseEntry | None
    wanted: LeaseEntry


class LeaseRules:
    """One gateway's view of a lease; decides whether the gateway leads, and its next change."""

    def __init__(self, holder: bytes, lease_ms: int) -> None:
        """`holder` is random, so it differs from that of every other run of a gateway."""
        self.holder = holder
        self.lease_ms = lease_ms
        self.node: Node | None = None
        """The address at which clients reach this gateway; the next change stores it."""
        self.boot_id = ""
        """The boot id of the machine on which this gateway has its run file. `take` stores it."""
        self.entry: LeaseEntry | None = None
        """The last entry that is known."""
        self.is_holder = False
        """Whether this gateway believes that it is the holder. The lease may have ended."""
        self.ends_s = float("-inf")
        """At this time this gateway stops leading, unless a renewal is confirmed before."""
        self.begins_s = float("-inf")
        """Until this time the holder does not lead, because the previous holder may lead."""
        self.is_offering = False
        """Whether another gateway may take the lease at any time."""
        self.seen_s = float("-inf")
        """The time at which a change by another gateway was last seen."""
        self._ended: bytes | None = None
        self._pending: LeaseWrite | None = None
        self._sent_s = 0.0

    @property
    def interval_s(self) -> float:
        """Time between renewals."""
        return self.lease_ms / 1000 / RENEWALS_PER_LEASE

    def leads(self, now_s: float) -> bool:
        """Return whether this gateway may assume that no other gateway leads."""
        return self.begins_s <= now_s < self.ends_s

    @property
    def takes_over_s(self) -> float:
        """The time at which a standby may try to take over, if it sees no change before."""
        entry = self.entry
        if entry is None or entry.is_released or entry.is_offered or entry.holder == self._ended:
            return float("-inf")
        return self.seen_s + max(self.lease_ms, entry.lease_ms) / 1000

    def may_have_ended(self) -> LeaseEntry | None:
        """Return the entry if another gateway is the holder and has a run file."""
        entry = self.entry
        if entry is None or entry.is_released or self.is_holder or not entry.boot_id:
            return None
        return entry

    def ended(self, holder: bytes) -> None:
        """Record that a holder's process has certainly ended, so its lease is free."""
        self._ended = holder

    def saw(self, found: LeaseEntry | None, now_s: float) -> None:
        """Process the entry that the filer has returned at `now_s`; None for no entry."""
        pending = self._pending
        if pending is not None:
            if pending.wanted.is_same(found):
                # The change was first sent at `_sent_s`, so the entry is not older than that.
                self.succeeded(now_s)
                return
            there_before = (
                found is None if pending.before is None else pending.before.is_same(found)
            )
            if not there_before:
                # The expected counts never come back, because counts only rise.
                self._pending = None
        if found is not None and not found.is_same(self.entry):
            self.seen_s = now_s
        if found is not None or not self.is_holder:
            self.entry = found
        if self.is_holder and found is not None and found.holder != self.holder:
            self.is_holder = False
            self.is_offering = False
            self.ends_s = float("-inf")

    def still_there(self, asked_s: float) -> None:
        """Record that a request sent at `asked_s` has found this gateway as the holder."""
        if self.is_offering and self.is_holder:
            self.ends_s = asked_s + OFFER_S

    def take(self) -> LeaseWrite:
        """Return the change by which this gateway becomes the holder."""
        before = self.entry
        epoch, change = (0, 0) if before is None else (before.epoch, before.change)
        wanted = LeaseEntry(
            self.holder, epoch + 1, change + 1, self.lease_ms, self.node, boot_id=self.boot_id
        )
        return self._pending or LeaseWrite(before, wanted)

    def renew(self, *, is_missing: bool = False) -> LeaseWrite:
        """Return the holder's next change; `is_missing` is True if the entry was removed."""
        before = self.entry
        assert before is not None  # noqa: S101 - the holder has seen its own
        wanted = before._replace(change=before.change + 1, node=self.node, lease_ms=self.lease_ms)
        return self._pending or LeaseWrite(None if is_missing else before, wanted)

    def offer(self) -> LeaseWrite:
        """Return the change by which the holder offers its lease to any other gateway.

        A pending renewal is given up: it takes effect before this change, or never.
        """
        pending, before = self._pending, self.entry
        assert before is not None  # noqa: S101 - the holder has seen its own
        if pending is not None and pending.wanted.is_offered:
            return pending
        # The offer needs another count than the renewal, or their results could be confused.
        change = before.change if pending is None else pending.wanted.change
        wanted = before._replace(change=change + 1, node=self.node, is_offered=True)
        return LeaseWrite(before, wanted)

    def sending(self, write: LeaseWrite, now_s: float) -> None:
        """Record that a change is sent now. The lease begins when the change is first sent."""
        if write is not self._pending:
            self._pending = write
            self._sent_s = now_s
            if write.wanted.is_offered:
                # The change may arrive at any time, so another gateway may have the lease from now
                # on.
                self.is_offering = True
                self.ends_s = min(self.ends_s, now_s + OFFER_S)

    def succeeded(self, now_s: float) -> None:
        """Record that an answer has confirmed the pending change."""
        pending, self._pending = self._pending, None
        assert pending is not None  # noqa: S101 - there is an answer to it
        before = pending.before
        if before is not None and before.is_offered and before.holder != self.holder:
            self.begins_s = now_s + OFFER_S
        self.entry = pending.wanted
        self.is_holder = True
        if pending.wanted.is_offered:
            self.ends_s = self._sent_s + OFFER_S
        else:
            self.ends_s = self._sent_s + self.lease_ms / 1000

    def dropped(self) -> None:
        """Record that the pending change has not been made, and never will be."""
        self._pending = None
