"""Each API is tried once allowed and once denied, by clients that have logged in."""

from __future__ import annotations

import pytest

from kgw.errors import ErrorCode
from kgw.handlers.table import HANDLERS
from tests.handlers.access_requests import SCENARIOS, Scenario
from tests.handlers.access_tried import tried
from tests.handlers.test_access import DENIALS, is_denied

SERVED = [one for one in SCENARIOS if one.served]
DENIED = {ErrorCode(code).name for code in DENIALS}


def test_every_api_is_tried() -> None:
    """But for those that ask for no right."""
    asking = {key for key, handler in HANDLERS.items() if handler.api.rights.asked()}
    assert asking == {one.api for one in SERVED}


@pytest.mark.parametrize("scenario", SERVED, ids=lambda one: f"{one.api.name}-{one.name}")
async def test_a_login_gives_the_principal_that_is_asked_for(scenario: Scenario) -> None:
    """A client that no rule mentions is refused, and sees nothing; a super user is not refused."""
    found = await tried(scenario)
    assert is_denied(scenario, scenario.checks[0], found.denied, found.version)
    assert DENIED.issuperset(found.codes(found.denied))
    assert DENIED.isdisjoint(found.codes(found.allowed))
    assert not any(
        is_denied(scenario, one, found.allowed, found.version) for one in scenario.checks
    )
