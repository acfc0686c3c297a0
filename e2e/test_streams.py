"""Kafka Streams with exactly_once_v2, through kills of the gateway under load."""

from __future__ import annotations

import subprocess
import threading
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.interop.client import Topic
from tests.interop.drivers.loop import Record
from tests.interop.libraries import java_program
from tests.interop.scenario import START_MS
from tests.interop.transactions import COMMITTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = 10
INPUTS = 4
LINES = 40
# How many words the writer is ahead at most, so that the counts come to an end.
AHEAD = 20_000
WORDS = [f"word-{number}" for number in range(50)]


@contextmanager
def word_count(source: Topic, target: Topic, directory: Path) -> Iterator[None]:
    """The application, from when it runs until it has been closed."""
    command = java_program("streams/target", "streams.jar", "kgw.e2e.WordCount")
    command += [source.gateway.bootstrap, source.name, target.name, str(directory)]
    with (
        (directory / "streams.log").open("ab") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"running\n"
            yield
            assert process.poll() is None, "the application has ended"
        finally:
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


class Writer(threading.Thread):
    """Writes lines to all partitions until it is told to stop; each line is written once.

    It waits where the application has fallen far behind.
    """

    def __init__(self, topic: Topic) -> None:
        super().__init__()
        self.counts = dict.fromkeys(WORDS, 0)
        self._topics = [
            Topic(topic.client, topic.gateway, topic.name, partition) for partition in range(INPUTS)
        ]
        self._moved = threading.Condition()
        self._counted = 0
        self._stopped = False
        self._failure: Exception | None = None

    def run(self) -> None:
        """Counts what was acknowledged."""
        random = Random(7)
        for number in count():
            with self._moved:
                self._moved.wait_for(self._may_go_on)
            if self._stopped:
                return
            lines = [random.choices(WORDS, k=5) for _ in range(LINES)]
            records = [Record(None, " ".join(line).encode(), [], START_MS) for line in lines]
            try:
                self._topics[number % INPUTS].produce(records, idempotent=True)
            except Exception as error:  # noqa: BLE001 - told by whoever waits for the thread
                self._failure = error
                return
            for word in (word for line in lines for word in line):
                self.counts[word] += 1

    def note(self, counted: int) -> None:
        """Says how many words have been counted."""
        with self._moved:
            self._counted = counted
            self._moved.notify_all()

    def _may_go_on(self) -> bool:
        return self._stopped or sum(self.counts.values()) < self._counted + AHEAD

    def finish(self) -> int:
        """Stops, and tells how many words there are in all."""
        with self._moved:
            self._stopped = True
            self._moved.notify_all()
        self.join()
        if self._failure is not None:
            raise self._failure
        return sum(self.counts.values())


def test_words_are_counted_exactly_once(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, tmp_path: Path
) -> None:
    """Ten kills later a reader of committed records finds each count of each word once, in order.

    Every count is written, so that a word that was lost or counted twice shows as well in the
    middle.
    """
    # franz-go gives a new client up when its first connection ends in a kill.
    source = Topic(clients("java-4"), own_gateway, "lines")
    target = Topic(clients("franz-go"), own_gateway, "counts", 0)
    source.create(INPUTS)
    target.create(1)
    found: list[Record] = []

    def read(wanted: int) -> None:
        while len(found) < wanted:
            begin = found[-1].offset + 1 if found else 0
            more = target.consume(begin, min(wanted - len(found), 5_000), COMMITTED)
            assert more, f"nothing new after {len(found)} of {wanted} counts"
            found.extend(more)
            writer.note(len(found))

    writer = Writer(source)
    with word_count(source, target, tmp_path):
        writer.start()
        try:
            for _ in range(KILLS):
                # It has come back from the last kill, and is in the middle of something.
                read(len(found) + 1_000)
                own_gateway.kill()
                own_gateway.start()
        finally:
            words = writer.finish()
        read(words)
    counted: dict[str, list[int]] = {word: [] for word in WORDS}
    for one in found:
        assert one.key is not None
        assert one.value is not None
        counted[one.key.decode()].append(int(one.value))
    assert {word: list(range(1, sum_ + 1)) for word, sum_ in writer.counts.items()} == counted
