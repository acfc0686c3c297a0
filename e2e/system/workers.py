"""Who takes part in the story: each worker is a thread that leads one program through its part."""

from __future__ import annotations

import asyncio
import base64
import random
import threading
import time
from itertools import groupby
from typing import TYPE_CHECKING, Any

from e2e.system.driver import Driver, DriverError
from e2e.system.evidence import PARTITIONS, Content, Place
from e2e.system.reading import record_at
from kgw.client import AsyncClient, GroupClient
from kgw.client.ack_journal import AckJournal, content_crc
from kgw.client.errors import ClientError
from tests.interop.drivers.loop import to_text

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.system.evidence import Evidence
    from e2e.system.site import Site

BATCH = 40
KEYS = 4 * PARTITIONS
PAUSE_S = 0.4
POLL_PAUSE_S = 0.15
VALUE_BYTES = 120
TRANSACTION_PAUSE_S = 0.5
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


class Worker(threading.Thread):
    """One that works until it is told to stop; a bug in it is kept for the verdict."""

    def __init__(self, site: Site, name: str, bootstrap: str, evidence: Evidence) -> None:
        super().__init__(name=name, daemon=True)
        self.site = site
        self.bootstrap = bootstrap
        self.evidence = evidence
        self.failure: BaseException | None = None
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Have it end; `join` waits for that."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    def pause(self, seconds: float) -> None:
        """Wait, unless it is told to stop."""
        self._stopping.wait(seconds)

    def run(self) -> None:
        """Work, and keep what went wrong."""
        try:
            self.work()
        except BaseException as failure:  # noqa: BLE001 - the story raises it
            self.failure = failure

    def work(self) -> None:
        """Do its part until it is told to stop."""
        raise NotImplementedError


class WithProgram(Worker):
    """A worker whose program may die, and whose clients may fail: then it opens them anew."""

    def work(self) -> None:
        """Open, go on step by step, close; and again from the beginning after each error."""
        self.driver = Driver(self.site, self.name)
        try:
            while not self.is_stopping:
                try:
                    self.open()
                    while not self.is_stopping:
                        self.step()
                except DriverError as error:
                    self.evidence.note_error(error)
                self._close()
        finally:
            self.driver.close()

    def open(self) -> None:
        """Open the client. Raises DriverError."""
        raise NotImplementedError

    def step(self) -> None:
        """Do a little. Raises DriverError."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the client. Raises DriverError."""
        raise NotImplementedError

    def _close(self) -> None:
        try:
            self.close()
        except DriverError as error:
            # Most often it was not open; the next opening tells the rest.
            self.evidence.note_error(error)
            self.pause(0.5)


class Producing(WithProgram):
    """Sends numbered, keyed records with an idempotent producer, and notes what is acknowledged."""

    def __init__(
        self, site: Site, language: str, bootstrap: str, evidence: Evidence, journal: Path
    ) -> None:
        super().__init__(site, f"producer-{language}", bootstrap, evidence)
        self._journal = journal
        self._sent = 0
        self._batches = 0

    def open(self) -> None:
        self.driver.ask(
            "open_producer",
            producer=self.name,
            bootstrap=self.bootstrap,
            transactional_id=None,
            timeout_ms=60_000,
            group=None,
        )

    def step(self) -> None:
        number = self._batches % KEYS
        partition = number % PARTITIONS
        key = f"{self.name}-{number}".encode()
        batch = [Content(key, self._next_value()) for _ in range(BATCH)]
        self._batches += 1
        self.evidence.note_sent(one.value for one in batch)
        answer = self.driver.ask(
            "produce",
            bootstrap=self.bootstrap,
            producer=self.name,
            topic="orders",
            partition=partition,
            records=[_record(one) for one in batch],
            codec="none",
            idempotent=True,
        )
        places = [Place(partition, offset) for offset in answer["offsets"]]
        self.evidence.note_acknowledged(self.name, zip(places, batch, strict=True))
        with AckJournal(self._journal) as journal:
            journal.add("".join(map(_journal_line, places, batch)))
        self.pause(PAUSE_S)

    def close(self) -> None:
        self.driver.ask("close_producer", producer=self.name)

    def _next_value(self) -> bytes:
        self._sent += 1
        head = f"{self.name}:{self._sent}:".encode()
        return head + random.randbytes(VALUE_BYTES - len(head))


class Consuming(WithProgram):
    """A member of the shared group, which may be told to leave for a while."""

    def __init__(self, site: Site, language: str, bootstrap: str, evidence: Evidence) -> None:
        super().__init__(site, f"consumer-{language}", bootstrap, evidence)
        self.language = language
        self._may_join = threading.Event()
        self._may_join.set()

    def leave(self) -> None:
        """Have it leave the group."""
        self._may_join.clear()

    def join_again(self) -> None:
        """Have it join again."""
        self._may_join.set()

    def open(self) -> None:
        while not self._may_join.wait(0.5):
            if self.is_stopping:
                return
        self.driver.ask(
            "open_member",
            member=self.name,
            bootstrap=self.bootstrap,
            group="orders",
            topic="orders",
            strategy="range",
            instance=None,
            isolation=UNCOMMITTED,
        )

    def step(self) -> None:
        if not self._may_join.is_set():
            self.close()
            self.evidence.note_seen(self.language, [], [])
            self.open()
        answer = self.driver.ask("poll_members", members=[self.name], timeout_s=0.5)
        found = answer["members"][self.name]
        places = [Place(*one) for one in found["records"]]
        self.evidence.note_seen(self.language, places, found["assigned"])
        if places:
            try:
                self.driver.ask("commit_member", member=self.name)
            except DriverError as error:
                # Refused, as during a rebalance: what was read comes again, here or elsewhere.
                self.evidence.note_error(error)
        self.pause(POLL_PAUSE_S)

    def close(self) -> None:
        self.driver.ask("close_member", member=self.name)


class Copying(WithProgram):
    """Copies from one topic to another with transactions; one of them it aborts on purpose."""

    def __init__(self, site: Site, language: str, bootstrap: str, evidence: Evidence) -> None:
        super().__init__(site, f"copier-{language}", bootstrap, evidence)
        self._intends_to_abort = True

    def open(self) -> None:
        self.driver.ask(
            "open_producer",
            producer=self.name,
            bootstrap=self.bootstrap,
            transactional_id=self.name,
            timeout_ms=20_000,
            group=self.name,
            topic="orders",
            strategy="range",
            isolation=COMMITTED,
        )

    def step(self) -> None:
        self.pause(TRANSACTION_PAUSE_S)
        # One poll for each transaction: between two of them the member may have joined anew, and
        # what the first one gave would come again.
        answer = self.driver.ask("poll_members", members=[self.name], timeout_s=0.5)
        places = sorted(Place(*one) for one in answer["members"][self.name]["records"])
        if not places:
            return
        contents = self._contents(places)
        self.driver.ask("begin", producer=self.name)
        for partition, of_partition in groupby(places, lambda place: place.partition):
            self.driver.ask(
                "produce",
                bootstrap=self.bootstrap,
                producer=self.name,
                topic=self.name,
                partition=partition,
                records=[_record(contents[place], place) for place in of_partition],
            )
        self.driver.ask("send_offsets", producer=self.name)
        if self._intends_to_abort and self.evidence.transactions[self.name] >= 2:
            self._intends_to_abort = False
            self.driver.ask("end", producer=self.name, commit=False)
            self.evidence.aborts[self.name] += 1
            # What was read comes again to a member that begins where the group is.
            raise DriverError(f"{self.name}: aborted on purpose")
        self.driver.ask("end", producer=self.name, commit=True)
        self.evidence.transactions[self.name] += 1

    def close(self) -> None:
        self.driver.ask("close_producer", producer=self.name)

    def _contents(self, places: list[Place]) -> dict[Place, Content]:
        """What lies there: as it was acknowledged, or as it is read where nobody was told."""
        known = self.evidence.contents(places, 2.0)
        for place in places:
            if place not in known:
                known[place] = record_at(self.bootstrap, "orders", place)
        return known


class Watching(Worker):
    """Looks at what a group has committed, through a gateway that may not be there."""

    def __init__(self, site: Site, bootstrap: str, group: str, evidence: Evidence) -> None:
        super().__init__(site, f"watcher-{group}", bootstrap, evidence)
        self._group = group

    def work(self) -> None:
        while not self.is_stopping:
            try:
                committed = committed_by(self.bootstrap, self._group)
            except (ClientError, OSError):
                pass  # as while it is killed and started
            else:
                self.evidence.note_commits(committed)
            self.pause(1)


def committed_by(bootstrap: str, group: str) -> dict[int, int]:
    """Return what a group has committed of `orders`, by partition."""

    async def ask() -> dict[int, int]:
        async with AsyncClient([bootstrap_address(bootstrap)]) as client:
            offsets = await GroupClient(client).offsets(group)
        return {partition: one.offset for (_, partition), one in offsets.items()}

    return asyncio.run(ask())


def bootstrap_address(bootstrap: str) -> tuple[str, int]:
    """Return host and port of `host:port`."""
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def _record(content: Content, source: Place | None = None) -> dict[str, Any]:
    headers = []
    if source is not None:
        text = f"{source.partition}:{source.offset}"
        headers = [["source", base64.b64encode(text.encode()).decode()]]
    return {
        "key": to_text(content.key),
        "value": to_text(content.value),
        "headers": headers,
        "timestamp_ms": int(time.time() * 1000),
    }


def _journal_line(place: Place, content: Content) -> str:
    crc = content_crc(content.key, content.value)
    return (
        f'{{"topic": "orders", "partition": {place.partition}, "offset": {place.offset},'
        f' "crc": {crc}}}\n'
    )
