from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.pipeline.archive import durable
from kgw.pipeline.archive.durable import make_directory

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_directory_that_a_killed_process_made_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there, and nobody knows whether it stays."""
    synced: list[Path] = []
    monkeypatch.setattr(durable, "sync", synced.append)
    path = tmp_path / "root" / "topic" / "life" / "_log"
    for _ in range(2):
        make_directory(path)
        assert [*path.parents][:4] == synced
        synced.clear()
