"""What the APIs of transactions have in common: codes that older clients do not know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext


def for_version(error: ErrorCode, context: RequestContext, fenced_since: int) -> ErrorCode:
    """Return what a client is told: before KIP-588 a fenced producer's epoch was just invalid."""
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
