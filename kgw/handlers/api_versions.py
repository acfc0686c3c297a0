"""ApiVersions, key 18, versions 0 to 5: the APIs and versions that this server understands.

Behaviour:
- lists exactly the table of handlers; the same answer to everybody, before any authentication;
- version 2 of transactions is in force (KIP-890): clients that know it bring partitions into a
  transaction by producing to them, and get another epoch at each end;
- an unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range of this API
  (`kgw.handlers.refusal`), so that the client can ask again;
- a software name or version that has not KIP-511's form is INVALID_REQUEST;
- a client of v5 that names another cluster or node gets REBOOTSTRAP_REQUIRED: its addresses lead
  elsewhere by now. A request that names only one of the two is INVALID_REQUEST.

v1 adds the throttle time (KIP-35, KIP-124). v2: throttled after the answer (KIP-219). v3: flexible,
the client names its software (KIP-482, KIP-511). v4: feature ranges may begin at 0 (KIP-1022), and
those that do are left out before (KAFKA-17492). v5: cluster and node (KIP-1242).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.handlers.parts import Api
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
"""It never changes: the release of the program decides which features are in force."""
_NO_NODE = -1
_TRANSACTIONS = "transaction.version"
_TRANSACTION_VERSION = 2

# KIP-511's form: letters and digits, with dots and dashes between them.
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


class ApiVersions(Api):
    response_type = ApiVersionsResponse

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
        """Return the error of a client that misnames itself, its cluster or its node; or NONE."""
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
        # A node that stands by does not know its cluster's id.
        is_same = not placement.is_settled or request.cluster_id == placement.cluster_id
        if request.cluster_id is None or (is_same and request.node_id == placement.here.node_id):
            return ErrorCode.NONE
        return ErrorCode.REBOOTSTRAP_REQUIRED


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
