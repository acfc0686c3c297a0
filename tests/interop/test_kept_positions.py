"""kafka-python 3.0.12 reads on from old positions: docs/clients/kafka-python.md says how to go on.

Whoever sees the first of these fail with a later release takes the sentence out of that page, and
the remedy out of tests/campaigns/exactly_once_member.py.
"""

from __future__ import annotations

import json
import logging
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import patience
from tests.interop.libraries import python

if TYPE_CHECKING:
    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Clients

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

TOPIC = "kept-positions"
RECORDS = 10
_SILENT = logging.getLogger("kept-positions")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def tell(clients: Clients, gateway: GatewayProcess, way: str) -> dict[str, Any]:
    """Have a consumer put out of its group while it joins; what it does when it is back."""
    clients("kafka-python-3")  # skips, or fails, where its environment is missing
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap}, logger=_SILENT)
    for future in admin.create_topics([NewTopic(TOPIC, 2, 1)]).values():
        future.result(patience.seconds(20))
    producer = Producer({"bootstrap.servers": gateway.bootstrap}, logger=_SILENT)
    for number in range(2 * RECORDS):
        producer.produce(TOPIC, str(number), partition=number % 2)
    assert 0 == producer.flush(20)
    done = subprocess.run(
        [*python("kafka-python-3", "kept_positions"), gateway.bootstrap, TOPIC, way],
        capture_output=True,
        text=True,
        timeout=patience.seconds(90),
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_it_reads_again_what_another_has_read(
    clients: Clients, own_gateway: GatewayProcess
) -> None:
    """It is told how far the group is if it asks; it does not ask."""
    told = tell(clients, own_gateway, "plain")
    assert RECORDS == told["committed"]
    assert list(range(told["left_at"], RECORDS)) == told["read"]


def test_who_goes_to_where_the_group_is_reads_nothing_twice(
    clients: Clients, own_gateway: GatewayProcess
) -> None:
    """After each assignment, and before anything is made of what was read."""
    told = tell(clients, own_gateway, "seeks")
    assert RECORDS == told["committed"]
    assert [] == told["read"]
