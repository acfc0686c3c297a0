"""The limits of one connection, of one client address, and of all connections together."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from kgw.config.memory import DEFAULT_MEMORY_BYTES, request_memory_bytes
from kgw.config.setting import INT_MAX

if TYPE_CHECKING:
    from kgw.config import Config

# Descriptors that connections leave for segments, the state store, logs and name look-ups. The
# fraction is for segments that are not synced: relaxed ones, and those behind both journal files
# (`kgw.backend.registry.file_limits`).
RESERVED_DESCRIPTORS = 1024
SEGMENTS_SHARE = 3 / 16
_UNLIMITED = 1 << 60
_OPEN_MAX = 10_240
"""OPEN_MAX in macOS's limits.h: the highest limit that setrlimit(2) accepts if there is no hard
limit."""


class Limits(NamedTuple):
    """Limits of the server, in the units that it uses. A timeout of None never expires."""

    frame_bytes: int = 100 << 20
    request_memory_bytes: int = DEFAULT_MEMORY_BYTES // 4
    inflight_requests: int = 32
    inflight_bytes: int = 16 << 20
    unsent_bytes: int = 8 << 20
    unsent_timeout_s: float = 60.0
    frame_timeout_s: float = 30.0
    login_frame_bytes: int = 64 << 10
    login_timeout_s: float = 10.0
    idle_timeout_s: float | None = 600.0
    connections: int = 10_000
    connections_per_ip: int = 1 << 31
    backlog: int = 1024
    send_buffer_bytes: int = -1


class ConnectionLimits(NamedTuple):
    """How many connections may be open."""

    connections: int
    connections_per_ip: int


def connection_limits(config: Config) -> ConnectionLimits:
    """Return the configured limits, reduced to the descriptors available to this process.

    Raises this process's descriptor limit to the hard one.
    """
    return ConnectionLimits(
        min(config.max_connections, connections_below(raise_descriptor_limit())),
        config.max_connections_per_ip,
    )


def limits_from(config: Config) -> Limits:
    """Return the configured limits, reduced to the limits of this machine.

    Raises this process's descriptor limit to the hard one.
    """
    idle_ms = config.connections_max_idle_ms
    return Limits(
        frame_bytes=config.socket_request_max_bytes,
        request_memory_bytes=request_memory_bytes(config),
        inflight_requests=config.inflight_requests_max,
        inflight_bytes=config.inflight_bytes_max,
        # An event loop in C accepts no higher number: no connection could be opened.
        unsent_bytes=min(config.unsent_bytes_max, INT_MAX),
        unsent_timeout_s=config.unsent_timeout_ms / 1000,
        frame_timeout_s=config.frame_timeout_ms / 1000,
        login_frame_bytes=config.sasl_server_max_receive_size,
        login_timeout_s=config.login_timeout_ms / 1000,
        idle_timeout_s=None if idle_ms < 0 else idle_ms / 1000,
        **connection_limits(config)._asdict(),
        backlog=config.socket_listen_backlog_size,
        send_buffer_bytes=config.socket_send_buffer_bytes,
    )


def connections_below(descriptors: int) -> int:
    """Return how many connections are possible with a number of descriptors."""
    reserved = RESERVED_DESCRIPTORS + int(descriptors * SEGMENTS_SHARE)
    return max(descriptors - reserved, descriptors // 2)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit. Return the limit now in force."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems report a hard limit that they then refuse: the old soft limit stays.
        for limit in (hard, max(soft, _OPEN_MAX)):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
                soft = limit
                break
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft
