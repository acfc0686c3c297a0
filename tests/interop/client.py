"""The tests' end of a driver: a client library in a process of its own."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from tests.interop.drivers.loop import Record, from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class DriverError(Exception):
    """What the client library raised, as its driver reported it."""


class Client:
    """One client library; see tests/interop/drivers/loop.py for what its driver can do."""

    def __init__(self, name: str, command: Sequence[str], *, cwd: Path, log_path: Path) -> None:
        self.name = name
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._log_path = log_path

    def __repr__(self) -> str:
        return f"<Client {self.name}>"

    def close(self) -> None:
        """Ends the driver and waits for it."""
        self._process.kill()
        self._process.communicate()

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Creates a topic with replication factor 1."""
        self._ask("create_topic", bootstrap=bootstrap, topic=topic, partitions=partitions)

    def produce(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: str,
        idempotent: bool,
    ) -> list[int]:
        """Sends the records with acks=all and returns the offset of each."""
        answer = self._ask(
            "produce",
            bootstrap=bootstrap,
            topic=topic,
            partition=partition,
            codec=codec,
            idempotent=idempotent,
            records=[to_json(record) for record in records],
        )
        return [int(offset) for offset in answer["offsets"]]

    def consume(
        self, bootstrap: str, topic: str, partition: int, *, offset: int, count: int
    ) -> list[Record]:
        """Reads at least `count` records from `offset` on, without a group."""
        answer = self._ask(
            "consume",
            bootstrap=bootstrap,
            topic=topic,
            partition=partition,
            offset=offset,
            count=count,
        )
        return [from_json(record) for record in answer["records"]]

    def bounds(self, bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
        """Earliest and latest offset of a partition."""
        answer = self._ask("bounds", bootstrap=bootstrap, topic=topic, partition=partition)
        return answer["earliest"], answer["latest"]

    def offset_for_time(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int
    ) -> int | None:
        """Offset of the first record that is not older than a time; None without one."""
        answer = self._ask(
            "offset_for_time",
            bootstrap=bootstrap,
            topic=topic,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )
        offset: int | None = answer["offset"]
        return offset

    def open_member(
        self,
        bootstrap: str,
        member: str,
        *,
        group: str,
        topic: str,
        strategy: str,
        instance: str | None = None,
    ) -> None:
        """Starts a consumer in a group; it lives until it is closed."""
        self._ask(
            "open_member",
            bootstrap=bootstrap,
            member=member,
            group=group,
            topic=topic,
            strategy=strategy,
            instance=instance,
        )

    def poll_members(
        self, members: Sequence[str], timeout_s: float = 0.5
    ) -> dict[str, tuple[list[tuple[int, int]], set[int]]]:
        """For each member: partition and offset of what it reads in time, and what it has now."""
        answer = self._ask("poll_members", members=list(members), timeout_s=timeout_s)
        return {
            member: ([(one[0], one[1]) for one in found["records"]], set(found["assigned"]))
            for member, found in answer["members"].items()
        }

    def commit_member(self, member: str) -> None:
        """Commits what a member has read, durably."""
        self._ask("commit_member", member=member)

    def close_member(self, member: str) -> None:
        """Closes a member; unless it is static, it leaves its group."""
        self._ask("close_member", member=member)

    def _ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": operation, **fields}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            log = self._log_path.read_text(errors="replace")
            raise DriverError(f"{self.name}: its driver ended; log:\n{log[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            log = self._log_path.read_text(errors="replace")
            raise DriverError(f"{self.name}: {answer['error']}; log:\n{log[-4000:]}")
        return answer
