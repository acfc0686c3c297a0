"""What SeaweedFS will delete by itself is found and told: at a start, and while serving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.filer import Chunk, Expiry, FilerEntry
from kgw.backend.seaweedmq.path_rules import PathRule
from kgw.backend.seaweedmq.watch.expiry import ExpiryLook, StoredFiles
from kgw.problems import EXPIRING
from kgw.state.memory import MemoryStateStore
from kgw.testing.backend_harness import KEY, SETTINGS, TOPIC
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from kgw.testing.filer import VOLUMES, CallKind, FilerStore, MemoryFiler
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DAY_S = 86_400
BEGAN_S = 1_700_000_000
"""By the wall clock of tests: 2023-11-14 22:13:20."""


# --- what is said of a directory ---


def chunk(volume: int, stored_s: int) -> Chunk:
    """Return one that was stored in a volume then."""
    return Chunk(f"{volume},01ab", 0, 1, stored_s * 10**9)


def judged(*entries: FilerEntry, **expiries: Expiry | None) -> str | None:
    """Return what is said of files, beside volumes by their numbers: v7 is volume 7."""
    stored = StoredFiles()
    for entry in entries:
        stored.add(entry)
    return stored.judge("/d", {int(name[1:]): expiry for name, expiry in expiries.items()})


def test_chunks_in_volumes_with_a_ttl_are_counted_and_the_first_to_go_is_told() -> None:
    """Over all files: the oldest of the shortest TTL counts, not the first that is read."""
    files = (
        FilerEntry("a", (chunk(7, BEGAN_S + 50), chunk(7, BEGAN_S + 5), chunk(1, BEGAN_S))),
        FilerEntry("b", (chunk(9, BEGAN_S + 90), chunk(2, BEGAN_S), chunk(7, BEGAN_S + 60))),
    )
    text = judged(*files, v1=None, v2=None, v7=Expiry(DAY_S), v9=Expiry(7 * DAY_S))
    assert text is not None
    assert text.startswith(
        "/d: 4 of 6 chunks are in volumes with a TTL (7, 9): SeaweedFS deletes them from "
        "2023-11-15 22:13:25 UTC on"
    )


def test_volumes_that_are_erasure_coded_go_as_a_whole() -> None:
    """At the time that they have, whenever a chunk was stored."""
    text = judged(FilerEntry("a", (chunk(7, 5),)), v7=Expiry(at_s=BEGAN_S))
    assert text is not None
    assert "deletes them from 2023-11-14 22:13:20 UTC on" in text


def test_files_with_a_ttl_of_their_own_are_named() -> None:
    """Beside chunks: whatever goes first is told."""
    text = judged(
        FilerEntry("b", (chunk(7, BEGAN_S),), expires_s=BEGAN_S + 60),
        FilerEntry("a", expires_s=BEGAN_S + 70),
        v7=Expiry(DAY_S),
    )
    assert text is not None
    assert text.startswith(
        "/d: 1 of 1 chunks are in volumes with a TTL (7), and files that have a TTL themselves are "
        "a, b: SeaweedFS deletes them from 2023-11-14 22:14:20 UTC on"
    )


def test_nothing_is_said_of_what_stays() -> None:
    """Nor of a volume that nobody knows: who has it may be away."""
    assert judged(FilerEntry("a", (chunk(7, 5), chunk(8, 5))), v7=None, v9=Expiry(60)) is None
    assert judged() is None


def test_places_that_cannot_be_understood_are_none() -> None:
    """A file that somebody else has put there must not end what looks at it."""
    odd = tuple(Chunk(name, 0, 1) for name in ("", ",01", "x,01", "\u00b2,01"))
    text = judged(FilerEntry("a", (*odd, chunk(7, BEGAN_S))), v7=Expiry(DAY_S))
    assert text is not None
    assert text.startswith("/d: 1 of 5 chunks are in volumes with a TTL (7): ")


def test_many_volumes_and_files_are_not_all_named() -> None:
    """The first twenty."""
    chunks = tuple(chunk(number, BEGAN_S) for number in range(10, 35))
    text = judged(FilerEntry("a", chunks), **{f"v{number}": Expiry(60) for number in range(10, 35)})
    assert text is not None
    assert (
        "(10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29 and 5 "
        in text
    )


# --- when is looked ---


class Served:
    """A backend on a filer of its own, with one partition, and the clock of both."""

    def __init__(self, store: FilerStore | None = None) -> None:
        self.clock = ManualClock()
        self.store = store or FilerStore()
        self.filer = MemoryFiler(self.store, self.clock)
        self.backend = SeaweedMqBackend(self.filer, "kafka", MemoryStateStore(), None, self.clock)

    async def begin(self) -> None:
        """Open it, as a start does, up to its first checkpoint."""
        await self.backend.open()
        await self.backend.create_partition(KEY, TOPIC, SETTINGS)
        await self.backend.checkpoint()

    async def append(self) -> None:
        """Append a record, which is a chunk."""
        await self.backend.partitions[KEY].append([make_batch([b"a"])])

    async def wait(self, seconds: float) -> None:
        """Let time pass, in steps in which everything that is due happens."""
        for _ in range(round(seconds * 2)):
            await turns(20)
            self.clock.advance(0.5)
        await turns(60)

    @property
    def told(self) -> list[str]:
        """Return what is said of chunks that expire."""
        found = self.backend.health.found
        return [problem.text for problem in found if problem.reason is EXPIRING]

    async def again(self) -> Served:
        """Return a later process of the same gateway, after a kill, at its first checkpoint."""
        await self.backend.abandon()
        later = Served(self.store)
        await later.begin()
        return later


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Open one, with some records."""
    made = Served()
    await made.begin()
    for _ in range(10):
        await made.append()
    yield made
    await made.backend.aclose()


def expire(store: FilerStore) -> None:
    """Have every volume delete what is a day old."""
    store.expiries.update(dict.fromkeys(VOLUMES, Expiry(DAY_S)))


async def test_a_later_start_tells_of_chunks_that_expire(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Of each partition, in health and once in the log; records are taken all the same."""
    expire(served.store)
    later = await served.again()
    (text,) = later.told
    assert "/topics/kafka/" in text
    assert "/0000-0031: 10 of 10 chunks are in volumes with a TTL (" in text
    assert "from 2023-11-15 22:13:20 UTC on" in text
    await later.append()
    await later.wait(700)
    await later.backend.checkpoint()
    assert 1 == caplog.text.count("acknowledged records will expire")
    (text,) = later.told
    assert "11 of 11 chunks" in text
    await later.backend.aclose()


async def test_a_later_start_tells_of_files_that_expire_though_no_volume_does(
    served: Served,
) -> None:
    """A file was made under the rule, and its chunks had their places from before."""
    (path,) = (path for path in served.store.directories if path.endswith("/0000-0031"))
    await served.backend.abandon()
    entries = served.store.directories[path]
    (name,) = (name for name, entry in entries.items() if entry.chunks)
    entries[name] = entries[name]._replace(expires_s=BEGAN_S + 60)
    later = Served(served.store)
    await later.begin()
    (text,) = later.told
    assert f"files that have a TTL themselves are {name}: " in text
    await later.backend.aclose()


async def test_chunks_of_the_state_are_looked_at(served: Served) -> None:
    """Groups, offsets and topics are in there."""
    made = FilerEntry("file", (chunk(3, BEGAN_S),))
    for directory in ("state", "state-snapshots"):
        served.store.put(f"/topics/.kgw/kafka/{directory}", made)
    served.store.expiries[3] = Expiry(DAY_S)
    later = await served.again()
    expected = [f"/topics/.kgw/kafka/{name}" for name in ("state", "state-snapshots")]
    assert expected == [text.partition(":")[0] for text in later.told][:2]
    await later.backend.aclose()


async def test_where_nothing_expires_chunks_are_not_read_and_is_not_looked_again(
    served: Served,
) -> None:
    """A look reads every entry of the namespace."""
    assert [] == served.told
    expire(served.store)
    await served.wait(700)
    await served.backend.checkpoint()
    assert [] == served.told


async def test_what_is_gone_is_told_no_more(served: Served) -> None:
    """Retention or compaction has removed it."""
    expire(served.store)
    later = await served.again()
    assert 1 == len(later.told)
    served.store.expiries.clear()
    await later.wait(300)
    await later.backend.checkpoint()
    assert 1 == len(later.told)
    await later.wait(301)
    await later.backend.checkpoint()
    assert [] == later.told
    await later.backend.aclose()


async def test_masters_that_are_away_are_asked_again(served: Served) -> None:
    """What is known of chunks holds meanwhile, and a checkpoint does not fail for it."""
    expire(served.store)
    await served.backend.abandon()
    later = Served(served.store)
    later.filer.is_mute = True
    look = ExpiryLook(later.filer, later.clock)
    await later.filer.open()
    (path,) = (path for path in served.store.directories if path.endswith("/0000-0031"))
    await look.look([path])
    assert [] == look.problems
    later.filer.is_mute = False
    later.clock.advance(60)
    await look.look([path])
    assert 1 == len(look.problems)
    later.filer.is_mute = True
    later.clock.advance(600)
    await look.look([path])
    assert 1 == len(look.problems)


async def test_a_volume_that_nobody_knows_is_looked_for_again() -> None:
    """Its server is away, and may come with a TTL; whatever the other directories have."""
    filer, clock = MemoryFiler(), ManualClock()
    await filer.open()
    filer.store.put("/a", FilerEntry("file", (chunk(8, BEGAN_S), chunk(3, BEGAN_S))))
    filer.store.put("/b", FilerEntry("file", (chunk(3, BEGAN_S),)))
    filer.store.expiries[1] = Expiry(DAY_S)
    look = ExpiryLook(filer, clock)
    counts = []
    for directories in (["/a", "/b"], ["/a", "/b"], ["/b"], ["/b"]):
        await look.look(directories)
        counts.append(filer.count(CallKind.LIST))
        clock.advance(600)
    assert [2, 4, 5, 5] == counts
    assert [] == look.problems


class Listed(MemoryFiler):
    """A filer that notes whether chunks were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[bool] = []

    async def list_entries(
        self, directory: str, *, prefix: str = "", after: str = "", chunks: bool = True
    ) -> AsyncIterator[FilerEntry]:
        self.listed.append(chunks)
        listed = super().list_entries(directory, prefix=prefix, after=after, chunks=chunks)
        async for entry in listed:
            yield entry


async def test_chunks_are_listed_only_where_a_volume_has_a_ttl() -> None:
    """A partition may have a hundred thousand of them."""
    filer, clock = Listed(), ManualClock()
    await filer.open()
    await ExpiryLook(filer, clock).look(["/a"])
    filer.store.expiries[1] = Expiry(DAY_S)
    await ExpiryLook(filer, clock).look(["/a"])
    assert [False, True] == filer.listed


async def test_many_directories_are_not_all_named() -> None:
    """The first twenty, and how many more."""
    filer, clock = MemoryFiler(), ManualClock()
    directories = [f"/d{number}" for number in range(25)]
    for directory in directories:
        filer.store.put(directory, FilerEntry("file", expires_s=BEGAN_S))
    await filer.open()
    look = ExpiryLook(filer, clock)
    await look.look(directories)
    assert [*directories[:20], "chunks of 5 more directories expire"] == [
        problem.text.partition(": ")[0] for problem in look.problems
    ]


async def test_a_rule_that_comes_while_serving_is_followed_by_a_look(served: Served) -> None:
    """A minute after it is gone, when all that was on its way has been entered; not before."""
    served.filer.path_rules = (PathRule("/topics/kafka/", ttl="1d"),)
    await served.wait(70)
    await served.backend.checkpoint()
    expire(served.store)
    served.filer.path_rules = ()
    await served.wait(30)
    await served.backend.checkpoint()
    (span,) = served.told
    assert span.startswith("what was written from ")
    await served.wait(31)
    await served.backend.checkpoint()
    assert [span, True] == [served.told[0], "10 of 10 chunks" in served.told[1]]
