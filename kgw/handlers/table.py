"""The table of supported APIs: each API, its versions, and the module that answers it.

ApiVersions returns this table to clients. A module is imported at its API's first request, which
makes the start faster.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Final

from kgw.errors import ErrorCode
from kgw.handlers.answered_by import AnsweredBy
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec, request_class

if TYPE_CHECKING:
    from kgw.handlers.parts import Api
    from kgw.protocol.codec import Codec
    from kgw.protocol.schema import Request


FEATURES_OFF: Final = "features_off"
"""The module that answers every API whose feature is off."""
_NOT_AVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
_LOADING: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Handler:
    """One supported API. `owner` says which node answers it.

    `bug_code` is the error code if a request fails through a bug of kgw.

    `late_code` is the error code if the time of a request is over while it waits for the storage:
    clients retry after it. It is None if the module handles the timeout itself, or if requests wait
    for other clients. `module` is the module that answers the API, if its name is not that of the
    API.
    """

    def __init__(
        self,
        api_key: ApiKey,
        max_version: int,
        owner: AnsweredBy,
        *,
        min_version: int = 0,
        bug_code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR,
        late_code: ErrorCode | None = ErrorCode.REQUEST_TIMED_OUT,
        module: str = "",
    ) -> None:
        self.api_key = api_key
        self.min_version = min_version
        self.max_version = max_version
        self.owner = owner
        self.bug_code = bug_code
        self.late_code = late_code
        self.label = api_key.name
        self.module_name = module or api_key.name.lower()
        self.codecs: dict[int, Codec[Request]] = {}
        """The codecs of the API's requests, by version, for versions that clients have used."""

    def __repr__(self) -> str:
        return f"Handler({self.api_key.name} {self.min_version}-{self.max_version})"

    @cached_property
    def api(self) -> type[Api]:
        """The class whose instances answer requests. It has Kafka's name of the API.

        Its module is imported at first use.
        """
        module = import_module(f"kgw.handlers.{self.module_name}")
        name = "".join(word.capitalize() for word in self.api_key.name.split("_"))
        api: type[Api] = getattr(module, name)
        return api

    def codec(self, version: int) -> Codec[Request]:
        """Return the codec for requests of a version, and keep it in `codecs`."""
        found = self.codecs[version] = codec(request_class(self.api_key), version)
        return found


def _off(api_key: ApiKey, max_version: int) -> Handler:
    """Return the handler of an API whose feature is off."""
    return Handler(api_key, max_version, AnsweredBy.ANY_NODE, module=FEATURES_OFF)


HANDLERS: dict[int, Handler] = {
    handler.api_key: handler
    for handler in (
        Handler(
            ApiKey.PRODUCE,
            13,
            AnsweredBy.LEADER,
            # After this code clients send the batch again, with the same sequence number. After
            # UNKNOWN_SERVER_ERROR some clients begin a new sequence, so that a batch that was
            # stored is stored twice.
            bug_code=ErrorCode.REQUEST_TIMED_OUT,
            late_code=None,
        ),
        Handler(ApiKey.FETCH, 18, AnsweredBy.LEADER_FOR_READS, late_code=None),
        Handler(ApiKey.LIST_OFFSETS, 11, AnsweredBy.LEADER, late_code=None),
        Handler(ApiKey.METADATA, 13, AnsweredBy.ANY_NODE),
        Handler(ApiKey.OFFSET_COMMIT, 10, AnsweredBy.COORDINATOR, late_code=_NOT_AVAILABLE),
        Handler(ApiKey.OFFSET_FETCH, 10, AnsweredBy.COORDINATOR, late_code=_LOADING),
        Handler(ApiKey.FIND_COORDINATOR, 6, AnsweredBy.ANY_NODE),
        Handler(ApiKey.JOIN_GROUP, 9, AnsweredBy.COORDINATOR, late_code=None),
        Handler(ApiKey.HEARTBEAT, 4, AnsweredBy.COORDINATOR, late_code=_NOT_AVAILABLE),
        Handler(ApiKey.LEAVE_GROUP, 5, AnsweredBy.COORDINATOR, late_code=_NOT_AVAILABLE),
        Handler(ApiKey.SYNC_GROUP, 5, AnsweredBy.COORDINATOR, late_code=None),
        Handler(ApiKey.DESCRIBE_GROUPS, 6, AnsweredBy.COORDINATOR),
        Handler(ApiKey.LIST_GROUPS, 5, AnsweredBy.EVERY_COORDINATOR),
        Handler(ApiKey.SASL_HANDSHAKE, 1, AnsweredBy.ANY_NODE),
        Handler(ApiKey.API_VERSIONS, 5, AnsweredBy.ANY_NODE),
        Handler(ApiKey.CREATE_TOPICS, 7, AnsweredBy.CONTROLLER),
        Handler(ApiKey.DELETE_TOPICS, 6, AnsweredBy.CONTROLLER),
        Handler(ApiKey.DELETE_RECORDS, 2, AnsweredBy.LEADER),
        Handler(ApiKey.INIT_PRODUCER_ID, 5, AnsweredBy.PRODUCER_IDS, late_code=_LOADING),
        Handler(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, AnsweredBy.LEADER),
        Handler(ApiKey.ADD_PARTITIONS_TO_TXN, 5, AnsweredBy.COORDINATOR, late_code=_LOADING),
        Handler(ApiKey.ADD_OFFSETS_TO_TXN, 4, AnsweredBy.COORDINATOR, late_code=_LOADING),
        Handler(ApiKey.END_TXN, 5, AnsweredBy.COORDINATOR, late_code=_LOADING),
        Handler(ApiKey.WRITE_TXN_MARKERS, 2, AnsweredBy.LEADER, min_version=1),
        Handler(ApiKey.TXN_OFFSET_COMMIT, 6, AnsweredBy.COORDINATOR, late_code=_LOADING),
        Handler(ApiKey.DESCRIBE_ACLS, 3, AnsweredBy.ANY_NODE),
        Handler(ApiKey.CREATE_ACLS, 3, AnsweredBy.CONTROLLER),
        Handler(ApiKey.DELETE_ACLS, 3, AnsweredBy.CONTROLLER),
        Handler(ApiKey.DESCRIBE_CONFIGS, 4, AnsweredBy.ANY_NODE),
        Handler(ApiKey.ALTER_CONFIGS, 2, AnsweredBy.CONTROLLER),
        _off(ApiKey.ALTER_REPLICA_LOG_DIRS, 2),
        Handler(ApiKey.DESCRIBE_LOG_DIRS, 5, AnsweredBy.ANY_NODE),
        Handler(ApiKey.SASL_AUTHENTICATE, 2, AnsweredBy.ANY_NODE, late_code=None),
        Handler(ApiKey.CREATE_PARTITIONS, 3, AnsweredBy.CONTROLLER),
        Handler(ApiKey.CREATE_DELEGATION_TOKEN, 3, AnsweredBy.CONTROLLER),
        Handler(ApiKey.RENEW_DELEGATION_TOKEN, 2, AnsweredBy.CONTROLLER),
        Handler(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, AnsweredBy.CONTROLLER),
        Handler(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, AnsweredBy.ANY_NODE),
        Handler(ApiKey.DELETE_GROUPS, 3, AnsweredBy.COORDINATOR),
        _off(ApiKey.ELECT_LEADERS, 2),
        Handler(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, AnsweredBy.CONTROLLER),
        _off(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1),
        _off(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0),
        Handler(ApiKey.OFFSET_DELETE, 0, AnsweredBy.COORDINATOR),
        _off(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1),
        _off(ApiKey.ALTER_CLIENT_QUOTAS, 1),
        Handler(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, AnsweredBy.ANY_NODE),
        Handler(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, AnsweredBy.CONTROLLER),
        Handler(ApiKey.DESCRIBE_CLUSTER, 2, AnsweredBy.ANY_NODE),
        Handler(ApiKey.DESCRIBE_PRODUCERS, 0, AnsweredBy.LEADER),
        Handler(ApiKey.DESCRIBE_TRANSACTIONS, 0, AnsweredBy.COORDINATOR),
        Handler(ApiKey.LIST_TRANSACTIONS, 2, AnsweredBy.EVERY_COORDINATOR),
        _off(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1),
        _off(ApiKey.CONSUMER_GROUP_DESCRIBE, 1),
        Handler(ApiKey.LIST_CONFIG_RESOURCES, 1, AnsweredBy.ANY_NODE),
        Handler(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, AnsweredBy.ANY_NODE),
    )
}
