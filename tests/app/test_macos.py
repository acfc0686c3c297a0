"""kgw without what macOS lacks; and on Windows, which is refused.

A real macOS is not there: `without_linux/sitecustomize.py` takes away what it lacks, also from
the processes that a process starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.testing.process import GatewayProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_LINUX = Path(__file__).with_name("without_linux")
ON_WINDOWS = "import sys; sys.platform = 'win32'; import kgw"
DESCRIPTORS = "from kgw.server.limits import raise_descriptor_limit as r; print(r())"
SYNC = """
import errno, os
from kgw import system
try:
    system.{name}(os.open({file!r}, os.O_RDWR))
except OSError as error:
    print(errno.errorcode[error.errno])
"""
PLUGIN = """
def test_a_record_is_there(kgw_broker):
    kgw_broker.create_topics("greetings")
    kgw_broker.produce("greetings", [b"hello"])
    assert [b"hello"] == [record.value for record in kgw_broker.records("greetings")]
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.fixture
def syncs(tmp_path: Path) -> Path:
    """A file with one byte for each full sync."""
    file = tmp_path / "syncs"
    file.write_bytes(b"")
    return file


@pytest.fixture
def env(syncs: Path) -> Mapping[str, str]:
    """The variables of a process that has nothing of Linux."""
    return {
        **os.environ,
        "PYTHONPATH": f"{WITHOUT_LINUX}{os.pathsep}{ROOT}",
        "FULL_SYNCS_FILE": str(syncs),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def run(env: Mapping[str, str], *arguments: str, given: str = "") -> str:
    """Run Python there, and return what it prints."""
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, check=False, env=env, input=given, capture_output=True, text=True
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def kgw(env: Mapping[str, str], *arguments: str, given: str = "") -> str:
    """Run a command of kgw there."""
    return run(env, "-m", "kgw", *arguments, given=given)


@pytest.fixture
def gateway(tmp_path: Path, env: Mapping[str, str]) -> Iterator[GatewayProcess]:
    """A server there, which runs."""
    made = GatewayProcess(tmp_path / "data", "log.cleaner.enable=false", env=env).start()
    yield made
    if made.running:
        made.kill()


def test_what_is_acknowledged_survives_a_kill(
    gateway: GatewayProcess, env: Mapping[str, str], syncs: Path
) -> None:
    """Topics, records, a start after kill -9, compaction and a look at all files."""
    where = ("-b", gateway.bootstrap)
    create = ("topics", "create", "a", "-p", "1", "--set", "cleanup.policy=compact")
    kgw(env, *create, "--set", "segment.bytes=1048576", *where)
    before = syncs.stat().st_size
    # Two segments, of which the first can be compacted.
    large = "".join(f"m:{'v' * 100_000}\n" for _ in range(12))
    kgw(env, "produce", "a", "--key-separator", ":", *where, given=large)
    for number in range(3):
        kgw(env, "produce", "a", "--key-separator", ":", *where, given=f"k:{number}\nl:{number}\n")
    after = syncs.stat().st_size
    read = kgw(env, "consume", "a", "--from", "12", "--max-records", "6", *where)
    gateway.kill()
    gateway.start()

    assert 3 <= after - before
    assert {"0", "1", "2"} == {*read.split()}
    assert ["2", "2"] == kgw(
        env, "consume", "a", "--max-records", "2", "--from", "16", *where
    ).split()
    assert "syncs of many files in one call" in gateway.log()
    assert 0 == gateway.stop()
    (told,) = json.loads(kgw(env, "log", "compact", str(gateway.data_dir), "--json"))
    assert (None, 1) == (told["failure"], told["records_after"])
    kgw(env, "log", "check", str(gateway.data_dir))


def test_the_plugin_of_pytest_works(tmp_path: Path, env: Mapping[str, str]) -> None:
    """A test has a broker in its own process."""
    file = tmp_path / "test_it.py"
    file.write_text(PLUGIN)

    said = run(env, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(file))
    assert "1 passed" in said


@pytest.mark.parametrize(
    ("error", "told"), [("ENOTSUP", ""), ("EINVAL", ""), ("ENOTTY", ""), ("EIO", "EIO")]
)
def test_a_sync_that_fails_is_told(
    tmp_path: Path, env: Mapping[str, str], error: str, told: str
) -> None:
    """A file system without full syncs gets what it has; a disk's error is never passed over."""
    file = tmp_path / "file"
    file.touch()

    for name in ("sync", "sync_data"):
        sync = SYNC.format(name=name, file=str(file))
        assert told == run({**env, "FULL_SYNC_ERROR": error}, "-c", sync).strip()


def test_descriptors_are_raised_as_far_as_the_system_lets(env: Mapping[str, str]) -> None:
    """It says that there is no limit, and refuses that there be none."""
    assert "10240" == run(env, "-c", DESCRIPTORS).strip()


def test_windows_is_refused() -> None:
    """One sentence says where kgw runs there."""
    done = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS], check=False, capture_output=True, text=True
    )

    last = done.stderr.splitlines()[-1]
    assert (1, True) == (
        done.returncode,
        last.startswith("ImportError: kgw does not run on Windows"),
    )
    assert "WSL" in last
