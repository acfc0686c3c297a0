"""A consumer of the new group protocol (KIP-848), which kgw has switched off."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests import patience
from tests.interop.libraries import ROOT

if TYPE_CHECKING:
    from kgw.testing.process import GatewayProcess

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

PROGRAM = """
import sys
from confluent_kafka import Consumer

consumer = Consumer({
    "bootstrap.servers": sys.argv[1], "group.id": "group", "group.protocol": "consumer",
    "log_level": 0,
})
consumer.subscribe(["orders"])
print(consumer.poll(float(sys.argv[2])).error().str())
consumer.close()
"""


def test_confluent_kafka_says_that_it_is_not_supported(own_gateway: GatewayProcess) -> None:
    """The first poll ends with the reason; it used to wait for ever."""
    limit_s = patience.seconds(60)
    interpreter = ROOT / ".venv-clients" / "confluent-kafka" / "bin" / "python"
    done = subprocess.run(
        [interpreter, "-c", PROGRAM, own_gateway.bootstrap, str(limit_s)],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * limit_s,
    )
    assert "ConsumerGroupHeartbeat fatal error: Broker: API version not supported" in done.stdout
