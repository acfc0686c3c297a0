"""Settings of the OTLP export, and parsers of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.config.setting import TypedSetting, Value

if TYPE_CHECKING:
    from collections.abc import Iterable

_SIGNAL_PATH = "/v1/metrics"


def parse_attributes(items: Iterable[str]) -> dict[str, str]:
    """Parse attributes `KEY=VALUE`. Raises ValueError."""
    attributes = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not key or not separator:
            raise ValueError(f"{item!r} is not KEY=VALUE, as in deployment.environment.name=test")
        attributes[key] = value
    return attributes


def parse_headers(text: str) -> dict[str, str]:
    """Parse HTTP headers `Name: value`, one per line. Raises ValueError.

    The message has the line's number, but not its text, which is secret.
    """
    headers = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, separator, value = line.partition(":")
        value = value.strip()
        is_token = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not (separator and is_token and value.isascii() and value.isprintable()):
            raise ValueError(f"line {number} is not NAME: VALUE of an HTTP header")
        headers[name] = value
    return headers


def _check_attributes(value: Value) -> None:
    parse_attributes(value if isinstance(value, tuple) else ())


def _check_endpoint(value: Value) -> None:
    url = str(value)
    if not url:
        return
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    # `port` raises ValueError if it is invalid.
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
        raise ValueError("a URL is expected, as in http://127.0.0.1:4318")
    if parts.query or parts.fragment or not (url.isascii() and url.isprintable()) or " " in url:
        raise ValueError("a URL without ? and # is expected, as in http://127.0.0.1:4318")
    if parts.username is not None:
        raise ValueError("credentials belong into kgw.otel.headers.file")
    if parts.path.rstrip("/").endswith(_SIGNAL_PATH):
        raise ValueError(f"{_SIGNAL_PATH} is added by kgw: leave it out")


class OtelSettings:
    """Settings of the OTLP export."""

    otel_endpoint = TypedSetting(
        "kgw.otel.endpoint",
        "",
        "Where metrics are sent over OTLP (HTTP, protobuf), as in `http://127.0.0.1:4318`; "
        "`/v1/metrics` is added. Nowhere unless set. Needs the extra `otel` "
        "(docs/opentelemetry.md).",
        check=_check_endpoint,
    )
    otel_headers_file = TypedSetting(
        "kgw.otel.headers.file",
        "",
        "File with HTTP headers for these exports, `Name: value` on a line each, as in "
        "`Authorization: Bearer TOKEN`. It is read anew for each export.",
    )
    otel_interval_ms = TypedSetting(
        "kgw.otel.interval.ms",
        60_000,
        "How often metrics are exported.",
        minimum=1_000,
    )
    otel_resource_attributes = TypedSetting(
        "kgw.otel.resource.attributes",
        (),
        "What is said of this server with each export, as `KEY=VALUE`, several separated by "
        "commas; beside or instead of `service.name=kgw`, `service.version`, and "
        "`service.instance.id=HOST:PORT`.",
        check=_check_attributes,
    )
