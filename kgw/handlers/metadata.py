"""Metadata, key 3, versions 0 to 13: the nodes, and the leaders of the partitions of topics.

Behaviour:
- lists all nodes, including standby nodes, each with its address for the listener that the client
  is connected to (KIP-103). One node is the controller, and the owner of a partition leads it;
- LEADER_NOT_AVAILABLE for each partition whose owner is not known, as the lease has expired. The
  answering node then does not list itself, unless it is the only node;
- a missing topic is created with `num.partitions` if both the request and
  `auto.create.topics.enable` allow it. It is durable before the answer, so no client gets
  LEADER_NOT_AVAILABLE for it;
- the encoded description of a topic is kept until the topic or the placement changes, as it is the
  same for all clients: encoding ten thousand partitions takes 23 ms;
- `__consumer_offsets` and `__transaction_state` always exist as empty internal topics with 50
  partitions. They appear in the list of all topics after a client has asked for them by name, which
  is when Kafka creates them. `__share_group_state` and `__cluster_metadata` are never created;
- a topic that the client may not DESCRIBE is left out of the list of all topics. Asked for by name
  or id it is TOPIC_AUTHORIZATION_FAILED, whether the name exists or not; so is a missing topic that
  the client may not CREATE;
- INVALID_TOPIC_EXCEPTION for an impossible name, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.

v1: null asks for all topics, controller, racks. v2: cluster id (KIP-78). v3: throttle time
(KIP-124). v4: the client may forbid creation (KIP-4). v5: offline replicas (KIP-112). v7: leader
epochs (KIP-320). v8: authorised operations when asked for, those of the cluster until v10
(KIP-430). v9: flexible (KIP-482). v10: topic ids in the answer (KIP-516). v12: topics by id. As in
Kafka, the name of a topic with an id is ignored; if any topic has an id, topics without one are
left out. v13: an error of the whole answer (KIP-1102), never set here.
"""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING, Any, cast

from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.handlers.context import advertised_address, made
from kgw.handlers.leaders import error_and_replicas, leader
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights
from kgw.ownership.placement import NOBODY
from kgw.partitions.topics.topic import UNCREATED_TOPICS, Topic, why_unknown
from kgw.protocol.codec import encode_items
from kgw.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kgw.protocol.schema import EncodedItems
from kgw.security.acls.terms import AclOperation, ResourceType
from kgw.state.base import StateTakenOverError
from kgw.turns import StepBudget, in_turns, take_turns
from kgw.types import ZERO_TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from typing import TypeAlias

    from kgw.handlers.context import Answer, RequestContext
    from kgw.handlers.encoding_turns import Item
    from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
    from kgw.protocol.schema import Response
    from kgw.turns import Turns
    from kgw.types import Buffer

    Found: TypeAlias = Topic | MetadataResponseTopic
    """A topic, or the error why it cannot be described."""

LAYOUTS = (0, 1, 1, 1, 1, 5, 5, 7, 8, 9, 10, 10, 10, 10)
"""By version: the first version with the same encoding of a topic."""

_BY_ID = 12
"""The first version with requests for topics by id."""

# Processor time, roughly, in tenths of a microsecond: 30 for each partition.
_PARTITION_UNITS = 30
_QUESTION_UNITS = 50
"""For the question whether the client may see a topic."""
_PARTITIONS_AT_A_TIME = 500
_NAMED_PER_TURN = 500
"""The number of named topics for one turn of the event loop: to refuse one takes about 10 us."""


class Metadata(AnswerByItem):
    response_type = MetadataResponse
    rights = Rights(
        topic=AclOperation.DESCRIBE,
        others=((AclOperation.DESCRIBE, ResourceType.CLUSTER),),
        any_of=(
            (AclOperation.CREATE, ResourceType.CLUSTER),
            (AclOperation.CREATE, ResourceType.TOPIC),
        ),
    )
    parts = {"topics": "topics"}
    refuses_every_part = True
    per_turn = 15_000

    _leaves_out = False
    """Whether topics that the client may not DESCRIBE are left out: it has asked for all topics."""

    @classmethod
    def refuse(
        cls, request: MetadataRequest, code: ErrorCode, message: str | None, context: RequestContext
    ) -> Response | None:
        response: Any = super().refuse(request, code, message, context)
        for topic in response.topics:
            # The name cannot be null before version 12.
            topic.name = topic.name or ""
        return cast("Response", response)

    def answer(self) -> Answer:
        asked = self.request.topics
        if asked is None or (not asked and self.version == 0):
            self._found: Sequence[Found] = self.gateway.catalog.listed
            self._leaves_out = self.gateway.access is not None
            return super().answer()
        if self.version >= _BY_ID:
            asked = [one for one in asked if one.topic_id != ZERO_TOPIC_ID] or asked
        if len(asked) > 1:
            # Java's clients and Kafka keep the topics in a set.
            asked = list({(one.topic_id, one.name): one for one in asked}.values())
        creates = (
            self.request.allow_auto_topic_creation and self.gateway.config.auto_create_topics_enable
        )
        if len(asked) > _NAMED_PER_TURN:
            if creates:
                return self._create_many(asked)
            return in_turns(self._answer_many(asked), self.gateway.answer_turns)
        self._found = [self._find(one) for one in asked]
        if creates and any(map(_may_be_created, self._found)):
            return self._create_missing()
        return super().answer()

    def _answer_many(self, asked: Sequence[MetadataRequestTopic]) -> Turns[Response]:
        yield from self._find_all(asked)
        return (yield from self._answer(self.items()))

    async def _create_many(self, asked: Sequence[MetadataRequestTopic]) -> Any:
        if await take_turns(self._find_all(asked), self.gateway.answer_turns):
            return await self._create_missing()
        return await made(super().answer())

    def _find_all(self, asked: Sequence[MetadataRequestTopic]) -> Turns[bool]:
        """Find the topics of the request; return whether some of them may be created."""
        found, budget = [], StepBudget(_NAMED_PER_TURN)
        has_missing = False
        for one in asked:
            found.append(self._find(one))
            has_missing = has_missing or _may_be_created(found[-1])
            if budget.spend():
                yield
        self._found = found
        return has_missing

    def _find(self, asked: MetadataRequestTopic) -> Found:
        """Return one topic of the request, or the error for it."""
        catalog = self.gateway.catalog
        by_id = asked.topic_id != ZERO_TOPIC_ID
        if self.version < _BY_ID and (by_id or asked.name is None):
            # Versions 10 and 11 have the id field, which Kafka ignores in them.
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        # Java's Admin sends an empty name beside the id, not null.
        name = None if by_id else asked.name
        if self.gateway.access is not None and self._is_denied(asked.topic_id, name):
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            # The answer has no id for a name, and no name for an id.
            return MetadataResponseTopic(error_code=denied, name=name, topic_id=asked.topic_id)
        topic = catalog.by_id(asked.topic_id) if name is None else catalog.get(name)
        if topic is not None:
            return topic
        code = why_unknown(name)
        is_led = self.gateway.placement.controller is not NOBODY
        if not is_led and code is not ErrorCode.INVALID_TOPIC_EXCEPTION:
            # Another node may know more topics by now.
            code = ErrorCode.LEADER_NOT_AVAILABLE
        if name is None:
            return MetadataResponseTopic(error_code=code, name=None, topic_id=asked.topic_id)
        return MetadataResponseTopic(error_code=code, name=name)

    def _is_denied(self, topic_id: bytes, name: str | None) -> bool:
        """Return whether the client may not see a topic, which is asked for by its name or its id.

        As in Kafka, no right is asked for an id that no topic has.
        """
        if name is None:
            topic = self.gateway.catalog.by_id(topic_id)
            return topic is not None and not self.may_use_topic(topic.name)
        return not self.may_use_topic(name)

    def _may_create(self, name: str) -> bool:
        return self.may_on_cluster(AclOperation.CREATE, quiet=True) or self.may(
            AclOperation.CREATE, ResourceType.TOPIC, name
        )

    async def _create_missing(self) -> Any:
        found, budget = [], StepBudget(_NAMED_PER_TURN)
        for one in self._found:
            found.append(await self._create(one.name or "") if _may_be_created(one) else one)
            if budget.spend():
                await sleep(0)
        self._found = found
        return await made(super().answer())

    async def _create(self, name: str) -> Found:
        gateway = self.gateway
        if gateway.access is not None and not self._may_create(name):
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return MetadataResponseTopic(error_code=denied, name=name)
        try:
            return await gateway.topic_manager.create(name, gateway.config.num_partitions, {})
        except StateTakenOverError:
            # With this error clients ask for Metadata again, as for a topic without a leader.
            code = ErrorCode.LEADER_NOT_AVAILABLE
        except (KafkaError, StorageError) as error:
            code = error.code
        if code is ErrorCode.TOPIC_ALREADY_EXISTS:  # another client has created it meanwhile
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return gateway.catalog.get(name) or MetadataResponseTopic(error_code=code, name=name)

    def items(self) -> Iterator[Item]:
        """Yield the encoded topics, kept or made now, and the errors of missing topics."""
        with_operations = self.request.include_topic_authorized_operations
        form = self._form()
        ready: list[Buffer] = []
        for one in self._found:
            if ready and (not isinstance(one, Topic) or len(ready) == self.per_turn):
                yield EncodedItems(len(ready), ready)
                ready = []
            if isinstance(one, Topic):
                if self._leaves_out:
                    yield _QUESTION_UNITS
                    if not self.may_use_topic(one.name, quiet=True):
                        continue
                ready.append(one.encoded.get(form) or (yield from self._encode(one)))
            else:
                if with_operations and one.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    one.topic_authorized_operations = self._operations(one.name or "")
                yield one
        yield EncodedItems(len(ready), ready)

    def weigh(self, item: Any) -> int:
        return len(item) if isinstance(item, EncodedItems) else _PARTITION_UNITS

    def _form(self) -> tuple[int, int, bool]:
        """Return the key under which topics are kept in the encoding for this request."""
        with_operations = self.request.include_topic_authorized_operations
        return self.gateway.placement.version, LAYOUTS[self.version], with_operations

    def _encode(self, topic: Topic) -> Generator[int, None, bytes]:
        """Encode the description of a topic, and keep it. Yields the weight of each step."""
        cache, form = topic.encoded, self._form()
        encode = encode_items(MetadataResponse, MetadataResponsePartition, self.version)
        count = topic.partition_count
        pieces: list[Buffer] = []
        for first in range(0, count, _PARTITIONS_AT_A_TIME):
            some = range(first, min(first + _PARTITIONS_AT_A_TIME, count))
            pieces += encode(self._partition(topic, index) for index in some)
            yield len(some) * _PARTITION_UNITS
        partitions: Any = EncodedItems(count, pieces)
        answer = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=partitions,
        )
        if self.request.include_topic_authorized_operations:
            answer.topic_authorized_operations = self._operations(topic.name)
        encoded = b"".join(
            encode_items(MetadataResponse, MetadataResponseTopic, self.version)([answer])
        )
        if self.request.include_topic_authorized_operations and self.gateway.access is not None:
            # Another client may have other rights.
            yield _PARTITION_UNITS
            return encoded
        if form == self._form():
            for outdated in [other for other in cache if other[0] != form[0]]:
                del cache[outdated]
            cache[form] = encoded
        yield _PARTITION_UNITS
        return encoded

    def _operations(self, name: str) -> int:
        # Imported here: few clients ask for it.
        from kgw.handlers.authorized_operations import authorized_operations

        return authorized_operations(self, ResourceType.TOPIC, name)

    def _partition(self, topic: Topic, index: int) -> MetadataResponsePartition:
        node, leader_epoch = leader(topic, index, self.context)
        code, replicas = error_and_replicas(node, self.context)
        return MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=node.node_id,
            leader_epoch=leader_epoch,
            replica_nodes=replicas,
            isr_nodes=replicas,
        )

    def fill(self, response: MetadataResponse) -> None:
        placement = self.gateway.placement
        response.cluster_id = placement.cluster_id
        response.controller_id = placement.controller.node_id
        for node in placement.nodes:
            host, port = advertised_address(node, self.context)
            response.brokers.append(
                MetadataResponseBroker(node_id=node.node_id, host=host, port=port)
            )
        if self.request.include_cluster_authorized_operations:
            from kgw.handlers.authorized_operations import authorized_cluster_operations

            response.cluster_authorized_operations = authorized_cluster_operations(self)


def _may_be_created(found: Found) -> bool:
    return (
        not isinstance(found, Topic)
        and found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        and found.name not in UNCREATED_TOPICS
    )
