"""The tests' end of a driver: a client library in a process of its own."""

from __future__ import annotations

import json
import select
import subprocess
from typing import TYPE_CHECKING, Any

from tests.interop.drivers.loop import Record, from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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
        self._owes_answer = False
        self._members: set[str] = set()

    def __repr__(self) -> str:
        return f"<Client {self.name}>"

    def close(self) -> None:
        """Ends the driver and waits for it."""
        self._process.kill()
        self._process.communicate()

    @property
    def is_idle(self) -> bool:
        """Whether it has answered everything and has no member open."""
        return not self._owes_answer and not self._members

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
        self.start_produce(bootstrap, topic, partition, records, codec=codec, idempotent=idempotent)
        return self.finish_produce()

    def start_produce(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: str,
        idempotent: bool,
    ) -> None:
        """Begins what `produce` does and leaves it to `finish_produce` to wait for the end."""
        self._tell(
            "produce",
            bootstrap=bootstrap,
            topic=topic,
            partition=partition,
            codec=codec,
            idempotent=idempotent,
            records=[to_json(record) for record in records],
        )

    def finish_produce(self) -> list[int]:
        """Waits until the records are acknowledged and returns the offset of each."""
        return [int(offset) for offset in self._answer()["offsets"]]

    def is_busy(self) -> bool:
        """Whether the driver has not answered yet."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], 0)
        return not readable

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

    def create_partitions(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Grows a topic to `partitions` in all."""
        self._ask("create_partitions", bootstrap=bootstrap, topic=topic, partitions=partitions)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """Deletes a topic."""
        self._ask("delete_topic", bootstrap=bootstrap, topic=topic)

    def delete_records(self, bootstrap: str, topic: str, partition: int, offset: int) -> int:
        """Deletes what lies below `offset` and returns where the partition begins then."""
        answer = self._ask(
            "delete_records", bootstrap=bootstrap, topic=topic, partition=partition, offset=offset
        )
        return int(answer["log_start_offset"])

    def topic_config(self, bootstrap: str, topic: str, name: str) -> str:
        """Value of one setting of a topic, its own or a default."""
        answer = self._ask("topic_config", bootstrap=bootstrap, topic=topic, name=name)
        value: str = answer["value"]
        return value

    def set_topic_config(
        self, bootstrap: str, topic: str, name: str, value: str, *, incremental: bool
    ) -> None:
        """Sets one setting; unless `incremental`, all others go back to their defaults."""
        self._ask(
            "set_topic_config",
            bootstrap=bootstrap,
            topic=topic,
            name=name,
            value=value,
            incremental=incremental,
        )

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
        self._members.add(member)
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

    def commit_member(self, member: str) -> list[tuple[int, int]]:
        """Commits what a member has read; partition and next offset of what was acknowledged.

        The list is empty also where the driver does not tell.
        """
        answer = self._ask("commit_member", member=member)
        return [(one[0], one[1]) for one in answer.get("committed", [])]

    def close_member(self, member: str) -> None:
        """Closes a member; unless it is static, it leaves its group."""
        self._ask("close_member", member=member)
        self._members.discard(member)

    def _ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        self._tell(operation, **fields)
        return self._answer()

    def _tell(self, operation: str, **fields: Any) -> None:
        assert self._process.stdin is not None
        self._owes_answer = True
        self._process.stdin.write(json.dumps({"do": operation, **fields}) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            log = self._log_path.read_text(errors="replace")
            raise DriverError(f"{self.name}: its driver ended; log:\n{log[-4000:]}")
        self._owes_answer = False
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            log = self._log_path.read_text(errors="replace")
            raise DriverError(f"{self.name}: {answer['error']}; log:\n{log[-4000:]}")
        return answer


class Clients:
    """The clients of a session: each starts when it is first asked for, and serves many tests.

    A test that fails may leave a question that has not been answered, and members that look for
    their gateway for ever. The next test would be given the answer to what it has not asked: it
    gets a client with a new driver.
    """

    def __init__(self, start: Callable[[str], Client]) -> None:
        self._start = start
        self._started: dict[str, Client] = {}

    def __call__(self, name: str) -> Client:
        """Gives the client of a name."""
        known = self._started.get(name)
        if known is not None and not known.is_idle:
            known.close()
            known = None
        if known is None:
            known = self._started[name] = self._start(name)
        return known

    def close(self) -> None:
        """Ends all drivers."""
        for client in self._started.values():
            client.close()
