"""The table of subjects. A new one is a row of `SUBJECTS`, and its functions above."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING

from tests.pipeline.spark.campaign import Killable
from tests.pipeline.spark.exactness.faults import CONDITIONS
from tests.pipeline.spark.exactness.judging import (
    AT_OFFSETS,
    COPIED,
    COPIED_IN_ORDER,
    Outcome,
    judge,
)
from tests.pipeline.spark.exactness.processes import bytes_read, is_connected
from tests.pipeline.spark.exactness.reading import (
    archived_files,
    archived_records,
    files_of_stream,
    parquet_records,
    topic_records,
)
from tests.pipeline.spark.exactness.runs import PIECES, Run, Subject

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ALL = tuple(CONDITIONS)
WITHOUT_GATEWAY = ("nothing", "task", "executor", "driver")
WITHOUT_TASKS = ("nothing", "driver", "gateway")
_MICRO_BATCHES = 5
_STORED_BYTES = 50
"""About what a record takes in the topic; in Arrow twice that."""


def _bytes_per_s(run: Run, pieces: int = PIECES) -> int:
    """Return a rate at which a task needs two answers of the server, a second apart."""
    return int(run.count * _STORED_BYTES / pieces * 0.6)


# --- archive -------------------------------------------------------------------------------------


def _archive(run: Run, *more: str) -> list[str]:
    to = ("-t", run.journal.topic, "--out", str(run.archive), "-b", run.address)
    sizes = ("--target-file", str(run.count * _STORED_BYTES // PIECES))
    # Two tasks share it.
    slow = ("--max-fetch-rate", str(2 * _bytes_per_s(run))) if run.has_slow_tasks else ()
    where = ("--master", run.master, "--json")
    return ["-m", "kgw", "pipeline", "archive", *to, *sizes, *slow, *where, *more]


def _archived(run: Run) -> float:
    rows: int = sum(one["rows"] for one in archived_files(run.generation))
    return rows / run.count


def _audit(address: str, archive: Path) -> list[str]:
    to = ("--archive", str(archive), "-b", address)
    return ["-m", "kgw", "pipeline", "audit", *to, "--level", "3", "--json"]


def audited(address: str, archive: Path, log: Path) -> tuple[str, ...]:
    """Return the names of what an audit of all levels finds."""
    with Killable(_audit(address, archive), log) as auditor:
        auditor.result(300)
    return _findings(auditor)


def _findings(auditor: Killable) -> tuple[str, ...]:
    return tuple(sorted(one["finding"] for one in json.loads(auditor.output)["findings"]))


def _judge_archive(run: Run) -> Outcome:
    outcome = judge(AT_OFFSETS, run.journal.records, archived_records(run.generation))
    return outcome._replace(findings=audited(run.address, run.archive, run.place / "audit.log"))


# --- what replaces files of an archive -----------------------------------------------------------


def _copy_the_archive(run: Run) -> None:
    shutil.copytree(run.ground.archive, run.archive)


def _maintain(run: Run, command: str, *options: str) -> list[str]:
    of = ("--archive", str(run.archive), "-t", run.journal.topic, "--master", run.master)
    return ["-m", "kgw", "pipeline", command, *of, *options, "--json"]


def _replaced(run: Run) -> float:
    """Return the share of the copied files that the commit log names no more."""
    before = {one["path"] for one in archived_files(run.ground_generation)}
    now = {one["path"] for one in archived_files(run.generation)}
    return len(before - now) / len(before)


def _judge_compacted(run: Run) -> Outcome:
    """Of each key of a partition the newest record is there, and every record without a key."""
    newest = {
        (one.partition, one.offset if one.key is None else one.key): one
        for one in run.journal.records
    }
    outcome = judge(AT_OFFSETS, newest.values(), archived_records(run.generation))
    return outcome._replace(
        records_in=len(run.journal.records),
        findings=audited(run.address, run.archive, run.place / "audit.log"),
    )


# --- what writes to a topic ----------------------------------------------------------------------


def _copied(run: Run) -> float:
    return run.offsets_of(run.target) / run.count


def _backfill(run: Run) -> list[str]:
    return run.program(
        "backfill",
        archive=str(run.ground.archive),
        topic_id=str(run.topic_id),
        transaction_bytes=run.count * _STORED_BYTES // (4 * PIECES),
    )


def _restore(run: Run) -> list[str]:
    to = ("--archive", str(run.ground.archive), "-t", run.journal.topic, "--to", run.target)
    where = ("-b", run.address, "--master", run.master)
    return ["-m", "kgw", "pipeline", "backfill", "--restore", "--hand-over", *to, *where, "--json"]


# --- format("kgw") -------------------------------------------------------------------------------


def _batch(run: Run) -> dict[str, str]:
    slow = {"maxFetchRate": str(_bytes_per_s(run))} if run.has_slow_tasks else {}
    return {"maxRecordsPerPartition": str(run.count // PIECES), **slow}


def _stream(run: Run) -> dict[str, str]:
    # Each micro-batch has a task for each partition, and is worked on by two of them at once.
    rate = _bytes_per_s(run, 4 * _MICRO_BATCHES)
    slow = {"maxFetchRate": str(rate)} if run.has_slow_tasks else {}
    return {"maxOffsetsPerTrigger": str(run.count // _MICRO_BATCHES), **slow}


def _parts(run: Run) -> Iterable[Path]:
    """Return the files of tasks that are committed: those of others lie one folder deeper."""
    out = run.place / "out"
    return [one for one in out.rglob("part-*.parquet") if one.parts.count("_temporary") < 2]


def _commits(run: Run) -> int:
    log = run.place / "out" / "_spark_metadata"
    return sum(not one.name.startswith(".") for one in log.iterdir()) if log.is_dir() else 0


# --- audit ---------------------------------------------------------------------------------------


def _learn_what_an_audit_reads(run: Run) -> None:
    """Audit once, and note how much that reads: how far another one is, is a share of it."""
    with Killable(_audit(run.address, run.ground.archive), run.place / "audit.log") as auditor:
        while not auditor.has_ended:
            run.noted["whole"] = max(bytes_read(auditor.pid), run.noted.get("whole", 1))
            time.sleep(0.002)
    assert _findings(auditor) == ()


def _audited(run: Run) -> float:
    if run.is_done:
        return 1.0
    seen = bytes_read(run.running.pid) / run.noted["whole"]
    run.noted["seen"] = max(seen, run.noted.get("seen", 0.0))
    return min(0.99, run.noted["seen"])


def _judge_audit(run: Run) -> Outcome:
    count = len(run.journal.records)
    return Outcome(count, count, findings=_findings(run.running))


# --- the table -----------------------------------------------------------------------------------


SUBJECTS = (
    Subject("archive", ALL, _archive, _archived, _judge_archive),
    Subject(
        "archive-follow",
        ALL,
        lambda run: _archive(run, "--follow", "--max-lag", "PT1S"),
        _archived,
        _judge_archive,
        is_fed=True,
    ),
    Subject(
        "backfill",
        ALL,
        _backfill,
        _copied,
        lambda run: judge(
            COPIED_IN_ORDER, run.journal.records, topic_records(run.address, run.target)
        ),
        prepare=Run.create_target,
    ),
    Subject(
        "source-batch",
        ALL,
        lambda run: run.program("read_batch", options=_batch(run)),
        lambda run: len([*_parts(run)]) / PIECES,
        lambda run: judge(AT_OFFSETS, run.journal.records, parquet_records(_parts(run))),
    ),
    Subject(
        "source-stream",
        ALL,
        lambda run: run.program("read_stream", options=_stream(run)),
        lambda run: _commits(run) / _MICRO_BATCHES,
        lambda run: judge(
            AT_OFFSETS, run.journal.records, parquet_records(files_of_stream(run.place / "out"))
        ),
    ),
    Subject(
        "sink-exactly-once",
        ALL,
        lambda run: run.program("copy_stream", options=_stream(run)),
        _copied,
        lambda run: judge(COPIED, run.journal.records, topic_records(run.address, run.target)),
        prepare=Run.create_target,
    ),
    Subject(
        "sink-at-least-once",
        ALL,
        lambda run: run.program("copy_batch", options=_batch(run)),
        _copied,
        lambda run: judge(COPIED, run.journal.records, topic_records(run.address, run.target)),
        prepare=Run.create_target,
        may_double=True,
    ),
    Subject(
        "audit",
        WITHOUT_TASKS,
        lambda run: _audit(run.address, run.ground.archive),
        _audited,
        _judge_audit,
        prepare=_learn_what_an_audit_reads,
        is_busy=lambda run: is_connected(run.running.pid, run.ground.gateway.port),
    ),
    Subject(
        "merge",
        WITHOUT_GATEWAY,
        # Two of the small files at a time.
        lambda run: _maintain(
            run, "merge", "--target-file", str(5 * run.count * _STORED_BYTES // PIECES)
        ),
        _replaced,
        _judge_archive,
        prepare=_copy_the_archive,
    ),
    Subject(
        "compact",
        WITHOUT_GATEWAY,
        lambda run: _maintain(run, "compact", "--tombstone-retention", "P36500D"),
        _replaced,
        _judge_compacted,
        prepare=_copy_the_archive,
    ),
    Subject(
        "backfill-restore",
        ALL,
        _restore,
        _copied,
        lambda run: judge(AT_OFFSETS, run.journal.records, topic_records(run.address, run.target)),
        prepare=Run.create_target,
    ),
)
