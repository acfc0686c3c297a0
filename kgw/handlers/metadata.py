"""Metadata, key 3, versions 0 to 13: the nodes, and where the partitions of topics are led.

Behaviour:
- each node at its address for the listener that the client came through (KIP-103); one of them is
  the controller, and the owner of a partition leads it. Nodes that stand by are among them;
- LEADER_NOT_AVAILABLE for each partition while nobody knows which node owns it, as the lease has
  run out. The node that answers does not name itself then, unless there is no other to go to;
- a missing topic is created when both the request and `auto.create.topics.enable` allow it, with
  `num.partitions`, durably, before it is answered: no client sees LEADER_NOT_AVAILABLE here;
- a topic's part of the answer is encoded once and kept until it or the placement changes, for it is
  the same for everybody: ten thousand partitions would take 23 ms each time;
- `__consumer_offsets` and `__transaction_state` always exist: internal, empty, of 50 partitions.
  A list of all topics has them once a client has asked for them by name: Kafka creates them then.
  `__share_group_state` and `__cluster_metadata` are never created;
- INVALID_TOPIC_EXCEPTION for an impossible name, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.

v1: null asks for all topics, controller, racks. v2: cluster id (KIP-78). v3: throttle time
(KIP-124). v4: the client may forbid creation (KIP-4). v5: offline replicas (KIP-112). v7: leader
epochs (KIP-320). v8: authorised operations when asked for, those of the cluster until v10
(KIP-430). v9: flexible (KIP-482). v10: topic ids in the answer (KIP-516). v12: topics asked for by
id, as Kafka does it: a name beside an id is not looked at, and where any topic has an id, those
without one are left out. v13: an error of the whole answer (KIP-1102), never set here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.handlers.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kgw.handlers.context import advertised_address
from kgw.handlers.encoding_turns import AnswerSize
from kgw.handlers.leaders import error_and_replicas, leader
from kgw.partitions.topics.topic import UNCREATED_TOPICS, Topic, why_unknown
from kgw.placement import NOBODY
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import encode_items
from kgw.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kgw.protocol.schema import EncodedItems
from kgw.state.base import StateTakenOverError
from kgw.turns import Share, finish, in_turns
from kgw.types import ZERO_TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from kgw.handlers.context import Answer, RequestContext
    from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
    from kgw.turns import Turns
    from kgw.types import Buffer

    Found: TypeAlias = Topic | MetadataResponseTopic
    """A topic, or why it cannot be described."""

LAYOUTS = (0, 1, 1, 1, 1, 5, 5, 7, 8, 9, 10, 10, 10, 10)
"""For each version, the first one that describes a topic in the same bytes."""

_HAS_ERROR = 13
_BY_ID = 12
"""The first version that asks for topics by id."""

# Processor time of a turn in tenths of a microsecond, roughly: 1.5 ms, and 30 for each partition.
_TURN_UNITS = 15_000
_PARTITION_UNITS = 30
_PARTITIONS_PER_TURN = _TURN_UNITS // _PARTITION_UNITS


def handle(request: MetadataRequest, context: RequestContext) -> Answer:
    catalog = context.gateway.catalog
    wanted = request.topics
    if wanted is None or (not wanted and context.api_version == 0):
        return in_turns(_describe(request, context, catalog.listed), context.gateway.answer_turns)
    may_create = context.gateway.config.auto_create_topics_enable
    if context.api_version >= _BY_ID:
        wanted = [one for one in wanted if one.topic_id != ZERO_TOPIC_ID] or wanted
    if len(wanted) > 1:
        # Java's clients, and Kafka, have a set of them.
        wanted = list({(one.topic_id, one.name): one for one in wanted}.values())
    found = [_find(one, context) for one in wanted]
    if (
        may_create
        and request.allow_auto_topic_creation
        and any(_may_be_created(one) for one in found)
    ):
        return _create_missing(request, found, context)
    return in_turns(_describe(request, context, found), context.gateway.answer_turns)


def error_response(
    request: MetadataRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> MetadataResponse:
    return MetadataResponse(
        error_code=code if context.api_version >= _HAS_ERROR else ErrorCode.NONE,
        topics=[
            MetadataResponseTopic(error_code=code, name=one.name or "", topic_id=one.topic_id)
            for one in request.topics or ()
        ],
    )


def _find(wanted: MetadataRequestTopic, context: RequestContext) -> Found:
    """Return one topic that was asked for, or say why not."""
    catalog = context.gateway.catalog
    by_id = wanted.topic_id != ZERO_TOPIC_ID
    if context.api_version < _BY_ID and (by_id or wanted.name is None):
        # Versions 10 and 11 have the field, and no broker has ever looked at it.
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    # Java's Admin sends an empty name beside the id, not null.
    # Another node may know more topics by now.
    is_led = context.gateway.placement.controller is not NOBODY
    if by_id or wanted.name is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if is_led else ErrorCode.LEADER_NOT_AVAILABLE
        return catalog.by_id(wanted.topic_id) or MetadataResponseTopic(
            error_code=code, name=None, topic_id=wanted.topic_id
        )
    code = why_unknown(wanted.name)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not is_led:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return catalog.get(wanted.name) or MetadataResponseTopic(error_code=code, name=wanted.name)


def _may_be_created(found: Found) -> bool:
    return (
        not isinstance(found, Topic)
        and found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        and found.name not in UNCREATED_TOPICS
    )


async def _create_missing(
    request: MetadataRequest, found: Sequence[Found], context: RequestContext
) -> MetadataResponse:
    created = [
        await _create(one.name or "", context) if _may_be_created(one) else one for one in found
    ]
    return await finish(_describe(request, context, created), context.gateway.answer_turns)


async def _create(name: str, context: RequestContext) -> Found:
    catalog = context.gateway.catalog
    try:
        return await catalog.create(name, context.gateway.config.num_partitions, {})
    except StateTakenOverError:
        # Clients ask for metadata again, as they do for a topic without a leader.
        code = ErrorCode.LEADER_NOT_AVAILABLE
    except (KafkaError, StorageError) as error:
        code = error.code
    if code is ErrorCode.TOPIC_ALREADY_EXISTS:  # another client was faster
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return catalog.get(name) or MetadataResponseTopic(error_code=code, name=name)


def _describe(
    request: MetadataRequest, context: RequestContext, found: Sequence[Found]
) -> Turns[MetadataResponse]:
    """Answer with kept pieces, and encode those that are missing."""
    version = context.api_version
    encode = encode_items(MetadataResponse, MetadataResponseTopic, version)
    encoded = context.gateway.catalog.encoded
    with_operations = request.include_topic_authorized_operations
    placed = context.gateway.placement.version
    form = (ApiKey.METADATA, LAYOUTS[version], with_operations, placed)
    kept = encoded.form(form)
    share = Share(_TURN_UNITS)
    size = AnswerSize()
    pieces: list[Buffer] = []
    codes: list[int] = []
    for one in found:
        if not isinstance(one, Topic):
            if request.include_topic_authorized_operations:
                one.topic_authorized_operations = TOPIC_OPERATIONS
            pieces += encode((one,))
            codes.append(one.error_code)
            if share.spend(_PARTITION_UNITS):
                yield
            continue
        piece = kept.get(one.topic_id)
        if piece is None:
            partition_count = one.partition_count
            description = MetadataResponseTopic(
                name=one.name, topic_id=one.topic_id, is_internal=one.is_internal
            )
            description.partitions = yield from _encode_partitions(one, context, share)
            if request.include_topic_authorized_operations:
                description.topic_authorized_operations = TOPIC_OPERATIONS
            piece = b"".join(encode((description,)))
            if one.partition_count == partition_count:
                encoded.keep(form, one, piece)
            if share.spend(_PARTITION_UNITS):
                yield
        elif share.spend():
            yield
        size.add((piece,))
        pieces.append(piece)
    topics: Any = EncodedItems(len(pieces), pieces, codes)
    return _response(request, context, topics)


def _encode_partitions(topic: Topic, context: RequestContext, share: Share) -> Turns[Any]:
    encode = encode_items(MetadataResponse, MetadataResponsePartition, context.api_version)
    count = topic.partition_count
    pieces: list[Buffer] = []
    for first in range(0, count, _PARTITIONS_PER_TURN):
        some = range(first, min(first + _PARTITIONS_PER_TURN, count))
        pieces += encode(_partition(topic, index, context) for index in some)
        if share.spend(len(some) * _PARTITION_UNITS):
            yield
    return EncodedItems(count, pieces)


def _partition(topic: Topic, index: int, context: RequestContext) -> MetadataResponsePartition:
    node, leader_epoch = leader(topic, index, context)
    code, replicas = error_and_replicas(node, context)
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=node.node_id,
        leader_epoch=leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
    )


def _response(
    request: MetadataRequest, context: RequestContext, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    placement = context.gateway.placement
    response = MetadataResponse(
        cluster_id=placement.cluster_id, controller_id=placement.controller.node_id, topics=topics
    )
    for node in placement.nodes:
        host, port = advertised_address(node, context)
        response.brokers.append(MetadataResponseBroker(node_id=node.node_id, host=host, port=port))
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
