"""Counts the error codes in responses, by API and code, as Kafka's metric `ErrorsPerSec`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.protocol.codec import codec

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.protocol.schema import Response


def count_error_codes(response: Response, context: RequestContext) -> None:
    """Count every error code of a response but NONE, by API."""
    version = context.api_version
    # Counted in one dictionary, as in `response_frame`: this runs for every response.
    ours = response.codecs.get(version) or codec(type(response), version)
    codes = ours.find_error_codes((response,))
    if codes:
        errors, api = context.gateway.metrics.answer_errors, context.api_key.name
        for code in codes:
            key = api, ErrorCode(code).name
            errors[key] = errors.get(key, 0) + 1
