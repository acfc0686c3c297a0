"""Each API, asked by a client that no rule mentions and by a super user, both after their login.

`scripts/docs.py` prints the answers in docs/reference/rights.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import ErrorCode
from kgw.protocol.codec import codec
from tests.handlers.access_requests import ADMIN, ALICE, SCENARIOS, Guarded
from tests.handlers.logins import LoginClient, add_user

if TYPE_CHECKING:
    from kgw.protocol.schema import Response
    from tests.handlers.access_requests import Scenario


class Tried(NamedTuple):
    """The answers to one request."""

    scenario: Scenario
    version: int
    denied: Response
    """The answer to the client that no rule mentions."""
    allowed: Response
    """The answer to the super user."""

    def codes(self, response: Response) -> list[str]:
        """Return the names of the error codes in one of the answers; none for an answer without."""
        find = codec(type(response), self.version).find_error_codes
        return sorted({ErrorCode(code).name for code in find((response,))})


async def tried(scenario: Scenario) -> Tried:
    """Log in two clients at a listener with SCRAM, and send the newest version as each of them."""
    version = scenario.served[-1]
    async with Guarded() as guarded:
        answers: list[Response] = []
        for principal in (ALICE, ADMIN):
            await add_user(guarded, principal.name)
            client = LoginClient(guarded)
            await client.log_in("SCRAM-SHA-256", principal.name)
            request = scenario.request(guarded.names, version)
            answer = await guarded.start(request, version, session=client.session).response()
            assert answer is not None
            answers.append(answer)
        assert {} == guarded.internal_errors
        return Tried(scenario, version, *answers)


async def all_tried() -> list[Tried]:
    """Try each request of `SCENARIOS` that is served, by API."""
    served = [one for one in SCENARIOS if one.served]
    return [await tried(one) for one in sorted(served, key=lambda one: int(one.api))]
