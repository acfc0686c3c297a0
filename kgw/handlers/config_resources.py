"""What the three config APIs share: resources, sources of values, and changing them."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from kgw.config import ConfigError
from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.topic import name_problem
from kgw.partitions.topic_config import parse_own_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kgw.config import Config, Setting
    from kgw.gateway import Gateway
    from kgw.partitions.topic import Topic
    from kgw.partitions.topic_config import TopicConfig


class ResourceType(IntEnum):
    """What settings belong to, by Kafka's numbers. Groups have none, and something to read."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from, by Kafka's numbers (KIP-226)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


def broker_source(name: str, config: Config, *, is_default_broker: bool = False) -> ConfigSource:
    """Return where a server setting's value comes from."""
    if name in config.dynamic:
        return (
            ConfigSource.DYNAMIC_DEFAULT_BROKER
            if is_default_broker
            else ConfigSource.DYNAMIC_BROKER
        )
    return ConfigSource.STATIC_BROKER if config.is_given(name) else ConfigSource.DEFAULT


def topic_source(setting: Setting, topic_config: TopicConfig, config: Config) -> ConfigSource:
    """Return where a topic setting's value comes from."""
    if setting.name in topic_config.own:
        return ConfigSource.DYNAMIC_TOPIC
    server_name = config.server_setting_behind(setting)
    return broker_source(server_name, config) if server_name else ConfigSource.DEFAULT


def find_topic(gateway: Gateway, name: str) -> Topic:
    """Return the topic that a resource names. Raises KafkaError."""
    topic = gateway.catalog.get(name)
    if topic is None:
        problem = name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    return topic


def check_broker(gateway: Gateway, name: str) -> None:
    """Raise KafkaError INVALID_REQUEST unless a resource names this node, or all of them ("")."""
    node_id = gateway.placement.here.node_id
    if name not in {"", str(node_id)}:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {node_id}, not {name!r}")


def unsupported_resource(resource_type: int) -> KafkaError:
    """Return the refusal of a resource that is neither a topic nor a broker."""
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"resources of type {resource_type} are not served, only topics (2) and brokers (4)",
    )


async def change_settings(
    gateway: Gateway,
    resource_type: int,
    resource_name: str,
    change: Callable[[dict[str, str]], Mapping[str, str | None]],
    *,
    validate_only: bool,
) -> None:
    """Replace a resource's own settings by what `change` makes of them, or check that it could.

    A topic's own settings; or the server settings that were changed while running, of which there
    is one set, whether the resource is this node or all of them. Raises KafkaError, StorageError.
    """
    try:
        if resource_type == ResourceType.TOPIC:
            topic = find_topic(gateway, resource_name)
            if validate_only:
                parse_own_settings(change(topic.config.own_texts()))
            else:
                await gateway.catalog.configure(topic, change)
        elif resource_type == ResourceType.BROKER:
            check_broker(gateway, resource_name)
            if validate_only:
                gateway.check_broker_config(change(gateway.dynamic_texts()))
            else:
                await gateway.configure_broker(change)
        else:
            raise unsupported_resource(resource_type)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
