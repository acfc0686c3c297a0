"""Many logins with a user and a password at the same time."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import Counter

import pytest

from kgw.config import Config
from kgw.security.login_refusals import LoginUnavailableError
from kgw.security.principal import Principal
from kgw.server.password_logins import PasswordLogins
from kgw.testing.gateway import InProcessGateway
from tests.handlers.logins import add_user

ALICE = b64encode(b"alice:secret")


@pytest.mark.slow
async def test_more_than_can_be_hashed() -> None:
    """Two hundred wait for their hash; one more is told to try again, and none is lost."""
    async with InProcessGateway(Config.of(admin_login=True)) as gateway:
        await add_user(gateway, "alice", "secret")
        logins = PasswordLogins(gateway.gateway, "test")
        found = await asyncio.gather(
            *(logins.principal_of(ALICE, f"10.0.0.{number}") for number in range(201)),
            return_exceptions=True,
        )
        assert Counter({Principal: 200, LoginUnavailableError: 1}) == Counter(map(type, found))
        assert Principal("User", "alice") == await logins.principal_of(ALICE, "10.0.0.1")


async def test_the_log_names_the_listener(caplog: pytest.LogCaptureFixture) -> None:
    """Control characters in the name of a user reach no terminal; they stay in a field."""
    config = Config.of(admin_login=True, connection_failed_authentication_delay_ms=0)
    async with InProcessGateway(config) as gateway:
        await gateway.gateway.load_credentials()
        logins = PasswordLogins(gateway.gateway, "test")
        with pytest.raises(Exception, match="invalid credentials"):
            await logins.principal_of(b64encode(b"a\x1b[31m:secret"), "10.0.0.1")
    (line,) = [one for one in caplog.records if one.getMessage() == "a login failed"]
    fields = line.kgw_fields  # type: ignore[attr-defined]
    assert ("test", "a\x1b[31m") == (fields["listener"], fields["user"])
    assert "secret" not in str(vars(line))
