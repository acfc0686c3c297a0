"""What the partitions of a gateway share."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.backend.seaweedmq.shell import Shell
from kgw.testing.clock import ManualClock
from kgw.testing.filer import MemoryFiler

if TYPE_CHECKING:
    import pytest


async def test_each_problem_is_told_once_and_the_first_hundred_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log has all of them; what health answers with stays small."""
    problems = [f"file {number} is gone" for number in range(150)]
    async with aclosing(Shell(MemoryFiler(), ManualClock(), SeaweedMqOptions())) as shell:
        for problem in [problems[0], *problems]:
            shell.report(problem)
        assert [*problems[:100], "50 more are in the log"] == shell.problems
    assert problems == [record.__dict__["kgw_fields"]["problem"] for record in caplog.records]
