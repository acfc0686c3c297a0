"""A small old topic whose records are in a gateway, and the command that moves its groups."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from kgw.cli.shared.errors import ExitCode
from kgw.client import AsyncClient, GroupClient
from tests.migrate.old_scheme import old_topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.cli.conftest import Commands
    from tests.migrate.old_scheme import OldTopic


def talk(kgw: Commands, action: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
    """Do something with the server as a client."""
    host, _, port = kgw.bootstrap.rpartition(":")

    async def run() -> Any:
        async with AsyncClient([(host, int(port))]) as client:
            return await action(client)

    return asyncio.run(run())


def move_records(kgw: Commands, topic: OldTopic) -> None:
    """Copy the records of the old scheme with their times, as a mover of data does."""
    kgw.succeed("topics", "create", topic.name, "-p", str(len(topic.records)))
    for partition, records in topic.records.items():
        lines = [
            json.dumps({"timestamp_ms": time_ms, "partition": partition, "value": value.decode()})
            for time_ms, value in records
        ]
        kgw.succeed("produce", topic.name, "--format", "json", data="\n".join(lines) + "\n")


class Migration:
    """An old topic whose records are in the gateway, and the commands that move its groups."""

    def __init__(self, kgw: Commands, directory: Path) -> None:
        self.kgw = kgw
        self.topic = old_topic()
        self.ledger, self.positions = self.topic.write(directory / "filer")
        self.file = directory / "plan.json"
        self.state = directory / "plan.json.state"
        move_records(kgw, self.topic)

    def plan(self, *more: str) -> Any:
        sources = ("--ledger", str(self.ledger), "--positions", str(self.positions))
        return self.kgw.json("migrate", "offsets", "--plan", str(self.file), *sources, *more)

    def run(self, mode: str, *more: str) -> Any:
        """Run a command that must succeed."""
        return self.kgw.json("migrate", "offsets", f"--{mode}", str(self.file), *more)

    def fail(self, mode: str, *more: str) -> str:
        """Run a command that must fail with one line of error."""
        arguments = ("migrate", "offsets", f"--{mode}", str(self.file), *more)
        return self.kgw.fail(ExitCode.FAILED, *arguments)

    def stuck(self, mode: str, *more: str) -> dict[str, str]:
        """Run a command that leaves groups alone, and return why."""
        arguments = ("migrate", "offsets", f"--{mode}", str(self.file), *more, "--json")
        result = self.kgw.run(*arguments)
        assert ExitCode.FAILED == result.exit_code
        groups = json.loads(result.stdout)["groups"]
        return {one["group"]: one["obstacle"] for one in groups if one["obstacle"]}

    def commit(self, group: str, offsets: dict[int, int], metadata: str = "") -> None:
        """Set what a group has committed."""
        places = {(self.topic.name, partition): at for partition, at in offsets.items()}
        texts = dict.fromkeys(places, metadata)
        talk(self.kgw, lambda client: GroupClient(client).commit(group, places, texts))

    def committed(self, group: str) -> dict[int, tuple[int, str]]:
        """Return what a group has committed, by partition."""
        found = talk(self.kgw, lambda client: GroupClient(client).offsets(group))
        return {partition: (one.offset, one.metadata) for (_, partition), one in found.items()}
