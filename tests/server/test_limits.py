from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from kgw.config import Config
from kgw.config.memory import available_memory_bytes
from kgw.server.limits import (
    RESERVED_DESCRIPTORS,
    connections_below,
    limits_from,
    raise_descriptor_limit,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_limits_come_from_the_configuration() -> None:
    """Every limit has a setting, times in seconds."""
    limits = limits_from(
        Config.of(
            socket_request_max_bytes=2000,
            request_memory_bytes=5000,
            inflight_requests_max=3,
            inflight_bytes_max=4000,
            unsent_bytes_max=6000,
            unsent_timeout_ms=1500,
            frame_timeout_ms=2500,
            sasl_server_max_receive_size=1500,
            login_timeout_ms=4500,
            connections_max_idle_ms=3500,
            max_connections=7,
            max_connections_per_ip=5,
            socket_listen_backlog_size=9,
            socket_send_buffer_bytes=8000,
        )
    )
    assert (2000, 5000, 3, 4000, 6000, 1.5, 2.5, 1500, 4.5, 3.5, 7, 5, 9, 8000) == limits


def test_defaults_follow_the_machine() -> None:
    """By default a quarter of the memory, and nearly as many connections as descriptors."""
    limits = limits_from(Config())
    assert available_memory_bytes() // 4 == limits.request_memory_bytes
    assert connections_below(raise_descriptor_limit()) == limits.connections


def test_idle_limit_can_be_off() -> None:
    """-1 never closes an idle connection."""
    assert limits_from(Config.of(connections_max_idle_ms=-1)).idle_timeout_s is None


def test_connections_leave_descriptors_to_storage() -> None:
    """Connections stay below the descriptor limit, by half of it where it is low."""
    assert 20_000 - RESERVED_DESCRIPTORS - 3_750 == connections_below(20_000)
    assert 128 == connections_below(256)


def test_descriptor_limit_is_raised() -> None:
    """The soft limit goes up to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        assert raise_descriptor_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert hard == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_memory_of_a_container(tmp_path: Path) -> None:
    """The control group's limit holds, in either version; no limit means the machine's memory."""
    machine = available_memory_bytes(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert machine == available_memory_bytes(tmp_path)
    (tmp_path / "memory.max").write_text("1000000\n")
    assert 1_000_000 == available_memory_bytes(tmp_path)
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text("900000\n")
    assert 900_000 == available_memory_bytes(tmp_path)


@pytest.mark.parametrize(("group", "expected"), [("kgw.service", 800_000), ("other", 900_000)])
def test_memory_of_a_service(tmp_path: Path, group: str, expected: int) -> None:
    """A process in a group below the root is held to that group's limit, and to those above it."""
    limits = {"": "max", "system.slice": "900000", "system.slice/kgw.service": "800000"}
    for path, limit in limits.items():
        (tmp_path / path).mkdir(exist_ok=True)
        (tmp_path / path / "memory.max").write_text(f"{limit}\n")
    membership = tmp_path / "membership"
    membership.write_text(f"1:name=systemd:/other\n0::/system.slice/{group}\n")
    assert expected == available_memory_bytes(tmp_path, membership)
