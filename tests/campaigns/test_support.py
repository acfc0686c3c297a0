"""The verdict of a campaign: what was found is not lost on its way, nor what was not done."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.campaigns.old_data import fixtures
from tests.campaigns.support import Report, checked_directory, main, replaced

if TYPE_CHECKING:
    from pathlib import Path

MANY = 100
"""More findings than a report shows."""


def failed(*failures: str) -> Report:
    """Return a report in which that was found."""
    report = Report("part", 1)
    for one in failures:
        report.fail(one)
    return report


def test_a_report_passes_only_where_nothing_was_found() -> None:
    """A finding ends the test with what was found; one of many is enough."""
    failed().conclude()
    with pytest.raises(AssertionError, match=r"FAILED \(1\)\n  lost"):
        failed("lost").conclude()
    many = failed(*[f"{number}" for number in range(MANY)])
    assert MANY == many.failure_count
    assert 0 < len(many.failures) < MANY
    with pytest.raises(AssertionError, match=rf"FAILED \({MANY}\)"):
        many.conclude()


def test_a_run_that_did_too_little_has_failed() -> None:
    """What was required was done at least as often, or it is a finding."""
    report = Report("run", 1)
    report.count("kills", 3)
    report.count("kills")
    report.require("kills", 4)
    assert [] == report.failures
    report.require("kills", 5)
    report.require("cuts", 1)
    assert ["kills: only 4 of 5", "cuts: only 0 of 1"] == report.failures


def test_a_control_must_find_what_was_broken() -> None:
    """By its name: nothing, or something else, is a finding."""
    report = Report("run", 1)
    report.expect_alarm(failed("acked-lost: 3", "acked-lost: 4", "stuck"), "acked-lost")
    assert [] == report.failures
    assert 2 == report.counts["control_alarms"]
    report.expect_alarm(failed("stuck"), "acked-lost")
    report.expect_alarm(failed(), "acked-lost")
    assert 2 == report.failure_count
    assert all(one.startswith("control: nothing says 'acked-lost'") for one in report.failures)


def test_what_a_part_has_found_is_found() -> None:
    """Under the part's name, with what it has done."""
    report, part = Report("run", 1), failed("lost")
    part.count("kills", 2)
    report.count("kills")
    report.add(part)
    assert ["part: lost"] == report.failures
    assert 3 == report.counts["kills"]
    with pytest.raises(AssertionError):
        report.conclude()


@pytest.mark.parametrize(("failures", "status"), [([], 0), (["lost"], 1)])
def test_a_command_ends_with_the_verdict(
    monkeypatch: pytest.MonkeyPatch, failures: list[str], status: int
) -> None:
    """With the seed and the size that it was given."""
    asked: list[tuple[int, bool]] = []

    def run(seed: int, full: bool) -> Report:
        asked.append((seed, full))
        return failed(*failures)

    monkeypatch.setattr(sys, "argv", ["campaign", "--full", "--seed", "7"])
    with pytest.raises(SystemExit) as ended:
        main(run)
    assert (status, [(7, True)]) == (ended.value.code, asked)


def test_what_was_replaced_comes_back() -> None:
    """Also when the block fails."""

    class Owner:
        name = "right"

    with replaced(Owner, "name", "wrong"):
        assert "wrong" == Owner.name
    assert "right" == Owner.name
    with pytest.raises(ValueError, match="failed"), replaced(Owner, "name", "wrong"):
        raise ValueError("failed")
    assert "right" == Owner.name


def left_data(parent: Path, *, is_damaged: bool) -> Path:
    """Use a checked directory for a data directory; return where it was."""
    with checked_directory(str(parent)) as directory:
        data = fixtures()[-1].unpack(directory)
        if is_damaged:
            segment = max(data.rglob("*.log"), key=lambda path: path.stat().st_size)
            content = segment.read_bytes()
            segment.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    return directory


@pytest.mark.slow
@pytest.mark.damages_storage("a bit is flipped")
def test_a_directory_is_looked_at_when_its_block_is_over(tmp_path: Path) -> None:
    """What is wrong with a data directory in it fails the campaign; then it is gone."""
    assert not left_data(tmp_path, is_damaged=False).exists()
    with pytest.raises(AssertionError):
        left_data(tmp_path, is_damaged=True)
    assert [] == [*tmp_path.iterdir()]
