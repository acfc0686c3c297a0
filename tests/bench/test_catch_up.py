from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.harness.servers import server_makers
from bench.loads import franz
from bench.scenarios.catch_up import windows

if TYPE_CHECKING:
    from pathlib import Path


def test_others_are_compared_over_the_same_time() -> None:
    """The time of the read and as much before it, but never of what was no live traffic yet."""
    assert {"alone": (700, 1_000), "beside": (1_000, 1_300)} == windows(200, 1_000, 1_300)
    assert {"alone": (200, 1_000), "beside": (1_000, 9_000)} == windows(200, 1_000, 9_000)


def test_live_traffic_is_told_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has begun when it is returned, goes on until it is told, and then gives its figures."""
    program, told = tmp_path / "load", tmp_path / "told"
    figures = '{"alone_produce_p99_ms": 2}'
    program.write_text(f"#!/bin/sh\necho begun\ncat >{told}\necho '{figures}'\n")
    program.chmod(0o700)
    monkeypatch.setattr(franz, "program", lambda: program)
    server = server_makers(tmp_path, None)["kgw-strict"](tmp_path)
    live = franz.live(server, "topic", seconds=1)
    assert live.poll() is None
    times = {"alone": (1, 2), "beside": (2, 3)}
    assert {"alone_produce_p99_ms": 2} == franz.parts(live, times)
    assert "alone 1 2\nbeside 2 3\n" == told.read_text()


def test_live_traffic_that_does_not_begin_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for its figures as ever, and that fails with what it said."""
    program = tmp_path / "load"
    program.write_text("#!/bin/sh\necho no leader >&2\nexit 1\n")
    program.chmod(0o700)
    monkeypatch.setattr(franz, "program", lambda: program)
    server = server_makers(tmp_path, None)["kgw-strict"](tmp_path)
    with pytest.raises(RuntimeError, match="no leader"):
        franz.parts(franz.live(server, "topic", seconds=1), {})
