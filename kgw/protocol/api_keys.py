"""Kafka's API keys and versions, which can be used without importing the messages."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ApiKey(IntEnum):
    """Kafka's API keys, by Kafka's names. kgw never serves the APIs that only brokers use.

    If kgw declares the messages of an API, its value is the key, the last version and the first
    flexible version. The first version is always 0.
    """

    last_version: int | None
    flexible_since: int | None

    def __new__(
        cls, key: int, last_version: int | None = None, flexible_since: int | None = None
    ) -> Self:
        api_key = int.__new__(cls, key)
        api_key._value_ = key
        api_key.last_version = last_version
        api_key.flexible_since = flexible_since
        return api_key

    def is_flexible(self, version: int) -> bool:
        """Return whether a version, with its header, has compact lengths and tagged fields.

        See KIP-482.
        """
        return self.flexible_since is not None and version >= self.flexible_since

    PRODUCE = 0, 13, 9
    FETCH = 1, 18, 12
    LIST_OFFSETS = 2, 11, 6
    METADATA = 3, 13, 9
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8, 10, 8
    OFFSET_FETCH = 9, 10, 6
    FIND_COORDINATOR = 10, 6, 3
    JOIN_GROUP = 11, 9, 6
    HEARTBEAT = 12, 4, 4
    LEAVE_GROUP = 13, 5, 4
    SYNC_GROUP = 14, 5, 4
    DESCRIBE_GROUPS = 15, 6, 5
    LIST_GROUPS = 16, 5, 3
    SASL_HANDSHAKE = 17, 1, None
    API_VERSIONS = 18, 5, 3
    CREATE_TOPICS = 19, 7, 5
    DELETE_TOPICS = 20, 6, 4
    DELETE_RECORDS = 21, 2, 2
    INIT_PRODUCER_ID = 22, 6, 2
    OFFSET_FOR_LEADER_EPOCH = 23, 4, 4
    ADD_PARTITIONS_TO_TXN = 24, 5, 3
    ADD_OFFSETS_TO_TXN = 25, 4, 3
    END_TXN = 26, 5, 3
    WRITE_TXN_MARKERS = 27, 2, 1
    TXN_OFFSET_COMMIT = 28, 6, 3
    DESCRIBE_ACLS = 29, 3, 2
    CREATE_ACLS = 30, 3, 2
    DELETE_ACLS = 31, 3, 2
    DESCRIBE_CONFIGS = 32, 4, 4
    ALTER_CONFIGS = 33, 2, 2
    ALTER_REPLICA_LOG_DIRS = 34, 2, 2
    DESCRIBE_LOG_DIRS = 35, 5, 2
    SASL_AUTHENTICATE = 36, 2, 2
    CREATE_PARTITIONS = 37, 3, 2
    CREATE_DELEGATION_TOKEN = 38, 3, 2
    RENEW_DELEGATION_TOKEN = 39, 2, 2
    EXPIRE_DELEGATION_TOKEN = 40, 2, 2
    DESCRIBE_DELEGATION_TOKEN = 41, 3, 2
    DELETE_GROUPS = 42, 3, 2
    ELECT_LEADERS = 43, 2, 2
    INCREMENTAL_ALTER_CONFIGS = 44, 1, 1
    ALTER_PARTITION_REASSIGNMENTS = 45, 1, 0
    LIST_PARTITION_REASSIGNMENTS = 46, 0, 0
    OFFSET_DELETE = 47, 0, None
    DESCRIBE_CLIENT_QUOTAS = 48, 1, 1
    ALTER_CLIENT_QUOTAS = 49, 1, 1
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, 0
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55, 2, 0
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57, 2, 0
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60, 2, 0
    DESCRIBE_PRODUCERS = 61, 0, 0
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64, 0, 0
    DESCRIBE_TRANSACTIONS = 65, 0, 0
    LIST_TRANSACTIONS = 66, 2, 0
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68, 1, 0
    CONSUMER_GROUP_DESCRIBE = 69, 1, 0
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71, 0, 0
    PUSH_TELEMETRY = 72, 0, 0
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74, 1, 0
    DESCRIBE_TOPIC_PARTITIONS = 75, 0, 0
    SHARE_GROUP_HEARTBEAT = 76, 1, 0
    SHARE_GROUP_DESCRIBE = 77, 1, 0
    SHARE_FETCH = 78, 2, 0
    SHARE_ACKNOWLEDGE = 79, 2, 0
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88, 1, 0
    STREAMS_GROUP_DESCRIBE = 89, 1, 0
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, 1, 0
    ALTER_SHARE_GROUP_OFFSETS = 91, 0, 0
    DELETE_SHARE_GROUP_OFFSETS = 92, 0, 0
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93, 0, 0
    UNREGISTER_CONTROLLER = 94, 0, 0


MESSAGE_KEYS = frozenset(key for key in ApiKey if key.last_version is not None)
"""The keys whose messages are declared: everything that a client of Kafka 4.4 can send."""
