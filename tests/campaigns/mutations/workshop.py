"""A copy of the checkout in which code is changed and shown to tests."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.campaigns.mutations.outcomes import HUNG
from tests.signals import send_to_group

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parents[3]
PYTEST: Final = ("-m", "pytest", "-v", "-p", "no:randomly", "-p", "no:cacheprovider")
SELECTION: Final = "not full and not bench and not interop"
_MEMORY_BYTES: Final = 8 << 30
_FILE_BYTES: Final = 8 << 30
_FAILED: Final = re.compile(
    r"^(?:(?:FAILED|ERROR) (tests/\S+)|(tests/\S+) Timeout \()", re.MULTILINE
)
"""How pytest names a test that fails, and one that hangs, for which its process has been ended."""


class Workshop:
    """A copy of the checkout in which the code is changed and the tests are run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modified_s = time.time()
        for name in ("kgw", "tests", "docs", "scripts", "examples", "bench", "fuzz", "changelog.d"):
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        for file in ROOT.iterdir():
            if file.is_file():
                shutil.copy2(file, folder)
        for name in (".venv-clients", ".cache"):
            (folder / name).symlink_to(ROOT / name)
        self._environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONHASHSEED": "0"}

    def read(self, path: str) -> bytes:
        """Return the source of a module, as it is in the copy."""
        return (self._folder / path).read_bytes()

    def write(self, path: str, source: bytes) -> None:
        """Replace a module. Its time moves by seconds, so that no compiled one is taken for it."""
        file = self._folder / path
        file.write_bytes(source)
        self._modified_s += 2
        os.utime(file, (self._modified_s, self._modified_s))

    def run(self, tests: Sequence[str], limit_s: float) -> str:
        """Return the first test that fails, or nothing. Raises RuntimeError if none could run."""
        names = self._folder / "shown.txt"
        names.write_text("\n".join(tests))
        command = [sys.executable, *PYTEST, "-x", "-m", SELECTION, f"@{names}"]
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        _limit(process.pid)
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return f"{HUNG}{len(tests)} tests in {limit_s:.0f} s"
        finally:
            send_to_group(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode == 0:
            return ""
        failed = _FAILED.search(said)
        if failed is not None:
            return failed[1] or failed[2]
        if process.returncode in {3, 4, 5}:
            raise RuntimeError(said[-2_000:])
        return f"exit {process.returncode}"


def _limit(process_id: int) -> None:
    """A change must not fill the machine: what it allocates or writes has an end."""
    resource.prlimit(process_id, resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.prlimit(process_id, resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
