"""Sends one OTLP export over HTTP, and checks that the receiver has accepted all of it."""

from __future__ import annotations

import gzip
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)

from kgw import __version__
from kgw.otel.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANSWER_BYTES = 1 << 20
_EXCERPT_BYTES = 200


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects: they turn a POST into a GET, whose status 200 would confirm nothing."""

    def redirect_request(self, *_: object) -> None:
        return None


def post(url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> None:
    """Send one export. Raises ExportError unless the receiver has accepted all of it."""
    request = Request(  # noqa: S310 - the setting takes http and https only
        url,
        gzip.compress(body, 1),
        {
            **headers,
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "User-Agent": f"kgw/{__version__}",
        },
    )
    try:
        with build_opener(_NoRedirects).open(request, timeout=timeout_s) as answer:
            said = answer.read(_ANSWER_BYTES)
            status = answer.status
    except HTTPError as error:
        with error:
            excerpt = error.read(_EXCERPT_BYTES).decode("utf-8", "replace")
        raise ExportError(f"HTTP status {error.code}: {excerpt or error.reason}") from None
    except (OSError, HTTPException) as error:
        raise ExportError(str(getattr(error, "reason", error)) or type(error).__name__) from None
    if status != 200:
        raise ExportError(f"HTTP status {status}")
    _check_all_taken(said)


def _check_all_taken(said: bytes) -> None:
    from google.protobuf.message import DecodeError

    try:
        partial = ExportMetricsServiceResponse.FromString(said).partial_success
    except DecodeError:
        raise ExportError("the answer is no answer of OTLP") from None
    if partial.rejected_data_points:
        raise ExportError(
            f"{partial.rejected_data_points} numbers were refused: {partial.error_message}"
        )
