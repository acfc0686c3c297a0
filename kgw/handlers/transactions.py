"""Code that the APIs of transactions share: error codes for older clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext


def for_version(error: ErrorCode, context: RequestContext, fenced_since: int) -> ErrorCode:
    """Return INVALID_PRODUCER_EPOCH for a fenced producer before KIP-588, else the code."""
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
