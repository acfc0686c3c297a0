"""What is made of an index's answers about vulnerabilities."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from tests.packages.audit import Exemption, Finding, audit, load_exemptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TODAY = dt.date(2026, 11, 28)
KNOWN = {
    "id": "GHSA-1",
    "aliases": ["CVE-1"],
    "summary": "It breaks.",
    "details": "Long.",
    "fixed_in": ["1.1"],
    "withdrawn": None,
}
FOUND = Finding("broken", "1.0", "GHSA-1", "It breaks.", ("1.1",))


def about(version: str, *known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the index's document of a package."""
    return {"info": {"version": version}, "vulnerabilities": [*known]}


def test_a_published_vulnerability_is_found() -> None:
    """The version's own document is asked for first."""
    documents = {"broken/1.0/json": about("1.0", KNOWN), "broken/json": about("2.0")}
    verdict = audit({"broken": "1.0"}, documents.get, [], TODAY)

    assert ([FOUND], [], []) == verdict


def test_an_index_that_answers_for_the_newest_alone() -> None:
    """The newest is known; of another version nobody says that it is without fault."""
    documents = {"broken/json": about("1.0", KNOWN), "old/json": about("3.0")}
    verdict = audit({"broken": "1.0", "old": "2.0", "gone": "1.0"}, documents.get, [], TODAY)

    assert ([FOUND], [], ["old", "gone"]) == verdict


def test_what_was_withdrawn_is_no_finding() -> None:
    """Who had published it has taken it back."""
    documents = {"broken/1.0/json": about("1.0", {**KNOWN, "withdrawn": "2026-01-01T00:00:00Z"})}

    assert ([], [], []) == audit({"broken": "1.0"}, documents.get, [], TODAY)


@pytest.mark.parametrize("named", ["GHSA-1", "CVE-1"])
def test_an_exception_ends(named: str) -> None:
    """It counts until its day, under each name of the finding, for its package alone."""
    documents = {"broken/1.0/json": about("1.0", KNOWN)}
    exemption = Exemption(named, "broken", TODAY, "never called")

    def asked(one: Exemption, today: dt.date) -> tuple[int, int]:
        verdict = audit({"broken": "1.0"}, documents.get, [one], today)
        return len(verdict.findings), len(verdict.exempted)

    assert (0, 1) == asked(exemption, TODAY)
    assert (1, 0) == asked(exemption, TODAY + dt.timedelta(days=1))
    assert (1, 0) == asked(exemption._replace(package="other"), TODAY)


def test_exceptions_are_read(tmp_path: Path) -> None:
    """Each has a reason and a last day; the project's own file can be read."""
    file = tmp_path / "audit.toml"
    file.write_text(
        '[[exception]]\nid = "GHSA-1"\npackage = "broken"\nuntil = 2026-12-31\nreason = "why"\n'
    )
    assert [Exemption("GHSA-1", "broken", dt.date(2026, 12, 31), "why")] == load_exemptions(file)
    file.write_text('[[exception]]\nid = "GHSA-1"\npackage = "broken"\nuntil = 2026-12-31\n')
    with pytest.raises(TypeError, match="reason"):
        load_exemptions(file)
    assert all(one.reason for one in load_exemptions())
