"""A classic group as it is stored: what must survive for members to go on undisturbed.

One row of kind `classic-group` a group, keyed by the group's id. It is written when a generation
forms (before any member hears of it, so that no generation is ever given out twice), when it has
its assignment, and when a static member is replaced.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any, NamedTuple

from kgw.groups.requests import MemberProtocol
from kgw.groups.states import GroupState

CLASSIC_GROUP = "classic-group"

_STORED_STATES = frozenset(
    {GroupState.EMPTY.value, GroupState.COMPLETING_REBALANCE.value, GroupState.STABLE.value}
)


class MemberRow(NamedTuple):
    """A member: who it is, what it can do, what it was given."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes
    has_joined: bool = True
    """False for a static member that was kept in this generation without taking part."""


class GroupRow(NamedTuple):
    """A group in one of the states that are stored: Empty, CompletingRebalance, Stable."""

    state: GroupState
    generation: int
    protocol_type: str
    protocol_name: str | None
    leader_id: str
    members: tuple[MemberRow, ...]

    def encode(self, empty_since_ms: int) -> bytes:
        """Return the stored form. `empty_since_ms` is wall time, -1 while there are members."""
        return json.dumps(
            {
                "state": self.state.value,
                "generation": self.generation,
                "protocol_type": self.protocol_type,
                "protocol_name": self.protocol_name,
                "leader_id": self.leader_id,
                "empty_since_ms": empty_since_ms,
                "members": [
                    {
                        "member_id": member.member_id,
                        "group_instance_id": member.group_instance_id,
                        "client_id": member.client_id,
                        "client_host": member.client_host,
                        "session_timeout_ms": member.session_timeout_ms,
                        "rebalance_timeout_ms": member.rebalance_timeout_ms,
                        "protocols": [
                            [protocol.name, _text(protocol.metadata)]
                            for protocol in member.protocols
                        ],
                        "assignment": _text(member.assignment),
                        "has_joined": member.has_joined,
                    }
                    for member in self.members
                ],
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def decode(cls, value: bytes) -> tuple[GroupRow, int]:
        """Return what `encode` wrote, and since when the group is empty.

        Raises ValueError for anything else.
        """
        try:
            fields = json.loads(value)
            if fields["state"] not in _STORED_STATES:
                raise ValueError(f"no group is stored while it is {fields['state']}")
            row = cls(
                GroupState(fields["state"]),
                int(fields["generation"]),
                str(fields["protocol_type"]),
                fields["protocol_name"],
                str(fields["leader_id"]),
                tuple(_member(one) for one in fields["members"]),
            )
            return row, int(fields["empty_since_ms"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a group's row: {error!r}") from error


def _member(fields: dict[str, Any]) -> MemberRow:
    return MemberRow(
        str(fields["member_id"]),
        fields["group_instance_id"],
        str(fields["client_id"]),
        str(fields["client_host"]),
        int(fields["session_timeout_ms"]),
        int(fields["rebalance_timeout_ms"]),
        tuple(MemberProtocol(name, b64decode(text)) for name, text in fields["protocols"]),
        b64decode(fields["assignment"]),
        bool(fields["has_joined"]),
    )


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")
