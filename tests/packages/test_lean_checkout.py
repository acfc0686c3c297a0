"""A checkout that `scripts/run` has installed for a server without SeaweedFS."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode
from tests.packages.building import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS = "seaweedmq://127.0.0.1:1/orders"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--backend", ADDRESS],
        ["serve", "--listen", "127.0.0.1:0", "--smq-agent", "127.0.0.1:0"],
        ["doctor", "--backend", ADDRESS],
        ["log", "check", ADDRESS],
    ],
    ids=" ".join,
)
def test_messages_that_were_not_made_are_named(tmp_path: Path, arguments: list[str]) -> None:
    """One line says what makes them: the packages of the extra may all be there."""
    checkout = tmp_path / "checkout"
    shutil.copytree(
        ROOT / "kgw", checkout / "kgw", ignore=shutil.ignore_patterns("*_pb2*", "__pycache__")
    )
    done = subprocess.run(
        [sys.executable, "-m", "kgw", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        check=False,
        capture_output=True,
        text=True,
    )
    expected = (
        "error: the Python of SeaweedFS's messages has not been made in this checkout: "
        f"{sys.executable} -m pip install --editable '{checkout}[seaweedmq]'"
    )
    assert (ExitCode.FAILED, expected) == (done.returncode, done.stderr.strip())
