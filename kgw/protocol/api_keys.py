"""API keys, and what the header of a request depends on before its body is known."""

from __future__ import annotations

from enum import IntEnum


class ApiKey(IntEnum):
    """Kafka's API keys, by Kafka's names; also those between brokers, which kgw never serves."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


MESSAGE_KEYS: frozenset[ApiKey] = frozenset(
    ApiKey(key)
    for keys in (
        range(4),
        range(8, 52),
        (55, 57, 60, 61, 64, 65, 66, 68, 69, 71, 72),
        range(74, 80),
        range(88, 93),
    )
    for key in keys
)
"""The keys whose messages are declared: everything that a client of Kafka 4.3 can send."""

# The first flexible version of each key's messages, by key; None for never. It is here, apart from
# the messages, because a header is read before its message's module needs to be imported.
_FLEXIBLE_SINCE: tuple[int | None, ...] = (
    9,
    12,
    6,
    9,
    4,
    2,
    6,
    3,
    8,
    6,  # 0
    3,
    6,
    4,
    4,
    4,
    5,
    3,
    None,
    3,
    5,  # 10
    4,
    2,
    2,
    4,
    3,
    3,
    3,
    1,
    3,
    2,  # 20
    2,
    2,
    4,
    2,
    2,
    2,
    2,
    2,
    2,
    2,  # 30
    2,
    2,
    2,
    2,
    1,
    0,
    0,
    None,
    1,
    1,  # 40
    0,
    0,
    0,
    1,
    1,
    0,
    0,
    0,
    0,
    0,  # 50
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,  # 60
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,  # 70
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,  # 80
    0,
    0,
    0,
    0,
    0,  # 90
)


def flexible(api_key: int, version: int) -> bool:
    """Whether this version has compact lengths and tagged fields (KIP-482), header included."""
    if not 0 <= api_key < len(_FLEXIBLE_SINCE):
        return False
    since = _FLEXIBLE_SINCE[api_key]
    return since is not None and version >= since
