"""Consumer groups of every client library of another language."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.testing.process import GatewayProcess
from tests.campaigns import broken_groups_serve
from tests.interop import groups

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.client import Client

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

# "default" is what a program gets that chooses nothing.
MEMBERS = [
    ("franz-go", "default"),
    ("franz-go", "range"),
    ("franz-go", "cooperative-sticky"),
    ("sarama", "default"),
    ("sarama", "sticky"),
    ("sarama", "cooperative-sticky"),
    ("sarama-0.11", "default"),
    ("kafka-go", "default"),
    ("kafka-go", "roundrobin"),
    ("java-3.9", "default"),
    ("java-3.9", "cooperative-sticky"),
    ("java-4", "default"),
    ("java-4", "cooperative-sticky"),
]
DEFAULTS = [name for name, strategy in MEMBERS if strategy == "default"]
# kafka-go has no static members, and before 2.3 nobody had.
STATIC = [name for name in DEFAULTS if name not in {"kafka-go", "sarama-0.11"}]


@pytest.mark.parametrize(("name", "strategy"), MEMBERS)
def test_a_group_lives_through_everything(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str, strategy: str
) -> None:
    """Members share, commit, live through a kill -9 and a restart; others resume after them."""
    groups.check_life(clients(name), own_gateway, strategy)


@pytest.mark.parametrize("name", DEFAULTS)
def test_acknowledged_commits_outlive_kills(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str
) -> None:
    """Kills in the middle of commits lose nothing acknowledged, and no record is skipped."""
    groups.check_commits_under_kills(clients(name), own_gateway, "default")


@pytest.mark.parametrize("name", STATIC)
def test_static_members_return_without_a_rebalance(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str
) -> None:
    """KIP-345: a member that is back within its session has its partitions, in the same round."""
    groups.check_static_members(clients(name), own_gateway, "default")


@pytest.mark.parametrize(
    ("bug", "name", "check", "found"),
    [
        ("answers-first", "franz-go", groups.check_commits_under_kills, "commit is lost"),
        ("answers-first", "java-4", groups.check_commits_under_kills, "commit is lost"),
        ("commits-too-far", "kafka-go", groups.check_commits_under_kills, "nobody has read"),
        ("forgets-members", "java-3.9", groups.check_life, "rebalanced"),
    ],
)
def test_the_checks_find_bugs(
    *,
    clients: Callable[[str], Client],
    tmp_path: Path,
    bug: str,
    name: str,
    check: Callable[[Client, GatewayProcess, str], None],
    found: str,
) -> None:
    """The controls: a gateway with a bug planted does not pass."""
    command = broken_groups_serve.command(bug)
    with (
        GatewayProcess(tmp_path / "data", command=command) as broken,
        pytest.raises(AssertionError, match=found),
    ):
        check(clients(name), broken, "default")
