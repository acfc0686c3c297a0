"""The exactly-once sink under kills of the query and of the gateway: each row once.

ONCE_KILLS=20:10 says how often each is killed in full size.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kgw.client import AdminClient
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.wire import Reading, WireClient
from kgw.testing.process import GatewayProcess
from tests.pipeline.spark.campaign import PARTITIONS, Killable, Producing
from tests.pipeline.spark.copying_query import SOURCE, TARGET

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(3600)]

QUERY_KILLS, GATEWAY_KILLS = (int(one) for one in os.environ.get("ONCE_KILLS", "20:10").split(":"))


def start_query(address: str, place: Path, how: str, until: str) -> Killable:
    """Start a query that says the number of each micro-batch that has ended."""
    arguments = (address, str(place / "checkpoint"), how, until)
    program = ["-m", "tests.pipeline.spark.copying_query", *arguments]
    return Killable(program, place / "query.log")


def copied(address: str) -> Counter[bytes]:
    """Return how often each value is there for a reader of committed records."""
    found: Counter[bytes] = Counter()
    with WireClient(address) as wire:
        described = wire.find_topic(TARGET)
        assert described is not None
        bounds = wire.bounds(TARGET, range(PARTITIONS), read_committed=True)
        for partition, one in bounds.items():
            wanted = OffsetRange(TARGET, partition, 0, one.latest, described.topic_id)
            for piece in wire.decoded(wanted, reading=Reading(read_committed=True)):
                found.update(piece.batch.column("value").to_pylist())
    return found


def run(place: Path, how: str, query_kills: int, gateway_kills: int) -> tuple[Counter[bytes], int]:
    """Copy under kills; return what is there in the end, and how many records there were."""
    choices = random.Random(20261)
    events = ["query"] * query_kills + ["gateway"] * gateway_kills
    choices.shuffle(events)
    with GatewayProcess(place / "data") as gateway:
        with WireClient(gateway.bootstrap) as wire:
            admin = AdminClient(wire.client)
            for topic in SOURCE, TARGET:
                wire.call(admin.create_topic(topic, partitions=PARTITIONS))
        start: Callable[[str], Killable] = lambda until: start_query(  # noqa: E731
            gateway.bootstrap, place, how, until
        )
        query = start("follow")
        with Producing(gateway.bootstrap, SOURCE) as producing:
            for event in events:
                while not query.wait_for_line():
                    # A gateway that was killed ended it: users start it again, too.
                    query.kill()
                    query = start("follow")
                time.sleep(choices.random() * 2)
                if event == "query":
                    query.kill()
                    query = start("follow")
                else:
                    gateway.kill()
                    gateway.start()
            query.kill()
        for _ in range(5):
            with start("once") as last:
                if last.result(300) == 0:
                    break
        else:
            pytest.fail((place / "query.log").read_text()[-4000:])
        return copied(gateway.bootstrap), sum(producing.counts)


def test_each_row_is_there_once(tmp_path: Path) -> None:
    """Bar 5 of the pipeline: a reader of committed records sees each record once."""
    found, count = run(tmp_path, "exactly", QUERY_KILLS, GATEWAY_KILLS)
    twice = {value: times for value, times in found.items() if times != 1}
    print(f"{count} records, {len(found)} found, {len(twice)} of them more than once")
    assert not twice
    assert len(found) == count


def test_without_it_rows_are_there_twice(tmp_path: Path) -> None:
    """The control: the same kills find what at least once means."""
    found, count = run(tmp_path, "plain", max(8, QUERY_KILLS // 2), 0)
    assert len(found) == count
    assert sum(found.values()) > count
