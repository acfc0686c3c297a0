"""Runs of pytest in a process of their own: what they import is not this process's."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INI = """[pytest]
asyncio_mode = {mode}
asyncio_default_fixture_loop_scope = function
addopts = --strict-markers
filterwarnings =
    error
    # kafka-python reads its definitions with a deprecated function of the standard library.
    ignore:(read|open)_text is deprecated:DeprecationWarning
"""
_OFF = ("randomly", "timeout", "cacheprovider")


class Outcome(NamedTuple):
    """What became of one test: passed, failed, error or skipped, and what was said of it."""

    result: str
    text: str = ""


def run_pytest(
    directory: Path, files: Mapping[str, str], *arguments: str, mode: str = "strict"
) -> dict[tuple[str, str], Outcome]:
    """Write the files and run them all; return what became of each test, by file and name.

    Warnings are errors there. `mode` is pytest-asyncio's.
    """
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)
    (directory / "pytest.ini").write_text(INI.format(mode=mode))
    off = [f"-pno:{name}" for name in _OFF]
    command = [sys.executable, "-m", "pytest", "--junitxml=report.xml", *off, *arguments]
    inherited = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    ran = subprocess.run(
        command, check=False, cwd=directory, env=inherited, capture_output=True, text=True
    )
    report = directory / "report.xml"
    assert report.exists(), ran.stdout + ran.stderr
    outcomes = {}
    # Written by pytest, a moment ago.
    for case in ET.parse(report).iter("testcase"):  # noqa: S314
        outcome = Outcome("passed")
        for child in case:
            if child.tag in {"failure", "error", "skipped"}:
                text = f"{child.get('message')}\n{child.text}"
                outcome = Outcome({"failure": "failed"}.get(child.tag, child.tag), text)
        file = str(case.get("classname")).partition(".")[0]
        outcomes[file, str(case.get("name"))] = outcome
    return outcomes
