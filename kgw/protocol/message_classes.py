"""The classes of requests and responses by API key, each imported when it is first wanted."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kgw.protocol.api_keys import MESSAGE_KEYS, ApiKey

if TYPE_CHECKING:
    from kgw.protocol.schema import Request, Response


def request_class(api_key: int) -> type[Request]:
    """Import and return the request of this API; KeyError if it is not in `MESSAGE_KEYS`."""
    request: type[Request] = _message_class(api_key, "Request")
    return request


def response_class(api_key: int) -> type[Response]:
    """Import and return the response of this API; KeyError if it is not in `MESSAGE_KEYS`."""
    response: type[Response] = _message_class(api_key, "Response")
    return response


def _message_class(api_key: int, suffix: str) -> type:
    if api_key not in MESSAGE_KEYS:
        raise KeyError(api_key)
    module = ApiKey(api_key).name.lower()
    name = module.title().replace("_", "") + suffix
    found: type = getattr(import_module(f"kgw.protocol.messages.{module}"), name)
    return found
