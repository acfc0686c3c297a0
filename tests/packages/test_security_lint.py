"""A14: the static lint for security covers all code, finds nothing, and each exemption says why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests import patience

ROOT = Path(__file__).resolve().parents[2]
SERVED = ROOT / "kgw"
# The rules of bandit are ruff's S; `noqa` without a name would switch off all of them.
EXEMPTION = re.compile(r"# noqa:\s*(?P<rules>[A-Z0-9, ]*?\bS\d{3}\b[A-Z0-9, ]*)(?P<reason>.*)$")
BARE = re.compile(r"# noqa(?!:)")


def lint_settings() -> dict[str, Any]:
    """Return ruff's settings of the lint."""
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lint: dict[str, Any] = settings["tool"]["ruff"]["lint"]
    return lint


def sources() -> list[Path]:
    """Return the modules of kgw that are written by hand."""
    return [one for one in SERVED.rglob("*.py") if not one.stem.endswith(("_pb2", "_pb2_grpc"))]


def test_no_rule_for_security_is_off() -> None:
    """All are on, for all of kgw."""
    lint = lint_settings()
    assert ["ALL"] == lint["select"]
    assert [] == [one for one in lint["ignore"] if re.match(r"S\d|S$", one)]
    ignored = {
        pattern: [one for one in rules if re.match(r"S\d|S$", one)]
        for pattern, rules in lint["per-file-ignores"].items()
        if pattern.startswith(("kgw", "*"))
    }
    assert [] == [rule for rules in ignored.values() for rule in rules]


def test_each_exemption_has_its_reason() -> None:
    """Behind the rule that it is from, in the same line."""
    found = {
        f"{source.relative_to(ROOT)}:{number}": match["reason"].strip(" -")
        for source in sources()
        for number, line in enumerate(source.read_text().splitlines(), 1)
        if (match := EXEMPTION.search(line))
    }
    assert len(found) > 10
    assert [] == [place for place, reason in found.items() if not reason]
    bare = [str(source) for source in sources() if BARE.search(source.read_text())]
    assert [] == bare


@pytest.mark.skipif(
    find_spec("ruff") is None and "CI" not in os.environ, reason="ruff is of scripts/check"
)
def test_it_finds_nothing(tmp_path: Path) -> None:
    """And it does find: a shell, a weak hash, a password in the code, a pickle."""

    def findings(*paths: Path, config: str = "pyproject.toml") -> list[str]:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "S"),
                *("--config", str(ROOT / config), "--output-format", "concise"),
                *map(str, paths),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=patience.seconds(60),
        )
        assert done.returncode in (0, 1), done.stderr
        return re.findall(r": (S\d+) ", done.stdout)

    assert [] == findings(SERVED)
    planted = tmp_path / "planted.py"
    planted.write_text(
        "import hashlib, pickle, subprocess\n"
        "subprocess.run('ls', shell=True)\n"
        "hashlib.md5(b'')\n"
        "password = 'secret'\n"
        "pickle.loads(b'')\n"
    )
    assert {"S602", "S324", "S105", "S301"} <= set(findings(planted))
