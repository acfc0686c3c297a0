"""IncrementalAlterConfigs, key 44, versions 0 and 1: change some settings, leave the rest.

Behaviour:
- SET, DELETE (back to the default), and for lists APPEND and SUBTRACT, which are INVALID_CONFIG for
  other types;
- a topic's settings, and the broker's that can change while it runs; unknown ones, and values that
  are not served, are refused with INVALID_CONFIG, and nothing of that resource is changed;
- a resource or a setting twice is INVALID_REQUEST. Durable before it is answered.

v0: KIP-339. v1: flexible (KIP-482).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from kgw.config import SERVER_SETTINGS, TOPIC_SETTINGS, SettingType
from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.config_resources import ResourceType, change_resources, refuse_resources
from kgw.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.config import Setting
    from kgw.handlers.context import RequestContext
    from kgw.partitions.topics.catalog import ConfigChange
    from kgw.protocol.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )


class Operation(IntEnum):
    """What to do to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=await change_resources(
            request,
            context,
            AlterConfigsResourceResponse,
            lambda resource: _change(resource, context),
        )
    )


def error_response(
    request: IncrementalAlterConfigsRequest,
    code: ErrorCode,
    message: str | None,
    context: RequestContext,
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=refuse_resources(request, AlterConfigsResourceResponse, code, message)
    )


def _change(resource: AlterConfigsResource, context: RequestContext) -> ConfigChange:
    config = context.gateway.config
    settings = TOPIC_SETTINGS if resource.resource_type == ResourceType.TOPIC else SERVER_SETTINGS

    def current(name: str, texts: dict[str, str]) -> str:
        """Return a list setting's effective value, to which APPEND and SUBTRACT apply."""
        if name in texts:
            return texts[name]
        if resource.resource_type == ResourceType.TOPIC:
            return TOPIC_SETTINGS[name].format(config.topic_default(name))
        return SERVER_SETTINGS[name].format(config.get(name))

    def change(texts: dict[str, str]) -> dict[str, str | None]:
        changed: dict[str, str | None] = dict(texts)
        for setting in resource.configs:
            if setting.config_operation == Operation.DELETE:
                _check_known(setting.name, settings)
                changed.pop(setting.name, None)
            elif setting.value is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{setting.name}: a null value is refused"
                )
            elif setting.config_operation == Operation.SET:
                changed[setting.name] = setting.value
            else:
                _check_list(setting, settings)
                changed[setting.name] = _changed_list(setting, current(setting.name, texts))
        return changed

    return change


def _check_known(name: str, settings: Mapping[str, Setting]) -> None:
    if name not in settings:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown setting {name}")


def _check_list(setting: AlterableConfig, settings: Mapping[str, Setting]) -> None:
    """Raise KafkaError unless the operation is one on lists, and the setting is one."""
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
