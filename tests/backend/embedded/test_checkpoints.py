from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.testing.batches import make_batch
from tests.backend.embedded.driver import KEY, SETTINGS, TOPIC

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_checkpoint_by_size_comes_after_the_snapshots(tmp_path: Path) -> None:
    """What the next start need not scan it need not replay either."""
    options = EmbeddedOptions(checkpoint_bytes=5_000, min_free_bytes=0)
    backend = EmbeddedBackend(tmp_path / "data", options)
    await backend.open()
    steps: list[str] = []
    done = asyncio.Event()
    checkpoint = backend.checkpoint

    async def before_checkpoint() -> None:
        steps.append("snapshots")

    async def note_checkpoint() -> None:
        await checkpoint()
        steps.append("checkpoint")
        done.set()

    backend.before_checkpoint = before_checkpoint
    backend.checkpoint = note_checkpoint  # type: ignore[method-assign]
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await log.append([make_batch([b"x" * 4_000])])
    await asyncio.sleep(0)
    assert [] == steps
    await log.append([make_batch([b"x" * 4_000])])
    await done.wait()
    await backend.aclose()
    assert ["snapshots", "checkpoint"] == steps
