"""A server without a disk, and commands run against it in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import Commands
from tests.client.serving import ServerThread
from tests.migrate.migration import Migration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def kgw() -> Iterator[Commands]:
    """Commands with a server for each test: groups go by the names that the old scheme gave."""
    with ServerThread() as thread:
        yield Commands(thread.address)


@pytest.fixture
def offline() -> Commands:
    """Commands that find no server."""
    return Commands("127.0.0.1:1")


@pytest.fixture
def migration(kgw: Commands, tmp_path: Path) -> Migration:
    """A migration with all records in the gateway."""
    return Migration(kgw, tmp_path)
