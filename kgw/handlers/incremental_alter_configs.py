"""IncrementalAlterConfigs, key 44, versions 0 and 1: change single settings.

Behaviour:
- the operations are SET, DELETE (back to the default), and for lists APPEND and SUBTRACT, which are
  INVALID_CONFIG for settings of other types;
- can change the settings of topics, and the broker settings that can change at run time. If a
  setting is unknown or its value is not supported, the resource is refused with INVALID_CONFIG, and
  none of its settings changes;
- a resource or a setting that is named twice, and a null value, are INVALID_REQUEST, whether the
  client has the right or not. Changes are durable before the answer.

v0: KIP-339. v1: flexible (KIP-482).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from kgw.config import SERVER_SETTINGS, TOPIC_SETTINGS, SettingType
from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.config_resources import ChangeConfigs, ConfigResourceType, rights_on_configs
from kgw.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.config import Setting
    from kgw.partitions.topics.manager import ConfigChange
    from kgw.protocol.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
    )


class Operation(IntEnum):
    """What to do with a setting, by Kafka's number."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class IncrementalAlterConfigs(ChangeConfigs):
    response_type = IncrementalAlterConfigsResponse
    rights = rights_on_configs(AclOperation.ALTER_CONFIGS)

    def needs_value(self, setting: AlterableConfig) -> bool:
        return setting.config_operation != Operation.DELETE

    def change(self, asked: AlterConfigsResource) -> ConfigChange:
        is_topic = asked.resource_type == ConfigResourceType.TOPIC
        settings = TOPIC_SETTINGS if is_topic else SERVER_SETTINGS

        def change(texts: dict[str, str]) -> dict[str, str | None]:
            changed: dict[str, str | None] = dict(texts)
            for setting in asked.configs:
                if setting.config_operation == Operation.DELETE:
                    _check_known(setting.name, settings)
                    changed.pop(setting.name, None)
                elif setting.config_operation == Operation.SET:
                    changed[setting.name] = setting.value
                else:
                    _check_list(setting, settings)
                    text = texts.get(setting.name)
                    if text is None:
                        text = self._default(setting.name, is_topic=is_topic)
                    changed[setting.name] = _changed_list(setting, text)
            return changed

        return change

    def _default(self, name: str, *, is_topic: bool) -> str:
        """Return the value of a list setting that the resource itself has not set."""
        config = self.gateway.config
        if is_topic:
            return TOPIC_SETTINGS[name].format(config.topic_default(name))
        return SERVER_SETTINGS[name].format(config.get(name))


def _check_known(name: str, settings: Mapping[str, Setting]) -> None:
    if name not in settings:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown setting {name}")


def _check_list(setting: AlterableConfig, settings: Mapping[str, Setting]) -> None:
    """Raise KafkaError unless the operation is a list operation and the setting is a list."""
    if setting.config_operation not in {Operation.APPEND, Operation.SUBTRACT}:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"operation {setting.config_operation} is unknown"
        )
    _check_known(setting.name, settings)
    if settings[setting.name].type is not SettingType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{setting.name} is not a list to append to or subtract from"
        )


def _changed_list(setting: AlterableConfig, text: str) -> str:
    items = [item for item in text.split(",") if item]
    named = [item.strip() for item in (setting.value or "").split(",") if item.strip()]
    if setting.config_operation == Operation.APPEND:
        items.extend(item for item in named if item not in items)
    else:
        items = [item for item in items if item not in named]
    return ",".join(items)
