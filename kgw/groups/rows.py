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

from kgw.groups.requests import MemberProtocol
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


class GroupRow(NamedTuple):
    """A group in one of the states that are stored: Empty, CompletingRebalance, Stable."""

    state: GroupState
    generation: int
    protocol_type: str
    protocol_name: str | None
    leader_id: str
    members: tuple[MemberRow, ...]

    def encode(self, empty_since_ms: int) -> bytes:
        """Return the stored form. `empty_since_ms` is wall time, -1 while there are members.

        Formatted by hand: json.dumps was a tenth of a rebalance of 100 members.
        """
        members = ",".join([_member_text(member) for member in self.members])
        return (
            f'{{"state":{_quote(self.state.value)},"generation":{self.generation},'
            f'"protocol_type":{_quote(self.protocol_type)},'
            f'"protocol_name":{_nullable(self.protocol_name)},'
            f'"leader_id":{_quote(self.leader_id)},"empty_since_ms":{empty_since_ms},'
            f'"members":[{members}]}}'
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
