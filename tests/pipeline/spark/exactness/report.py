"""What the runs have found, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.pipeline.spark.exactness.judging import Outcome

_HEAD = (
    "subject            condition      in     out    lost doubled altered foreign   moved"
    "       s  fault"
)


class Row(NamedTuple):
    """A run that counts."""

    subject: str
    condition: str
    outcome: Outcome
    seconds: float
    fault: str
    may_double: bool


class Report:
    """Collects the rows, and the runs that do not count."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.not_run: list[str] = []

    def lines(self) -> list[str]:
        """Return the table, what does not count, and the totals."""
        exact = [one for one in self.rows if not one.may_double]
        return [
            _HEAD,
            *(_line(one) for one in sorted(self.rows)),
            *(f"not run: {one}" for one in self.not_run),
            _totals("exactly once", exact),
            _totals("at least once", [one for one in self.rows if one.may_double]),
        ]


def _line(row: Row) -> str:
    found = row.outcome
    counts = f"{found.records_in:>8}{found.records_out:>8}" + "".join(
        f"{one:>8}"
        for one in (found.lost, found.doubled, found.altered, found.foreign, found.moved)
    )
    said = " ".join([row.fault, *found.findings])
    return f"{row.subject:<19}{row.condition:<9}{counts}{row.seconds:>8.1f}  {said}"


def _totals(name: str, rows: list[Row]) -> str:
    sums = [
        sum(getattr(one.outcome, field) for one in rows)
        for field in ("records_in", "records_out", "lost", "doubled", "altered", "foreign", "moved")
    ]
    seconds = sum(one.seconds for one in rows)
    findings = sum(len(one.outcome.findings) for one in rows)
    return (
        "{name}: {runs} runs, {0} records in, {1} out: {2} lost, {3} doubled, {4} altered, "
        "{5} foreign, {6} moved, {findings} findings of audits; {seconds:.0f} s"
    ).format(*sums, name=name, runs=len(rows), findings=findings, seconds=seconds)
