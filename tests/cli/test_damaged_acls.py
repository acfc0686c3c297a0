"""Access rules that cannot be read are deleted without a server, as none starts with them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.offline.opening import opened_state
from kgw.cli.shared.errors import ExitCode
from kgw.errors import StorageError
from kgw.metrics import Metrics
from kgw.security.access import Access
from kgw.security.acls.binding import AclBinding
from kgw.security.acls.terms import AclOperation, PatternType, PermissionType, ResourceType
from kgw.security.audit import Audit
from kgw.state.base import Change
from kgw.state.kinds import ACCESS_RULE
from kgw.testing.process import GatewayProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Commands

pytestmark = pytest.mark.damages_storage("rows of access rules")

RULES = [
    AclBinding(
        ResourceType.TOPIC,
        name,
        PatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        PermissionType.DENY,
    )
    for name in ("orders", "kept")
]
FAILS = "its row fails the checksum"


def access() -> Access:
    """Return access rules that are not loaded yet."""
    return Access(["User:admin"], Audit(Metrics(), lambda: 0.0))


@pytest.fixture
def data_dir(tmp_path: Path, offline: Commands) -> Path:
    """A data directory with a good rule, one with a flipped bit and one of another program."""
    data = tmp_path / "data"
    password = tmp_path / "password"
    password.write_text("secret\n")
    password.chmod(0o600)
    given = ("--password-file", str(password), "--data-dir", str(data))
    assert ExitCode.OK == offline.run("users", "add", "admin", *given).exit_code

    async def add() -> None:
        async with opened_state(str(data)) as state:
            rules = access()
            await rules.open(state)
            await rules.add(RULES)
            await state.apply([Change(ACCESS_RULE, "other", b'{"type":"\x07"}')])

    asyncio.run(add())
    with closing(sqlite3.connect(data / "meta.sqlite")) as database, database:
        database.execute(
            "UPDATE state_entry SET checksum = checksum + 1 "
            "WHERE kind = ? AND CAST(entry_value AS TEXT) LIKE '%orders%'",
            (ACCESS_RULE,),
        )
    return data


def stored(data_dir: Path) -> list[AclBinding]:
    """Load the rules as a start does. Raises StorageError."""

    async def load() -> list[AclBinding]:
        async with opened_state(str(data_dir)) as state:
            rules = access()
            await rules.open(state)
            return rules.bindings()

    return asyncio.run(load())


def test_damaged_rules_are_shown_and_deleted(data_dir: Path, offline: Commands) -> None:
    """What can be read of them is printed, and the other rules stay."""
    where = ("--damaged", "--data-dir", str(data_dir))
    with pytest.raises(StorageError, match=r"and 1 more; .*`kgw acls delete --damaged --data-dir"):
        stored(data_dir)
    shown = offline.json("acls", "delete", *where, "--dry-run")
    assert {FAILS} < {one["why"] for one in shown}
    (flipped,) = [one for one in shown if one["why"] == FAILS]
    assert ("DENY", "orders", "User:alice") == tuple(
        json.loads(flipped["content"])[name] for name in ("permission", "name", "principal")
    )
    with pytest.raises(StorageError):
        stored(data_dir)
    deleted = offline.succeed("acls", "delete", *where, "-y")
    assert 2 == deleted.count("Deleted: damaged rule ")
    assert '"name":"orders"' in deleted.replace('": "', '":"')
    assert "\x07" not in deleted
    assert RULES[1:] == stored(data_dir)
    again = offline.run("acls", "delete", *where, "-y")
    assert (ExitCode.OK, "There are no damaged access rules.\n") == (again.exit_code, again.stderr)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--damaged",), "need each other"),
        (("--data-dir", "somewhere"), "need each other"),
        (("--damaged", "--data-dir", "somewhere", "--topic", "a"), "give no other option"),
        (("--damaged", "--data-dir", "somewhere", "-b", "127.0.0.1:1"), "exclude each other"),
    ],
)
def test_options_that_do_not_fit(offline: Commands, options: list[str], problem: str) -> None:
    """Nothing is deleted by a command that could mean two things."""
    refused = offline.run("acls", "delete", "-y", *options)
    assert ExitCode.USAGE == refused.exit_code
    assert problem in refused.stderr


@pytest.mark.parametrize("place", ["nothing-here", "seaweedmq://127.0.0.1:1/orders"])
def test_a_place_that_is_none(tmp_path: Path, offline: Commands, place: str) -> None:
    """It is told in one line."""
    where = place if "://" in place else str(tmp_path / place)
    refused = offline.run("acls", "delete", "--damaged", "--data-dir", where, "-y")
    assert refused.exit_code not in {ExitCode.OK, ExitCode.USAGE}
    assert 1 == refused.stderr.count("\n")
    assert refused.stderr.startswith("error: ")


@pytest.mark.slow
def test_a_server_starts_again(data_dir: Path, offline: Commands) -> None:
    """Its error names the command, which is refused while a server runs."""
    where = ("--damaged", "--data-dir", str(data_dir), "-y")
    gateway = GatewayProcess(data_dir, "super.users=User:admin")
    with pytest.raises(RuntimeError, match="kgw acls delete --damaged --data-dir"):
        gateway.start()
    offline.succeed("acls", "delete", *where)
    with gateway:
        assert "is in use" in offline.run("acls", "delete", *where).stderr
