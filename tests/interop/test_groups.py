"""Consumer groups of every Python client library: join, rebalance, commit, resume, stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop import groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

MEMBERS = [
    ("kafka-python-2", "range"),
    ("kafka-python-2", "roundrobin"),
    ("kafka-python-3", "range"),
    ("kafka-python-3", "cooperative-sticky"),
    ("aiokafka", "range"),
    ("aiokafka", "roundrobin"),
    ("confluent-kafka", "range"),
    ("confluent-kafka", "cooperative-sticky"),
]


@pytest.mark.parametrize(("name", "strategy"), MEMBERS)
def test_a_group_lives_through_everything(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str, strategy: str
) -> None:
    """Members share, commit, live through a kill -9 and a restart; others resume after them."""
    groups.check_life(clients(name), own_gateway, strategy)


@pytest.mark.parametrize("name", ["kafka-python-3", "aiokafka", "confluent-kafka"])
def test_static_members_return_without_a_rebalance(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str
) -> None:
    """KIP-345: a member that is back within its session has its partitions, in the same round."""
    groups.check_static_members(clients(name), own_gateway, "range")
