from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from kgw.backend.registry import file_limits, open_backend
from kgw.config import Config
from kgw.errors import DataDirectoryError
from kgw.testing.clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("descriptors", "expected"),
    [
        (256, (64, 32, 128)),
        (20_000, (1_250, 1_250, 2_500)),
        (1 << 20, (2_048, 2_048, 4_096)),
        (resource.RLIM_INFINITY, (2_048, 2_048, 4_096)),
    ],
)
def test_files_kept_open_follow_the_descriptors(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, expected: tuple[int, int, int]
) -> None:
    """A sixteenth for each kind of segments that wait for a sync, and never very many."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    assert expected == file_limits()


def test_only_descriptors_that_can_be_had_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody raises the limit for an offline command, and some systems refuse it to a server."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1 << 20))
    assert (256, 128, 512) == file_limits()


def test_a_backend_of_another_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name or the scheme of `kgw.backend`; one that nobody brings is an error."""
    entry_points = tmp_path / "example-1.dist-info" / "entry_points.txt"
    entry_points.parent.mkdir()
    entry_points.write_text("[kgw.backends]\nexample = kgw_example:open_backend\n")
    (tmp_path / "kgw_example.py").write_text("def open_backend(*given):\n    return given\n")
    monkeypatch.syspath_prepend(tmp_path)
    clock = ManualClock()
    for name in ("example", "example://host/path"):
        config = Config.of(backend=name)
        opened: object = open_backend(config, clock)
        assert (config, clock) == opened
    with pytest.raises(DataDirectoryError, match="no backend is installed"):
        open_backend(Config.of(backend="other"), clock)
