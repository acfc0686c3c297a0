"""Who may believe that it leads, by clocks that agree about nothing but their rate."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.lease.rules import OFFER_S, LeaseEntry, LeaseRules, LeaseWrite
from kgw.config import Listener, Node
from kgw.errors import CorruptionError

NODE = Node(2, {"PLAINTEXT": Listener("PLAINTEXT", "two.example", 9092)})
GATEWAYS = 3
LEASES_MS = (10_000, 4_000, 10_000)


def taken(rules: LeaseRules, now_s: float = 0.0) -> LeaseEntry:
    """Have a gateway take the lease, and return the entry."""
    write = rules.take()
    rules.sending(write, now_s)
    rules.succeeded(now_s)
    return write.wanted


def test_an_entry_is_what_it_was() -> None:
    """With and without an address."""
    for node in (None, NODE):
        entry = LeaseEntry(b"holder", 7, 9, 10_000, node, is_released=node is None, boot_id="b")
        assert entry == LeaseEntry.decode(entry.encode())


def test_an_entry_of_an_earlier_release_says_nothing_of_its_machine() -> None:
    """So its lease is waited for."""
    entry = LeaseEntry(b"holder", 7, 9, 10_000).encode()
    earlier = entry._replace(content=entry.content.replace(b', "boot_id": ""', b""))
    assert earlier != entry
    assert LeaseEntry(b"holder", 7, 9, 10_000) == LeaseEntry.decode(earlier)


@pytest.mark.parametrize(
    "garbled",
    [
        FilerEntry("gateway"),
        LeaseEntry(b"h", 1, 1, 1).encode()._replace(content=b"{}"),
        LeaseEntry(b"h", 1, 1, 1).encode()._replace(content=b'{"version": 2}'),
        LeaseEntry(b"h", 1, 1, 1).encode()._replace(content=b"\xff"),
        LeaseEntry(b"h", 1, 1, 1).encode()._replace(extended={"kgw-identity": b"other"}),
    ],
)
def test_anything_else_is_no_lease(garbled: FilerEntry) -> None:
    """Nor one of a later version."""
    with pytest.raises(CorruptionError, match="not a lease of kgw"):
        LeaseEntry.decode(garbled)


def test_a_lease_counts_from_when_it_was_asked_for() -> None:
    """Not from the answer, before which another may have seen it."""
    rules = LeaseRules(b"one", 10_000)
    taken(rules, 100.0)
    assert rules.leads(109.9)
    assert not rules.leads(110.0)


def test_a_renewal_that_is_sent_again_counts_from_the_first_time() -> None:
    """The first one may be what was made, and what a stand-by has seen since."""
    rules = LeaseRules(b"one", 10_000)
    taken(rules, 100.0)
    rules.sending(write := rules.renew(), 103.0)
    rules.sending(rules.renew(), 105.0)
    rules.saw(write.wanted, 106.0)
    assert rules.leads(112.9)
    assert not rules.leads(113.0)


def test_a_standby_waits_for_the_longer_lease() -> None:
    """Counted from when it saw the last change, whatever its own setting is."""
    first, second = LeaseRules(b"one", 10_000), LeaseRules(b"two", 4_000)
    entry = taken(first)
    second.saw(entry, 50.0)
    second.saw(entry, 55.0)
    assert 60.0 == second.takes_over_s
    second.saw(entry._replace(change=entry.change + 1), 56.0)
    assert 66.0 == second.takes_over_s
    second.saw(entry._replace(change=9, is_released=True), 57.0)
    assert second.takes_over_s < 0


def test_the_lease_of_a_holder_that_has_ended_is_not_waited_for() -> None:
    """Its alone, and only where its end can be seen."""
    first, second = LeaseRules(b"one", 10_000), LeaseRules(b"two", 10_000)
    first.boot_id = "this"
    entry = taken(first)
    assert first.may_have_ended() is None
    second.saw(entry._replace(boot_id=""), 50.0)
    assert second.may_have_ended() is None
    second.saw(entry._replace(change=2), 50.0)
    assert entry._replace(change=2) == second.may_have_ended()
    second.ended(b"one")
    assert second.takes_over_s < 0
    third = entry._replace(holder=b"three", epoch=2, change=3)
    second.saw(third, 51.0)
    assert 61.0 == second.takes_over_s
    second.saw(third._replace(change=4, is_released=True), 52.0)
    assert second.may_have_ended() is None


def test_a_holder_that_sees_another_one_has_lost() -> None:
    """At once, however long its lease would have lasted."""
    rules = LeaseRules(b"one", 10_000)
    entry = taken(rules)
    rules.saw(entry._replace(holder=b"two", epoch=2, change=2), 1.0)
    assert not rules.is_holder
    assert not rules.leads(1.0)


def test_each_holder_has_an_epoch_of_its_own() -> None:
    """Higher than any before it, and the same in all its renewals."""
    rules = [LeaseRules(bytes([number]), 10_000) for number in range(4)]
    entry: LeaseEntry | None = None
    for number, one in enumerate(rules, 1):
        one.saw(entry, 100.0 * number)
        entry = taken(one, 100.0 * number)
        assert number == entry.epoch
        assert number == one.renew().wanted.epoch == one.offer().wanted.epoch


def test_a_removed_entry_is_no_other_holder() -> None:
    """It is made anew, with a count that is higher still."""
    rules = LeaseRules(b"one", 10_000)
    taken(rules)
    rules.saw(None, 1.0)
    assert rules.is_holder
    before, wanted = rules.renew(is_missing=True)
    assert (None, 2) == (before, wanted.change)


def test_an_offered_lease_is_taken_at_once() -> None:
    """By whoever comes first, and leads only when the one before has stopped to believe."""
    first, second = LeaseRules(b"one", 10_000), LeaseRules(b"two", 10_000)
    taken(first, 100.0)
    first.sending(write := first.offer(), 101.0)
    first.succeeded(101.1)
    # An earlier release takes what is released without the pause.
    assert not write.wanted.is_released
    second.saw(write.wanted, 101.2)
    assert second.takes_over_s < 0
    second.sending(taking := second.take(), 101.2)
    assert not taking.wanted.is_offered
    # Answered late: it may have been taken only now.
    second.succeeded(101.5)
    assert not second.leads(101.5 + OFFER_S / 2)
    assert second.leads(101.5 + OFFER_S)


def test_who_has_offered_its_lease_leads_as_long_as_it_sees_it() -> None:
    """Counted from when it asked; what it sent before the offer confirms nothing any more."""
    rules = LeaseRules(b"one", 10_000)
    taken(rules, 100.0)
    rules.sending(rules.renew(), 101.0)
    rules.sending(rules.offer(), 102.0)
    assert rules.leads(102.0 + OFFER_S / 2)
    assert not rules.leads(102.0 + OFFER_S)
    rules.still_there(105.0)
    assert rules.leads(105.0 + OFFER_S / 2)
    assert not rules.leads(105.0 + OFFER_S)


def test_who_has_offered_nothing_leads_no_longer_for_seeing_its_lease() -> None:
    """A stand-by may have waited for its end, and take it in the next moment."""
    rules = LeaseRules(b"one", 10_000)
    taken(rules, 100.0)
    rules.still_there(109.9)
    assert not rules.leads(110.0)
    rules.still_there(111.0)
    assert not rules.leads(111.0)


def test_an_offer_is_not_taken_for_the_renewal_before_it() -> None:
    """Whose answer did not come: what is found there says which of the two was made."""
    rules = LeaseRules(b"one", 10_000)
    taken(rules, 100.0)
    rules.sending(renewal := rules.renew(), 101.0)
    rules.sending(offer := rules.offer(), 102.0)
    rules.saw(renewal.wanted, 102.1)
    assert rules.entry == renewal.wanted
    again = rules.offer()
    assert (renewal.wanted, True) == (again.before, again.wanted.is_offered)
    assert offer != again
    # Sent again it is the same change.
    rules.sending(again, 102.2)
    assert rules.offer() is again


def test_a_lease_that_was_not_offered_has_no_pause_at_its_beginning() -> None:
    """The one before has let go, or its lease has run out."""
    first, second = LeaseRules(b"one", 10_000), LeaseRules(b"two", 10_000)
    second.saw(taken(first)._replace(is_released=True, change=2), 5.0)
    taken(second, 5.0)
    assert second.leads(5.0)


class OnItsWay(NamedTuple):
    """A request that the filer may or may not get, and answer."""

    gateway: int
    write: LeaseWrite


class Gateways(RuleBasedStateMachine):
    """Gateways whose clocks differ by anything, over one entry; requests and answers get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.true_s = 0.0
        self.entry: LeaseEntry | None = None
        self.gateways = [LeaseRules(bytes([65 + n]), LEASES_MS[n]) for n in range(GATEWAYS)]
        self.on_their_way: list[OnItsWay] = []

    def now_s(self, gateway: int) -> float:
        """Return what a gateway's clock says."""
        return self.true_s + gateway * 4096.0

    @rule(seconds=st.sampled_from([0.125, 0.25, 1.0, 3.0, 7.0]))
    def wait(self, seconds: float) -> None:
        """By eighths: no clock rounds these, so that all agree about when a lease ends."""
        self.true_s += seconds

    @rule(gateway=st.integers(0, GATEWAYS - 1))
    def wait_until_due(self, gateway: int) -> None:
        """Move time on to when a stand-by may try: a moment before would be too early."""
        rules = self.gateways[gateway]
        if not rules.is_holder:
            self.true_s += max(0.0, rules.takes_over_s - self.now_s(gateway))

    @rule(gateway=st.integers(0, GATEWAYS - 1))
    def look(self, gateway: int) -> None:
        self.gateways[gateway].saw(self.entry, self.now_s(gateway))

    @rule(gateway=st.integers(0, GATEWAYS - 1), dice=st.integers(0, 9))
    def send(self, gateway: int, dice: int) -> None:
        """Ask for what is due, and let the request go on its way."""
        rules, now_s = self.gateways[gateway], self.now_s(gateway)
        if rules.is_holder:
            if rules.is_offering:
                return
            write = rules.renew()
            if not dice:
                # As an orderly end does; what this run of the gateway sent may arrive still.
                rules.dropped()
                write = rules.renew()
                write = write._replace(wanted=write.wanted._replace(is_released=True))
                self.on_their_way.append(OnItsWay(gateway, write))
                self.gateways[gateway] = LeaseRules(rules.holder + b"'", rules.lease_ms)
                return
        elif rules.takes_over_s <= now_s:
            write = rules.take()
        else:
            return
        rules.sending(write, now_s)
        self.on_their_way.append(OnItsWay(gateway, write))

    @rule(gateway=st.integers(0, GATEWAYS - 1), is_answered=st.booleans())
    def offer(self, gateway: int, is_answered: bool) -> None:
        """Have a gateway offer its lease, or see whether it is still there."""
        rules, now_s = self.gateways[gateway], self.now_s(gateway)
        entry = rules.entry
        if not rules.is_holder or entry is None:
            return
        if entry.is_offered:
            rules.saw(self.entry, now_s)
            if self.entry is not None:
                rules.still_there(now_s)
            return
        write = rules.offer()
        rules.sending(write, now_s)
        if is_answered:
            if self.arrive(OnItsWay(gateway, write)):
                rules.succeeded(now_s)
        else:
            self.on_their_way.append(OnItsWay(gateway, write))

    @rule(gateway=st.integers(0, GATEWAYS - 1), told=st.integers(0, GATEWAYS - 1))
    def kill(self, gateway: int, told: int) -> None:
        """End a gateway, start it again, and let one know. What was sent may arrive still."""
        rules = self.gateways[gateway]
        self.gateways[gateway] = LeaseRules(rules.holder + b"+", rules.lease_ms)
        self.gateways[told].ended(rules.holder)

    @rule(number=st.integers(0, 5), is_doubled=st.booleans())
    def deliver(self, number: int, is_doubled: bool) -> None:
        """Let a request arrive, or one more copy of it. Its gateway is not told."""
        if number < len(self.on_their_way):
            self.arrive(self.on_their_way[number])
            if not is_doubled:
                del self.on_their_way[number]

    @rule(gateway=st.integers(0, GATEWAYS - 1))
    def exchange(self, gateway: int) -> None:
        """Ask for what is due, and be answered at once."""
        before = len(self.on_their_way)
        self.send(gateway, dice=1)
        for one in self.on_their_way[before:]:
            if self.arrive(one):
                self.gateways[gateway].succeeded(self.now_s(gateway))
        del self.on_their_way[before:]

    def arrive(self, one: OnItsWay) -> bool:
        """Make a change if its condition holds; return whether it does."""
        before, wanted = one.write
        if self.entry is not None if before is None else not before.is_same(self.entry):
            return False
        self.entry = wanted
        return True

    @invariant()
    def one_leads(self) -> None:
        leading = [n for n, rules in enumerate(self.gateways) if rules.leads(self.now_s(n))]
        assert len(leading) <= 1, leading


TestGateways = pytest.mark.slow(Gateways.TestCase)
TestGateways.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
