"""ApiVersions, key 18, versions 0 to 4: what this server understands.

Behaviour:
- lists exactly the table of handlers; the same answer to everybody, before any authentication;
- an unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range of this API
  (`kgw.handlers.refusal`), so that the client can ask again;
- a software name or version that has not KIP-511's form is INVALID_REQUEST.

v1 adds the throttle time (KIP-35, KIP-124). v2: throttled after the answer (KIP-219). v3: flexible,
the client names its software (KIP-482, KIP-511). v4: feature ranges may begin at 0 (KIP-1022); no
features are published.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.handlers.table import Handler
    from kgw.protocol.messages.api_versions import ApiVersionsRequest

# KIP-511's form: letters and digits, with dots and dashes between them.
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=[_range(handler) for handler in HANDLERS.values()])


def unsupported_version_response() -> ApiVersionsResponse:
    """Return the version-0 answer to a version that is not known."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(HANDLERS[ApiKey.API_VERSIONS])]
    )


def _range(handler: Handler) -> ApiVersion:
    return ApiVersion(
        api_key=handler.api_key,
        min_version=handler.min_version,
        max_version=handler.max_version,
    )
