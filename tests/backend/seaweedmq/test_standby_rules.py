"""Which gateways clients are told of that stand by, and which entries are removed."""

from __future__ import annotations

import pytest

from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.lease.standby_rules import StandbyEntry, Standbys, why_not_listed
from kgw.config import Listener, Node
from kgw.errors import CorruptionError

LEASE_MS = 10_000


def node(number: int, host: str = "") -> Node:
    """Return how a gateway is reached."""
    host = host or f"kgw{number}.example"
    return Node(number, {"PLAINTEXT": Listener("PLAINTEXT", host, 9092)})


def entry(
    number: int, change: int = 1, *, node_id: int = 0, lease_ms: int = LEASE_MS
) -> StandbyEntry:
    """Return what a stand-by says for the so-manieth time."""
    return StandbyEntry(bytes([number]) * 16, change, lease_ms, node(node_id or number))


def ids(standbys: Standbys) -> list[int]:
    """Return the node ids that clients are told."""
    return [one.node_id for one in standbys.nodes]


def test_an_entry_is_what_it_was() -> None:
    """Under a name that no other run of a gateway has."""
    first, second = entry(1), entry(2)
    assert first == StandbyEntry.decode(first.encode())
    assert first.name != second.name


@pytest.mark.parametrize(
    "garbled",
    [
        FilerEntry("standby-00"),
        entry(1).encode()._replace(content=b"{}"),
        entry(1).encode()._replace(content=b'{"version": 2}'),
        entry(1).encode()._replace(extended={"kgw-identity": b"kgw gateway"}),
        entry(1).encode()._replace(name=entry(2).name),
        entry(1)
        .encode()
        ._replace(
            content=b'{"version": 1, "change": 1, "lease_ms": 1, '
            b'"node": {"id": 1, "listeners": []}}'
        ),
    ],
)
def test_anything_else_is_no_standby(garbled: FilerEntry) -> None:
    """Nor a copy under another name, nor one that cannot be reached."""
    with pytest.raises(CorruptionError, match="not a stand-by of kgw"):
        StandbyEntry.decode(garbled)


def test_those_that_go_on_counting_are_listed() -> None:
    """Those that do not are gone after a lease, and their entries are removed."""
    standbys = Standbys(LEASE_MS)
    assert [] == standbys.saw([entry(3), entry(2)], node(1), b"one", 100.0)
    assert [2, 3] == ids(standbys)
    assert [] == standbys.saw([entry(3, 2), entry(2)], node(1), b"one", 109.9)
    assert [2, 3] == ids(standbys)
    assert [entry(2).name] == standbys.saw([entry(3, 2), entry(2)], node(1), b"one", 110.0)
    assert [3] == ids(standbys)
    # One that was taken for gone and is not comes back.
    assert [] == standbys.saw([entry(3, 2), entry(2, 2)], node(1), b"one", 111.0)
    assert [2, 3] == ids(standbys)


def test_an_entry_that_is_removed_is_listed_no_more() -> None:
    """At once: its gateway has ended in order."""
    standbys = Standbys(LEASE_MS)
    standbys.saw([entry(2)], node(1), b"one", 100.0)
    assert [] == standbys.saw([], node(1), b"one", 101.0)
    assert [] == ids(standbys)


def test_the_longer_lease_counts() -> None:
    """Whoever counts slowly is not gone."""
    standbys = Standbys(LEASE_MS)
    slow = entry(2, lease_ms=30_000)
    standbys.saw([slow], node(1), b"one", 0.0)
    assert [] == standbys.saw([slow], node(1), b"one", 29.9)
    assert [slow.name] == standbys.saw([slow], node(1), b"one", 30.0)


def test_the_leader_does_not_stand_by() -> None:
    """What it has left of the time when it did is removed."""
    standbys = Standbys(LEASE_MS)
    assert [entry(2).name] == standbys.saw([entry(2), entry(3)], node(2), bytes([2]) * 16, 0.0)
    assert [3] == ids(standbys)
    assert not standbys.problems


def test_one_node_id_is_listed_once() -> None:
    """It says what has to be changed: of the leader's id none, of another's always the same one."""
    standbys = Standbys(LEASE_MS)
    found = [entry(3, node_id=2), entry(4, node_id=1), entry(2)]
    standbys.saw(found, node(1), b"one", 0.0)
    assert [node(2)] == list(standbys.nodes)
    assert 2 == len(standbys.problems)
    by_leader, by_other = sorted(standbys.problems, key=lambda text: "another" in text)
    assert "node 1 at kgw1.example:9092: the leader has the same node id" in by_leader
    assert "another stand-by has the same node id" in by_other
    assert all("give each gateway a node.id of its own" in one for one in standbys.problems)
    standbys.saw([entry(2)], node(1), b"one", 1.0)
    assert not standbys.problems


def test_a_standby_without_a_host_is_not_listed() -> None:
    """Its clients would be sent to the machine of the leader."""
    nowhere = Node(2, {"PLAINTEXT": Listener("PLAINTEXT", "", 9092)})
    assert "PLAINTEXT://:9092 has no host; give it one with --advertise" in why_not_listed(
        nowhere, node(1)
    )
    assert not why_not_listed(node(2), None)
