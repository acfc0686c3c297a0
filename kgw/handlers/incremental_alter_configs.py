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

from collections import Counter
from enum import IntEnum
from typing import TYPE_CHECKING

from kgw.config import SERVER_SETTINGS, TOPIC_SETTINGS, SettingType
from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.handlers.config_resources import ResourceType, change_settings
from kgw.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
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
    counts = Counter((one.resource_type, one.resource_name) for one in request.resources)
    response = IncrementalAlterConfigsResponse()
    for resource in request.resources:
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "the request names this resource more than once"
                )
            await _change(resource, context, validate_only=request.validate_only)
        except KafkaError as error:
            answer = _answer(resource, error.code, error.message)
        except StorageError as error:
            answer = _answer(resource, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        else:
            answer = _answer(resource, ErrorCode.NONE, None)
        response.responses.append(answer)
    return response


def error_response(
    request: IncrementalAlterConfigsRequest,
    code: ErrorCode,
    message: str | None,
    context: RequestContext,
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[_answer(resource, code, message) for resource in request.resources]
    )


async def _change(
    resource: AlterConfigsResource, context: RequestContext, *, validate_only: bool
) -> None:
    if len({setting.name for setting in resource.configs}) != len(resource.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request has a setting more than once")
    config = context.gateway.config

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
                _check_known(setting.name, resource.resource_type)
                changed.pop(setting.name, None)
            elif setting.value is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{setting.name}: a null value is refused"
                )
            elif setting.config_operation == Operation.SET:
                changed[setting.name] = setting.value
            else:
                _check_list(setting, resource.resource_type)
                changed[setting.name] = _changed_list(setting, current(setting.name, texts))
        return changed

    await change_settings(
        context.gateway,
        resource.resource_type,
        resource.resource_name,
        change,
        validate_only=validate_only,
    )


def _check_known(name: str, resource_type: int) -> None:
    settings = TOPIC_SETTINGS if resource_type == ResourceType.TOPIC else SERVER_SETTINGS
    if name not in settings:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown setting {name}")


def _check_list(setting: AlterableConfig, resource_type: int) -> None:
    """Raise KafkaError unless the operation is one on lists, and the setting is one."""
    if setting.config_operation not in {Operation.APPEND, Operation.SUBTRACT}:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"operation {setting.config_operation} is unknown"
        )
    _check_known(setting.name, resource_type)
    settings = TOPIC_SETTINGS if resource_type == ResourceType.TOPIC else SERVER_SETTINGS
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


def _answer(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
