"""A classic group as it is stored: what must survive for members to go on undisturbed.

One row of kind `classic-group` a group, keyed by the group's id. It is written when a generation
forms (before any member hears of it, so that no generation is ever given out twice), when it has
its assignment, and when a static member is replaced.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import b2a_base64
from json.encoder import encode_basestring_ascii as _quote
from typing import Any, NamedTuple

from kgw.groups.machine import DecodedRow
from kgw.groups.members import Member
from kgw.groups.requests import JoinRequest, MemberProtocol
from kgw.groups.states import GroupState

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

    @classmethod
    def of(cls, member: Member) -> MemberRow:
        """Return what is stored of a member."""
        return cls(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.protocols,
            member.assignment,
            member.has_joined,
        )

    def member(self, protocol_type: str) -> Member:
        """Return the member again, as one that has been heard of before."""
        request = JoinRequest(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            protocol_type,
            self.protocols,
            self.member_id,
        )
        member = Member(self.member_id, request)
        member.assignment = self.assignment
        member.is_new = False
        member.has_joined = self.has_joined
        return member


class GroupRow(NamedTuple):
    """A group in one of the states that are stored: Empty, CompletingRebalance, Stable."""

    state: GroupState
    generation: int
    protocol_type: str
    protocol_name: str | None
    leader_id: str
    members: tuple[MemberRow, ...]

    def encode(self, wall_ms: int) -> bytes:
        """Return the stored form, which says of an empty group since when it is.

        Formatted by hand: json.dumps was a tenth of a rebalance of 100 members.
        """
        empty_since_ms = wall_ms if self.state is GroupState.EMPTY else -1
        members = ",".join([_member_text(member) for member in self.members])
        return (
            f'{{"state":{_quote(self.state.value)},"generation":{self.generation},'
            f'"protocol_type":{_quote(self.protocol_type)},'
            f'"protocol_name":{_nullable(self.protocol_name)},'
            f'"leader_id":{_quote(self.leader_id)},"empty_since_ms":{empty_since_ms},'
            f'"members":[{members}]}}'
        ).encode()


def decode_row(_kind: str, key: str, value: bytes) -> DecodedRow:
    """Return what `GroupRow.encode` wrote. Raises ValueError for anything else."""
    try:
        fields = json.loads(value)
        if fields["state"] not in _STORED_STATES:
            raise ValueError(f"no group is stored while it is {fields['state']}")
        row = GroupRow(
            GroupState(fields["state"]),
            int(fields["generation"]),
            str(fields["protocol_type"]),
            fields["protocol_name"],
            str(fields["leader_id"]),
            tuple(_member(one) for one in fields["members"]),
        )
        return DecodedRow(key, row, int(fields["empty_since_ms"]))
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


def _member_text(member: MemberRow) -> str:
    protocols = ",".join(
        [f'[{_quote(one.name)},"{_text(one.metadata)}"]' for one in member.protocols]
    )
    return (
        f'{{"member_id":{_quote(member.member_id)},'
        f'"group_instance_id":{_nullable(member.group_instance_id)},'
        f'"client_id":{_quote(member.client_id)},"client_host":{_quote(member.client_host)},'
        f'"session_timeout_ms":{member.session_timeout_ms},'
        f'"rebalance_timeout_ms":{member.rebalance_timeout_ms},'
        f'"protocols":[{protocols}],"assignment":"{_text(member.assignment)}",'
        f'"has_joined":{"true" if member.has_joined else "false"}}}'
    )


def _nullable(text: str | None) -> str:
    return "null" if text is None else _quote(text)


def _text(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")
