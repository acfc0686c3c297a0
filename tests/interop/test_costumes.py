"""Client libraries at a broker of tests that passes for another release of Kafka.

Python's in the short run with one release; `scripts/e2e` has Go's and Java's as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.loop import Record, to_json
from tests.interop.libraries import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.testing.broker import Broker
    from tests.interop.client import Client

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(60)]

SHORT = ("2.8",)
RELEASES = ("0.10.2", "1.1", "2.8", "3.9", "4.1")
REFUSED = {("java-4", "0.10.2"), ("java-4", "1.1"), ("sarama", "0.10.2")}
"""Kafka's own client of 4.x speaks with 2.1 and newer alone. sarama builds batches as for the
release that it is told, and 1.61.1 panics when a broker wants the older message sets."""
CASES = [
    pytest.param(
        name,
        release,
        marks=[pytest.mark.kgw_costume(release), *([] if release in SHORT else [pytest.mark.full])],
    )
    for name in NAMES
    for release in RELEASES
    if (name, release) not in REFUSED
]


@pytest.mark.kgw_topics("orders")
@pytest.mark.parametrize(("name", "release"), CASES)
def test_libraries_work_with_each_release(
    clients: Callable[[str], Client], kgw_broker: Broker, name: str, release: str
) -> None:
    """They produce, read, and commit as members of a group."""
    client = clients(name)
    server = {"bootstrap": kgw_broker.bootstrap, "topic": "orders"}
    records = [Record(b"k", b"%d" % number, [], 1_700_000_000_000) for number in range(3)]
    client.ask(
        "produce",
        **server,
        partition=0,
        codec="none",
        idempotent=False,
        producer=None,
        records=[to_json(record) for record in records],
    )
    assert [b"0", b"1", b"2"] == kgw_broker.values("orders")
    client.open_member("m", group="g", strategy="range", **server)
    read: set[tuple[int, int]] = set()
    while len(read) < len(records):
        read.update(client.poll_members(["m"])["m"][0])
    client.commit_member("m")
    client.close_member("m")
    assert {(0, 0), (0, 1), (0, 2)} == read
    assert {("orders", 0): 3} == kgw_broker.committed("g")
