"""Options of `kgw migrate offsets`, and what people read."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Commands
    from tests.migrate.migration import Migration


def test_plan_as_people_read_it(migration: Migration) -> None:
    """Without --json there are two tables, and notes about what could not be used."""
    sources = ("--ledger", str(migration.ledger), "--positions", str(migration.positions))
    result = migration.kgw.run("migrate", "offsets", "--plan", str(migration.file), *sources)
    assert 0 == result.exit_code
    assert "ONLY-IN-LEDGER" in result.stdout
    assert "lower-bound" in result.stdout
    assert "The gateway has no deleted-long-ago partition 0: left out." in result.stderr
    assert "1 entries or positions could not be read:" in result.stderr


def test_moves_as_people_read_them(migration: Migration) -> None:
    """What would be done, what was left alone and why, and what differs are told in words."""
    migration.plan()
    command = ("migrate", "offsets")
    file = str(migration.file)
    result = migration.kgw.run(*command, "--apply", file)
    assert ["GROUP", "TOPIC", "PARTITION", "BEFORE", "AFTER"] == result.stdout.split()[:5]
    assert f"billing  {migration.topic.name}          1  -          20\n" in result.stdout
    assert "Nothing was changed; --execute does it.\n" == result.stderr
    migration.run("apply", "--execute")
    migration.commit("reports", {0: 12})
    result = migration.kgw.run(*command, "--rollback", file)
    assert ExitCode.FAILED == result.exit_code
    assert "Group reports is left alone: it has moved on: " in result.stderr
    result = migration.kgw.run(*command, "--verify", file)
    assert "group reports" in result.stdout
    assert "48 records compared, 1 differences.\n" == result.stderr


def test_wrong_usage(offline: Commands, tmp_path: Path) -> None:
    """One mode at a time, a plan needs a ledger and a place, and options belong to their mode."""
    assert "say one of" in offline.fail(2, "migrate", "offsets")
    file = tmp_path / "plan"
    plan = ("migrate", "offsets", "--plan", str(file))
    assert "say where the ledger is" in offline.fail(2, *plan)
    assert "--force belongs to --rollback" in offline.fail(2, *plan, "--force")
    assert "--execute belongs to --apply and --rollback" in offline.fail(2, *plan, "--execute")
    ledger = tmp_path / "ledger"
    ledger.write_text("no entry\n")
    file.touch()
    assert "exists" in offline.fail(1, *plan, "--ledger", str(ledger))
    file.unlink()
    apply = ("migrate", "offsets", "--apply", str(ledger))
    assert "--ledger belongs to --plan" in offline.fail(2, *apply, "--ledger", str(ledger))
    assert "--strict belongs to --plan" in offline.fail(2, *apply, "--strict")
    assert "--all-records belongs to --verify" in offline.fail(2, *apply, "--all-records")
    elsewhere = ("migrate", "offsets", "--plan", str(tmp_path / "gone" / "plan"))
    assert "is no directory" in offline.fail(1, *elsewhere, "--ledger", str(ledger))


@pytest.mark.slow
def test_help_imports_nothing_of_a_migration() -> None:
    """Commands that are listed, and the options of this one, cost no imports of the package."""
    script = (
        "import sys; from kgw.cli.main import main\n"
        "for words in ['--help'], ['migrate', 'offsets', '--help']:\n"
        "    main(words, standalone_mode=False)\n"
        "assert 'kgw.cli.groups.migrate' in sys.modules\n"
        "print([name for name in sys.modules if name.startswith('kgw.migrate')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "[]" == done.stdout.splitlines()[-1]
