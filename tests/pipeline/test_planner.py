"""Workers of Spark's planner, with PySpark's own daemon and without Spark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.pipeline.planner import with_lookup
from tests import patience

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORKER = """
import signal

# The daemon sends it when it ends; the worker is to come to its own end.
signal.signal(signal.SIGHUP, signal.SIG_IGN)
{before}

def main(infile, outfile):
    outfile.write(b"answer")
    outfile.flush()
    # The planner hangs up.
    infile.read()
    outfile.write(b"last bytes")
    {after}
"""
_KGW = "import kgw.pipeline.source.data_source"
# As the worker does that looks for data sources.
_LOOKUP = """
from importlib import import_module
from pkgutil import iter_modules

[import_module(one.name) for one in iter_modules() if one.name.startswith("pyspark_k")]
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a name so short that a socket can be in it."""
    with tempfile.TemporaryDirectory(prefix="kgw-", dir="/tmp") as name:
        yield Path(name)


@pytest.mark.parametrize(
    ("daemon_module", "before", "after", "printed"),
    [
        ("pyspark.daemon", _KGW, "", None),
        ("pyspark.daemon", _LOOKUP, "", None),
        ("pyspark.daemon", _KGW, "raise ConnectionResetError('by the planner')", None),
        (
            "pyspark.daemon",
            _KGW,
            "raise ValueError('of the worker')",
            "ValueError: of the worker",
        ),
        # What PySpark prints by itself: without it nothing would have to be done.
        ("pyspark.daemon", "", "", "BrokenPipeError"),
        # Of the workers that read and write records.
        ("kgw.pipeline.daemon", "", "", None),
    ],
)
def test_a_worker_says_nothing_of_a_planner_that_hung_up(
    place: Path, daemon_module: str, before: str, after: str, printed: str | None
) -> None:
    """What else is wrong is printed as before."""
    module = place / "pyspark_worker.py"
    module.write_text(_WORKER.format(before=before, after=after), encoding="utf-8")
    environment = os.environ | {
        "PYTHONPATH": with_lookup(os.pathsep.join([str(place), *sys.path])),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(place),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", daemon_module, module.stem],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        length = int.from_bytes(daemon.stdout.read(4), "big")
        path = daemon.stdout.read(length).decode()
        with socket.socket(socket.AF_UNIX) as planner:
            planner.settimeout(patience.seconds(30))
            planner.connect(path)
            got = b""
            while len(got) < len(b"0123answer"):
                got += planner.recv(64)
            # The worker's process id comes first.
            assert b"answer" == got[4:]
        # The stream ends when daemon and worker have ended.
        daemon.stdin.close()
        errors = daemon.stderr.read().decode()
    if printed is None:
        assert "" == errors
    else:
        assert printed in errors


def test_the_search_path_is_kept_and_has_the_lookup_once() -> None:
    """A second session of a process changes nothing."""
    (lookup,) = with_lookup("").split(os.pathsep)
    path = os.pathsep.join(["first", "second"])
    assert [*path.split(os.pathsep), lookup] == with_lookup(path).split(os.pathsep)
    assert with_lookup(path) == with_lookup(with_lookup(path))
