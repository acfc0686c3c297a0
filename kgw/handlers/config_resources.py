"""Resources, the sources of their values, and changes of settings: shared by the config APIs."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from kgw.config import ConfigError
from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.parts import AnswerByItem, Repeated
from kgw.handlers.rights import Rights
from kgw.partitions.topic_config import parse_own_settings
from kgw.partitions.topics.topic import name_problem
from kgw.security.acls.terms import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from kgw.config import Config, Setting
    from kgw.gateway import Gateway
    from kgw.handlers.parts import Api
    from kgw.partitions.topic_config import TopicConfig
    from kgw.partitions.topics.manager import ConfigChange
    from kgw.partitions.topics.topic import Topic


class ConfigResourceType(IntEnum):
    """The type of a resource, by Kafka's number. Groups have entries that are no settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a setting's value, by Kafka's number (KIP-226)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


_PROTECTED = {
    ConfigResourceType.TOPIC: ResourceType.TOPIC,
    ConfigResourceType.GROUP: ResourceType.GROUP,
    ConfigResourceType.BROKER: ResourceType.CLUSTER,
    ConfigResourceType.BROKER_LOGGER: ResourceType.CLUSTER,
    ConfigResourceType.CLIENT_METRICS: ResourceType.CLUSTER,
}
"""The type of the resource in access rules, by the type of the resource with settings."""


def rights_on_configs(
    operation: AclOperation, *others: tuple[AclOperation, ResourceType]
) -> Rights:
    """Return the rights of an API that performs an operation on the settings of resources.

    `others` are further rights that the API asks for.
    """
    types = dict.fromkeys(_PROTECTED.values())
    return Rights(others=(*((operation, resource_type) for resource_type in types), *others))


def check_rights_on_configs(api: Api, operation: AclOperation, asked: Any) -> None:
    """Raise KafkaError if the client may not perform an operation on the settings of a resource.

    No right is asked for a resource of an unknown type, which is refused.
    """
    resource_type = _PROTECTED.get(asked.resource_type)
    if resource_type is not None:
        is_cluster = resource_type is ResourceType.CLUSTER
        name = CLUSTER_NAME if is_cluster else asked.resource_name
        api.authorize(operation, resource_type, name)


# Kafka 4.1 and newer set it for all brokers when the storage is formatted (KIP-966), and it cannot
# be removed.
_SET_FOR_ALL = frozenset({"min.insync.replicas"})


def dynamic_source(name: str, config: Config) -> ConfigSource | None:
    """Return the source of a server setting that was changed at run time; None for others."""
    if name in _SET_FOR_ALL:
        return ConfigSource.DYNAMIC_DEFAULT_BROKER
    return ConfigSource.DYNAMIC_BROKER if name in config.dynamic else None


def topic_source(setting: Setting, topic_config: TopicConfig, config: Config) -> ConfigSource:
    """Return the source of a topic setting's value."""
    if setting.name in topic_config.own:
        return ConfigSource.DYNAMIC_TOPIC
    server_name = config.server_setting_behind(setting)
    dynamic = dynamic_source(server_name, config)
    if dynamic is not None:
        return dynamic
    if config.is_given(server_name):
        return ConfigSource.STATIC_BROKER
    return ConfigSource.DEFAULT


def find_topic(gateway: Gateway, name: str) -> Topic:
    """Return the topic of a resource. Raises KafkaError."""
    topic = gateway.catalog.get(name)
    if topic is None:
        problem = name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    return topic


def check_broker(gateway: Gateway, name: str) -> None:
    """Raise KafkaError INVALID_REQUEST unless a resource names this node, or all nodes ("")."""
    node_id = gateway.placement.here.node_id
    if name not in {"", str(node_id)}:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {node_id}, not {name!r}")


def check_logger_owner(gateway: Gateway, name: str) -> None:
    """Raise KafkaError INVALID_REQUEST unless a resource names this node, the loggers' owner."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "loggers belong to one broker: name it")
    check_broker(gateway, name)


def unsupported_resource(resource_type: int) -> KafkaError:
    """Return the refusal of a resource that is neither a topic nor a broker."""
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"resources of type {resource_type} are not served, only topics (2) and brokers (4)",
    )


class ChangeConfigs(AnswerByItem):
    """Changes the settings of each resource, or only checks the changes."""

    parts = {"responses": "resources"}
    repeated = Repeated.EACH_REFUSED
    waits = True
    one_by_one = True
    per_turn = 200

    def begin(self, asked: Any) -> Any:
        # As in Kafka, before the right is asked for: the errors tell nothing of the resource.
        if len({setting.name for setting in asked.configs}) != len(asked.configs):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the request has a setting more than once")
        for setting in asked.configs:
            if setting.value is None and self.needs_value(setting):
                text = f"{setting.name}: a null value is refused"
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        return super().begin(asked)

    def needs_value(self, setting: Any) -> bool:
        """Return whether a setting of the request must have a value."""
        return True

    def check_item_rights(self, asked: Any) -> None:
        check_rights_on_configs(self, AclOperation.ALTER_CONFIGS, asked)

    def change(self, asked: Any) -> ConfigChange:
        """Return the function that changes the settings of a resource. Raises KafkaError."""
        raise NotImplementedError

    async def item(self, asked: Any) -> Any:
        try:
            await self._change(asked, self.change(asked))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return self.item_type(
            error_message=None,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )

    async def _change(self, asked: Any, change: ConfigChange) -> None:
        """Change the settings of a topic, or the dynamic server settings.

        There is one set of dynamic server settings, for this node and for all nodes.
        """
        gateway, name = self.gateway, asked.resource_name
        if asked.resource_type == ConfigResourceType.TOPIC:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of a topic is empty")
            if not all(setting.name for setting in asked.configs):
                raise KafkaError(ErrorCode.INVALID_CONFIG, "the name of a setting is empty")
            topic = find_topic(gateway, name)
            topic.check_own(ErrorCode.POLICY_VIOLATION)
            if self.request.validate_only:
                parse_own_settings(change(topic.config.own_texts()))
            else:
                await gateway.topic_manager.configure(topic, change)
        elif asked.resource_type == ConfigResourceType.BROKER:
            check_broker(gateway, name)
            if self.request.validate_only:
                gateway.check_broker_config(change(gateway.dynamic_texts()))
            else:
                await gateway.configure_broker(change)
        elif asked.resource_type == ConfigResourceType.BROKER_LOGGER:
            check_logger_owner(gateway, name)
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "kgw.log.level sets the level of all loggers, at the start",
            )
        elif asked.resource_type == ConfigResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of a group is empty")
            for setting in change({}):
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, f"a group has no settings, so no {setting}"
                )
        else:
            raise unsupported_resource(asked.resource_type)
