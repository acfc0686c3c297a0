"""Requests and their frames, for the tests of decoders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.protocol.framing import request_frame
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from kgw.protocol.schema import Request


def frame_of(
    request: Request, version: int, correlation_id: int = 1, client_id: str | None = "client"
) -> memoryview:
    """Return a request's frame without its length."""
    parts = request_frame(request, version, correlation_id, client_id)
    return memoryview(bytearray(b"".join(parts)))[4:]


def fetch(partitions: int = 1, offset: int = 0) -> FetchRequest:
    """Return a request that names so many partitions."""
    asked = [FetchPartition(partition=one, fetch_offset=offset) for one in range(partitions)]
    return FetchRequest(topics=[FetchTopic(topic="orders", partitions=asked)])
