"""The answers of all APIs whose feature is off, in one table.

If an API is missing, a client assumes an old server or reports a failure. If the answer says that
the feature is off, the client continues. The codes are those of Apache Kafka 4.4 on a plain
listener, with one node and without an authoriser; a test compares them. Requests that would change
something are refused. With access rules a client needs its right first, as in Kafka.

| API | Answer |
| --- | --- |
| AlterReplicaLogDirs | LOG_DIR_NOT_FOUND, unless the directory is the one that holds all partitions |
| ElectLeaders | ELECTION_NOT_NEEDED: each partition has one replica, and that one leads |
| AlterPartitionReassignments | INVALID_REPLICA_ASSIGNMENT, unless the replicas are the only node; NO_REASSIGNMENT_IN_PROGRESS to a cancellation |
| ListPartitionReassignments | an empty list |
| DescribeClientQuotas | an empty list; INVALID_REQUEST or UNSUPPORTED_VERSION for a wrong filter |
| AlterClientQuotas | UNSUPPORTED_VERSION to a quota that is set; removing one succeeds, as there is none |
| ConsumerGroupHeartbeat, ConsumerGroupDescribe | UNSUPPORTED_VERSION, as of a Kafka whose consumer protocol (KIP-848) is off |

"""  # noqa: E501 - rows of a table

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.create_topics import check_assignment
from kgw.handlers.encoding_turns import Inner
from kgw.handlers.parts import AnswerByItem, Api
from kgw.handlers.rights import Rights, denial
from kgw.protocol.messages.alter_client_quotas import (
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)
from kgw.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kgw.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kgw.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from kgw.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kgw.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from kgw.protocol.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from kgw.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from kgw.security.acls.terms import AclOperation, ResourceType
from kgw.turns import StepBudget, in_turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kgw.gateway import Gateway
    from kgw.handlers.context import Answer, RequestContext
    from kgw.handlers.encoding_turns import Item
    from kgw.protocol.messages.alter_client_quotas import AlterClientQuotasRequestEntryData
    from kgw.protocol.messages.alter_partition_reassignments import (
        ReassignablePartition,
        ReassignableTopic,
    )
    from kgw.protocol.messages.describe_client_quotas import ComponentData
    from kgw.protocol.messages.elect_leaders import ElectLeadersRequest
    from kgw.protocol.schema import Response
    from kgw.turns import Turns

_PREFERRED, _UNCLEAN = range(2)
_EXACT, _DEFAULT, _ANY = range(3)
_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_QUOTAS_OF_IPS: Final = frozenset({"connection_creation_rate"})
_QUOTAS_OF_CLIENTS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
_WHOLE_QUOTAS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"}
)
_NO_QUOTAS: Final = "kgw keeps no client quotas yet"


class _Refused(Api):
    """Refuses each request."""

    code: ClassVar[ErrorCode]
    message: ClassVar[str]

    def answer(self) -> Answer:
        return self.refuse(self.request, self.code, self.message, self.context)


class _ByItem(AnswerByItem):
    """Answers for each item of a request, which takes a few microseconds."""

    per_turn = 500


class _RefusedByItem(_ByItem):
    """Refuses each item of a request."""

    code: ClassVar[ErrorCode]
    message: ClassVar[str]

    def item(self, asked: Any) -> Any:
        raise KafkaError(self.code, self.message)


# --- where partitions are ------------------------------------------------------------------------


def _missing_partition(name: str, index: int, gateway: Gateway) -> KafkaError | None:
    """Return why a partition is unknown; None for one that exists."""
    topic = gateway.catalog.get(name)
    if topic is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    if not topic.has_partition(index):
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} has no partition {index}"
        )
    return None


class ElectLeaders(_ByItem):
    response_type = ElectLeadersResponse
    rights = Rights(cluster=AclOperation.ALTER)
    parts = {"replica_election_results": "topic_partitions", "partition_result": "partitions"}
    refuses_every_part = True

    def __init__(self, request: ElectLeadersRequest, context: RequestContext) -> None:
        super().__init__(request, context)
        self._wrong_type: KafkaError | None = None
        if request.election_type not in {_PREFERRED, _UNCLEAN}:
            message = f"there is no election of type {request.election_type}"
            self._wrong_type = KafkaError(ErrorCode.INVALID_REQUEST, message)

    def asked(self) -> Iterable[TopicPartitions]:
        if self.request.topic_partitions is None:
            # The answer lists only partitions with a new leader, and there are none.
            return [TopicPartitions(topic=topic.name) for topic in self.gateway.catalog.listed]
        return super().asked()

    def item(self, asked: TopicPartitions) -> Inner:
        partitions = (self._partition(asked.topic, index) for index in asked.partitions)
        return Inner(ReplicaElectionResult(topic=asked.topic), "partition_result", partitions)

    def fill(self, response: ElectLeadersResponse) -> None:
        if self._wrong_type is not None:
            response.error_code = self._wrong_type.code

    def _partition(self, name: str, index: int) -> PartitionResult:
        error = self._wrong_type or _missing_partition(name, index, self.gateway)
        error = error or KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "its only replica leads")
        return PartitionResult(
            partition_id=index, error_code=error.code, error_message=error.message
        )


class AlterPartitionReassignments(_ByItem):
    response_type = AlterPartitionReassignmentsResponse
    rights = Rights(cluster=AclOperation.ALTER)
    parts = {"responses": "topics", "partitions": "partitions"}
    refuses_every_part = True

    def item(self, asked: ReassignableTopic) -> Inner:
        partitions = (self._partition(asked.name, one) for one in asked.partitions)
        return Inner(ReassignableTopicResponse(name=asked.name), "partitions", partitions)

    def fill(self, response: AlterPartitionReassignmentsResponse) -> None:
        # As in Kafka: no error message if the request names topics.
        response.error_message = None if self.request.topics else ""
        response.allow_replication_factor_change = self.request.allow_replication_factor_change

    def _partition(self, name: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
        answer = ReassignablePartitionResponse(
            partition_index=asked.partition_index, error_message=None
        )
        try:
            self._check(name, asked)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        return answer

    def _check(self, name: str, asked: ReassignablePartition) -> None:
        """Raise KafkaError unless the request names the only replica that a partition can have."""
        missing = _missing_partition(name, asked.partition_index, self.gateway)
        if missing is not None:
            raise missing
        if asked.replicas is None:
            message = "no reassignment is in progress"
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, message)
        check_assignment(asked.replicas, self.context)


class ListPartitionReassignments(Api):
    response_type = ListPartitionReassignmentsResponse
    rights = Rights(cluster=AclOperation.DESCRIBE)

    def answer(self) -> Answer:
        return ListPartitionReassignmentsResponse(error_message=None)


class AlterReplicaLogDirs(_ByItem):
    """Answers once for each partition, by topic, however many directories the request names."""

    response_type = AlterReplicaLogDirsResponse
    rights = Rights(cluster=AclOperation.ALTER)
    array = "results"
    parts = {"partitions": "partitions"}

    @classmethod
    def refuse(
        cls, request: Any, code: ErrorCode, message: str | None, context: RequestContext
    ) -> AlterReplicaLogDirsResponse:
        refusal = cls.refusal(code, message, context.api_version)
        topics = [topic for directory in request.dirs for topic in directory.topics]
        results = [refusal.part(AlterReplicaLogDirTopicResult, topic) for topic in topics]
        return AlterReplicaLogDirsResponse(results=results)

    def items(self) -> Iterator[Item]:
        topics: dict[str, dict[int, ErrorCode]] = {}
        for directory in self.request.dirs:
            for topic in directory.topics:
                codes = topics.setdefault(topic.name, {})
                for index in topic.partitions:
                    codes[index] = self._code(directory.path, topic.name, index)
                    yield 1
        for name, codes in topics.items():
            partitions = (
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                for index, code in codes.items()
            )
            yield Inner(AlterReplicaLogDirTopicResult(topic_name=name), "partitions", partitions)

    def _code(self, path: str, name: str, index: int) -> ErrorCode:
        if path != self.gateway.backend.location:
            return ErrorCode.LOG_DIR_NOT_FOUND
        missing = _missing_partition(name, index, self.gateway)
        return ErrorCode.NONE if missing is None else missing.code


# --- quotas --------------------------------------------------------------------------------------


class DescribeClientQuotas(Api):
    response_type = DescribeClientQuotasResponse
    rights = Rights(cluster=AclOperation.DESCRIBE_CONFIGS)
    refused_values = {"entries": None}

    def answer(self) -> Answer:
        self._check_filter()
        return DescribeClientQuotasResponse()

    def _check_filter(self) -> None:
        """Raise KafkaError unless the filter of the request is valid."""
        kinds = Counter(component.entity_type for component in self.request.components)
        for component in self.request.components:
            _check_component(component)
        for kind, count in kinds.items():
            if count > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kind} is in the filter twice")
        if _IP in kinds and len(kinds) > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "quotas of ips have no other part")


def _check_component(component: ComponentData) -> None:
    """Raise KafkaError unless a component of a filter is valid."""
    kind, match_type = component.entity_type, component.match_type
    if not kind:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a part of the filter has no entity type")
    if kind not in {_USER, _CLIENT_ID, _IP}:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there are no quotas of {kind!r}")
    if match_type not in {_EXACT, _DEFAULT, _ANY}:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no match of type {match_type}")
    if (match_type == _EXACT) != (component.match is not None):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"match type {match_type} with match {component.match!r}"
        )


class AlterClientQuotas(_ByItem):
    response_type = AlterClientQuotasResponse
    rights = Rights(cluster=AclOperation.ALTER_CONFIGS)
    parts = {"entries": "entries"}

    def item(self, asked: AlterClientQuotasRequestEntryData) -> AlterClientQuotasResponseEntryData:
        _check_quotas(asked)
        entity: list[Any] = asked.entity
        return AlterClientQuotasResponseEntryData(error_message=None, entity=entity)


def _check_quotas(wanted: AlterClientQuotasRequestEntryData) -> None:
    """Raise KafkaError unless the entity is valid and no quota is set."""
    kinds = [one.entity_type for one in wanted.entity]
    name = "+".join(kinds)
    keys = _QUOTAS_OF_IPS if _IP in kinds else _QUOTAS_OF_CLIENTS
    problem = None
    if not kinds:
        problem = "the entity is empty"
    elif not {_USER, _CLIENT_ID, _IP}.issuperset(kinds):
        problem = f"there are no quotas of {name}"
    elif _IP in kinds and len(kinds) > 1:
        problem = "quotas of ips have no other part"
    elif any(one.entity_name == "" for one in wanted.entity):
        problem = "a part of the entity has an empty name"
    elif len({change.key for change in wanted.ops}) != len(wanted.ops):
        problem = "a quota is changed twice"
    for change in () if problem else wanted.ops:
        if change.remove:
            continue
        if change.key not in keys:
            problem = f"{change.key!r} is no quota of {name}"
        elif not change.value > 0:
            problem = f"{change.key} must be above 0"
        elif change.key in _WHOLE_QUOTAS and not change.value.is_integer():
            problem = f"{change.key} must be a whole number"
        if problem:
            break
    if problem:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    if not all(change.remove for change in wanted.ops):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, _NO_QUOTAS)


# --- consumer groups of KIP-848 ------------------------------------------------------------------

_NAMED_PER_TURN: Final = 500
_NO_CONSUMER_GROUPS = (
    "kgw does not serve the consumer group protocol of KIP-848: set group.protocol=classic"
)


class ConsumerGroupHeartbeat(_Refused):
    response_type = ConsumerGroupHeartbeatResponse
    rights = Rights(group=AclOperation.READ, topic=AclOperation.DESCRIBE)
    code = ErrorCode.UNSUPPORTED_VERSION
    message = _NO_CONSUMER_GROUPS

    def answer(self) -> Answer:
        return in_turns(self._answer(), self.gateway.answer_turns)

    def _answer(self) -> Turns[Response | None]:
        budget = StepBudget(_NAMED_PER_TURN)
        for name in self.request.subscribed_topic_names or ():
            if not self.may_use_topic(name):
                raise denial(ResourceType.TOPIC)
            if budget.spend():
                yield
        return self.refuse(self.request, self.code, self.message, self.context)


class ConsumerGroupDescribe(_RefusedByItem):
    response_type = ConsumerGroupDescribeResponse
    rights = Rights(group=AclOperation.DESCRIBE)
    parts = {"groups": "group_ids"}
    code = ErrorCode.UNSUPPORTED_VERSION
    message = _NO_CONSUMER_GROUPS
