"""Consumer groups across kills and across client libraries of other languages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.campaigns import broken_groups_serve
from tests.interop import groups
from tests.interop.client import DriverError
from tests.interop.libraries import OLD, OTHERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client
    from tests.interop.libraries import NewGateway

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

# kafka-go shares with nobody but itself: docs/clients/kafka-go.md.
MIXED = ["franz-go", "sarama", "java-3.9", "java-4"]


@pytest.mark.parametrize("name", [*OTHERS, *OLD])
def test_acknowledged_commits_outlive_kills(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str
) -> None:
    """Kills in the middle of commits lose nothing acknowledged, and no record is skipped."""
    groups.check_commits_under_kills(clients(name), own_gateway, "default")


class Mixed:
    """Members of several libraries as if they were of one: each is named after its library."""

    name = "mixed"

    def __init__(self, clients: Callable[[str], Client], names: Sequence[str]) -> None:
        self._clients = {name: clients(name) for name in names}
        # Any of them creates the topic and writes to it.
        self.ask = self._clients[names[0]].ask
        self.tell = self._clients[names[0]].tell
        self.answer = self._clients[names[0]].answer

    def open_member(self, member: str, **fields: Any) -> None:
        """Starts the library's consumer."""
        self._clients[member].open_member(member, **fields)

    def poll_members(
        self, members: Sequence[str]
    ) -> dict[str, tuple[list[tuple[int, int]], set[int]]]:
        """Polls all at the same time: a round of one waits for the others."""
        with ThreadPoolExecutor(len(members)) as threads:
            polled = threads.map(lambda name: self._clients[name].poll_members([name]), members)
            return {name: found for answers in polled for name, found in answers.items()}

    def commit_member(self, member: str) -> list[tuple[int, int]]:
        """Commits through the library."""
        return self._clients[member].commit_member(member)

    def close_member(self, member: str) -> None:
        """Closes the library's consumer."""
        self._clients[member].close_member(member)


@pytest.mark.parametrize("leader", MIXED)
def test_members_of_different_libraries_share(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, leader: str
) -> None:
    """Whoever leads, all understand its assignment, come and go, and live through a kill -9."""
    names = sorted(MIXED, key=lambda name: name != leader)
    story = groups.Story(cast("Client", Mixed(clients, names)), own_gateway, "range")
    story.write(10)
    for name in names:
        story.open(name)
        story.share()
    story.read_everything()
    own_gateway.kill()
    own_gateway.start()
    assert story.ends() == story.committed()
    story.write(10)
    story.read_everything()
    story.share()
    for name in names[:-1]:
        story.close(name)
        story.write(2)
        story.share()
        story.read_everything()
    assert sorted(story.written) == sorted(set(story.read))
    story.close(names[-1])


@pytest.mark.parametrize(
    ("bug", "name", "check", "found"),
    [
        ("answers-first", "franz-go", groups.check_commits_under_kills, "commit is lost"),
        ("answers-first", "java-4", groups.check_commits_under_kills, "commit is lost"),
        ("commits-too-far", "kafka-go", groups.check_commits_under_kills, "nobody has read"),
        # Told by the number of rounds, or by the library when it commits before it joins anew.
        (
            "forgets-members",
            "java-3.9",
            groups.check_life,
            r"^rebalanced: |^java-3\.9: \S+\.CommitFailedException: ",
        ),
    ],
)
def test_the_checks_find_bugs(
    *,
    clients: Callable[[str], Client],
    new_gateway: NewGateway,
    tmp_path: Path,
    bug: str,
    name: str,
    check: Callable[[Client, GatewayProcess, str], None],
    found: str,
) -> None:
    """The controls: a gateway with a bug planted does not pass."""
    command = broken_groups_serve.command(bug)
    with (
        new_gateway(tmp_path / "data", command=command) as broken,
        pytest.raises((AssertionError, DriverError), match=found),
    ):
        check(clients(name), broken, "default")
