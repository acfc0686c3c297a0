"""One run of a subject, and what its gateway and its topic are."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kgw.client import AdminClient
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.wire import WireClient
from tests.pipeline.spark.campaign import Killable
from tests.pipeline.spark.exactness.journal import PARTITIONS, Journal
from tests.pipeline.spark.exactness.processes import Process, busy_workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kgw.testing.process import GatewayProcess
    from tests.pipeline.spark.exactness.judging import Outcome

LOCAL = "local[2,4]"
EXECUTORS = "local-cluster[2,1,1024]"
"""Two executors, each a Java process of its own."""
PIECES = 12
"""About how many pieces the work of a run has: a fault falls between the first and the last."""
_POLL_S = 0.03


INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class Subject(NamedTuple):
    """Something that must be exact: how it is started, how far it is, and what came of it."""

    name: str
    conditions: tuple[str, ...]
    command: Callable[[Run], list[str]]
    """What Python is given to start it, or to start it again."""
    progress: Callable[[Run], float]
    """How much of its work is durable, from 0 to about 1."""
    judge: Callable[[Run], Outcome]
    prepare: Callable[[Run], None] = lambda _: None
    is_busy: Callable[[Run], bool] = lambda run: bool(run.busy_workers())
    """Whether it is in the middle of a piece of its work."""
    is_fed: bool = False
    """Whether it follows a topic of its own, and ends with Ctrl-C."""
    may_double: bool = False


class Ground(NamedTuple):
    """What runs share: a gateway, a topic that is filled, and an archive of it."""

    gateway: GatewayProcess
    journal: Journal
    archive: Path


@dataclass
class Run:
    """One run; its subject is started in `place`."""

    subject: Subject
    condition: str
    seed: int
    count: int
    place: Path
    ground: Ground
    running: Killable = field(init=False)
    starts: int = 0
    is_done: bool = False
    noted: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.choices = Random(self.seed)
        self.target = self.place.name
        self._wire = WireClient(self.address, retry_s=60.0)
        self.journal = self.ground.journal

    @property
    def address(self) -> str:
        """Where the gateway is."""
        return self.ground.gateway.bootstrap

    @property
    def archive(self) -> Path:
        """The archive that the run writes, if it does."""
        return self.place / "archive"

    @property
    def master(self) -> str:
        """Where Spark runs."""
        return EXECUTORS if self.condition == "executor" else LOCAL

    @property
    def has_slow_tasks(self) -> bool:
        """Whether tasks are slowed down, so that they can be met in the middle of their work."""
        return self.condition in {"task", "executor"}

    @property
    def topic_id(self) -> UUID:
        """Of the topic that is read."""
        described = self._wire.find_topic(self.journal.topic)
        assert described is not None
        return UUID(bytes=bytes(described.topic_id))

    @property
    def generation(self) -> Path:
        """Where the archive that the run writes has its files."""
        return generation_directory(str(self.archive), self.journal.topic, self.topic_id)

    @property
    def ground_generation(self) -> Path:
        """Where the archive that runs share has its files."""
        return generation_directory(str(self.ground.archive), self.journal.topic, self.topic_id)

    @property
    def log_text(self) -> str:
        """What the subject and Spark have logged, over all starts."""
        return self._log.read_text(errors="replace")

    @property
    def _log(self) -> Path:
        return self.place / "log"

    def offsets_of(self, topic: str) -> int:
        """Return how many offsets a topic has."""
        bounds = self._wire.bounds(topic, range(PARTITIONS))
        return sum(one.latest - one.earliest for one in bounds.values())

    def create_target(self) -> None:
        """Create the topic that the run writes to."""
        self._wire.call(
            AdminClient(self._wire.client).create_topic(self.target, partitions=PARTITIONS)
        )

    def program(self, name: str, **given: object) -> list[str]:
        """Return the command of one of `programs`."""
        asked = {
            "address": self.address,
            "topic": self.journal.topic,
            "master": self.master,
            "out": str(self.place / "out"),
            "checkpoint": str(self.place / "checkpoint"),
            "target": self.target,
            **given,
        }
        return ["-m", "tests.pipeline.spark.exactness.programs", name, json.dumps(asked)]

    def prepare(self) -> None:
        """Make what the subject needs before it is started."""
        if self.subject.is_fed:
            self.journal = Journal(self.target, self.seed)
            self.journal.create(self.address)
            self.journal.fill(self.address, self.count // 2)
        self.subject.prepare(self)

    def judge(self) -> Outcome:
        """Compare what came out with what went in."""
        return self.subject.judge(self)

    def start(self) -> None:
        """Start the subject, or start it again."""
        self.starts += 1
        self.running = Killable(self.subject.command(self), self._log)

    def progress(self) -> float:
        """Return how far the subject is."""
        return self.subject.progress(self)

    def feed(self) -> None:
        """Produce what comes while a subject follows, always a little more than it has."""
        left = self.count - len(self.journal.records)
        slice_length = self.count // 8
        if not self.subject.is_fed or not left:
            return
        if self.progress() * self.count > len(self.journal.records) - slice_length:
            self.journal.fill(self.address, min(left, slice_length), with_transactions=False)

    def wait_until(self, is_so: Callable[[], bool], timeout_s: float = 600) -> bool:
        """Return whether something has become so before the subject ended."""
        ends = time.monotonic() + timeout_s
        while not is_so():
            if self.running.has_ended:
                return is_so()
            if time.monotonic() > ends:
                raise TimeoutError(f"{self.subject.name} under {self.condition}: {self.log_text}")
            self.feed()
            time.sleep(_POLL_S)
        return True

    def is_busy(self) -> bool:
        """Whether the subject is in the middle of a piece of its work."""
        return self.subject.is_busy(self)

    def busy_workers(self) -> list[Process]:
        """Return the Python processes of tasks that are in the middle of their work."""
        return busy_workers(self.running.pid, self.ground.gateway.port, self.place)

    def finish(self, attempts: int) -> str:
        """Let the subject end, and start it again where it ended with an error.

        Returns what was wrong, or nothing.
        """
        for attempt in range(attempts):
            if attempt:
                self.start()
            if self.subject.is_fed:
                if self.wait_until(lambda: self.progress() >= 1.0):
                    self.running.interrupt()
            else:
                self.wait_until(lambda: self.running.has_ended)
            code = self.running.result(60)
            self.running.kill()
            if code == (INTERRUPTED if self.subject.is_fed else 0):
                self.is_done = True
                return ""
        return f"ended with {code} after {self.starts} starts: {self.log_text[-2000:]}"

    def close(self) -> None:
        """End what still runs."""
        self._wire.close()
        if self.starts:
            self.running.kill()
