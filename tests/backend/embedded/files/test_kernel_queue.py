from __future__ import annotations

import ctypes
import errno
import os
import platform
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.files.kernel_queue import FDSYNC, KernelQueue

if TYPE_CHECKING:
    from pathlib import Path


def _queue(most: int) -> KernelQueue:
    try:
        return KernelQueue(ctypes.CDLL(None, use_errno=True), most)
    except OSError as error:
        pytest.skip(f"not here: {error}")


def test_each_sync_has_its_outcome(tmp_path: Path) -> None:
    """By the number that it had when it was submitted; a pipe cannot be synced."""
    queue = _queue(4)
    reader, writer = os.pipe()
    file = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    try:
        assert 1 == queue.submit([file, reader], FDSYNC)
        assert [(0, None)] == queue.take(1, 4)
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            queue.submit([reader], FDSYNC)
    finally:
        for descriptor in (reader, writer, file):
            os.close(descriptor)
        queue.close()


def test_a_queue_is_given_back_once() -> None:
    """The kernel has a limit for those of all processes."""
    queue = _queue(1)
    queue.close()
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        queue.close()


def test_a_processor_that_is_not_known_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls are made by number, which another one may use for something else."""
    monkeypatch.setattr(platform, "machine", lambda: "another")
    with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)):
        KernelQueue(ctypes.CDLL(None, use_errno=True), 1)
