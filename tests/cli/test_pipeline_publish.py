from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner

from kgw.cli.main import main
from tests.pipeline.archive.tables.archives import TOPIC_ID, Archived, table_rows

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def run(*arguments: str) -> Result:
    """Run a command of the pipeline."""
    return CliRunner().invoke(main, ("pipeline", *arguments), prog_name="kgw")


def test_a_table_is_begun_and_brought_up_to_date(tmp_path: Path) -> None:
    """Without a server; what is published is known from then on, and to the audit."""
    archived = Archived(tmp_path)
    archived.append(10, 20)
    of = ("--archive", str(tmp_path), "--json")
    first = run("publish", *of, "--table", "delta")
    row = {"topic": "or.ders", "topic_id": str(TOPIC_ID), "table": "delta", "version": 1}
    assert (0, [row]) == (first.exit_code, json.loads(first.stdout))

    archived.append(20, 30)
    audited = run("audit", *of)
    (finding,) = json.loads(audited.stdout)["findings"]
    assert (1, "table behind", 1) == (finding["level"], finding["finding"], audited.exit_code)
    again = run("publish", *of)
    assert [row | {"version": 2}] == json.loads(again.stdout)
    assert archived.rows() == table_rows(archived.generation, "delta")
    assert 0 == run("audit", *of).exit_code


def test_a_sweep_takes_no_file_that_a_table_still_names(tmp_path: Path) -> None:
    """A publisher that was killed is made up for first; where that fails, nothing is removed."""
    archived = Archived(tmp_path)
    archived.append(10, 20)
    archived.append(20, 30)
    of = ("--archive", str(tmp_path))
    assert 0 == run("publish", *of, "--table", "delta").exit_code
    archived.replace(2, "merged")
    sweeping = ("merge", *of, "--grace", "PT0S")

    newest = archived.generation / "_delta_log" / f"{1:020d}.json"
    content = newest.read_bytes()
    newest.write_bytes(b"{")
    failed = run(*sweeping)
    assert (1, "") == (failed.exit_code, failed.stdout)
    assert 3 == len([*archived.generation.glob("p=*/*.parquet")])

    newest.write_bytes(content)
    swept = run(*sweeping)
    assert (0, "Files that were removed: 2\n") == (swept.exit_code, swept.stderr)
    assert 1 == len([*archived.generation.glob("p=*/*.parquet")])
    assert archived.rows() == table_rows(archived.generation, "delta")


def test_an_archive_that_cannot_be_written_to_is_told_in_a_line(tmp_path: Path) -> None:
    """As on a file system that is read-only."""
    archived = Archived(tmp_path)
    archived.append(10, 20)
    (archived.generation / "_tables").touch()
    refused = run("publish", "--archive", str(tmp_path), "--table", "delta")
    assert (1, 1) == (refused.exit_code, len(refused.stderr.splitlines()))
    assert refused.stderr.startswith(f"error: cannot write to {tmp_path}: ")


def test_mistakes_are_told_in_a_line(tmp_path: Path) -> None:
    """No table, an unknown kind, a catalog that nothing needs, and a table that is foreign."""
    archived = Archived(tmp_path)
    archived.append(10, 20)
    of = ("publish", "--archive", str(tmp_path))
    nothing = run(*of)
    told = f"error: {tmp_path} publishes no table; name one with --table\n"
    assert (1, told) == (nothing.exit_code, nothing.stderr)
    assert "'hudi' is not one of 'delta', 'iceberg'" in run(*of, "--table", "hudi").stderr
    catalog = run(*of, "--table", "delta", "--catalog", "mine")
    assert (2, True) == (catalog.exit_code, "--catalog is for --table iceberg" in catalog.stderr)

    assert 0 == run(*of, "--table", "delta").exit_code
    (archived.generation / "_log" / f"{1:020d}.json").unlink()
    archived.append(30, 40)
    foreign = run(*of)
    assert (1, 1) == (foreign.exit_code, len(foreign.stderr.splitlines()))
    assert "is not what was published: at version 1 it lacks p=00003" in foreign.stderr
