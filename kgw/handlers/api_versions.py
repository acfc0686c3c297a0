"""ApiVersions, key 18, versions 0 to 5: the APIs and versions that this server understands.

Behaviour:
- lists the APIs in the table of handlers. Every client gets the same answer, without
  authentication;
- announces transaction version 2 (KIP-890): a client with this version adds partitions to a
  transaction by producing to them, and gets another epoch at the end of each transaction;
- an unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range of this API
  (`kgw.handlers.refusal`), so that the client can send a lower version;
- a software name or version that KIP-511 does not allow is INVALID_REQUEST;
- a client of v5 that names another cluster or node gets REBOOTSTRAP_REQUIRED: its addresses belong
  to another server now. A request that names only one of the two is INVALID_REQUEST.

v1 adds the throttle time (KIP-35, KIP-124). v2: throttled after the answer (KIP-219). v3: flexible,
the client names its software (KIP-482, KIP-511). v4: feature ranges may begin at 0 (KIP-1022);
older versions leave such features out (KAFKA-17492). v5: cluster and node (KIP-1242).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.handlers.parts import Api
from kgw.handlers.rights import NO_RIGHTS
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from kgw.handlers.context import Answer
    from kgw.handlers.table import Handler

_FEATURES = 3
_FEATURES_FROM_0 = 4
_NAMES_NODE = 5
_FEATURES_EPOCH = 0
"""It never changes: the release of kgw decides which features are enabled."""
_NO_NODE = -1
_TRANSACTIONS = "transaction.version"
_TRANSACTION_VERSION = 2

# KIP-511's form: letters and digits, with dots and dashes between them.
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


class ApiVersions(Api):
    response_type = ApiVersionsResponse
    rights = NO_RIGHTS

    def answer(self) -> Answer:
        code = self._problem()
        if code is not ErrorCode.NONE:
            return ApiVersionsResponse(error_code=code)
        response = ApiVersionsResponse(api_keys=[_range(handler) for handler in HANDLERS.values()])
        if self.version >= _FEATURES:
            response.finalized_features_epoch = _FEATURES_EPOCH
            response.finalized_features = [
                FinalizedFeatureKey(
                    name=_TRANSACTIONS,
                    max_version_level=_TRANSACTION_VERSION,
                    min_version_level=_TRANSACTION_VERSION,
                )
            ]
        if self.version >= _FEATURES_FROM_0:
            response.supported_features = [
                SupportedFeatureKey(
                    name=_TRANSACTIONS, min_version=0, max_version=_TRANSACTION_VERSION
                )
            ]
        return response

    def _problem(self) -> ErrorCode:
        """Return the error for a wrong software name, cluster or node in a request, or NONE."""
        request = self.request
        if self.version >= _FEATURES:
            name, version = request.client_software_name, request.client_software_version
            if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(version)):
                return ErrorCode.INVALID_REQUEST
        if self.version < _NAMES_NODE:
            return ErrorCode.NONE
        if (request.cluster_id is None) is not (request.node_id == _NO_NODE):
            return ErrorCode.INVALID_REQUEST
        placement = self.gateway.placement
        # A standby node does not know the id of its cluster.
        is_same = not placement.is_settled or request.cluster_id == placement.cluster_id
        if request.cluster_id is None or (is_same and request.node_id == placement.here.node_id):
            return ErrorCode.NONE
        return ErrorCode.REBOOTSTRAP_REQUIRED


def unsupported_version_response() -> ApiVersionsResponse:
    """Return the version-0 answer to a request of an unsupported version."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(HANDLERS[ApiKey.API_VERSIONS])]
    )


def _range(handler: Handler) -> ApiVersion:
    return ApiVersion(
        api_key=handler.api_key,
        min_version=handler.min_version,
        max_version=handler.max_version,
    )
