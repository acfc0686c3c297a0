"""The tests' end of a driver: a client library in a process of its own."""

from __future__ import annotations

import json
import select
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.interop.drivers.loop import Record, from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kgw.testing.process import GatewayProcess


class DriverError(Exception):
    """What the client library raised, as its driver reported it."""

    def __init__(self, client: str, answer: dict[str, Any], log: str) -> None:
        super().__init__(f"{client}: {answer['error']}; log:\n{log}")
        self.told = "\n".join([answer["error"], *answer.get("logged", ())])
        """The error, and what the library has logged before it."""


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
        self._producers: set[str] = set()

    def __repr__(self) -> str:
        return f"<Client {self.name}>"

    def close(self) -> None:
        """Ends the driver and waits for it."""
        self._process.kill()
        self._process.communicate()

    @property
    def is_idle(self) -> bool:
        """Whether it has answered everything and has neither member nor producer open."""
        return not (self._owes_answer or self._members or self._producers)

    def is_busy(self) -> bool:
        """Whether the driver has not answered yet."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], 0)
        return not readable

    def open_member(self, member: str, *, instance: str | None = None, **fields: str) -> None:
        """Starts a consumer in a group; it lives until it is closed."""
        self._members.add(member)
        fields.setdefault("isolation", "read_uncommitted")
        self.ask("open_member", member=member, instance=instance, **fields)

    def poll_members(
        self, members: Sequence[str], timeout_s: float = 0.5
    ) -> dict[str, tuple[list[tuple[int, int]], set[int]]]:
        """For each member: partition and offset of what it reads in time, and what it has now."""
        answer = self.ask("poll_members", members=list(members), timeout_s=timeout_s)
        return {
            member: ([(one[0], one[1]) for one in found["records"]], set(found["assigned"]))
            for member, found in answer["members"].items()
        }

    def commit_member(self, member: str) -> list[tuple[int, int]]:
        """Commits what a member has read; partition and next offset of what was acknowledged.

        The list is empty also where the driver does not tell.
        """
        answer = self.ask("commit_member", member=member)
        return [(one[0], one[1]) for one in answer.get("committed", [])]

    def close_member(self, member: str) -> None:
        """Closes a member; unless it is static, it leaves its group."""
        self.ask("close_member", member=member)
        self._members.discard(member)

    def open_producer(
        self,
        producer: str,
        *,
        group: str | None = None,
        timeout_ms: int = 60_000,
        **fields: str | None,
    ) -> None:
        """Starts a transactional producer, with a group also a member; it lives until it is closed.

        It has fenced the others of its `transactional_id` when this returns.
        """
        self._producers.add(producer)
        self.ask("open_producer", producer=producer, group=group, timeout_ms=timeout_ms, **fields)

    def begin(self, producer: str) -> None:
        """Begins a transaction."""
        self.ask("begin", producer=producer)

    def send_offsets(self, producer: str) -> None:
        """Makes what the member of the same name has read part of the producer's transaction."""
        self.ask("send_offsets", producer=producer)

    def end(self, producer: str, *, commit: bool) -> None:
        """Commits or aborts the producer's transaction."""
        self.ask("end", producer=producer, commit=commit)

    def close_producer(self, producer: str) -> None:
        """Closes a producer, and its member."""
        self.ask("close_producer", producer=producer)
        self._producers.discard(producer)

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Has the driver do something and returns its answer. Raises DriverError."""
        self.tell(operation, **fields)
        return self.answer()

    def tell(self, operation: str, **fields: Any) -> None:
        """Has the driver begin something; `answer` waits for its end."""
        assert self._process.stdin is not None
        self._owes_answer = True
        self._process.stdin.write(json.dumps({"do": operation, **fields}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Waits for the driver and returns what it answers. Raises DriverError."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its driver ended"}
        self._owes_answer = not line
        if "error" in answer:
            log = self._log_path.read_text(errors="replace")
            raise DriverError(self.name, answer, log[-4000:])
        return answer


@dataclass(frozen=True)
class Topic:
    """A topic as one client library sees it; most questions are about one of its partitions."""

    client: Client
    gateway: GatewayProcess
    name: str
    partition: int = 1

    def create(self, partitions: int = 2) -> None:
        """Creates it with replication factor 1."""
        self._ask("create_topic", partitions=partitions)

    def delete(self) -> None:
        """Deletes it."""
        self._ask("delete_topic")

    def grow(self, partitions: int) -> None:
        """Adds partitions, up to `partitions` in all."""
        self._ask("create_partitions", partitions=partitions)

    def produce(
        self,
        records: Sequence[Record],
        codec: str = "none",
        *,
        idempotent: bool = False,
        producer: str | None = None,
    ) -> list[int]:
        """Sends the records with acks=all and returns the offset of each.

        With a `producer` that has begun a transaction they are part of it.
        """
        self.start_produce(records, codec, idempotent=idempotent, producer=producer)
        return self.finish_produce()

    def start_produce(
        self,
        records: Sequence[Record],
        codec: str,
        *,
        idempotent: bool,
        producer: str | None = None,
    ) -> None:
        """Begins what `produce` does and leaves it to `finish_produce` to wait for the end."""
        self.client.tell(
            "produce",
            **self._fields,
            codec=codec,
            idempotent=idempotent,
            producer=producer,
            records=[to_json(record) for record in records],
        )

    def finish_produce(self) -> list[int]:
        """Waits until the records are acknowledged and returns the offset of each."""
        return [int(offset) for offset in self.client.answer()["offsets"]]

    def consume(self, offset: int, count: int, isolation: str = "read_uncommitted") -> list[Record]:
        """Reads at least `count` records from `offset` on, without a group."""
        answer = self._ask("consume", offset=offset, count=count, isolation=isolation)
        return [from_json(record) for record in answer["records"]]

    def bounds(self, isolation: str = "read_uncommitted") -> tuple[int, int]:
        """Earliest and latest offset of the partition."""
        answer = self._ask("bounds", isolation=isolation)
        return answer["earliest"], answer["latest"]

    def offset_for_time(self, timestamp_ms: int) -> int | None:
        """Offset of the first record that is not older than a time; None without one."""
        offset: int | None = self._ask("offset_for_time", timestamp_ms=timestamp_ms)["offset"]
        return offset

    def delete_records(self, offset: int) -> int:
        """Deletes what lies below `offset` and returns where the partition begins then."""
        return int(self._ask("delete_records", offset=offset)["log_start_offset"])

    def config(self, name: str) -> str:
        """Value of one setting, the topic's own or a default."""
        value: str = self._ask("topic_config", name=name)["value"]
        return value

    def set_config(self, name: str, value: str, *, incremental: bool) -> None:
        """Sets one setting; unless `incremental`, all others go back to their defaults."""
        self._ask("set_topic_config", name=name, value=value, incremental=incremental)

    @property
    def _fields(self) -> dict[str, Any]:
        bootstrap = self.gateway.bootstrap
        return {"bootstrap": bootstrap, "topic": self.name, "partition": self.partition}

    def _ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        return self.client.ask(operation, **self._fields, **fields)


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
