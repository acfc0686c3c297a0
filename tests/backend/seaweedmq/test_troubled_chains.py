"""What the log says of chains that wait for SeaweedFS, and when they wait no more."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kgw.backend.seaweedmq.chain.settling import Settler, TroubledChains
from kgw.errors import StorageError
from kgw.testing.clock import ManualClock
from kgw.testing.filer import FilerStore, MemoryFiler

if TYPE_CHECKING:
    import pytest


def test_a_line_says_that_they_wait_and_one_that_none_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each once, for all chains; what was not told to wait is not told to go on."""
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    troubled = TroubledChains()
    one, two = (
        Settler(MemoryFiler(FilerStore(), clock), clock, f"/{name}", troubled) for name in "ab"
    )
    for _ in range(2):
        one.note(StorageError("the filer is away"))
        two.note(StorageError("the filer is away"))
        one.give_up()
        two.give_up()

    assert [record.getMessage() for record in caplog.records] == [
        "chains wait for SeaweedFS",
        "no chain waits for SeaweedFS any more",
    ]
