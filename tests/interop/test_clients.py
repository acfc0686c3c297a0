"""Every client library with every codec, alone, with each other, and across restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop import scenario
from tests.interop.libraries import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

# kafka-go has no idempotent producer.
IDEMPOTENT = [name for name in NAMES if name != "kafka-go"]


@pytest.mark.parametrize("codec", scenario.CODECS)
@pytest.mark.parametrize("name", NAMES)
def test_reads_back_what_it_wrote(
    clients: Callable[[str], Client], gateway: GatewayProcess, name: str, codec: str
) -> None:
    """A client finds its records unchanged, from any offset and by time."""
    client = clients(name)
    topic = f"alone-{name}-{codec}"
    expected = scenario.write(client, gateway, topic, codec=codec, idempotent=False)
    scenario.check_all(client, gateway, topic, expected)


@pytest.mark.parametrize("name", IDEMPOTENT)
def test_idempotent_producer(
    clients: Callable[[str], Client], gateway: GatewayProcess, name: str
) -> None:
    """An idempotent producer writes each record once."""
    client = clients(name)
    topic = f"idempotent-{name}"
    expected = scenario.write(client, gateway, topic, codec="lz4", idempotent=True)
    scenario.check_reading(client, gateway, topic, expected)


@pytest.mark.parametrize("writer", NAMES)
def test_others_read_what_it_wrote(
    clients: Callable[[str], Client], gateway: GatewayProcess, writer: str
) -> None:
    """Every other client reads the same records, offsets and timestamps."""
    topic = f"shared-{writer}"
    expected = scenario.write(clients(writer), gateway, topic, codec="snappy", idempotent=False)
    for reader in NAMES:
        scenario.check_reading(clients(reader), gateway, topic, expected)


@pytest.mark.parametrize("name", NAMES)
def test_times_that_do_not_rise(
    clients: Callable[[str], Client], gateway: GatewayProcess, name: str
) -> None:
    """The first record at or past a time, wherever it is; never one that was deleted."""
    scenario.check_disordered_times(clients(name), gateway, f"disordered-{name}")


@pytest.mark.parametrize("name", NAMES)
def test_restarts_and_kills_change_nothing(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str
) -> None:
    """Acknowledged records survive a kill and a stop, and the next offset follows."""
    scenario.check_restarts(clients(name), own_gateway, "restarts")


@pytest.mark.parametrize("name", NAMES)
def test_kill_while_producing(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str
) -> None:
    """A producer that lives through a kill has each record stored where it was told."""
    scenario.check_kill_while_producing(clients(name), own_gateway, "killed")


@pytest.mark.parametrize("name", NAMES)
def test_administration(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str
) -> None:
    """Topics are configured, grown and deleted by the client's own admin calls."""
    scenario.check_admin(clients(name), own_gateway, "administered")


@pytest.mark.parametrize("name", NAMES)
def test_deletion_of_records(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str
) -> None:
    """DeleteRecords moves the log start for ever."""
    scenario.check_deletion(clients(name), own_gateway, "deleted")


@pytest.mark.parametrize("name", NAMES)
def test_compacted_topics(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str
) -> None:
    """Compacted topics are read over their gaps and empty batches, from any offset and by time."""
    scenario.check_compaction(clients(name), own_gateway, "compacted")
