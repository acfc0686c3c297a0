"""Decides which standbys of a namespace clients can see.

Pure; time is an argument. Each standby has an entry beside the lease, and changes it several times
during a lease. The leader lists the gateways whose entries change, and removes the other entries,
because their gateways have ended. These entries affect neither stored data nor the choice of the
leader.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.config import Listener, Node
from kgw.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PREFIX: Final = "standby-"
"""The prefix of the entries' names. The holder follows in hexadecimal."""

_VERSION: Final = 1
_IDENTITY: Final = b"kgw standby"


class StandbyEntry(NamedTuple):
    """A standby's entry on the filer."""

    holder: bytes
    """A random token of one run of a gateway, as in the lease."""
    change: int
    """The number of changes, which rises while the gateway runs."""
    lease_ms: int
    """If the entry has not changed for this time, the gateway has ended."""
    node: Node
    """The address at which clients reach it."""

    @property
    def name(self) -> str:
        """The name of its entry."""
        return entry_name(self.holder)

    def encode(self) -> FilerEntry:
        fields = {
            "version": _VERSION,
            "change": self.change,
            "lease_ms": self.lease_ms,
            "node": encode_node(self.node),
        }
        extended = {"kgw-identity": _IDENTITY, "kgw-holder": self.holder}
        return FilerEntry(self.name, content=json.dumps(fields).encode(), extended=extended)

    @classmethod
    def decode(cls, entry: FilerEntry) -> StandbyEntry:
        """Return what `encode` wrote. Raises CorruptionError for anything else."""
        try:
            if entry.extended["kgw-identity"] != _IDENTITY:
                raise ValueError("it is another's")
            fields = json.loads(entry.content)
            if fields["version"] != _VERSION:
                raise ValueError(f"version {fields['version']!r} is not known")
            found = cls(
                entry.extended["kgw-holder"],
                int(fields["change"]),
                int(fields["lease_ms"]),
                decode_node(fields["node"]),
            )
        except (LookupError, TypeError, ValueError) as error:
            raise CorruptionError(f"{entry.name} is not a stand-by of kgw: {error!r}") from error
        if found.name != entry.name:
            raise CorruptionError(f"{entry.name} is not a stand-by of kgw: it is {found.name}")
        return found


def entry_name(holder: bytes) -> str:
    """Return the name of a standby's entry."""
    return PREFIX + holder.hex()


def encode_node(node: Node) -> object:
    """Return the JSON form of a node."""
    return {"id": node.node_id, "listeners": [*node.listeners.values()]}


def decode_node(fields: Mapping[str, object]) -> Node:
    """Return what `encode_node` made. Raises LookupError, TypeError or ValueError."""
    rows = fields["listeners"]
    if not isinstance(rows, list) or not rows:
        raise ValueError("a node without listeners")
    listeners = (Listener(str(name), str(host), int(port)) for name, host, port in rows)
    return Node(int(str(fields["id"])), {one.name: one for one in listeners})


def why_not_listed(node: Node, leader: Node | None, listed: Iterable[Node] = ()) -> str:
    """Return why a standby cannot be listed in metadata; "" if it can.

    `leader` is the leading gateway; `listed` are the standbys listed so far.
    """
    unreachable = [str(one) for one in node.listeners.values() if not one.host]
    if unreachable:
        return (
            f"clients are not told of the stand-by {node}: {unreachable[0]} has no host; give it "
            "one with --advertise"
        )
    for other, what in ((leader, "the leader"), *((one, "another stand-by") for one in listed)):
        if other is not None and other.node_id == node.node_id:
            return (
                f"clients are not told of the stand-by {node}: {what} has the same node id; give "
                "each gateway a node.id of its own"
            )
    return ""


class _Seen(NamedTuple):
    entry: StandbyEntry
    since_s: float
    """The time at which this state of the entry was first seen."""


class Standbys:
    """The leader's view of the standbys of a namespace."""

    def __init__(self, lease_ms: int) -> None:
        """`lease_ms` is this gateway's setting. If a standby's is longer, that one counts."""
        self._lease_ms = lease_ms
        self._seen: dict[bytes, _Seen] = {}
        self.nodes: tuple[Node, ...] = ()
        """The standbys that metadata lists, by node id."""
        self.problems: tuple[str, ...] = ()
        """The reasons why other standbys are not listed."""

    def saw(
        self, found: Sequence[StandbyEntry], leader: Node | None, holder: bytes, now_s: float
    ) -> list[str]:
        """Process the entries that the filer has just listed.

        `leader` is the leading node, and `holder` its token. An entry with this token is from the
        time when the leader was a standby. Returns the names of entries to remove, because their
        gateways have ended.
        """
        before, self._seen = self._seen, {}
        gone = []
        for entry in found:
            if entry.holder == holder:
                gone.append(entry.name)
                continue
            seen = before.get(entry.holder)
            if seen is None or seen.entry.change != entry.change:
                seen = _Seen(entry, now_s)
            self._seen[entry.holder] = seen
            if now_s >= seen.since_s + max(self._lease_ms, entry.lease_ms) / 1000:
                gone.append(entry.name)
        alive = [seen.entry for seen in self._seen.values() if seen.entry.name not in gone]
        listed: list[Node] = []
        problems = []
        # Sorted by holder, so that always the same one is listed if two standbys have one node id.
        for entry in sorted(alive):
            if problem := why_not_listed(entry.node, leader, listed):
                problems.append(problem)
            else:
                listed.append(entry.node)
        self.nodes = tuple(sorted(listed, key=lambda node: node.node_id))
        self.problems = tuple(problems)
        return gone
