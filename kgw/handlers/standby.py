"""Answers requests while this process is a standby: clients are sent to the leader.

- ApiVersions is answered here, as each node has its own versions;
- requests that any node of a Kafka cluster answers (Metadata, descriptions, InitProducerId of a
  producer without a transactional id, changes of settings) are passed on to the leader, as this
  process knows no topics. If the leader cannot be reached, the request waits for `HOLD_S`, as this
  process may become the leader. Then the connection is closed, and the client asks another node: an
  answer without topics would make consumers drop them;
- the answer to FindCoordinator is the leader in the lease;
- this node has no groups, no transactions and no directories;
- with access rules, and at a listener with TLS, only ApiVersions and the requests of a login are
  answered; any other request ends the connection, and the client asks another node;
- any other request is refused with the code after which clients ask for Metadata again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from kgw.backend.lease import LeaseStatus
from kgw.client.connection import Connection
from kgw.client.errors import ClientError
from kgw.errors import ErrorCode, KafkaError, ProtocolError
from kgw.handlers.context import advertised_address, made
from kgw.logs import EventLogger, QuietLog
from kgw.ownership.placement import NOBODY
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import response_class
from kgw.protocol.messages.describe_cluster import DescribeClusterResponse
from kgw.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.config import Node
    from kgw.gateway import Gateway
    from kgw.handlers.context import Answer, RequestContext
    from kgw.handlers.table import Handler
    from kgw.protocol.framing import EncodedBody
    from kgw.protocol.schema import Response

HOLD_S: Final = 10.0
"""How long a request waits for a leader. Clients wait 30 s for an answer, franz-go 10 s."""
ASK_S: Final = 5.0
"""The timeout of a request that is passed on to the leader."""
_AGAIN_S: Final = 0.25
"""The pause before a leader that could not be reached is asked again."""
CLIENT_ID: Final = "kgw-standby"
"""The client id of requests that a standby passes on.

A standby does not pass such a request on again, as the leader's advertised address may belong to
this process.
"""

_LOCAL: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_HAS_NONE: Final = frozenset(
    {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_LOG_DIRS}
)
# Clients send these to any node: Kafka's brokers pass the changes on to the controller.
_FOR_ANY_NODE: Final = frozenset(
    {
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
    }
)

_log = EventLogger(__name__)


class Standby:
    """Answers the requests to a standby process."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._links: dict[str, _Link] = {}
        self._changed = asyncio.Event()
        self._quiet = QuietLog(_log)
        gateway.node.when_changed.append(self._status_changed)

    def answer(self, handler: Handler, context: RequestContext) -> Answer:
        """Answer a request. Raises KafkaError, ProtocolError."""
        api_key = context.api_key
        if api_key in _LOCAL:
            return handler.api(context.request, context).answer()
        if context.gateway.access is not None:
            # The leader would not be asked as this client, and the rules are in its state store.
            raise ProtocolError("a server that stands by knows no access rules")
        if context.gateway.config.protocol(context.session.listener_name).has_tls:
            # An encrypted request must not go on in plain text.
            raise ProtocolError("a server that stands by passes no encrypted request on")
        if api_key in _HAS_NONE or api_key is ApiKey.FIND_COORDINATOR:
            if self._leader is None:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no server leads")
            if api_key in _HAS_NONE:
                return response_class(api_key)()
            return handler.api(context.request, context).answer()
        code = handler.owner.value.standby
        if code is not None and not _is_passed_on(context):
            return self._send_on(handler, context, code)
        if context.session.client_id == CLIENT_ID:
            raise ProtocolError("a stand-by has asked a stand-by: the leader's address leads here")
        return self._pass_on(handler, context)

    async def aclose(self) -> None:
        """Wake all waiting requests, and close the connections to the leader."""
        self._gateway.node.when_changed.remove(self._status_changed)
        self._status_changed()
        links, self._links = self._links, {}
        for link in links.values():
            link.abort()

    @property
    def _leader(self) -> Node | None:
        """The leader, if it is known and this process is a standby."""
        lease = self._gateway.backend.lease
        return lease.leader if lease.status is LeaseStatus.STANDBY else None

    def _status_changed(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if self._leader is None:
            # Requests to the former leader end: if it hangs, clients would wait for it.
            for link in self._links.values():
                link.abort()

    def _send_on(
        self, handler: Handler, context: RequestContext, code: ErrorCode
    ) -> Response | None:
        """Refuse a request, so that its client looks for the leader."""
        request: Any = context.request
        text = "this server stands by: another one leads"
        if context.api_key is ApiKey.FETCH and request.session_id and request.session_epoch > 0:
            # The partitions of the request are not known.
            code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        answer = handler.api.refuse(request, code, text, context)
        if context.api_key is ApiKey.FETCH and code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            # After an error of the whole answer, clients do not ask for Metadata again.
            cast("Any", answer).error_code = ErrorCode.NONE
        return answer

    # --- requests to the leader -------------------------------------------------------------------

    async def _pass_on(
        self, handler: Handler, context: RequestContext
    ) -> Response | EncodedBody | None:
        """Return the leader's answer, or this process's own answer once it leads."""
        gateway, clock = self._gateway, self._gateway.clock
        begun_s = clock.monotonic_s()
        failed_s: float | None = None
        while gateway.node.status is LeaseStatus.STANDBY:
            changed, now_s = self._changed, clock.monotonic_s()
            if (leader := self._leader) is not None:
                try:
                    answer = await self._link(leader, context).ask(context)
                except ClientError as error:
                    self._complain(leader, error)
                    failed_s = clock.monotonic_s() if failed_s is None else failed_s
                else:
                    if _is_led(answer):
                        return answer
                if failed_s is not None and gateway.backend.lease.renewed_s > failed_s:
                    # The leader is alive; only this process cannot reach it.
                    break
            if now_s >= begun_s + HOLD_S:
                break
            timer = clock.call_at(clock.monotonic_s() + _AGAIN_S, changed.set)
            await changed.wait()
            timer.cancel()
            if self._changed is changed:
                self._changed = asyncio.Event()
        if gateway.node.status is not LeaseStatus.STANDBY:
            return await made(handler.api(context.request, context).answer())
        return self._known(context)

    def _known(self, context: RequestContext) -> Response:
        """Return an answer that needs no leader. Raises ProtocolError if there is none."""
        request, placement = context.request, self._gateway.placement
        if context.api_key is ApiKey.METADATA and request.topics == [] and context.api_version:
            answer = MetadataResponse(cluster_id=None, controller_id=placement.controller.node_id)
            for node in placement.nodes:
                host, port = advertised_address(node, context)
                answer.brokers.append(
                    MetadataResponseBroker(node_id=node.node_id, host=host, port=port)
                )
            return answer
        raise ProtocolError("this server stands by, and no server that leads can be asked")

    def _link(self, leader: Node, context: RequestContext) -> _Link:
        """Return the connection to the leader for clients of a listener."""
        name = context.session.listener_name
        listener = leader.listener(name)
        link = self._links.get(name)
        if link is None or (link.host, link.port) != (listener.host, listener.port):
            if link is not None:
                link.abort()
            link = self._links[name] = _Link(
                listener.host, listener.port, self._gateway.clock.monotonic_s
            )
        return link

    def _complain(self, leader: Node, error: ClientError) -> None:
        self._quiet.warning(
            "the leader cannot be asked for clients of this stand-by: they are sent elsewhere",
            "leader",
            self._gateway.clock.monotonic_s(),
            {"leader": leader, "why": str(error)},
        )


class _Link:
    """A connection to the leader: opened when it is needed, and reopened after a failure."""

    def __init__(self, host: str, port: int, monotonic_s: Callable[[], float]) -> None:
        self.host = host
        self.port = port
        self._monotonic_s = monotonic_s
        self._connection: Connection | None = None
        self._opening: asyncio.Lock = asyncio.Lock()
        self._error: ClientError | None = None
        self._again_s = float("-inf")

    async def ask(self, context: RequestContext) -> Response:
        """Return the leader's answer to a request. Raises ClientError."""
        connection = await self._open()
        request = context.request
        first, last = connection.versions.get(context.api_key, (0, -1))
        version = context.api_version
        if context.api_key is ApiKey.METADATA and not version:
            # Version 0 does not show whether a server leads, and requests all topics differently.
            version, request = 1, MetadataRequest(topics=request.topics or None)
        if not first <= version <= last:
            version = connection.spoken_version(type(request))
        return await connection.ask(
            request, response_class(context.api_key), version=version, timeout_s=ASK_S
        )

    async def _open(self) -> Connection:
        async with self._opening:
            if self._connection is not None and self._connection.is_open:
                return self._connection
            # After a failure, waiting requests fail, too: each of them would try again.
            if self._error is not None and self._monotonic_s() < self._again_s:
                raise self._error
            try:
                self._connection = await Connection.open(
                    self.host, self.port, client_id=CLIENT_ID, timeout_s=ASK_S
                )
            except ClientError as error:
                self._error, self._again_s = error, self._monotonic_s() + _AGAIN_S
                raise
            self._error = None
            return self._connection

    def abort(self) -> None:
        """Close the connection; waiting requests fail."""
        if self._connection is not None:
            self._connection.abort()


def _is_passed_on(context: RequestContext) -> bool:
    """Return whether a request is passed on to the leader although it could be refused here."""
    if context.api_key is ApiKey.INIT_PRODUCER_ID:
        # Without a transactional id there is no coordinator: any node returns producer ids.
        return context.request.transactional_id is None
    return context.api_key in _FOR_ANY_NODE


def _is_led(answer: Response) -> bool:
    """Return whether an answer comes from a process that knows that it leads."""
    if isinstance(answer, MetadataResponse | DescribeClusterResponse):
        return answer.controller_id != NOBODY.node_id
    return True
