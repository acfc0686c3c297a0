from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import free_memory
from bench.harness.servers import KAFKA_DELETES_SOON, KafkaServer, server_makers
from bench.scenarios.registry import FAMILIES

if TYPE_CHECKING:
    import pytest


def test_memory_is_taken_given_back_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest comes after what it is for."""
    rests: list[float] = []
    monkeypatch.setattr("bench.harness.free_memory.time.sleep", rests.append)
    free_memory.settle(2.5, ready_bytes=1 << 16)
    assert [2.5] == rests


def test_scenarios_that_move_much_data_rest_before() -> None:
    """Whatever they take from the page cache costs every server the same."""
    for family in ("throughput", "catch_up", "latency", "confluent"):
        assert all(scenario.rest_s == free_memory.REST_S for scenario in FAMILIES[family]), family


def test_no_kafka_deletes_a_minute_later(tmp_path: Path) -> None:
    """Neither of them is measured beside the removal of what earlier scenarios wrote."""
    makers = server_makers(Path.cwd(), tmp_path)
    for name in ("kafka", "kafka-synced"):
        server = makers[name](tmp_path / name)
        assert isinstance(server, KafkaServer)
        assert KAFKA_DELETES_SOON in server.settings
