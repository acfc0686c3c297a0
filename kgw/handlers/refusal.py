"""Refuses a request whose version is not supported, or that a login does not allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, ProtocolError
from kgw.handlers.context import RequestContext
from kgw.protocol.api_keys import MESSAGE_KEYS, ApiKey
from kgw.protocol.codec import codec, request_class, response_class
from kgw.protocol.framing import decode_request_header, peek_request_header, response_frame

if TYPE_CHECKING:
    from kgw.gateway import Gateway
    from kgw.handlers.context import Session
    from kgw.handlers.parts import Api
    from kgw.handlers.table import Handler
    from kgw.protocol.schema import Response
    from kgw.types import Buffer


def refuse(
    frame: memoryview,
    handler: Handler | None,
    gateway: Gateway,
    session: Session,
    error: KafkaError | None = None,
) -> list[Buffer]:
    """Return a refusal in the version that the client asked for; UNSUPPORTED_VERSION by default.

    ApiVersions is always answered in version 0: a client begins with its highest version and learns
    from the answer which version to use (KIP-35). Raises ProtocolError if no answer is possible:
    for an unknown key, an undefined version, or a response without a field for the code.
    """
    key, api_version, correlation_id = peek_request_header(frame)
    if key not in MESSAGE_KEYS:
        raise ProtocolError(f"API key {key} is not one that clients use")
    api_key = ApiKey(key)
    if api_key is ApiKey.API_VERSIONS and handler is not None and error is None:
        from kgw.handlers.api_versions import unsupported_version_response

        context = RequestContext(gateway, session, api_key, 0, correlation_id)
        return _frame(unsupported_version_response(), context)
    request_type = request_class(api_key)
    first, last = request_type.valid_versions
    if not first <= api_version <= last:
        raise ProtocolError(f"{api_key.name} has no version {api_version}")
    _, position = decode_request_header(frame)
    request, _ = codec(request_type, api_version).decode_prefix(frame, position)
    context = RequestContext(gateway, session, api_key, api_version, correlation_id)
    text = f"{api_key.name} v{api_version} is not served"
    api = _unserved(api_key) if handler is None else handler.api
    error = error or KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
    response = api.refuse(request, error.code, error.message, context)
    if response is None:
        raise ProtocolError(f"{api_key.name} v{api_version}: {error}")
    return _frame(response, context)


def _frame(response: Response, context: RequestContext) -> list[Buffer]:
    frame = response_frame(response, context.api_version, context.correlation_id)
    context.count_error_codes(response)
    return frame


def _unserved(api_key: ApiKey) -> type[Api]:
    """Return a class that refuses the requests of an unsupported API."""
    # Imported here: a start without clients does not need it.
    from kgw.handlers.parts import Api
    from kgw.handlers.rights import NO_RIGHTS

    members = {"response_type": response_class(api_key), "rights": NO_RIGHTS}
    return type(api_key.name, (Api,), members)
