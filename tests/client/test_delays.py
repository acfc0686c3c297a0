"""What a client says while it has not failed yet."""

from __future__ import annotations

import socket

import pytest

from kgw.client import (
    AsyncClient,
    CannotConnectError,
    ClientDelay,
    Connection,
    Delays,
)
from kgw.testing.clock import ManualClock
from tests.client.serving import ServedGateway


def test_a_delay_is_told_at_once_and_again_every_five_seconds() -> None:
    """A person sees that it lasts, without a line for each attempt."""
    clock = ManualClock()
    told: list[tuple[float, str]] = []
    began_s = clock.monotonic_s()
    delays = Delays(
        lambda one: told.append((round(clock.monotonic_s() - began_s, 1), one.reason)), clock=clock
    )
    for _ in range(11):
        delays.take(ClientDelay("a", "trying again", 1))
        clock.advance(1.0)
    delays.take(ClientDelay("b", "trying again", 1))
    assert [(0, "a"), (5, "a"), (10, "a"), (11, "b")] == told


def test_a_delay_says_what_is_done_about_it() -> None:
    """One line has the reason, and for how long a person may have to wait."""
    assert "x is away; trying again, for 30 s at most" == str(
        ClientDelay("x is away", "trying again", 29.6)
    )


async def test_the_first_failure_is_told_before_the_last_one_is_raised(
    unused_tcp_port: int,
) -> None:
    """Whoever waits for an address that is advertised wrongly knows it from the first attempt."""
    told: list[ClientDelay] = []
    async with (
        ServedGateway(advertised_listeners=(f"127.0.0.1:{unused_tcp_port}",)) as served,
        AsyncClient(
            [("127.0.0.1", served.port)], retry_s=0.5, delays=Delays(told.append)
        ) as client,
    ):
        await client.topic("events", auto_create=True)
        with pytest.raises(CannotConnectError) as caught:
            await client.bounds("events", [0])
    assert [(str(caught.value), "trying again")] == [one[:2] for one in told]


async def test_a_topic_that_is_being_created_delays_nobody() -> None:
    """What a server answers for a moment by rule is no failure to tell."""
    told: list[ClientDelay] = []
    async with (
        ServedGateway(auto_create_topics_enable=False) as served,
        AsyncClient(
            [("127.0.0.1", served.port)], retry_s=0.3, delays=Delays(told.append)
        ) as client,
    ):
        with pytest.raises(Exception, match="there is no such topic"):
            await client.topic("events", auto_create=True)
    assert [] == told


async def test_an_address_that_says_nothing_is_told_while_it_is_waited_for() -> None:
    """A connection that is accepted and not answered is slow before it has failed."""
    told: list[ClientDelay] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(Exception, match="says nothing"):
            await Connection.open(
                "127.0.0.1", port, timeout_s=0.3, delays=Delays(told.append, slow_s=0.05)
            )
    assert [(f"127.0.0.1:{port} has not answered ApiVersions yet", "waiting")] == [
        one[:2] for one in told
    ]


def test_a_wait_that_was_asked_for_is_no_delay() -> None:
    """A fetch that waits for records is slow only when the server takes longer than that."""
    clock = ManualClock()
    told: list[ClientDelay] = []
    delays = Delays(told.append, slow_s=5, clock=clock)
    with delays.watching("no records", 32, expected_s=2):
        clock.advance(6.9)
        before = list(told)
        clock.advance(0.1)
    with delays.watching("came in time", 32):
        pass
    clock.advance(60)
    assert ([], [ClientDelay("no records", "waiting", 25)]) == (before, told)
