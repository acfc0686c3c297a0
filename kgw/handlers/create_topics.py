"""CreateTopics, key 19, versions 0 to 7: create topics, or only check the request.

Behaviour:
- the topic is durable before the answer: after a crash, it exists with all partitions or not at
  all;
- -1 partitions means `num.partitions`, replication factor -1 means 1. A factor above 1 is refused
  with INVALID_REPLICATION_FACTOR unless `kgw.lenient.replication` is on; there is still only one
  replica, and the answer has factor 1. Assignments may name the only node; with several nodes all
  assignments are refused;
- names, numbers, limits and settings are checked: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS,
  INVALID_PARTITIONS, POLICY_VIOLATION, INVALID_CONFIG; a name that occurs twice is INVALID_REQUEST;
- CREATE on the cluster or on the topic is asked for before it is known whether the topic exists.
  Without DESCRIBE_CONFIGS on the topic the answer lacks its settings and numbers;
- the answer for a topic that is only validated has an id, as in Kafka, but no topic gets this id;
- REQUEST_TIMED_OUT if the storage has not created the topic within the timeout. The topic is still
  created, so that a second request can get TOPIC_ALREADY_EXISTS. A timeout of 0 or less means 5 s;
  Kafka would answer at once.

v1: validate only (KIP-4). v4: defaults (KIP-464), which are accepted in every version here. v5:
flexible, and settings in the answer (KIP-482, KIP-525). v6: THROTTLING_QUOTA_EXCEEDED (KIP-599).
v7: topic id (KIP-516).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.config import TOPIC_SETTINGS
from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.config_resources import topic_source
from kgw.handlers.parts import AnswerByItem, Repeated
from kgw.handlers.rights import Rights
from kgw.partitions.topic_config import TopicConfig
from kgw.partitions.topics.topic import new_topic_id
from kgw.protocol.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kgw.security.acls.terms import AclOperation, ResourceType

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.protocol.messages.create_topics import CreatableTopic

_DEFAULT = -1


class CreateTopics(AnswerByItem):
    response_type = CreateTopicsResponse
    rights = Rights(
        topic=AclOperation.CREATE,
        or_cluster=AclOperation.CREATE,
        others=((AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),),
    )
    parts = {"topics": "topics"}
    repeated = Repeated.REFUSED
    waits = True
    # The encoding of each topic takes about 25 microseconds.
    per_turn = 60

    async def item(self, asked: CreatableTopic) -> CreatableTopicResult:
        manager, config = self.gateway.topic_manager, self.gateway.config
        texts = {setting.name: setting.value for setting in asked.configs}
        try:
            partition_count = self._partition_count(asked)
        except KafkaError:
            # Check the name and the settings first: their errors take precedence.
            manager.check_new(asked.name, 1, texts)
            raise
        if self.request.validate_only:
            own = manager.check_new(asked.name, partition_count, texts)
            # As in Kafka, which makes an id even for a topic that is only validated.
            topic_id, topic_config = new_topic_id(), TopicConfig(own, config)
        else:
            topic = await manager.create(asked.name, partition_count, texts)
            topic_id, topic_config = topic.topic_id, topic.config
        if self.gateway.access is not None and not self._may_see_configs(asked.name):
            return CreatableTopicResult(
                name=asked.name,
                topic_id=topic_id,
                error_message=None,
                topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
        return CreatableTopicResult(
            name=asked.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=partition_count,
            replication_factor=1,
            configs=[
                CreatableTopicConfigs(
                    name=name,
                    value=setting.format(topic_config.value(setting)),
                    read_only=False,
                    config_source=topic_source(setting, topic_config, config),
                )
                for name, setting in TOPIC_SETTINGS.items()
            ],
        )

    def _may_see_configs(self, name: str) -> bool:
        return self.may(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, quiet=True)

    def refused_item(self, asked: Any, code: ErrorCode, message: str | None = None) -> Any:
        refused = super().refused_item(asked, code, message)
        if code is ErrorCode.INVALID_CONFIG:
            refused.configs = None
        return refused

    def _partition_count(self, asked: CreatableTopic) -> int:
        """Return the number of partitions in the request, given as a number or by assignments."""
        if not asked.assignments:
            self._check_replication_factor(asked.replication_factor)
            if asked.num_partitions == _DEFAULT:
                return self.gateway.config.num_partitions
            return asked.num_partitions
        if asked.num_partitions != _DEFAULT or asked.replication_factor != _DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "with assignments, partitions and replication factor must both be -1",
            )
        indexes = sorted(assignment.partition_index for assignment in asked.assignments)
        if indexes != list(range(len(indexes))):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "assigned partitions must run from 0 on"
            )
        for assignment in asked.assignments:
            check_assignment(assignment.broker_ids, self.context)
        return len(indexes)

    def _check_replication_factor(self, factor: int) -> None:
        """Raise KafkaError INVALID_REPLICATION_FACTOR unless the request allows one replica."""
        if factor in {_DEFAULT, 1}:
            return
        if factor > 1 and self.gateway.config.lenient_replication:
            return
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor}: there is one node"
            + (" (see kgw.lenient.replication)" if factor > 1 else ""),
        )


def check_assignment(broker_ids: list[int], context: RequestContext) -> None:
    """Raise KafkaError INVALID_REPLICA_ASSIGNMENT unless `broker_ids` is the cluster's only node.

    With several nodes every assignment is refused, as the placement chooses the node.
    """
    nodes = context.gateway.placement.owners
    if [broker_ids] != [[node.node_id] for node in nodes]:
        why = (
            f"there is node {nodes[0].node_id} alone"
            if len(nodes) == 1
            else "no client chooses among several nodes"
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"replicas {broker_ids}: {why}")
