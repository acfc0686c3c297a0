"""State goes from a data directory to a namespace of a SeaweedFS, and back."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.offline.opening import opened_state
from kgw.backend.embedded.offline.state_copy import copy_state
from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.offline.opening import opened_state as opened_namespace
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.config import ConfigError
from kgw.errors import DataDirectoryError
from kgw.state.base import Change
from kgw.state.history import LagHistoryPoint
from kgw.state.kinds import BINDING_KIND, COPYING_KEY
from kgw.testing.clock import ManualClock
from kgw.testing.filer import FilerStore, MemoryFiler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.state.base import StateStore
    from tests.seaweedfs.cluster import Cluster

URL = "seaweedmq://filer:8888/kafka"
SAMPLES = [LagHistoryPoint(number // 3, "g", "t", number % 3, number, 9) for number in range(20)]


class Namespaces:
    """Namespaces of a filer in memory, by their addresses."""

    def __init__(self) -> None:
        self.filers = FilerStore()

    def store(self) -> tuple[MemoryFiler, ChainStateStore]:
        """Return the state of the one that the tests use, and its filer, neither of them open."""
        filer = MemoryFiler(self.filers)
        return filer, ChainStateStore(filer, ManualClock(), "/topics/.kgw/kafka/state")

    @asynccontextmanager
    async def opened(self, url: str = URL) -> AsyncIterator[StateStore]:
        """Open the state of a namespace."""
        assert url == URL
        filer, store = self.store()
        await filer.open()
        await store.open()
        async with aclosing(filer), aclosing(store):
            yield store


@pytest.fixture
async def data_dir(tmp_path: Path) -> str:
    """Return a directory with some state."""
    backend = EmbeddedBackend(str(tmp_path / "data"))
    await backend.open()
    await fill(backend.state)
    await backend.aclose()
    return str(tmp_path / "data")


async def fill(state: StateStore) -> None:
    """Write rows and samples."""
    await state.apply([Change("topic", str(n), b"%d" % n) for n in range(30)])
    await state.apply([Change("group", "ключ\0", bytes(1 << 20))])
    await state.lag_history.append(SAMPLES)


async def check(state: StateStore) -> None:
    """Check that a state is what `fill` made of it."""
    assert {str(n): b"%d" % n for n in range(30)} == {
        key: row.value for key, row in (await state.load("topic")).items()
    }
    assert [bytes(1 << 20)] == [row.value for row in (await state.load("group")).values()]
    assert SAMPLES == await state.lag_history.load()


async def test_state_goes_to_a_namespace_and_back(data_dir: str, tmp_path: Path) -> None:
    """Everything is there each time; the source keeps its own."""
    namespaces = Namespaces()
    there = await copy_state(data_dir, URL, open_namespace=namespaces.opened)
    assert ("sqlite", URL, 30, 20) == (
        there.source,
        there.target,
        there.rows["topic"],
        there.samples,
    )
    async with namespaces.opened() as state:
        await check(state)
        assert BINDING_KIND not in await state.kinds()
    async with opened_state(data_dir) as state:
        await check(state)

    back_dir = str(tmp_path / "back")
    back = await copy_state(URL, back_dir, open_namespace=namespaces.opened)
    assert (there.rows, there.samples) == (back.rows, back.samples)
    backend = EmbeddedBackend(back_dir)
    await backend.open()
    await check(backend.state)
    assert backend.health.writable
    await backend.aclose()


async def test_nothing_is_mixed(data_dir: str) -> None:
    """A target with anything in it is refused; so is a source with nothing."""
    namespaces = Namespaces()
    with pytest.raises(DataDirectoryError, match="has no state"):
        await copy_state(URL, data_dir + "2", open_namespace=namespaces.opened)
    async with namespaces.opened() as state:
        await state.apply([Change("topic", "theirs", b"1")])
    with pytest.raises(DataDirectoryError, match="is not empty: it has topic"):
        await copy_state(data_dir, URL, open_namespace=namespaces.opened)
    with pytest.raises(DataDirectoryError, match="has a state already"):
        await copy_state(URL, data_dir, open_namespace=namespaces.opened)
    for place in ("sqlite", "postgresql://me@host/db", URL):
        with pytest.raises(DataDirectoryError, match="is none"):
            await copy_state(URL, place, open_namespace=namespaces.opened)
    with pytest.raises(DataDirectoryError, match="has no state"):
        await copy_state(data_dir + "3", URL, open_namespace=namespaces.opened)


async def test_a_copy_that_was_interrupted_begins_again(data_dir: str) -> None:
    """Until then no gateway takes the namespace for whole."""
    namespaces = Namespaces()
    async with namespaces.opened() as state:
        await state.apply([Change(BINDING_KIND, COPYING_KEY, b""), Change("topic", "half", b"1")])
    filer, store = namespaces.store()
    backend = SeaweedMqBackend(filer, "kafka", store)
    with pytest.raises(DataDirectoryError, match="was interrupted"):
        await backend.open()

    await copy_state(data_dir, URL, open_namespace=namespaces.opened)
    async with namespaces.opened() as state:
        await check(state)
    Path(data_dir + "2").mkdir()
    Path(data_dir + "2", "meta.sqlite.copy").write_bytes(b"half")
    await copy_state(URL, data_dir + "2", open_namespace=namespaces.opened)


async def test_an_address_that_cannot_be_meant_is_refused(data_dir: str) -> None:
    """Before anything is touched."""
    with pytest.raises(ConfigError, match="namespace"):
        await copy_state(data_dir, "seaweedmq://filer:8888")


@pytest.mark.slow
@pytest.mark.timeout(90)
async def test_a_real_namespace_that_is_served_is_left_alone(
    seaweedfs: Cluster, data_dir: str, tmp_path: Path
) -> None:
    """Whoever holds it keeps it; a stopped one is copied to and from."""
    url = seaweedfs.url(seaweedfs.new_namespace())
    await copy_state(data_dir, url)
    async with opened_namespace(url) as state:
        await check(state)
        with pytest.raises(DataDirectoryError, match="stop it first"):
            await copy_state(url, str(tmp_path / "back"))
        await state.apply([Change("topic", "0", b"0")])
    await copy_state(url, str(tmp_path / "back"))
    async with opened_state(str(tmp_path / "back")) as state:
        await check(state)
