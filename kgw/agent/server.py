"""The gRPC listener of the agent's API, in the gateway's event loop."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import grpc

from kgw.agent.certificates import server_credentials
from kgw.agent.clients import AgentClients
from kgw.agent.service import AgentService
from kgw.backend.seaweedmq.protos.mq_agent_pb2_grpc import (
    add_SeaweedMessagingAgentServicer_to_server,
)
from kgw.config.listeners import Listener, format_address, is_https
from kgw.errors import ListenError

if TYPE_CHECKING:
    from kgw.gateway import Gateway
    from kgw.server.listener_security import ServedSecurity

_CALLS_BESIDE_STREAMS: Final = 100
"""The most concurrent calls that open or close sessions; gRPC refuses more."""


class AgentServer:
    """Serves the topics of a gateway to SMQ clients."""

    def __init__(self, gateway: Gateway, security: ServedSecurity | None = None) -> None:
        """`security` has the certificates; None if the listener has no TLS."""
        config = gateway.config
        self._security = security
        https = None if security is None else security.https
        mapper = None if https is None else https.mapper
        self._asks_for_certificates = config.asks_for_certificates
        self._service = AgentService(gateway, AgentClients(gateway, mapper))
        idle_ms = config.connections_max_idle_ms
        self._server = grpc.aio.server(
            options=[
                # A larger record is refused by the topic's setting, not by gRPC.
                ("grpc.max_receive_message_length", config.socket_request_max_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", config.smq_agent_streams_max),
                ("grpc.max_connection_idle_ms", idle_ms if idle_ms >= 0 else (1 << 31) - 1),
                ("grpc.server_handshake_timeout_ms", config.login_timeout_ms),
                # Otherwise another process could listen on the same port.
                ("grpc.so_reuseport", 0),
                # The value of SeaweedFS's own servers: clients may ping every 20 s.
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 20_000),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 20_000),
            ],
            maximum_concurrent_rpcs=config.smq_agent_streams_max + _CALLS_BESIDE_STREAMS,
        )
        add_SeaweedMessagingAgentServicer_to_server(self._service, self._server)

    async def start(self, listener: Listener) -> Listener:
        """Start to listen; return the listener with its port. Raises ListenError."""
        address = format_address(listener.host or "[::]", listener.port)
        try:
            port = self._bind(listener, address)
        except RuntimeError as error:
            raise ListenError(f"cannot listen at {listener}: {error}") from error
        await self._server.start()
        return listener._replace(port=port)

    def _bind(self, listener: Listener, address: str) -> int:
        """Bind an address, and return its port. Raises RuntimeError."""
        if not is_https(listener):
            return int(self._server.add_insecure_port(address))
        if self._security is None or self._security.key is None:
            raise RuntimeError("there is no certificate")
        credentials = server_credentials(
            self._security.key,
            partial(attrgetter("key"), self._security),
            asks_for_certificates=self._asks_for_certificates,
        )
        return int(self._server.add_secure_port(address, credentials))

    async def aclose(self, timeout_s: float) -> None:
        """End all streams in order; cut off streams that last longer than `timeout_s`."""
        self._service.stop()
        await self._server.stop(timeout_s)
