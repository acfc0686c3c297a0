"""AlterConfigs, key 33, versions 0 to 2: replace all settings of a topic, or of the broker.

Behaviour:
- what the request leaves out goes back to its default, as it has always been for this API;
  IncrementalAlterConfigs is the one that leaves the rest alone;
- a topic's settings, and the broker's that can change while it runs; unknown ones, and values that
  are not served, are refused with INVALID_CONFIG, and nothing of that resource is changed;
- a resource or a setting twice is INVALID_REQUEST. Durable before it is answered.

v0: KIP-133. v2: flexible (KIP-482).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.handlers.config_resources import change_settings
from kgw.protocol.messages.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.handlers.context import RequestContext
    from kgw.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    counts = Counter((one.resource_type, one.resource_name) for one in request.resources)
    response = AlterConfigsResponse()
    for resource in request.resources:
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "the request names this resource more than once"
                )
            await _replace(resource, context, validate_only=request.validate_only)
        except KafkaError as error:
            answer = _answer(resource, error.code, error.message)
        except StorageError as error:
            answer = _answer(resource, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        else:
            answer = _answer(resource, ErrorCode.NONE, None)
        response.responses.append(answer)
    return response


def error_response(
    request: AlterConfigsRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[_answer(resource, code, message) for resource in request.resources]
    )


async def _replace(
    resource: AlterConfigsResource, context: RequestContext, *, validate_only: bool
) -> None:
    texts = {setting.name: setting.value for setting in resource.configs}
    if len(texts) != len(resource.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request has a setting more than once")
    for name, text in texts.items():
        if text is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: a null value is refused")

    def change(_: dict[str, str]) -> Mapping[str, str | None]:
        return texts

    await change_settings(
        context.gateway,
        resource.resource_type,
        resource.resource_name,
        change,
        validate_only=validate_only,
    )


def _answer(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
