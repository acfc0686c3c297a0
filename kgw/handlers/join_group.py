"""JoinGroup, key 11, versions 0 to 9: join a group, or its next generation.

Behaviour:
- answered when every member has joined or the rebalance timeout is over. A repeated request
  replaces the first one, which is answered with COORDINATOR_LOAD_IN_PROGRESS: after this code every
  client retries, and no client changes its state;
- a generation is durable before any member learns of it;
- from v4 on, a new dynamic member first gets MEMBER_ID_REQUIRED and its id; the id counts towards
  `group.max.size` and expires with the session timeout;
- all protocol types are supported, and metadata is not interpreted. INCONSISTENT_GROUP_PROTOCOL
  unless all members of a group have the same type and a common protocol;
- a static member that returns to a stable group with the same subscription causes no rebalance;
  requests of its old process get FENCED_INSTANCE_ID from every API;
- UNKNOWN_MEMBER_ID, INVALID_SESSION_TIMEOUT, INVALID_GROUP_ID, GROUP_MAX_SIZE_REACHED (also if the
  metadata of all members would exceed 16 MB); COORDINATOR_NOT_AVAILABLE when the group cannot be
  stored, NOT_COORDINATOR if another node coordinates the group, or if the request would have to
  wait for other members while the server stops.

v1: rebalance timeout (KIP-62); before, the session timeout counts. v2: throttle time. v4: member
ids first (KIP-394). v5: static members (KIP-345). v6: flexible (KIP-482). v7: protocol type in the
answer (KIP-559). v8: reasons (KIP-800). v9: a static leader learns that it must not assign again
(KIP-814); in older versions it does not learn that it is the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import NO_ERROR, ErrorCode
from kgw.groups.group import new_member_id
from kgw.groups.requests import JoinRequest, MemberProtocol
from kgw.handlers.parts import Api, when_answered
from kgw.handlers.rights import Rights
from kgw.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from kgw.groups.requests import JoinResult
    from kgw.handlers.context import Answer, RequestContext

_REBALANCE_TIMEOUT = 1
_MEMBER_ID_FIRST = 4
_NULLABLE_PROTOCOL = 7
_SKIP_ASSIGNMENT = 9


class JoinGroup(Api):
    response_type = JoinGroupResponse
    rights = Rights(group=AclOperation.READ)

    @classmethod
    def refuse(
        cls, request: Any, code: ErrorCode, message: str | None, context: RequestContext
    ) -> JoinGroupResponse:
        # As in Kafka, a client without the right gets no member id.
        is_denied = code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        member_id = "" if is_denied else request.member_id
        return _refusal(code, member_id, context.api_version)

    def answer(self) -> Answer:
        request, version = self.request, self.version
        config, session = self.gateway.config, self.context.session
        timeout_ms = request.session_timeout_ms
        # Checked as in Kafka before the group is looked up, which need not exist.
        if request.group_id and not (
            config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms
        ):
            return _refusal(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id, version)
        client_id = session.client_id or ""
        has_timeout = version >= _REBALANCE_TIMEOUT and request.rebalance_timeout_ms >= 0
        reply = self.groups(request.group_id).ask(
            request.group_id,
            JoinRequest(
                request.member_id,
                request.group_instance_id,
                client_id,
                f"/{session.client_host}",
                timeout_ms,
                request.rebalance_timeout_ms if has_timeout else timeout_ms,
                request.protocol_type,
                tuple([MemberProtocol(one.name, bytes(one.metadata)) for one in request.protocols]),
                # Only a new member uses this id.
                "" if request.member_id else new_member_id(request.group_instance_id or client_id),
                request.reason,
                version >= _MEMBER_ID_FIRST,
                version >= _SKIP_ASSIGNMENT,
            ),
        )
        return when_answered(reply, self._response)

    def _response(self, result: JoinResult) -> JoinGroupResponse:
        if result.error is not NO_ERROR:
            return _refusal(result.error, result.member_id, self.version)
        return JoinGroupResponse(
            generation_id=result.generation,
            protocol_type=result.protocol_type,
            # A missing protocol name is null in versions that allow null, as in Kafka.
            protocol_name=result.protocol_name or _no_name(self.version),
            leader=result.leader_id,
            skip_assignment=result.skip_assignment,
            member_id=result.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=one.member_id,
                    group_instance_id=one.group_instance_id,
                    metadata=one.metadata,
                )
                for one in result.members
            ],
        )


def _refusal(code: ErrorCode, member_id: str, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=_no_name(version))


def _no_name(version: int) -> str | None:
    return None if version >= _NULLABLE_PROTOCOL else ""
