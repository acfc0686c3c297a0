"""Calls to servers of SeaweedFS that are repeated up to a deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.channel.calls import FIRST_PAUSE_S, Calls
from kgw.backend.seaweedmq.channel.statuses import PassingError
from kgw.backend.seaweedmq.filer import FilerError
from kgw.metrics import Metrics
from kgw.testing.clock import ManualClock
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.channel.calls import Deadline


async def test_no_call_is_repeated_at_the_deadline_itself() -> None:
    """No time is left for it then, and its error would hide why the call before it has failed."""
    clock = ManualClock(monotonic_s=0.0)
    calls = Calls(clock, Metrics(), FIRST_PAUSE_S)
    calls.is_open = True
    tried_s: list[float] = []

    async def attempt(deadline: Deadline) -> None:
        tried_s.append(clock.monotonic_s())
        deadline.one_try_s()
        raise PassingError("the server is away")

    call = asyncio.ensure_future(calls.until_done("read", attempt, None))
    await turns()
    clock.advance(FIRST_PAUSE_S)
    with pytest.raises(FilerError, match="the server is away; given up at the deadline"):
        await call
    assert [0.0] == tried_s
