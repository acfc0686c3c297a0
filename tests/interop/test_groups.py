"""Consumer groups of every client library: join, rebalance, commit, resume, stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop import groups
from tests.interop.libraries import NAMES, ON_BOTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

# "default" is what a program gets that chooses nothing.
STRATEGIES = {
    "kafka-python-2": ["range", "roundrobin"],
    "kafka-python-3": ["range", "cooperative-sticky"],
    "aiokafka": ["range", "roundrobin"],
    "confluent-kafka": ["range", "cooperative-sticky"],
    "franz-go": ["default", "range", "cooperative-sticky"],
    "sarama": ["default", "sticky", "cooperative-sticky"],
    "sarama-0.11": ["default"],
    "kafka-go": ["default", "roundrobin"],
    "java-2.1": ["default"],
    "java-2.8": ["default", "cooperative-sticky"],
    "java-3.3": ["default", "cooperative-sticky"],
    "java-3.9": ["default", "cooperative-sticky"],
    "java-4": ["default", "cooperative-sticky"],
}
# Of Python's libraries, one strategy each in the short run.
LONG = {
    ("kafka-python-2", "roundrobin"),
    ("kafka-python-3", "range"),
    ("aiokafka", "range"),
    ("confluent-kafka", "range"),
}
MEMBERS = [
    pytest.param(name, strategy, marks=[pytest.mark.full] if (name, strategy) in LONG else [])
    for name, strategies in STRATEGIES.items()
    if name.removesuffix("-0.11") in NAMES
    for strategy in strategies
]
# kafka-python 2 and kafka-go have no static members, and before Kafka 2.3 nobody had.
STATIC = [name for name in NAMES if name not in {"kafka-python-2", "kafka-go", "java-2.1"}]


@pytest.mark.parametrize(("name", "strategy"), MEMBERS)
def test_a_group_lives_through_everything(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str, strategy: str
) -> None:
    """Members share, commit, live through a kill -9 and a restart; others resume after them."""
    groups.check_life(clients(name), own_gateway, strategy)


@ON_BOTH
@pytest.mark.parametrize("name", STATIC)
def test_static_members_return_without_a_rebalance(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str
) -> None:
    """KIP-345: a member that is back within its session has its partitions, in the same round."""
    story = groups.Story(clients(name), own_gateway, STRATEGIES[name][0])
    story.write(5)
    for member in ("first", "second"):
        story.open(member, instance=member)
    story.share()
    story.read_everything()
    had, before = story.assigned["second"], story.rounds()
    story.close("second")
    story.write(5)
    story.open("second", instance="second")
    story.share()
    story.read_everything()
    assert (had, before) == (story.assigned["second"], story.rounds())
    assert sorted(story.written) == sorted(set(story.read))
    for member in ("first", "second"):
        story.close(member)
