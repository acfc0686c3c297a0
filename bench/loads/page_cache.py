"""Puts a server's data out of the page cache, and makes sure that it is out."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Of the bytes of the data files; the kernel keeps a page that somebody has mapped or is reading.
RESIDENT_SHARE_LIMIT = 0.02
DATA_FILE_BYTES = 1 << 20


def drop(directory: Path) -> None:
    """Drops all large files of a directory from the cache; what is dirty is written out first.

    Raises:
        RuntimeError: more than a fiftieth of them is still there.
    """
    os.sync()
    files = [
        path
        for path in directory.rglob("*")
        if path.suffix == ".log" and path.is_file() and path.stat().st_size >= DATA_FILE_BYTES
    ]
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    resident, total = resident_bytes(files)
    if not total:
        message = f"{directory} holds no segment of {DATA_FILE_BYTES} bytes or more"
        raise RuntimeError(message)
    if resident > total * RESIDENT_SHARE_LIMIT:
        message = f"{resident} of {total} bytes under {directory} are still in the page cache"
        raise RuntimeError(message)


def resident_bytes(files: list[Path]) -> tuple[int, int]:
    """How many bytes of the files are in the page cache, and how many there are, by `fincore`."""
    if not files:
        return 0, 0
    command = ["fincore", "--bytes", "--noheadings", "--output", "RES,SIZE", *map(str, files)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    sizes = [[int(part) for part in line.split()] for line in lines]
    return sum(size[0] for size in sizes), sum(size[1] for size in sizes)
