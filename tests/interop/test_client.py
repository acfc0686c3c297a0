"""The tests' end of a driver, against one that says what it is told."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.interop.client import Client, Clients

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOWHERE = "127.0.0.1:9"


@pytest.fixture
def echoes(tmp_path: Path) -> Iterator[Clients]:
    """Clients whose driver answers with the question."""

    def start(name: str) -> Client:
        return Client(name, ["cat"], cwd=tmp_path, log_path=tmp_path / "log")

    with closing(Clients(start)) as clients:
        yield clients


def open_member(client: Client) -> None:
    """Open a member without caring where."""
    client.open_member(NOWHERE, "first", group="group", topic="topic", strategy="default")


def test_a_driver_serves_many_tests(echoes: Clients) -> None:
    """Whoever has answered everything and closed its members is given out again."""
    client = echoes("echo")
    client.create_topic(NOWHERE, "topic", 1)
    open_member(client)
    client.close_member("first")
    assert client is echoes("echo")


def test_an_answer_that_is_owed_is_given_to_nobody_else(echoes: Clients) -> None:
    """A test that did not wait for its answer leaves it to no other."""
    client = echoes("echo")
    client.start_produce(NOWHERE, "topic", 0, [], codec="none", idempotent=False)
    assert client is not echoes("echo")
    assert echoes("echo") is echoes("echo")


def test_members_that_are_left_open_end(echoes: Clients) -> None:
    """A test that did not close its members leaves them to no other."""
    client = echoes("echo")
    open_member(client)
    assert client is not echoes("echo")


def test_a_driver_that_ended_is_started_again(echoes: Clients) -> None:
    """A library that takes its process with it fails one test alone."""
    client = echoes("echo")
    client.close()
    with pytest.raises(ValueError, match="closed file"):
        client.create_topic(NOWHERE, "topic", 1)
    assert client is not echoes("echo")
