"""Which right each API of Kafka asks for, and what a client without the right is answered.

The comment before each row names the classes and methods that the row was read from. KafkaApis,
ControllerApis, AclApis, ConfigHelper and DescribeTopicPartitionsRequestHandler are those of Apache
Kafka 4.4.0; the other classes (which decide where in an answer an error stands) those of 4.2.1.
`python -m tests.security.oracle.api_table` prints the same table as Markdown.

The checks of an API are made in their order. A check that ends the request (`Place.RESPONSE`) or
one part of it hides the checks after it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum

from tests.security.oracle.oracle import CLUSTER_NAME, Operation, ResourceType


class Place(StrEnum):
    """Where the response says that a right is missing."""

    RESPONSE = "error_code of the response"
    EVERY_ENTRY = "error_code of every entry of the response, which has none of its own"
    RESPONSE_AND_ENTRIES = "error_code of the response and of every entry"
    TOPIC = "error_code of the topic"
    PARTITION = "error_code of each partition of the topic"
    GROUP = "error_code of the group"
    KEY = "error_code of the key"
    TRANSACTIONAL_ID = "error_code of the transactional id"
    RESOURCE = "error_code of the resource"
    TOPIC_CONFIGS = "topic_config_error_code of the topic"
    STATUS = "text in a status of the response"
    OMITTED = "nowhere: the entry is left out"
    ZERO_BITS = "nowhere: the authorized operations are 0"


class Error(StrEnum):
    """The errors that a missing right leads to."""

    TOPIC = "TOPIC_AUTHORIZATION_FAILED"
    GROUP = "GROUP_AUTHORIZATION_FAILED"
    CLUSTER = "CLUSTER_AUTHORIZATION_FAILED"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    DELEGATION_TOKEN = "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
    NONE = "NONE"


ERROR_CODES = {
    Error.NONE: 0,
    Error.TOPIC: 29,
    Error.GROUP: 30,
    Error.CLUSTER: 31,
    Error.TRANSACTIONAL_ID: 53,
    Error.DELEGATION_TOKEN: 65,
}


@dataclass(frozen=True)
class Right:
    """An operation on a resource. `name` is the resource's name or where the request has it.

    `any_name` says that the operation on some resource of the type is enough (KIP-679).
    """

    operation: Operation
    resource_type: ResourceType
    name: str
    any_name: bool = False


@dataclass(frozen=True)
class Check:
    """One question to the authorizer: one of `rights` is enough, they are asked in order."""

    rights: tuple[Right, ...]
    error: Error
    place: Place
    when: str = ""


@dataclass(frozen=True)
class Api:
    """What one API asks. `reveals` is what a client without rights still learns, or must not."""

    key: int
    name: str
    checks: tuple[Check, ...] = ()
    reveals: str = ""


def topic(operation: Operation, name: str) -> Right:
    """Return a right on a topic."""
    return Right(operation, ResourceType.TOPIC, name)


def group(operation: Operation, name: str) -> Right:
    """Return a right on a group."""
    return Right(operation, ResourceType.GROUP, name)


def cluster(operation: Operation) -> Right:
    """Return a right on the cluster."""
    return Right(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def transactional_id(operation: Operation, name: str) -> Right:
    """Return a right on a transactional id."""
    return Right(operation, ResourceType.TRANSACTIONAL_ID, name)


def cluster_check(operation: Operation, place: Place = Place.RESPONSE, when: str = "") -> Check:
    """Return the check of a right on the cluster."""
    return Check((cluster(operation),), Error.CLUSTER, place, when)


def group_check(operation: Operation, place: Place = Place.RESPONSE) -> Check:
    """Return the check of a right on the one group of a request."""
    return Check((group(operation, "group_id"),), Error.GROUP, place)


O = Operation  # noqa: E741 -- the rows below stay on one line

TABLE = (
    # KafkaApis.handleProduceRequest
    Api(
        0,
        "Produce",
        (
            Check(
                (transactional_id(O.WRITE, "transactional_id"),),
                Error.TRANSACTIONAL_ID,
                Place.EVERY_ENTRY,
                "a batch is transactional; a null transactional_id fails too",
            ),
            Check((topic(O.WRITE, "topic_data[].name"),), Error.TOPIC, Place.PARTITION),
        ),
        "A topic id that nobody has is UNKNOWN_TOPIC_ID before any check. With acks=0 the broker"
        " closes the connection. IDEMPOTENT_WRITE is not asked, whatever the documentation says.",
    ),
    # KafkaApis.handleFetchRequest
    Api(
        1,
        "Fetch",
        (
            Check(
                (cluster(O.CLUSTER_ACTION),),
                Error.TOPIC,
                Place.PARTITION,
                "the replica id is that of a broker; no right on topics is asked then",
            ),
            Check((topic(O.READ, "topics[].topic"),), Error.TOPIC, Place.PARTITION),
        ),
        "A topic id that nobody has is UNKNOWN_TOPIC_ID before any check.",
    ),
    # KafkaApis.handleListOffsetRequest
    Api(
        2,
        "ListOffsets",
        (Check((topic(O.DESCRIBE, "topics[].name"),), Error.TOPIC, Place.PARTITION),),
    ),
    # KafkaApis.handleTopicMetadataRequest
    Api(
        3,
        "Metadata",
        (
            Check((topic(O.DESCRIBE, "topics"),), Error.NONE, Place.OMITTED, "all topics"),
            Check((topic(O.DESCRIBE, "topics[].name"),), Error.TOPIC, Place.TOPIC, "names or ids"),
            Check(
                (cluster(O.CREATE), topic(O.CREATE, "topics[].name")),
                Error.TOPIC,
                Place.TOPIC,
                "the topic is missing and would be created",
            ),
            Check(
                (cluster(O.DESCRIBE),),
                Error.NONE,
                Place.ZERO_BITS,
                "versions 8-10, include_cluster_authorized_operations",
            ),
        ),
        "Without DESCRIBE, a name is answered with 29 and the zero id whether it exists or not; an"
        " id is answered with 29, the id and a null name, but an id that nobody has with 100.",
    ),
    # KafkaApis.handleOffsetCommitRequest
    Api(
        8,
        "OffsetCommit",
        (
            group_check(O.READ, Place.EVERY_ENTRY),
            Check((topic(O.READ, "topics[].name"),), Error.TOPIC, Place.PARTITION),
        ),
        "A topic id that nobody has is UNKNOWN_TOPIC_ID before READ is asked.",
    ),
    # KafkaApis.handleOffsetFetchRequest, fetchOffsetsForGroup, fetchAllOffsetsForGroup;
    # OffsetFetchResponse.groupError
    Api(
        9,
        "OffsetFetch",
        (
            Check((group(O.DESCRIBE, "groups[].group_id"),), Error.GROUP, Place.GROUP),
            Check((topic(O.DESCRIBE, "topics[].name"),), Error.TOPIC, Place.PARTITION, "names"),
            Check((topic(O.DESCRIBE, "topics"),), Error.NONE, Place.OMITTED, "all topics"),
        ),
        "The error of the group is that of the response in versions 2-7 and that of each partition"
        " in version 1.",
    ),
    # KafkaApis.handleFindCoordinatorRequest, getCoordinator
    Api(
        10,
        "FindCoordinator",
        (
            Check((group(O.DESCRIBE, "keys[]"),), Error.GROUP, Place.KEY, "key_type 0"),
            Check(
                (transactional_id(O.DESCRIBE, "keys[]"),),
                Error.TRANSACTIONAL_ID,
                Place.KEY,
                "key_type 1",
            ),
            Check(
                (cluster(O.CLUSTER_ACTION),),
                Error.CLUSTER,
                Place.EVERY_ENTRY,
                "key_type 2 (share), version 6",
            ),
        ),
        "The error is that of the response in versions 0-3.",
    ),
    # KafkaApis.handleJoinGroupRequest
    Api(11, "JoinGroup", (group_check(O.READ),), "The member id of the answer is empty."),
    # KafkaApis.handleHeartbeatRequest
    Api(12, "Heartbeat", (group_check(O.READ),)),
    # KafkaApis.handleLeaveGroupRequest
    Api(13, "LeaveGroup", (group_check(O.READ),), "The answer names no member."),
    # KafkaApis.handleSyncGroupRequest
    Api(
        14,
        "SyncGroup",
        (group_check(O.READ),),
        "From version 5 a missing protocol is INCONSISTENT_GROUP_PROTOCOL before any check.",
    ),
    # KafkaApis.handleDescribeGroupsRequest
    Api(
        15,
        "DescribeGroups",
        (Check((group(O.DESCRIBE, "groups[]"),), Error.GROUP, Place.GROUP),),
    ),
    # KafkaApis.handleListGroupsRequest
    Api(
        16,
        "ListGroups",
        (Check((cluster(O.DESCRIBE), group(O.DESCRIBE, "each group")), Error.NONE, Place.OMITTED),),
        "DESCRIBE on the cluster shows every group, even one that a DENY rule names.",
    ),
    # KafkaApis.handleSaslHandshakeRequest (after authentication: ILLEGAL_SASL_STATE)
    Api(17, "SaslHandshake"),
    # KafkaApis.handleApiVersionsRequest
    Api(18, "ApiVersions"),
    # ControllerApis.handleCreateTopics, createTopics; ReplicationControlManager.createTopic
    Api(
        19,
        "CreateTopics",
        (
            Check((cluster(O.CREATE), topic(O.CREATE, "topics[].name")), Error.TOPIC, Place.TOPIC),
            Check(
                (topic(O.DESCRIBE_CONFIGS, "topics[].name"),),
                Error.TOPIC,
                Place.TOPIC_CONFIGS,
                "the topic was created",
            ),
        ),
        "Without DESCRIBE_CONFIGS the topic is created, and num_partitions and replication_factor"
        " of the answer are -1. CREATE is asked before it is known whether the topic exists, and"
        " does not imply DESCRIBE. A name that occurs twice is INVALID_REQUEST before any check.",
    ),
    # ControllerApis.handleDeleteTopics, deleteTopics
    Api(
        20,
        "DeleteTopics",
        (
            Check(
                (cluster(O.DELETE), topic(O.DESCRIBE, "topics[].name")),
                Error.TOPIC,
                Place.TOPIC,
                "by name",
            ),
            Check((cluster(O.DELETE), topic(O.DELETE, "topics[].name")), Error.TOPIC, Place.TOPIC),
        ),
        "By name without DESCRIBE: 29, whether the topic exists or not; with DESCRIBE and without"
        " DELETE: 29 if it exists, else 3. By id: 100 for an id that nobody has; without DELETE 29"
        " with the id, and the name only with DESCRIBE. Names have the zero id when refused.",
    ),
    # KafkaApis.handleDeleteRecordsRequest
    Api(
        21,
        "DeleteRecords",
        (Check((topic(O.DELETE, "topics[].name"),), Error.TOPIC, Place.PARTITION),),
    ),
    # KafkaApis.handleInitProducerIdRequest
    Api(
        22,
        "InitProducerId",
        (
            Check(
                (transactional_id(O.WRITE, "transactional_id"),),
                Error.TRANSACTIONAL_ID,
                Place.RESPONSE,
                "transactional_id is not null",
            ),
            Check(
                (transactional_id(O.TWO_PHASE_COMMIT, "transactional_id"),),
                Error.TRANSACTIONAL_ID,
                Place.RESPONSE,
                "transactional_id is not null and enable_2pc",
            ),
            Check(
                (
                    cluster(O.IDEMPOTENT_WRITE),
                    Right(O.WRITE, ResourceType.TOPIC, "any", any_name=True),
                ),
                Error.CLUSTER,
                Place.RESPONSE,
                "transactional_id is null",
            ),
        ),
    ),
    # KafkaApis.handleOffsetForLeaderEpochRequest
    Api(
        23,
        "OffsetForLeaderEpoch",
        (
            Check(
                (cluster(O.CLUSTER_ACTION), topic(O.DESCRIBE, "topics[].topic")),
                Error.TOPIC,
                Place.PARTITION,
            ),
        ),
    ),
    # KafkaApis.handleAddPartitionsToTxnRequest
    Api(
        24,
        "AddPartitionsToTxn",
        (
            cluster_check(O.CLUSTER_ACTION, when="version 4 and later; nothing else is asked"),
            Check(
                (transactional_id(O.WRITE, "transactional_id"),),
                Error.TRANSACTIONAL_ID,
                Place.EVERY_ENTRY,
                "versions 0-3",
            ),
            Check((topic(O.WRITE, "topics[].name"),), Error.TOPIC, Place.PARTITION, "versions 0-3"),
        ),
        "If one partition is refused, the others are OPERATION_NOT_ATTEMPTED (55) and none is"
        " added. An internal topic is 29 for everybody, super users too.",
    ),
    # KafkaApis.handleAddOffsetsToTxnRequest
    Api(
        25,
        "AddOffsetsToTxn",
        (
            Check(
                (transactional_id(O.WRITE, "transactional_id"),),
                Error.TRANSACTIONAL_ID,
                Place.RESPONSE,
            ),
            group_check(O.READ),
        ),
    ),
    # KafkaApis.handleEndTxnRequest
    Api(
        26,
        "EndTxn",
        (
            Check(
                (transactional_id(O.WRITE, "transactional_id"),),
                Error.TRANSACTIONAL_ID,
                Place.RESPONSE,
            ),
        ),
    ),
    # KafkaApis.handleWriteTxnMarkersRequest; WriteTxnMarkersRequest.getErrorResponse
    Api(
        27,
        "WriteTxnMarkers",
        (Check((cluster(O.ALTER), cluster(O.CLUSTER_ACTION)), Error.CLUSTER, Place.EVERY_ENTRY),),
    ),
    # KafkaApis.handleTxnOffsetCommitRequest
    Api(
        28,
        "TxnOffsetCommit",
        (
            Check(
                (transactional_id(O.WRITE, "transactional_id"),),
                Error.TRANSACTIONAL_ID,
                Place.EVERY_ENTRY,
            ),
            group_check(O.READ, Place.EVERY_ENTRY),
            Check((topic(O.READ, "topics[].name"),), Error.TOPIC, Place.PARTITION),
        ),
    ),
    # AclApis.handleDescribeAcls
    Api(29, "DescribeAcls", (cluster_check(O.DESCRIBE),)),
    # AclApis.handleCreateAcls; CreateAclsRequest.getErrorResponse
    Api(30, "CreateAcls", (cluster_check(O.ALTER, Place.EVERY_ENTRY),)),
    # AclApis.handleDeleteAcls; DeleteAclsRequest.getErrorResponse
    Api(31, "DeleteAcls", (cluster_check(O.ALTER, Place.EVERY_ENTRY),)),
    # ConfigHelper.handleDescribeConfigsRequest
    Api(
        32,
        "DescribeConfigs",
        (
            cluster_check(
                O.DESCRIBE_CONFIGS,
                Place.RESOURCE,
                "type BROKER, BROKER_LOGGER or CLIENT_METRICS",
            ),
            Check(
                (topic(O.DESCRIBE_CONFIGS, "resources[].resource_name"),),
                Error.TOPIC,
                Place.RESOURCE,
                "type TOPIC",
            ),
            Check(
                (group(O.DESCRIBE_CONFIGS, "resources[].resource_name"),),
                Error.GROUP,
                Place.RESOURCE,
                "type GROUP",
            ),
        ),
    ),
    # ControllerApis.handleLegacyAlterConfigs, authorizeAlterResource
    Api(
        33,
        "AlterConfigs",
        (
            cluster_check(O.ALTER_CONFIGS, Place.RESOURCE, "type BROKER or CLIENT_METRICS"),
            Check(
                (topic(O.ALTER_CONFIGS, "resources[].resource_name"),),
                Error.TOPIC,
                Place.RESOURCE,
                "type TOPIC",
            ),
            Check(
                (group(O.ALTER_CONFIGS, "resources[].resource_name"),),
                Error.GROUP,
                Place.RESOURCE,
                "type GROUP",
            ),
        ),
        "Values are validated by the broker before the right is asked (ConfigAdminManager).",
    ),
    # KafkaApis.handleAlterReplicaLogDirsRequest
    Api(34, "AlterReplicaLogDirs", (cluster_check(O.ALTER, Place.EVERY_ENTRY),)),
    # KafkaApis.handleDescribeLogDirsRequest
    Api(
        35,
        "DescribeLogDirs",
        (cluster_check(O.DESCRIBE),),
        "The list of directories is empty; versions 1 and 2 have no error_code.",
    ),
    # KafkaApis.handleSaslAuthenticateRequest (after authentication: ILLEGAL_SASL_STATE)
    Api(36, "SaslAuthenticate"),
    # ControllerApis.handleCreatePartitions, createPartitions
    Api(
        37,
        "CreatePartitions",
        (Check((topic(O.ALTER, "topics[].name"),), Error.TOPIC, Place.TOPIC),),
        "ALTER is asked before it is known whether the topic exists.",
    ),
    # KafkaApis.handleCreateTokenRequest; ControllerApis.handleCreateDelegationTokenRequest
    Api(
        38,
        "CreateDelegationToken",
        (
            Check(
                (Right(O.CREATE_TOKENS, ResourceType.USER, "owner, as `User:name`"),),
                Error.DELEGATION_TOKEN,
                Place.RESPONSE,
                "the owner is not the client",
            ),
        ),
        "Before any check: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (64) on PLAINTEXT, for an"
        " anonymous client of SSL, and for a client that authenticated with a token.",
    ),
    # KafkaApis.handleRenewTokenRequest; DelegationTokenControlManager.renewDelegationToken
    Api(
        39,
        "RenewDelegationToken",
        (),
        "No rule is asked: the owner and the renewers may, others get"
        " DELEGATION_TOKEN_OWNER_MISMATCH (63). 64 as for CreateDelegationToken.",
    ),
    # KafkaApis.handleExpireTokenRequest; DelegationTokenControlManager.expireDelegationToken
    Api(
        40,
        "ExpireDelegationToken",
        (),
        "No rule is asked: the owner and the renewers may, others get"
        " DELEGATION_TOKEN_OWNER_MISMATCH (63). 64 as for CreateDelegationToken.",
    ),
    # KafkaApis.handleDescribeTokensRequest; DelegationTokenManager.filterToken
    Api(
        41,
        "DescribeDelegationToken",
        (
            Check(
                (
                    Right(O.DESCRIBE, ResourceType.DELEGATION_TOKEN, "token id"),
                    Right(O.DESCRIBE_TOKENS, ResourceType.USER, "owner, as `User:name`"),
                ),
                Error.NONE,
                Place.OMITTED,
                "the client is neither owner nor renewer",
            ),
        ),
        "64 as for CreateDelegationToken.",
    ),
    # KafkaApis.handleDeleteGroupsRequest
    Api(
        42,
        "DeleteGroups",
        (Check((group(O.DELETE, "groups_names[]"),), Error.GROUP, Place.GROUP),),
    ),
    # ControllerApis.handleElectLeaders; ElectLeadersRequest.getErrorResponse
    Api(
        43,
        "ElectLeaders",
        (cluster_check(O.ALTER, Place.RESPONSE_AND_ENTRIES),),
        "The documentation says CLUSTER_ACTION.",
    ),
    # ControllerApis.handleIncrementalAlterConfigs, authorizeAlterResource;
    # KafkaApis.handleIncrementalAlterConfigsRequest; ConfigAdminManager.preprocess
    Api(
        44,
        "IncrementalAlterConfigs",
        (
            cluster_check(
                O.ALTER_CONFIGS,
                Place.RESOURCE,
                "type BROKER, BROKER_LOGGER or CLIENT_METRICS",
            ),
            Check(
                (topic(O.ALTER_CONFIGS, "resources[].resource_name"),),
                Error.TOPIC,
                Place.RESOURCE,
                "type TOPIC",
            ),
            Check(
                (group(O.ALTER_CONFIGS, "resources[].resource_name"),),
                Error.GROUP,
                Place.RESOURCE,
                "type GROUP",
            ),
        ),
        "A controller asks CLUSTER_ACTION for BROKER_LOGGER. Values are validated by the broker"
        " before the right is asked (ConfigAdminManager).",
    ),
    # ControllerApis.handleAlterPartitionReassignments
    Api(
        45,
        "AlterPartitionReassignments",
        (cluster_check(O.ALTER, Place.RESPONSE_AND_ENTRIES),),
    ),
    # ControllerApis.handleListPartitionReassignments
    Api(46, "ListPartitionReassignments", (cluster_check(O.DESCRIBE),)),
    # KafkaApis.handleOffsetDeleteRequest
    Api(
        47,
        "OffsetDelete",
        (
            group_check(O.DELETE),
            Check((topic(O.READ, "topics[].name"),), Error.TOPIC, Place.PARTITION),
        ),
    ),
    # KafkaApis.handleDescribeClientQuotasRequest
    Api(
        48,
        "DescribeClientQuotas",
        (cluster_check(O.DESCRIBE_CONFIGS),),
        "The entries are null.",
    ),
    # ControllerApis.handleAlterClientQuotas; AlterClientQuotasRequest.getErrorResponse
    Api(49, "AlterClientQuotas", (cluster_check(O.ALTER_CONFIGS, Place.EVERY_ENTRY),)),
    # KafkaApis.handleDescribeUserScramCredentialsRequest;
    # DescribeUserScramCredentialsRequest.getErrorResponse
    Api(
        50,
        "DescribeUserScramCredentials",
        (cluster_check(O.DESCRIBE, Place.RESPONSE_AND_ENTRIES),),
        "One entry a requested user, without the user's name.",
    ),
    # ControllerApis.handleAlterUserScramCredentials;
    # AlterUserScramCredentialsRequest.getErrorResponse
    Api(51, "AlterUserScramCredentials", (cluster_check(O.ALTER, Place.EVERY_ENTRY),)),
    # ControllerApis.handleDescribeQuorum
    Api(55, "DescribeQuorum", (cluster_check(O.DESCRIBE),)),
    # ControllerApis.handleUpdateFeatures
    Api(57, "UpdateFeatures", (cluster_check(O.ALTER),)),
    # KafkaApis.handleDescribeCluster; AuthHelper.computeDescribeClusterResponse;
    # ControllerApis.handleDescribeCluster
    Api(
        60,
        "DescribeCluster",
        (
            Check(
                (cluster(O.DESCRIBE),),
                Error.NONE,
                Place.ZERO_BITS,
                "include_cluster_authorized_operations",
            ),
        ),
        "Everybody sees the cluster id, the controller and the brokers, though the documentation"
        " says DESCRIBE. A controller that a client asks directly wants ALTER on the cluster.",
    ),
    # KafkaApis.handleDescribeProducersRequest
    Api(
        61,
        "DescribeProducers",
        (Check((topic(O.READ, "topics[].name"),), Error.TOPIC, Place.PARTITION),),
        "A name that no topic may have is INVALID_TOPIC_EXCEPTION before the check.",
    ),
    # ControllerApis.handleUnregisterBroker
    Api(64, "UnregisterBroker", (cluster_check(O.ALTER),)),
    # KafkaApis.handleDescribeTransactionsRequest
    Api(
        65,
        "DescribeTransactions",
        (
            Check(
                (transactional_id(O.DESCRIBE, "transactional_ids[]"),),
                Error.TRANSACTIONAL_ID,
                Place.TRANSACTIONAL_ID,
            ),
            Check((topic(O.DESCRIBE, "each topic"),), Error.NONE, Place.OMITTED),
        ),
    ),
    # KafkaApis.handleListTransactionsRequest
    Api(
        66,
        "ListTransactions",
        (Check((transactional_id(O.DESCRIBE, "each id"),), Error.NONE, Place.OMITTED),),
    ),
    # KafkaApis.handleConsumerGroupHeartbeat; GroupMetadataManager.refreshRegularExpressions
    Api(
        68,
        "ConsumerGroupHeartbeat",
        (
            group_check(O.READ),
            Check((topic(O.DESCRIBE, "subscribed_topic_names[]"),), Error.TOPIC, Place.RESPONSE),
            Check(
                (topic(O.DESCRIBE, "each topic that the pattern matches"),),
                Error.NONE,
                Place.OMITTED,
                "subscribed_topic_regex",
            ),
        ),
        "One name without DESCRIBE refuses the whole heartbeat, and the answer names no topic.",
    ),
    # KafkaApis.handleConsumerGroupDescribe
    Api(
        69,
        "ConsumerGroupDescribe",
        (
            Check((group(O.DESCRIBE, "group_ids[]"),), Error.GROUP, Place.GROUP),
            Check((topic(O.DESCRIBE, "each assigned topic"),), Error.TOPIC, Place.GROUP),
        ),
        "One assigned topic without DESCRIBE hides the whole group (no state, no members). The"
        " documentation says READ on the group.",
    ),
    # KafkaApis.handleGetTelemetrySubscriptionsRequest
    Api(71, "GetTelemetrySubscriptions"),
    # KafkaApis.handlePushTelemetryRequest
    Api(72, "PushTelemetry"),
    # KafkaApis.handleListConfigResources
    Api(74, "ListConfigResources", (cluster_check(O.DESCRIBE_CONFIGS),)),
    # DescribeTopicPartitionsRequestHandler.handleDescribeTopicPartitionsRequest
    Api(
        75,
        "DescribeTopicPartitions",
        (
            Check((topic(O.DESCRIBE, "topics[].name"),), Error.TOPIC, Place.TOPIC, "names"),
            Check((topic(O.DESCRIBE, "each topic"),), Error.NONE, Place.OMITTED, "all topics"),
        ),
        "Refused topics have the zero id and come last, whether they exist or not.",
    ),
    # KafkaApis.handleShareGroupHeartbeat
    Api(
        76,
        "ShareGroupHeartbeat",
        (
            group_check(O.READ),
            Check((topic(O.DESCRIBE, "subscribed_topic_names[]"),), Error.TOPIC, Place.RESPONSE),
        ),
    ),
    # KafkaApis.handleShareGroupDescribe
    Api(
        77,
        "ShareGroupDescribe",
        (
            Check((group(O.DESCRIBE, "group_ids[]"),), Error.GROUP, Place.GROUP),
            Check((topic(O.DESCRIBE, "each assigned topic"),), Error.TOPIC, Place.GROUP),
        ),
    ),
    # KafkaApis.handleShareFetchRequest, handleFetchFromShareFetchRequest
    Api(
        78,
        "ShareFetch",
        (
            group_check(O.READ),
            Check((topic(O.READ, "topics[].topic_id"),), Error.TOPIC, Place.PARTITION),
        ),
    ),
    # KafkaApis.handleShareAcknowledgeRequest, handleAcknowledgements
    Api(
        79,
        "ShareAcknowledge",
        (
            group_check(O.READ),
            Check((topic(O.READ, "topics[].topic_id"),), Error.TOPIC, Place.PARTITION),
        ),
    ),
    # ControllerApis.handleAddRaftVoter
    Api(80, "AddRaftVoter", (cluster_check(O.ALTER),)),
    # ControllerApis.handleRemoveRaftVoter
    Api(81, "RemoveRaftVoter", (cluster_check(O.ALTER),)),
    # KafkaApis.handleStreamsGroupHeartbeat
    Api(
        88,
        "StreamsGroupHeartbeat",
        (
            group_check(O.READ),
            Check((topic(O.DESCRIBE, "each topic of the topology"),), Error.TOPIC, Place.RESPONSE),
            Check(
                (cluster(O.CREATE), topic(O.CREATE, "each internal topic to create")),
                Error.NONE,
                Place.STATUS,
            ),
        ),
    ),
    # KafkaApis.handleStreamsGroupDescribe
    Api(
        89,
        "StreamsGroupDescribe",
        (
            Check((group(O.DESCRIBE, "group_ids[]"),), Error.GROUP, Place.GROUP),
            Check((topic(O.DESCRIBE, "each topic of the topology"),), Error.TOPIC, Place.GROUP),
        ),
    ),
    # KafkaApis.handleDescribeShareGroupOffsetsRequest
    Api(
        90,
        "DescribeShareGroupOffsets",
        (
            Check((group(O.DESCRIBE, "groups[].group_id"),), Error.GROUP, Place.GROUP),
            Check((topic(O.DESCRIBE, "topics[].topic_name"),), Error.TOPIC, Place.PARTITION),
            Check((topic(O.DESCRIBE, "topics"),), Error.NONE, Place.OMITTED, "all topics"),
        ),
    ),
    # KafkaApis.handleAlterShareGroupOffsetsRequest
    Api(
        91,
        "AlterShareGroupOffsets",
        (
            group_check(O.READ),
            Check((topic(O.READ, "topics[].topic_name"),), Error.TOPIC, Place.PARTITION),
        ),
    ),
    # KafkaApis.handleDeleteShareGroupOffsetsRequest
    Api(
        92,
        "DeleteShareGroupOffsets",
        (
            group_check(O.DELETE),
            Check((topic(O.READ, "topics[].topic_name"),), Error.TOPIC, Place.TOPIC),
        ),
    ),
    # KafkaApis.handleStreamsGroupTopologyDescriptionUpdate
    Api(93, "StreamsGroupTopologyDescriptionUpdate", (group_check(O.READ),)),
    # ControllerApis.handleUnregisterController
    Api(94, "UnregisterController", (cluster_check(O.ALTER),)),
)

BY_KEY = {api.key: api for api in TABLE}


def markdown() -> str:
    """Return the table as Markdown, one line a check."""
    lines = [
        "# Rights by API",
        "",
        "`python -m tests.security.oracle.api_table` makes this page, from Apache Kafka 4.4.0.",
        "",
        "| Key | API | When | Right | Without it |",
        "| --- | --- | --- | --- | --- |",
    ]
    for api in TABLE:
        if not api.checks:
            lines.append(f"| {api.key} | {api.name} | | none | |")
        for check in api.checks:
            rights = " or ".join(
                f"{right.operation} on {right.resource_type} ({right.name})"
                for right in check.rights
            )
            refused = str(check.place)
            if check.error != Error.NONE:
                refused = f"{check.error} ({ERROR_CODES[check.error]}), {refused}"
            lines.append(f"| {api.key} | {api.name} | {check.when} | {rights} | {refused} |")
    lines += ["", "## What else to know", ""]
    lines += [f"- **{api.name}**: {api.reveals}" for api in TABLE if api.reveals]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
