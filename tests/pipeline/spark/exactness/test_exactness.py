"""Bar 1 of the pipeline: what comes out equals what went in, whatever fails meanwhile.

EXACTNESS=85000:60 says how many records a run has, and how many runs there are at least; each
subject meets each condition once in any case.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from random import Random
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from kgw.testing.process import GatewayProcess
from tests.pipeline.spark.campaign import Killable
from tests.pipeline.spark.exactness.faults import CONDITIONS
from tests.pipeline.spark.exactness.journal import Journal
from tests.pipeline.spark.exactness.judging import AT_OFFSETS, judge
from tests.pipeline.spark.exactness.reading import topic_records
from tests.pipeline.spark.exactness.report import Report, Row
from tests.pipeline.spark.exactness.runs import LOCAL, PIECES, Ground, Run, Subject
from tests.pipeline.spark.exactness.subjects import SUBJECTS, audited

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.pipeline.spark.exactness.judging import Outcome

LEAST_RUNS, LEAST_RECORDS = 60, 5_000_000
"""Of what must be exact, all together."""
FULL_RECORDS = 85_000
RECORDS, RUNS = (
    int(one) for one in os.environ.get("EXACTNESS", f"{FULL_RECORDS}:{LEAST_RUNS}").split(":")
)
SEED = 20261
TRIES = 5
"""A fault that came too late is tried again so often, with other seeds."""
STARTS = 5
"""A subject that a fault has ended is started again so often."""


def planned(least: int) -> list[tuple[Subject, str, int]]:
    """Return each subject under each condition, and exact ones again until there are so many."""
    cells = [(subject, condition) for subject in SUBJECTS for condition in subject.conditions]
    exact = [cell for cell in cells if not cell[0].may_double]
    Random(SEED).shuffle(exact)
    count = max(least, len(exact))
    again = [(*exact[index % len(exact)], index // len(exact)) for index in range(count)]
    return again + [(*cell, 0) for cell in cells if cell[0].may_double]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A gateway on a disk, a topic that is filled, and an archive of it."""
    place = tmp_path_factory.mktemp("exactness")
    with GatewayProcess(place / "data") as gateway:
        journal = Journal("ground", SEED)
        journal.create(gateway.bootstrap)
        journal.fill(gateway.bootstrap, RECORDS)
        archive = place / "archive"
        to = ("-t", journal.topic, "--out", str(archive), "-b", gateway.bootstrap)
        sizes = ("--target-file", str(RECORDS * 50 // PIECES), "--master", LOCAL)
        arguments = ["-m", "kgw", "pipeline", "archive", *to, *sizes, "--json"]
        with Killable(arguments, place / "archive.log") as archiver:
            assert archiver.result(300) == 0, (place / "archive.log").read_text()
        yield Ground(gateway, journal, archive)


def test_the_campaign_is_large_enough() -> None:
    """In full size there are as many runs and records as the bar wants."""
    runs = sum(not subject.may_double for subject, _, _ in planned(LEAST_RUNS))
    assert runs >= LEAST_RUNS
    assert runs * FULL_RECORDS >= LEAST_RECORDS


def attempt(run: Run) -> tuple[str, Outcome | None]:
    """Run a subject under its condition; return what happened, and None where it did not count."""
    run.prepare()
    run.start()
    hit = CONDITIONS[run.condition](run)
    wrong = run.finish(STARTS if run.condition in {"driver", "gateway"} else 1)
    assert not wrong, wrong
    if hit is None:
        return "the fault came too late", None
    final = run.progress()
    if run.condition != "nothing" and not 0 < hit.before <= hit.after < final:
        return f"at {hit.before:.2f} to {hit.after:.2f} of {final:.2f}", None
    share = f"at {hit.after / final:.0%}: {hit.what}" if hit.what else ""
    return share, run.judge()


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("subject", "condition", "round_number"),
    [
        pytest.param(*one, id=f"{one[0].name}-{one[1]}-{one[2]}")
        for one in sorted(planned(RUNS), key=lambda one: (one[0].name, *one[1:]))
    ],
)
def test_what_comes_out_is_what_went_in(
    *,
    subject: Subject,
    condition: str,
    round_number: int,
    ground: Ground,
    report: Report,
    tmp_path: Path,
) -> None:
    """Nothing is lost, doubled or altered; a fault that came too late is tried again."""
    for number in range(TRIES):
        seed = SEED + round_number + 1000 * number
        name = f"{subject.name}-{condition}-{uuid4().hex[:8]}"
        place = tmp_path / name
        place.mkdir()
        began = time.monotonic()
        run = Run(subject, condition, seed, RECORDS, place, ground)
        try:
            what, outcome = attempt(run)
        finally:
            run.close()
        if outcome is not None:
            break
        report.not_run.append(f"{name}, seed {seed}: {what}")
    else:
        pytest.fail(f"no fault in mid-work in {TRIES} tries; see the report")
    seconds = time.monotonic() - began
    report.rows.append(
        Row(subject.name, condition, outcome, seconds, what, may_double=subject.may_double)
    )
    assert outcome.is_complete if subject.may_double else outcome.is_exact, outcome


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_careless_committer_is_found(ground: Ground, tmp_path: Path) -> None:
    """The control: an entry that was written to the commit log without its rules is found."""
    archive = tmp_path / "archive"
    shutil.copytree(ground.archive, archive)
    (log,) = archive.glob("*/*/_log")
    assert audited(ground.gateway.bootstrap, archive, tmp_path / "log") == ()
    versions = sorted(one for one in log.glob("*.json") if one.stem.isdecimal())
    entry = json.loads(versions[-1].read_text())
    careless = {**entry, "id": str(uuid4())}
    (log / f"{int(versions[-1].stem) + 1:020d}.json").write_text(json.dumps(careless))
    assert "overlap" in audited(ground.gateway.bootstrap, archive, tmp_path / "log")


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(3600)
def test_the_journal_is_what_others_read(ground: Ground) -> None:
    """The topic itself has what the journal says, for a reader of committed records."""
    found = topic_records(ground.gateway.bootstrap, ground.journal.topic)
    assert judge(AT_OFFSETS, ground.journal.records, found).is_exact
