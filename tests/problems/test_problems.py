"""Each reason of the table is told wherever somebody may look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.cli.doctor.examination import find_problems
from kgw.client import AdminClient
from kgw.problems import (
    BATCH_ROOM,
    BUG,
    REASONS,
    REFUSED_LATELY_S,
    ROOM,
    USUAL,
    Problem,
    Refusals,
    ReportedReasons,
)
from kgw.testing.clock import ManualClock
from kgw.testing.inside import InsideClient
from tests.admin.asking import Admin
from tests.cli.test_doctor import HEALTHY, examined
from tests.problems.causes import CAUSES

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.problems import Reason
    from kgw.testing.gateway import InProcessGateway


def test_every_reason_is_brought_about() -> None:
    """Whoever adds a row to the table adds its cause."""
    assert list(REASONS) == sorted(CAUSES, key=REASONS.index)


@pytest.mark.damages_storage("some causes are damage")
@pytest.mark.parametrize("reason", REASONS, ids=lambda one: one.name)
async def test_each_reason_is_told_everywhere(
    reason: Reason,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In readiness, the log, the metric and to the doctor; and nowhere once it is over."""
    caplog.set_level("INFO")
    async with CAUSES[reason](tmp_path, monkeypatch) as (gateway, end, is_served):
        admin = Admin(gateway.gateway)
        answer = await admin.get("/health/ready")
        assert reason.name in answer.value["reasons"]
        assert answer.value["problems"]
        if reason.stops:
            assert 503 == answer.status
        assert 1 <= await _metric(admin, f'kgw_problem{{reason="{reason.name}"}}')
        assert (200 == answer.status) == await _metric(admin, "kgw_ready")
        assert (reason in USUAL) or 1 <= await _metric(admin, "kgw_problems")
        if is_served:
            told = await _told(gateway)
            assert reason.name in [name for name, _ in told]
            found = examined(HEALTHY)._replace(told=tuple(told))
            said = find_problems(found, "127.0.0.1")
            assert reason.refuses == any(f"({reason.name})" in one for one in said)
        await admin.get("/health/ready")
        if not reason.is_told_at_once:
            assert 1 == _lines(caplog, "problem", reason)
        elif reason not in USUAL:
            logged = [
                value for one in caplog.records for value in getattr(one, "kgw_fields", {}).values()
            ]
            assert set(answer.value["problems"]) & set(map(str, logged))
        if end is None:
            return
        assert 0 == _lines(caplog, "problem is over", reason)
        await end()
        after = await admin.get("/health/ready")
        assert reason.name not in after.value["reasons"]
        assert 0 == await _metric(admin, f'kgw_problem{{reason="{reason.name}"}}')
        assert 1 == _lines(caplog, "problem is over", reason)


async def _metric(admin: Admin, name: str) -> float:
    text = (await admin.get("/metrics")).body.decode()
    (value,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(value.rpartition(" ")[2])


async def _told(gateway: InProcessGateway) -> list[tuple[str, str]]:
    async with InsideClient(gateway.dispatcher) as client:
        return await AdminClient(client).problems(0)


def _lines(caplog: pytest.LogCaptureFixture, event: str, reason: Reason) -> int:
    fields = [getattr(one, "kgw_fields", {}) for one in caplog.records if one.getMessage() == event]
    return sum(one["reason"] == reason.name for one in fields)


def test_a_refusal_is_told_of_for_a_while() -> None:
    """From the last one on: the clock says when it is over."""
    clock = ManualClock()
    refusals = Refusals(clock.monotonic_s)
    refusals.note(BUG, "first")
    clock.advance(REFUSED_LATELY_S - 1)
    refusals.note(BUG, "second")
    clock.advance(REFUSED_LATELY_S - 1)
    assert (Problem(BUG, "second"),) == refusals.problems
    clock.advance(1)
    assert not refusals.problems


def test_a_refusal_that_would_be_none_now_is_forgotten() -> None:
    """Others stay; what was never refused is no error."""
    refusals = Refusals(ManualClock().monotonic_s)
    refusals.note(BUG, "a bug")
    refusals.note(BATCH_ROOM, "too large")
    refusals.forget(BATCH_ROOM)
    refusals.forget(ROOM)
    assert (Problem(BUG, "a bug"),) == refusals.problems


def test_each_reason_is_told_once() -> None:
    """However many problems it has, and however often somebody looks."""
    told = ReportedReasons()
    first, second = Problem(BUG, "first"), Problem(BUG, "second")
    assert ([first], []) == told.step([first, second])
    assert ([], []) == told.step([second])
    assert ([Problem(ROOM, "full")], [BUG]) == told.step([Problem(ROOM, "full")])
    assert ([], [ROOM]) == told.step([])
