"""Names of topics in SMQ's form, and topics that are created for a publisher."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

from kgw.agent.clients import describing, publishing
from kgw.backend.seaweedmq.topics.topic_conf import RECORD_TYPE
from kgw.errors import ErrorCode, KafkaError
from kgw.logs import EventLogger

if TYPE_CHECKING:
    from kgw.agent.clients import AgentClient
    from kgw.backend.seaweedmq.protos.mq_agent_pb2 import StartPublishSessionRequest
    from kgw.backend.seaweedmq.protos.schema_pb2 import Topic as NamedTopic
    from kgw.config import Config
    from kgw.gateway import Gateway
    from kgw.partitions.topics.topic import Topic

_log = EventLogger(__name__)

_DEFAULT_NAMESPACE: Final = "kafka"


def served_namespace(config: Config) -> str:
    """Return the SMQ namespace of the topics: that of a SeaweedMQ backend, else `kafka`.

    `kafka` is the namespace of SeaweedFS's own Kafka gateway.
    """
    scheme, _, rest = config.backend.partition("://")
    namespace = rest.partition("/")[2].strip("/")
    return namespace if scheme == "seaweedmq" and namespace else _DEFAULT_NAMESPACE


def topic_name(named: NamedTopic, config: Config) -> str:
    """Return Kafka's name of a topic. Raises KafkaError INVALID_TOPIC_EXCEPTION."""
    namespace = served_namespace(config)
    if named.namespace not in {"", namespace}:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"this gateway serves namespace {namespace!r}, not {named.namespace!r}",
        )
    return str(named.name)


def existing_topic(gateway: Gateway, name: str) -> Topic:
    """Return a topic. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
    topic = gateway.catalog.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


async def topic_to_publish_to(
    gateway: Gateway, request: StartPublishSessionRequest, client: AgentClient
) -> Topic:
    """Return a publisher's topic; create it if it is missing and this is allowed.

    Stores the record type with the topic, in place of an earlier one. Raises KafkaError, also if
    the client lacks a right, and StorageError.
    """
    name = topic_name(request.topic, gateway.config)
    client.authorize(publishing(name))
    if request.partition_count < 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"partition_count is 0 (num.partitions) or more, not {request.partition_count}",
        )
    configs: dict[str, str | None] = {}
    if request.HasField("record_type"):
        configs[RECORD_TYPE] = b64encode(
            request.record_type.SerializeToString(deterministic=True)
        ).decode()
    topic = gateway.catalog.get(name)
    if topic is None and gateway.config.auto_create_topics_enable:
        client.authorize_creation(name)
        try:
            topic = await gateway.topic_manager.create(
                name, request.partition_count or gateway.config.num_partitions, configs
            )
        except KafkaError as error:
            topic = gateway.catalog.get(name)
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or topic is None:
                raise
    if topic is None:
        return existing_topic(gateway, name)
    before = topic.config.values["kgw.smq.record.type"]
    if configs and configs[RECORD_TYPE] != before:
        client.authorize(describing(name))
        await gateway.topic_manager.configure(topic, lambda own: own | configs)
        if before:
            _log.info("a publisher has changed the record type of a topic", topic=name)
    return topic
