from __future__ import annotations

import subprocess
import sys

import pytest

from tests import patience

# In a process of its own: what another test's heap keeps is not ours to measure.
_SCRIPT = """
import sys
from kgw.partitions.append.allocator import give_back_large_blocks
from kgw.testing.process import process_usage
import os

if sys.argv[1] == "set":
    give_back_large_blocks()
before = process_usage(os.getpid()).anonymous_bytes
for megabytes in (8, 21, 21):
    block = bytearray(b"x") * (megabytes << 20)
    small = b"y" * 100_000
    del block
print(process_usage(os.getpid()).anonymous_bytes - before)
"""


def _kept_bytes(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, how],
        capture_output=True,
        text=True,
        check=True,
        timeout=patience.seconds(15),
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and sets what glibc does")
@pytest.mark.slow
def test_large_blocks_go_back_to_the_system() -> None:
    """Whatever was freed before; without it the heap keeps them."""
    assert _kept_bytes("set") < 2 << 20
    assert _kept_bytes("leave") > 16 << 20
