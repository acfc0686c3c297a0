"""The tests' end of a driver, against one that says what it is told."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.interop.client import Client, Clients

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def echoes(tmp_path: Path) -> Iterator[Clients]:
    """Clients whose driver answers with the question."""

    def start(name: str) -> Client:
        return Client(name, ["cat"], cwd=tmp_path, log_path=tmp_path / "log")

    with closing(Clients(start)) as clients:
        yield clients


def test_a_driver_serves_many_tests(echoes: Clients) -> None:
    """Whoever has answered everything and closed its members is given out again."""
    client = echoes("echo")
    client.ask("create_topic")
    client.open_member("first", group="group")
    client.close_member("first")
    assert client is echoes("echo")


def test_an_answer_that_is_owed_is_given_to_nobody_else(echoes: Clients) -> None:
    """A test that did not wait for its answer leaves it to no other."""
    client = echoes("echo")
    client.tell("produce")
    assert client is not echoes("echo")
    assert echoes("echo") is echoes("echo")


def test_members_that_are_left_open_end(echoes: Clients) -> None:
    """A test that did not close its members leaves them to no other."""
    client = echoes("echo")
    client.open_member("first", group="group")
    assert client is not echoes("echo")


def test_producers_that_are_left_open_end(echoes: Clients) -> None:
    """A test that did not close its producers leaves them to no other."""
    client = echoes("echo")
    client.open_producer("first", transactional_id="id")
    assert client is not echoes("echo")
    client = echoes("echo")
    client.open_producer("first", transactional_id="id")
    client.close_producer("first")
    assert client is echoes("echo")


def test_a_driver_that_ended_is_started_again(echoes: Clients) -> None:
    """A library that takes its process with it fails one test alone."""
    client = echoes("echo")
    client.close()
    with pytest.raises(ValueError, match="closed file"):
        client.ask("create_topic")
    assert client is not echoes("echo")
