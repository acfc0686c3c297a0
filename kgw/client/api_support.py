"""The APIs that a server supports, beside those that this client has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.client.values import ApiSupport
from kgw.protocol.api_keys import MESSAGE_KEYS, ApiKey
from kgw.protocol.codec import request_class

if TYPE_CHECKING:
    from collections.abc import Mapping


def api_support(versions: Mapping[int, tuple[int, int]]) -> list[ApiSupport]:
    """Return a row for each API of a server (`Connection.versions`), sorted by key."""
    rows = []
    for api_key, (server_min, server_max) in sorted(versions.items()):
        name, client_min, client_max, spoken = _api_name(api_key), None, None, None
        if api_key in MESSAGE_KEYS:
            message = request_class(api_key)
            name = message.__name__.removesuffix("Request")
            client_min, client_max = message.valid_versions
            highest = min(client_max, server_max)
            spoken = highest if highest >= max(client_min, server_min) else None
        rows.append(
            ApiSupport(api_key, name, server_min, server_max, client_min, client_max, spoken)
        )
    return rows


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name.title().replace("_", "")
    except ValueError:
        return f"API {api_key}"
