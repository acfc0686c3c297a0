"""StreamsGroupTopologyDescriptionUpdate (API key 93)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class TopologyDescriptionNode(schema.Struct):
    """A step of a topology."""

    name: str = schema.string()
    node_type: int = schema.int8()
    """1: source; 2: processor; 3: sink."""
    source_topics: list[str] = schema.array("string")
    sink_topic: str | None = schema.string(nullable_since=0, default=None)
    stores: list[str] = schema.array("string")
    successors: list[str] = schema.array("string")


class TopologyDescriptionSubtopology(schema.Struct):
    """Steps that run together."""

    subtopology_id: str = schema.string()
    nodes: list[TopologyDescriptionNode] = schema.array(TopologyDescriptionNode)


class TopologyDescriptionGlobalStore(schema.Struct):
    """A global store, of which every instance has a full copy, with its source and processor."""

    source: TopologyDescriptionNode = schema.struct(TopologyDescriptionNode)
    processor: TopologyDescriptionNode = schema.struct(TopologyDescriptionNode)


class TopologyDescription(schema.Struct):
    """The steps of a topology."""

    subtopologies: list[TopologyDescriptionSubtopology] = schema.array(
        TopologyDescriptionSubtopology
    )
    global_stores: list[TopologyDescriptionGlobalStore] = schema.array(
        TopologyDescriptionGlobalStore
    )


class StreamsGroupTopologyDescriptionUpdateRequest(
    schema.Request, api_key=ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE
):
    """Send the description of the topology to a group of Kafka Streams (KIP-1331)."""

    group_id: str = schema.string()
    member_id: str = schema.string()
    topology_epoch: int = schema.int32()
    topology_description: TopologyDescription = schema.struct(TopologyDescription)


class StreamsGroupTopologyDescriptionUpdateResponse(
    schema.Response, api_key=ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE
):
    """Whether the broker has stored the description."""

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
