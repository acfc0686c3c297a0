from __future__ import annotations

from hashlib import sha256

import pytest

from kgw.state.sql.migrations import MIGRATIONS

RELEASED = {
    1: "0c86a0d11cf2038b615af5732488bfb92fd0c60d6704481d94ea21fa573f9a91",
}
"""The SQLite half of every step that a release has taken."""


def test_steps_are_numbered_without_a_gap() -> None:
    """Their numbers are their order."""
    assert list(range(1, len(MIGRATIONS) + 1)) == [step.number for step in MIGRATIONS]


def test_every_step_is_there_for_every_database() -> None:
    """A step that one of them lacks would leave its schema behind the program."""
    assert all(
        step.sqlite and step.postgresql and step.mysql
        for step in MIGRATIONS
        # A server notices itself what its log has lost; a new kind of rows changes no table.
        if step.name not in {"commit-count", "offset-blocks", "pending-offsets"}
    )


@pytest.mark.parametrize("number", RELEASED)
def test_a_released_step_is_never_edited(number: int) -> None:
    """A database that has taken it would differ from one that is created today."""
    statements = "\n".join(MIGRATIONS[number - 1].sqlite)

    assert RELEASED[number] == sha256(statements.encode()).hexdigest()
