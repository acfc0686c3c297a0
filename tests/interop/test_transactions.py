"""Transactions of every client library: committed, aborted, fenced, timed out, with offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.client import DriverError
from tests.interop.libraries import NAMES, ON_BOTH
from tests.interop.scenario import limits_by_name
from tests.interop.transactions import COMMITTED, FENCED, Story, Transformation
from tests.patience import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

TRANSACTIONAL = [name for name in NAMES if limits_by_name(name).has_transactions]


def with_kills(*moments: str) -> pytest.MarkDecorator:
    """Each library without a kill, and with one at each of the moments.

    The kills are in the long run: in the short one the campaign of mixed faults (J1) kills under
    confluent-kafka alone.
    """
    cases = [
        pytest.param(name, kill, marks=[pytest.mark.full] if kill else [])
        for name in TRANSACTIONAL
        for kill in ("", *moments)
        if not kill or limits_by_name(name).ends_transactions_after_restarts
    ]
    return pytest.mark.parametrize(("client", "kill"), cases, indirect=["client"])


@pytest.fixture(params=TRANSACTIONAL)
def client(request: pytest.FixtureRequest, clients: Callable[[str], Client]) -> Client:
    """Each library that has transactions."""
    return clients(request.param)


@ON_BOTH
@with_kills("open", "ended")
def test_commits_are_seen_and_aborts_are_not(
    client: Client, own_gateway: GatewayProcess, kill: str
) -> None:
    """Records of several partitions and topics together, also when a kill -9 comes between."""
    story = Story(client, own_gateway, "ends", kill)
    story.write()
    story.open("producer")
    story.transact("producer", commit=True)
    story.transact("producer", commit=False)
    story.transact("producer", commit=True)
    client.close_producer("producer")
    story.check()


def test_others_read_the_same(
    client: Client, clients: Callable[[str], Client], gateway: GatewayProcess
) -> None:
    """Every other library leaves out the same records, also between two that are not."""
    story = Story(client, gateway, "shared")
    story.open("producer")
    for commit in (False, True, False, False, True):
        story.transact("producer", commit=commit)
    story.write()
    client.close_producer("producer")
    story.check([clients(reader) for reader in TRANSACTIONAL if reader != client.name])


@with_kills("open", "fenced")
def test_a_second_producer_fences_the_first(
    client: Client, clients: Callable[[str], Client], own_gateway: GatewayProcess, kill: str
) -> None:
    """The first is told so when it commits or writes more, and nothing of it is seen.

    The second is one of the same library, and then one of another.
    """
    story = Story(client, own_gateway, "fenced", kill)
    other = clients(TRANSACTIONAL[TRANSACTIONAL.index(client.name) - 1])
    zombie_acts: list[tuple[Client, Callable[[], None]]] = [
        (client, lambda: client.end("first", commit=True)),
        (other, lambda: story.write("first")),
    ]
    for fencing, act in zombie_acts:
        story.open("first")
        story.begin("first")
        story.open("second", fencing)
        story.moment("fenced")
        with pytest.raises(DriverError, match=FENCED):
            act()
        fencing.close_producer("second")
        client.close_producer("first")
        story.open("third")
        story.transact("third", commit=True)
        client.close_producer("third")
    story.check()


@with_kills("open")
def test_a_transaction_that_takes_too_long_is_aborted(
    client: Client, own_gateway: GatewayProcess, kill: str
) -> None:
    """Readers of committed records go on behind it, and its commit is refused."""
    story = Story(client, own_gateway, "late", kill)
    # Long enough that a slow machine finds it open.
    story.open("late", timeout_ms=round(seconds(4) * 1000))
    story.begin("late")
    story.write()
    for place in story.places:
        assert place.committed == place.topic.consume(0, len(place.committed), COMMITTED)
    with pytest.raises(DriverError):
        client.end("late", commit=True)
    client.close_producer("late")
    story.open("next")
    story.transact("next", commit=True)
    client.close_producer("next")
    story.check()


@with_kills("sent", "ended")
def test_offsets_belong_to_the_transaction(
    client: Client, own_gateway: GatewayProcess, kill: str
) -> None:
    """Consume, transform, produce: what was read counts as read if the output is committed."""
    transformation = Transformation(client, own_gateway, kill)
    transformation.write()
    transformation.run(commit=False, kill=kill)
    assert {} == transformation.committed()
    transformation.run(commit=True, kill=kill)
    transformation.write()
    transformation.run(commit=True)
    ends = {partition: offset + 1 for partition, offset in transformation.written}
    assert ends == transformation.committed()
    found = transformation.target.consume(0, len(transformation.written), COMMITTED)
    assert sorted(transformation.written.values()) == sorted(one.value or b"" for one in found)
