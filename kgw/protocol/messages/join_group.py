"""JoinGroup (API key 11)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class JoinGroupRequestProtocol(schema.Struct):
    """An assignor that the member supports, best first."""

    name: str = schema.string()
    metadata: bytes = schema.byte_string()
    """For consumers a `ConsumerProtocolSubscription`; the broker need not understand it."""


class JoinGroupRequest(schema.Request, api_key=ApiKey.JOIN_GROUP):
    """Join a classic group, or take part in its next rebalance.

    Versions:
        1: a rebalance timeout separate from the session timeout (KIP-62)
        2: same layout; the client reads a throttle time
        4: same layout; new members get an id first and join again with it (KIP-394)
        5: static membership (KIP-345)
        7: same layout; the response names the protocol type (KIP-559)
        8: reason (KIP-800)
        9: same layout; the response may ask the leader to keep the assignment (KIP-814)
    """

    group_id: str = schema.string()
    session_timeout_ms: int = schema.int32()
    """The time without a heartbeat after which the member is removed."""
    rebalance_timeout_ms: int = schema.int32(since=1, default=-1, ignorable=True)
    """How long a rebalance waits for this member; -1 before version 1: as the session."""
    member_id: str = schema.string()
    """Empty for a new member."""
    group_instance_id: str | None = schema.string(since=5, nullable_since=5, default=None)
    """Null unless the member is static."""
    protocol_type: str = schema.string()
    """"consumer", "connect" or another name that all members use."""
    protocols: list[JoinGroupRequestProtocol] = schema.array(JoinGroupRequestProtocol)
    reason: str | None = schema.string(since=8, nullable_since=8, default=None, ignorable=True)
    """For the log."""


class JoinGroupResponseMember(schema.Struct):
    """A member, in the response to the leader only."""

    member_id: str = schema.string()
    group_instance_id: str | None = schema.string(
        since=5, nullable_since=5, default=None, ignorable=True
    )
    metadata: bytes = schema.byte_string()


class JoinGroupResponse(schema.Response, api_key=ApiKey.JOIN_GROUP):
    """The generation that has formed; in the response to its leader also all members.

    Versions:
        2: throttle time
        3: same layout; sent before throttling, not after
        4: same layout; MEMBER_ID_REQUIRED may be returned (KIP-394)
        5: static membership (KIP-345)
        7: protocol type; no protocol is null (KIP-559)
        9: a flag that asks the leader to keep the assignment (KIP-814)
    """

    throttle_time_ms: int = schema.int32(since=2, ignorable=True)
    error_code: int = schema.int16()
    generation_id: int = schema.int32(default=-1)
    protocol_type: str | None = schema.string(
        since=7, nullable_since=7, default=None, ignorable=True
    )
    protocol_name: str | None = schema.string(nullable_since=7)
    """The assignor that all members support."""
    leader: str = schema.string()
    """The member id of the leader, which assigns the partitions."""
    skip_assignment: bool = schema.boolean(since=9)
    """Whether the leader, a static member that has returned, must keep the old assignment."""
    member_id: str = schema.string()
    members: list[JoinGroupResponseMember] = schema.array(JoinGroupResponseMember)
    """Empty unless this member is the leader."""
