"""The manual page, read by what people read it with; scripts/package runs this."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.packages.building import ROOT

PAGE = str(ROOT / "docs" / "reference" / "kgw.1")

pytestmark = [pytest.mark.full, pytest.mark.slow]


def program(name: str) -> str:
    """Return where a program is; without it the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} here")
    return found


def test_mandoc_finds_nothing() -> None:
    """Nothing but the date that is missing on purpose: the page is as old as the version."""
    done = subprocess.run(
        [program("mandoc"), "-T", "lint", PAGE], check=False, capture_output=True, text=True
    )

    found = [line.partition(": ")[2] for line in done.stdout.splitlines()]
    assert ['WARNING: missing date, using "": TH'] == [line.split(": ", 1)[1] for line in found]


def test_man_shows_it_without_a_warning() -> None:
    """Groff complains of nothing, and a command's option is found."""
    done = subprocess.run(
        [program("man"), "--warnings", "--local-file", PAGE],
        check=True,
        capture_output=True,
        text=True,
        env={"LC_ALL": "C.UTF-8", "MANWIDTH": "80", "PATH": "/usr/bin:/bin"},
    )

    assert "" == done.stderr
    assert "--replication-factor N" in done.stdout
