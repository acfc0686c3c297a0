"""Access rules and users through the admin clients of franz-go and sarama, on SASL_SSL.

The tests that these libraries have of their own ask no server about rules (docs/clients).
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.secured import ADMIN, SecuredGateway, password_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

PROGRAM = Path(__file__).parent / "go" / "bin" / "rules"
ADDED = [
    "TOPIC orders- PREFIXED User:alice * DESCRIBE ALLOW",
    "TOPIC orders- PREFIXED User:alice * READ ALLOW",
    "TOPIC orders- PREFIXED User:bob 192.0.2.1 ALL DENY",
]
NO_RIGHT = r"CLUSTER_AUTHORIZATION_FAILED|not authorized to send this request type"
NO_LOGIN = r"SASL_AUTHENTICATION_FAILED|SASL Authentication failed"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredGateway]:
    """A gateway with logins and access rules."""
    with SecuredGateway(tmp_path_factory.mktemp("secured")) as gateway:
        yield gateway


@pytest.mark.parametrize("library", ["franz-go", "sarama"])
def test_rules_and_users(secured: SecuredGateway, library: str) -> None:
    """They are added, listed and removed; a user without the right, or unknown, is refused."""
    trusted = str(secured.folder / "trusted.pem")
    done = subprocess.run(
        [PROGRAM, library, secured.address("SASL_SSL"), trusted, ADMIN, password_of(ADMIN)],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert 0 == done.returncode, done.stderr
    result = json.loads(done.stdout)
    right, wrong, gone = (result.pop(name) for name in ("right", "wrong", "gone"))
    assert {"added": ADDED, "removed": 3, "left": 0, "described": "SCRAM-SHA-256 8192"} == result
    assert re.search(NO_RIGHT, right), right
    assert re.search(NO_LOGIN, wrong), wrong
    assert re.search(NO_LOGIN, gone), gone
