"""What the check of records reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.embedded.log.side import encode_entry
from kgw.backend.embedded.offline.derived_check import RecordCheck
from kgw.records.batch import HEADER_BYTES
from tests.simulated_fs import SimulatedFile, SimulatedFs

if TYPE_CHECKING:
    import pytest


def test_of_damage_only_the_header_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry of damage may span a whole segment."""
    sizes: list[int] = []
    read_once = SimulatedFile.read_once

    def count(file: SimulatedFile, size: int, position: int) -> bytes:
        sizes.append(size)
        return read_once(file, size, position)

    monkeypatch.setattr(SimulatedFile, "read_once", count)
    file = SimulatedFs().open("/segment", create=True)
    file.pwrite((bytes(10_000),), 0)
    check = RecordCheck("/segment", file, 0)
    check.take(bytearray(encode_entry(0, 0, 0, 0, 10_000, 1)))
    assert [] == check.problems.all()
    assert [HEADER_BYTES] == sizes
