"""Every API asks for the rights that Kafka 4.4 asks for, and refuses where Kafka refuses.

`api_table` has the rights; `access_requests` has a request for each of them.
"""

from __future__ import annotations

from re import sub
from typing import TYPE_CHECKING, Any

import pytest

from kgw.handlers.parts import Api
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.heartbeat import HeartbeatResponse
from kgw.security.acls.terms import AclOperation, ResourceType
from tests.handlers.access_requests import (
    NEW,
    SCENARIOS,
    TOPIC,
    UNMET,
    Guarded,
    Names,
    Scenario,
    codes_at,
)
from tests.security.oracle.api_table import BY_KEY, ERROR_CODES, Check, Error, Place, Right
from tests.security.oracle.oracle import Operation
from tests.security.oracle.oracle import ResourceType as OracleType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.protocol.schema import Response

EVERYTHING = [Right(Operation.ALL, of, "") for of in OracleType]
DENIALS = {code for error, code in ERROR_CODES.items() if error != Error.NONE}

LISTED = {
    ApiKey.METADATA: lambda response: response.topics,
    ApiKey.OFFSET_FETCH: lambda response: (response.groups or [response])[0].topics,
    ApiKey.LIST_GROUPS: lambda response: response.groups,
    ApiKey.DESCRIBE_TRANSACTIONS: lambda response: response.transaction_states[0].topics,
    ApiKey.LIST_TRANSACTIONS: lambda response: response.transaction_states,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda response: response.topics,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: lambda response: response.tokens,
}
"""By API: the entries that are left out without the right."""

OF_KGW = {ApiKey.DESCRIBE_CONFIGS: {(AclOperation.DESCRIBE, ResourceType.GROUP)}}
"""By API: rights for answers that Kafka does not give."""

CHECKS = [
    pytest.param(scenario, number, id=f"{scenario.api.name}-{scenario.name}-{number}")
    for scenario in SCENARIOS
    for number in scenario.checks
    if scenario.served
]


def place_of(scenario: Scenario, check: Check, version: int) -> Place:
    """Return where the answer of a version says that a right is missing."""
    api = scenario.api
    if api is ApiKey.OFFSET_FETCH and check.place == Place.GROUP and version < 8:
        return Place.RESPONSE if version >= 2 else Place.PARTITION
    if api is ApiKey.FIND_COORDINATOR and version < 4:
        return Place.RESPONSE
    if api is ApiKey.ELECT_LEADERS and version == 0:
        return Place.EVERY_ENTRY
    return check.place


def is_denied(scenario: Scenario, number: int, response: Any, version: int) -> bool:
    """Return whether a response refuses as the table says; False if it refuses nothing there."""
    check = scenario.check(number)
    place = place_of(scenario, check, version)
    if place == Place.OMITTED:
        return not LISTED[scenario.api](response)
    if place == Place.ZERO_BITS:
        return bool(response.cluster_authorized_operations == 0)
    code = ERROR_CODES[check.error]
    found = codes_at(place, response, version)
    if scenario.api is ApiKey.DESCRIBE_LOG_DIRS and version < 3:
        # The versions have no code for it: the list is empty.
        return not response.results
    assert found, response
    is_refused = set(found) == {code}
    assert is_refused or DENIALS.isdisjoint(found), response
    return is_refused


def other_rights(scenario: Scenario, number: int) -> Iterator[Right]:
    """Yield what a client needs for the other checks of a scenario."""
    for other in scenario.checks:
        if other != number:
            yield scenario.check(other).rights[0]


async def answer(gateway: Guarded, scenario: Scenario, version: int) -> Response:
    """Send the request of a scenario, and return the response."""
    return await gateway.request(scenario.request(gateway.names, version), version)


# --- the table -----------------------------------------------------------------------------------


def test_every_check_is_met() -> None:
    """Each check of each API that is served has a request that meets it, or a reason."""
    met = {(one.api, number) for one in SCENARIOS if one.served for number in one.checks}
    known = {(ApiKey(key), n) for key in HANDLERS for n in range(len(BY_KEY[key].checks))}
    assert known == met | UNMET.keys()
    assert met.isdisjoint(UNMET)


@pytest.mark.parametrize("api", [ApiKey(key) for key in HANDLERS], ids=lambda one: one.name)
def test_every_api_declares_its_rights(api: ApiKey) -> None:
    """They are those of the table, but for checks that no request can meet, and rights of kgw."""
    asked = {
        (AclOperation[right.operation], ResourceType[right.resource_type])
        for number, check in enumerate(BY_KEY[api].checks)
        if (api, number) not in UNMET
        for right in check.rights
    }
    assert asked | OF_KGW.get(api, set()) == HANDLERS[api].api.rights.asked()


def test_an_api_that_declares_nothing_is_refused() -> None:
    """Its module cannot be imported: nobody forgets the rights of a new API."""
    with pytest.raises(TypeError, match="Silent does not declare which rights it asks for"):
        type("Silent", (Api,), {"response_type": HeartbeatResponse})


@pytest.mark.parametrize(("scenario", "number"), CHECKS)
async def test_a_missing_right_is_refused(scenario: Scenario, number: int) -> None:
    """In every version, where the table says, with its code; and nothing has changed.

    The client has every other right, so that no weaker or stronger one is enough.
    """
    check = scenario.check(number)
    for version in scenario.served:
        async with Guarded() as gateway:
            await gateway.permit(*EVERYTHING)
            await gateway.permit(*check.rights, deny=True)
            before = await gateway.stored()
            response = await answer(gateway, scenario, version)
            assert is_denied(scenario, number, response, version)
            if check.place != Place.TOPIC_CONFIGS:
                assert before == await gateway.stored()
            assert {} == gateway.internal_errors


@pytest.mark.parametrize(("scenario", "number"), CHECKS)
async def test_one_of_the_rights_is_enough(scenario: Scenario, number: int) -> None:
    """Each right of a check by itself, in every version."""
    for version in scenario.served:
        for right in scenario.check(number).rights:
            async with Guarded() as gateway:
                await gateway.permit(*other_rights(scenario, number), right)
                response = await answer(gateway, scenario, version)
                assert not is_denied(scenario, number, response, version)
                assert {} == gateway.internal_errors


@pytest.mark.parametrize(
    "scenario",
    [one for one in SCENARIOS if one.served],
    ids=lambda one: f"{one.api.name}-{one.name}",
)
async def test_without_rules_the_first_check_refuses(scenario: Scenario) -> None:
    """A client that no rule mentions may do nothing; a super user everything."""
    version = scenario.served[-1]
    async with Guarded() as gateway:
        before = await gateway.stored()
        response = await answer(gateway, scenario, version)
        assert is_denied(scenario, scenario.checks[0], response, version)
        assert before == await gateway.stored()
        gateway.session = gateway.admin
        response = await answer(gateway, scenario, version)
        assert not any(is_denied(scenario, one, response, version) for one in scenario.checks)
        assert {} == gateway.internal_errors


def asks_for_topics(check: Check) -> bool:
    """Return whether a check is about a topic."""
    return any(right.resource_type == ResourceType.TOPIC.name for right in check.rights)


BY_NAME = [
    one
    for one in SCENARIOS
    if one.served
    and TOPIC in repr(one.request(Names(), one.served[0]))
    and any(asks_for_topics(one.check(number)) for number in one.checks)
]


@pytest.mark.parametrize("scenario", BY_NAME, ids=lambda one: f"{one.api.name}-{one.name}")
async def test_a_name_is_not_revealed(scenario: Scenario) -> None:
    """A topic that exists and a topic that does not are answered alike, to a client without rights.

    The client has every right but those on topics. Ids are not secret.
    """
    for version in scenario.served:
        async with Guarded() as gateway:
            for check in map(scenario.check, scenario.checks):
                if not asks_for_topics(check):
                    await gateway.permit(check.rights[0])
            texts = []
            for name in (TOPIC, NEW):
                request = scenario.request(Names(name), version)
                response = await gateway.request(request, version)
                texts.append(sub("<memory at [^>]*>", "", repr(response)).replace(name, "?"))
            assert texts[0] == texts[1]
