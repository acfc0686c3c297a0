"""CONTRIBUTING.md says how an API and a setting are added: here both are, by these steps alone."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from kgw.config import SERVER_SETTINGS, Config, Setting
from kgw.errors import ErrorCode
from kgw.handlers.answered_by import AnsweredBy
from kgw.handlers.parts import Api
from kgw.handlers.rights import Rights
from kgw.handlers.table import HANDLERS, Handler
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kgw.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from kgw.security.acls.terms import AclOperation
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import call

if TYPE_CHECKING:
    import pytest

NAME = "kgw.example.limit"


class UnregisterBroker(Api):
    """What a module of an API holds."""

    response_type = UnregisterBrokerResponse
    rights = Rights(cluster=AclOperation.ALTER)

    def answer(self) -> UnregisterBrokerResponse:
        if self.request.broker_id == 1:
            raise ZeroDivisionError
        return UnregisterBrokerResponse(error_message=f"forgotten: {self.request.broker_id}")


async def test_an_api_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a class and a row in the table it is listed, answered, and refused when it fails."""
    module = ModuleType("kgw.handlers.unregister_broker")
    module.UnregisterBroker = UnregisterBroker  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    key = ApiKey.UNREGISTER_BROKER
    monkeypatch.setitem(HANDLERS, key, Handler(key, 0, AnsweredBy.CONTROLLER))

    async with InProcessGateway() as gateway:
        versions = await gateway.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        assert key in {one.api_key for one in versions.api_keys}
        request = UnregisterBrokerRequest(broker_id=7)
        answer = await gateway.ask(request, 0, UnregisterBrokerResponse)
        assert (0, "forgotten: 7") == (answer.error_code, answer.error_message)
        request = UnregisterBrokerRequest(broker_id=1)
        answer = await gateway.ask(request, 0, UnregisterBrokerResponse)
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        gateway.internal_errors.clear()


async def test_a_setting_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a row in the table it is described, and changes while the server runs."""
    setting = Setting(NAME, 10, "An example.", minimum=1, dynamic=True)
    monkeypatch.setitem(SERVER_SETTINGS, NAME, setting)
    async with InProcessGateway(Config()) as gateway:
        assert await described(gateway) == "10"
        assert await altered(gateway, "0") == ErrorCode.INVALID_CONFIG
        assert await altered(gateway, "20") == ErrorCode.NONE
        assert await described(gateway) == "20"
        assert gateway.config.get(NAME) == 20


async def described(gateway: InProcessGateway) -> str | None:
    """Return the value that DescribeConfigs has for the setting."""
    resource = {"resource_type": 4, "resource_name": "0", "configuration_keys": [NAME]}
    response = await call(gateway, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])
    value: str | None = response.results[0].configs[0].value
    return value


async def altered(gateway: InProcessGateway, value: str) -> int:
    """Set the setting while the server runs, and return the code of the answer."""
    configs = [{"name": NAME, "value": value}]
    resource = {"resource_type": 4, "resource_name": "0", "configs": configs}
    response = await call(gateway, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    code: int = response.responses[0].error_code
    return code
