"""The stored form of a classic group, from which its members continue after a restart.

Each group has one row of kind `classic-group`, keyed by the group's id. It is written when a
generation forms (before any member gets an answer, so that no generation is used twice), when the
leader has sent the assignments, when the group becomes empty, and when a static member is replaced.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any, NamedTuple

from kgw.coordinator.machine import DecodedRow
from kgw.groups.requests import JoinRequest, MemberProtocol
from kgw.groups.states import GroupState

_STORED_STATES = frozenset(
    {GroupState.EMPTY.value, GroupState.COMPLETING_REBALANCE.value, GroupState.STABLE.value}
)
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class MemberRow(NamedTuple):
    """A member: its ids, its last JoinGroup and its assignment."""

    member_id: str
    group_instance_id: str | None
    said: JoinRequest
    assignment: bytes
    has_joined: bool = True
    """False for a static member that belongs to this generation although it has not joined it."""


class GroupRow(NamedTuple):
    """A group in one of the states that are stored: Empty, CompletingRebalance, Stable."""

    state: GroupState
    generation: int
    protocol_type: str
    protocol_name: str | None
    leader_id: str
    members: tuple[MemberRow, ...]
    empty_since_ms: int = -1
    """The running time at which the group became empty; -1 if it is not empty.

    Only set in loaded rows; `encode` does not use it.
    """

    def encode(self, running_ms: int) -> bytes:
        """Return the stored form.

        If the group is empty, it is stored as empty since `running_ms`.
        """
        fields = {
            "state": self.state.value,
            "generation": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol_name,
            "leader_id": self.leader_id,
            "empty_since_ms": running_ms if self.state is GroupState.EMPTY else -1,
            "members": [_fields(one) for one in self.members],
        }
        return _ENCODER.encode(fields).encode()


def decode_row(_kind: str, key: str, value: bytes) -> DecodedRow:
    """Decode the output of `GroupRow.encode`. Raises ValueError for other bytes."""
    try:
        fields = json.loads(value)
        if fields["state"] not in _STORED_STATES:
            raise ValueError(f"no group is stored while it is {fields['state']}")
        protocol_type = str(fields["protocol_type"])
        row = GroupRow(
            GroupState(fields["state"]),
            int(fields["generation"]),
            protocol_type,
            fields["protocol_name"],
            str(fields["leader_id"]),
            tuple(_member(one, protocol_type) for one in fields["members"]),
            int(fields["empty_since_ms"]),
        )
        return DecodedRow(key, row)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a group's row: {error!r}") from error


def _fields(member: MemberRow) -> dict[str, Any]:
    said = member.said
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": said.client_id,
        "client_host": said.client_host,
        "session_timeout_ms": said.session_timeout_ms,
        "rebalance_timeout_ms": said.rebalance_timeout_ms,
        "protocols": [[name, b64encode(data).decode()] for name, data in said.protocols],
        "assignment": b64encode(member.assignment).decode(),
        "has_joined": member.has_joined,
    }


def _member(fields: dict[str, Any], protocol_type: str) -> MemberRow:
    member_id, group_instance_id = str(fields["member_id"]), fields["group_instance_id"]
    said = JoinRequest(
        member_id,
        group_instance_id,
        str(fields["client_id"]),
        str(fields["client_host"]),
        int(fields["session_timeout_ms"]),
        int(fields["rebalance_timeout_ms"]),
        protocol_type,
        tuple(MemberProtocol(name, b64decode(text)) for name, text in fields["protocols"]),
        member_id,
    )
    assignment = b64decode(fields["assignment"])
    return MemberRow(member_id, group_instance_id, said, assignment, bool(fields["has_joined"]))
