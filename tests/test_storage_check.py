"""Tests that damage their storage: pytest is started on them in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DAMAGING = """
import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.testing.backend_harness import KEY, SMALL_SEGMENTS, TOPIC
from kgw.testing.batches import make_batch
from tests.backend.embedded.driver import Driver

pytest_plugins = ["tests.storage_check"]

def damage_a_disk():
    driver = Driver()
    driver.append(b"first")
    driver.append(b"second")
    driver.flip(driver.segment_path(), 70)

def test_a_sound_disk():
    Driver().append(b"value")

def test_a_damaged_disk():
    damage_a_disk()

@pytest.mark.damages_storage("planted")
def test_a_disk_that_is_said_to_be_damaged():
    damage_a_disk()

@pytest.mark.parametrize("suffix", ["", "log", "checksums", "index", "last"])
async def test_a_directory(tmp_path, suffix):
    backend = EmbeddedBackend(tmp_path / "data")
    await backend.open()
    log = await backend.create_partition(KEY, TOPIC, SMALL_SEGMENTS)
    for _ in range(9):
        await log.append([make_batch([b"value" * 20])])
    await backend.aclose()
    if suffix == "last":
        last = max((tmp_path / "data").rglob("*.log"))
        for path in last.parent.glob(f"{last.stem}.*"):
            path.unlink()
    elif suffix:
        path = min((tmp_path / "data").rglob(f"*.{suffix}"))
        content = bytearray(path.read_bytes())
        content[3] ^= 1
        path.write_bytes(content)
"""


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_whatever_is_damaged_fails_its_test(tmp_path: Path) -> None:
    """A disk, each kind of file in a directory, a loss that only the database knows of.

    Not what is said to be damaged.
    """
    root = Path(__file__).parents[1]
    test = tmp_path / "test_damaging.py"
    test.write_text(DAMAGING)
    output = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", root / "pyproject.toml", "--rootdir", tmp_path),
            *("-p", "no:randomly", "-p", "no:cacheprovider", test),
        ],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    ).stdout
    assert "8 passed, 5 errors" in output, output
    damaged = ("log", "checksums", "index", "last")
    for name in ("test_a_damaged_disk", *(f"test_a_directory[{one}]" for one in damaged)):
        assert f"ERROR at teardown of {name} " in output, output
