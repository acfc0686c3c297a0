"""Which gateway leads a namespace, and until when: the rules. Pure; time is an argument.

The lease is one entry of the filer, which the gateway that leads renews by conditional updates:
each expects the present holder, epoch and count, and raises the count by one. The leader counts the
lease from the time at which it sent a renewal, a stand-by from the time at which it saw one; so if
their clocks run at the same rate, at most one of them believes that it leads. If they do not, no
data is lost: the chains keep other gateways from writing.

A leader that is about to stop offers the lease: a stand-by may take it at once. From then on the
leader looks the entry up, and believes that it leads only for OFFER_S after each request that found
the offer untaken. A gateway that takes an offered lease does not lead before OFFER_S have passed.
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
"""The number of renewals during one lease: every 3 s of 10."""

OFFER_S: Final = 0.3
"""For how long a leader that offers its lease relies on an answer that nobody took it."""

_VERSION: Final = 1
_IDENTITY: Final = b"kgw gateway"


class LeaseEntry(NamedTuple):
    """The lease as it is stored on the filer."""

    holder: bytes
    """A random token of one run of a gateway."""
    epoch: int
    """Rises with each new holder."""
    change: int
    """The number of changes; each change raises it."""
    lease_ms: int
    """For how long the holder may believe that it leads after a renewal."""
    node: Node | None = None
    """The address at which clients reach the holder, once they can."""
    is_released: bool = False
    """Whether the holder has given the lease back."""
    boot_id: str = ""
    """The boot id of the machine on which the holder's end can be seen (`run_files`); "" for none.
    """
    is_offered: bool = False
    """Whether the holder is about to stop, and leads until another gateway has taken the lease."""

    @property
    def expected(self) -> Mapping[str, bytes]:
        """The attributes by which an update checks that the entry has not changed since."""
        return {
            "kgw-identity": _IDENTITY,
            "kgw-holder": self.holder,
            "kgw-epoch": self.epoch.to_bytes(8, "big"),
            "kgw-count": self.change.to_bytes(8, "big"),
        }

    def is_same(self, other: LeaseEntry | None) -> bool:
        """Return whether both are the entry as the same change has left it."""
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
    """A change of the entry: made only if the entry equals `before`; None creates it.

    The same write may be sent again and again: it takes effect once.
    """

    before: LeaseEntry | None
    wanted: LeaseEntry


class LeaseRules:
    """One gateway's view of a lease: the last known entry, whether it may lead, its next change."""

    def __init__(self, holder: bytes, lease_ms: int) -> None:
        """`holder` is random: no other run of a gateway has the same."""
        self.holder = holder
        self.lease_ms = lease_ms
        self.node: Node | None = None
        """The address at which clients reach this gateway; the next change stores it."""
        self.boot_id = ""
        """The boot id of the machine on which others can see the end of this gateway; `take` stores
        it."""
        self.entry: LeaseEntry | None = None
        """The last entry that is known."""
        self.is_holder = False
        """Whether this gateway has the lease, as far as it knows. The lease may have run out."""
        self.ends_s = float("-inf")
        """From this time on this gateway does not lead, unless a renewal is confirmed."""
        self.begins_s = float("-inf")
        """Until this time the holder does not lead: the holder before may still believe that it
        does."""
        self.is_offering = False
        """Whether another gateway may take the lease at any time."""
        self.seen_s = float("-inf")
        """The time at which a change of another gateway was last seen."""
        self._ended: bytes | None = None
        self._pending: LeaseWrite | None = None
        self._sent_s = 0.0

    @property
    def interval_s(self) -> float:
        """Time between renewals."""
        return self.lease_ms / 1000 / RENEWALS_PER_LEASE

    def leads(self, now_s: float) -> bool:
        """Return whether this gateway may believe that no other one leads."""
        return self.begins_s <= now_s < self.ends_s

    @property
    def takes_over_s(self) -> float:
        """The time at which a stand-by may try to take over, if it sees no change before."""
        entry = self.entry
        if entry is None or entry.is_released or entry.is_offered or entry.holder == self._ended:
            return float("-inf")
        return self.seen_s + max(self.lease_ms, entry.lease_ms) / 1000

    def may_have_ended(self) -> LeaseEntry | None:
        """Return the entry if another gateway is the holder and its end can be seen somewhere."""
        entry = self.entry
        if entry is None or entry.is_released or self.is_holder or not entry.boot_id:
            return None
        return entry

    def ended(self, holder: bytes) -> None:
        """Record that a holder's process has certainly ended: its lease is free."""
        self._ended = holder

    def saw(self, found: LeaseEntry | None, now_s: float) -> None:
        """Process the entry that the filer has returned at `now_s`; None for no entry."""
        pending = self._pending
        if pending is not None:
            if pending.wanted.is_same(found):
                # The change was sent after `_sent_s`, so the entry cannot have been there before.
                self.succeeded(now_s)
                return
            there_before = (
                found is None if pending.before is None else pending.before.is_same(found)
            )
            if not there_before:
                # The condition no longer holds, and never will again: the counts only rise.
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
        """Record that a request sent at `asked_s` has found this gateway's own lease."""
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
        """Return the holder's next change. `is_missing`: the entry has been removed."""
        before = self.entry
        assert before is not None  # noqa: S101 - the holder has seen its own
        wanted = before._replace(change=before.change + 1, node=self.node, lease_ms=self.lease_ms)
        return self._pending or LeaseWrite(None if is_missing else before, wanted)

    def offer(self) -> LeaseWrite:
        """Return the change by which the holder offers its lease to any other gateway.

        A renewal that is on its way is given up: it takes effect before this one, or never.
        """
        pending, before = self._pending, self.entry
        assert before is not None  # noqa: S101 - the holder has seen its own
        if pending is not None and pending.wanted.is_offered:
            return pending
        # The offer has a count of its own: otherwise its state could be taken for the renewal's.
        change = before.change if pending is None else pending.wanted.change
        wanted = before._replace(change=change + 1, node=self.node, is_offered=True)
        return LeaseWrite(before, wanted)

    def sending(self, write: LeaseWrite, now_s: float) -> None:
        """Record that a change is sent now. The lease counts from its first sending."""
        if write is not self._pending:
            self._pending = write
            self._sent_s = now_s
            if write.wanted.is_offered:
                # Even if the change never arrives: another gateway may have the lease from now on.
                self.is_offering = True
                self.ends_s = min(self.ends_s, now_s + OFFER_S)

    def succeeded(self, now_s: float) -> None:
        """Record that the pending change has been made, as an answer has said now."""
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
