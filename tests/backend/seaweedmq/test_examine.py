"""What `kgw doctor` says of a SeaweedFS."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from kgw.backend.seaweedmq.offline.examine import (
    Setup,
    Severity,
    examine,
    judge_version,
)
from kgw.errors import StorageError
from kgw.testing.filer import CallKind, MemoryFiler

SETUP = Setup("kafka", "001", "", is_synced=True, is_secured=True)


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("8000GB 4.48 pypi", Severity.OK),
        ("30GB 5.01 abc", Severity.OK),
        ("30GB 4.44 abc", Severity.WARNING),
        ("", Severity.WARNING),
    ],
)
def test_old_versions_are_warned_of(text: str, severity: Severity) -> None:
    """As a filer says it."""
    assert severity is judge_version(text).severity


async def test_other_filers_are_a_problem() -> None:
    """Kgw does not start beside them."""
    filer = MemoryFiler()
    filer.addresses.append("b:8888")
    await filer.open()
    async with aclosing(filer):
        found = [one async for one in examine(filer, SETUP, "probe", 0.0)]
    assert ["filers"] == [one.subject for one in found if one.severity is Severity.PROBLEM]


async def test_a_sound_filer_is_found_so_and_left_as_it_was() -> None:
    """The entry and the chunk of the test are removed."""
    filer = MemoryFiler()
    await filer.open()
    async with aclosing(filer):
        found = [one async for one in examine(filer, SETUP, "probe", 0.0)]
        assert {Severity.OK} == {one.severity for one in found}
        assert not [one async for one in filer.list_entries("/topics/.kgw/kafka")]


async def test_a_volume_server_that_is_away_is_a_problem() -> None:
    """Everything else is said all the same."""
    filer = MemoryFiler()
    await filer.open()
    async with aclosing(filer):
        filer.fail_next(CallKind.UPLOAD, StorageError("no free volumes left"))
        found = [one async for one in examine(filer, SETUP, "probe", 0.0)]
    assert ["volumes"] == [one.subject for one in found if one.severity is Severity.PROBLEM]
    assert "topics" == found[-1].subject
