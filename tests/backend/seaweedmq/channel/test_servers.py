from __future__ import annotations

from typing import NamedTuple

from kgw.backend.seaweedmq.channel.servers import AVOIDED_S, READING, UPLOADING, Servers
from kgw.problems import VOLUME_SERVER
from kgw.testing.clock import ManualClock


class Named(NamedTuple):
    url: str


FIRST, SECOND = Named("first:8080"), Named("second:8080")


def test_a_silent_server_is_tried_last_for_a_while() -> None:
    """Then it is tried again, as nothing else would say that it is back."""
    clock = ManualClock()
    servers = Servers(clock.monotonic_s)
    assert [FIRST, SECOND] == servers.in_order([FIRST, SECOND])
    servers.note_trouble(FIRST.url, READING, "no answer")
    assert [SECOND, FIRST] == servers.in_order([FIRST, SECOND])
    clock.advance(AVOIDED_S)
    assert [FIRST, SECOND] == servers.in_order([FIRST, SECOND])


def test_an_answer_ends_it() -> None:
    """Whoever answers is no worse than the others."""
    clock = ManualClock()
    servers = Servers(clock.monotonic_s)
    servers.note_trouble(FIRST.url, READING, "no answer")
    clock.advance(2)
    servers.note_answer(FIRST.url, READING)
    assert [FIRST, SECOND] == servers.in_order([FIRST, SECOND])
    assert [] == servers.problems


def test_a_server_in_trouble_is_named() -> None:
    """Not for a moment, and not for ever once nobody asks it any more."""
    clock = ManualClock()
    servers = Servers(clock.monotonic_s)
    servers.note_trouble(FIRST.url, READING, "no answer")
    assert [] == servers.problems
    clock.advance(1)
    servers.note_trouble(FIRST.url, READING, "TimeoutError()")
    (problem,) = servers.problems
    assert VOLUME_SERVER is problem.reason
    assert FIRST.url in problem.text
    assert "TimeoutError()" in problem.text
    clock.advance(30)
    servers.note_trouble(FIRST.url, READING, "again")
    clock.advance(59)
    assert servers.problems
    clock.advance(2)
    assert [] == servers.problems
    servers.note_trouble(FIRST.url, READING, "again")
    assert [] == servers.problems


def test_a_server_that_has_paused_once_is_not_named() -> None:
    """Another one has answered in its place: nobody waits for it, so nothing says that it is well.

    Reads try it last for a while all the same.
    """
    clock = ManualClock()
    servers = Servers(clock.monotonic_s)
    for _ in range(20):
        servers.note_trouble(FIRST.url, READING, "no answer for 0.25 s")
        clock.advance(0.02)
    assert servers.is_avoided(FIRST.url)
    clock.advance(5)
    assert [] == servers.problems
    clock.advance(25)
    assert [] == servers.problems


def test_what_is_said_of_a_server_is_so() -> None:
    """It is tried last for a part only of the time for which it is told of."""
    clock = ManualClock()
    servers = Servers(clock.monotonic_s)
    for _ in range(2):
        clock.advance(2)
        servers.note_trouble(FIRST.url, READING, "TimeoutError()")
    assert "reads try it last" in servers.problems[0].text
    clock.advance(AVOIDED_S)
    assert "last" not in servers.problems[0].text


def test_a_server_that_takes_no_uploads_can_be_read() -> None:
    """Its disk is full: it is named, not avoided, and no read says that it is well again."""
    clock = ManualClock()
    servers = Servers(clock.monotonic_s)
    servers.note_trouble(FIRST.url, UPLOADING, "507", is_silent=False)
    clock.advance(1)
    servers.note_trouble(FIRST.url, UPLOADING, "507", is_silent=False)
    servers.note_answer(FIRST.url, READING)
    assert [FIRST, SECOND] == servers.in_order([FIRST, SECOND])
    assert VOLUME_SERVER is servers.problems[0].reason
    servers.note_answer(FIRST.url, UPLOADING)
    assert [] == servers.problems


def test_a_server_that_hangs_for_uploads_is_read_last() -> None:
    """It would hang for reads as well."""
    servers = Servers(ManualClock().monotonic_s)
    servers.note_trouble(FIRST.url, UPLOADING, "TimeoutError()")
    assert [SECOND, FIRST] == servers.in_order([FIRST, SECOND])
