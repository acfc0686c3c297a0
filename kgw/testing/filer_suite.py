"""The contract of `Filer` as tests: any class that passes them is a `Filer`.

Subclass `FilerSuite` in a test module and define how to make the filer; pytest, with pytest-asyncio
in `auto` mode, then runs every test.
"""

# ruff: noqa: S101 - assert is how a suite speaks
from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from kgw.backend.seaweedmq.filer import (
    Chunk,
    ChunkMissingError,
    ConditionFailedError,
    EntryExistsError,
    EntryMissingError,
    FilerEntry,
    FilerError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from kgw.backend.seaweedmq.filer import Filer


class FilerSuite(ABC):
    """Tests of everything that `Filer` promises."""

    many_entries = 2_100
    """More entries than a filer lists in one page."""

    @abstractmethod
    def make_filer(self) -> Filer:
        """Return a new, unopened filer. Each filer finds the data that earlier ones have stored."""

    def place(self) -> str:
        """Return a directory that no other test uses."""
        return f"/topics/kgw-suite/{uuid4().hex}"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Filer]:
        """Open a filer, and close it after the block."""
        filer = self.make_filer()
        await filer.open()
        try:
            yield filer
        finally:
            await filer.aclose()

    # --- entries ---------------------------------------------------------------------------------

    async def test_what_is_not_there_is_none(self) -> None:
        """The look-up of a missing entry, or in a missing directory, returns None."""
        async with self.opened() as filer:
            place = self.place()
            assert await filer.look_up(place, "none") is None
            await filer.create(place, FilerEntry("one"))
            assert await filer.look_up(place, "none") is None

    async def test_an_entry_comes_back_as_it_was_made(self) -> None:
        """Inline content and extended attributes with any bytes are read back unchanged."""
        async with self.opened() as filer:
            place = self.place()
            content = bytes(range(256)) * 512
            extended = {"kgw.epoch": bytes(8), "kgw.notes": bytes(range(256)) * 16}
            entry = FilerEntry("file", content=content, extended=extended, modified_s=1_700_000_000)
            await filer.create(place, entry)
            _assert_same(entry, await filer.look_up(place, "file"))

    async def test_directories_above_are_made(self) -> None:
        """An entry can be created in a directory that does not exist."""
        async with self.opened() as filer:
            place = self.place()
            await filer.create(f"{place}/one/two", FilerEntry("file", content=b"x"))
            for directory, name in ((place, "one"), (f"{place}/one", "two")):
                found = await filer.look_up(directory, name)
                assert found is not None
                assert found.is_directory

    async def test_an_entry_is_made_once(self) -> None:
        """Creating an existing entry fails and changes nothing."""
        async with self.opened() as filer:
            place = self.place()
            await filer.create(place, FilerEntry("file", content=b"first"))
            assert await _is_refused(
                EntryExistsError, filer.create(place, FilerEntry("file", content=b"second"))
            )
            _assert_same(FilerEntry("file", content=b"first"), await filer.look_up(place, "file"))

    async def test_one_of_many_makes_an_entry(self) -> None:
        """If several calls create the same entry at once, exactly one succeeds."""
        async with self.opened() as filer:
            place = self.place()
            refused = await asyncio.gather(
                *(
                    _is_refused(
                        EntryExistsError,
                        filer.create(place, FilerEntry("file", content=b"%d" % number)),
                    )
                    for number in range(8)
                )
            )
            assert 1 == refused.count(False)
            content = b"%d" % refused.index(False)
            _assert_same(FilerEntry("file", content=content), await filer.look_up(place, "file"))

    async def test_an_update_replaces_the_whole_entry(self) -> None:
        """An update replaces all of an entry's content and attributes."""
        async with self.opened() as filer:
            place = self.place()
            await filer.create(
                place, FilerEntry("file", content=b"a", extended={"x": b"1", "y": b"2"})
            )
            changed = FilerEntry("file", content=b"b", extended={"x": b"2"})
            await filer.update(place, changed, {"x": b"1", "y": b"2"})
            found = await filer.look_up(place, "file")
            _assert_same(changed, found)
            assert found is not None
            assert "y" not in found.extended

    async def test_an_update_needs_every_expected_value(self) -> None:
        """If one expected value differs or is absent, the update fails and changes nothing."""
        async with self.opened() as filer:
            place = self.place()
            entry = FilerEntry("file", content=b"a", extended={"x": b"1", "y": b"2"})
            await filer.create(place, entry)
            for expected in ({"x": b"1", "y": b"3"}, {"x": b"0", "y": b"2"}, {"z": b"1"}):
                changed = entry._replace(content=b"b")
                assert await _is_refused(
                    ConditionFailedError, filer.update(place, changed, expected)
                )
            _assert_same(entry, await filer.look_up(place, "file"))

    async def test_an_update_makes_nothing(self) -> None:
        """An update of a missing entry fails, and does not create the entry."""
        async with self.opened() as filer:
            place = self.place()
            await filer.create(place, FilerEntry("other"))
            update = filer.update(place, FilerEntry("file", content=b"b"), {"x": b"1"})
            assert await _is_refused(EntryMissingError, update)
            assert await filer.look_up(place, "file") is None

    async def test_one_of_many_updates_is_taken(self) -> None:
        """If several updates expect the same value and each changes it, exactly one succeeds."""
        async with self.opened() as filer:
            place = self.place()
            await filer.create(place, FilerEntry("file", extended={"count": b"0"}))
            refused = await asyncio.gather(
                *(
                    _is_refused(
                        ConditionFailedError,
                        filer.update(
                            place,
                            FilerEntry("file", content=b"%d" % number, extended={"count": b"1"}),
                            {"count": b"0"},
                        ),
                    )
                    for number in range(8)
                )
            )
            assert 1 == refused.count(False)
            content = b"%d" % refused.index(False)
            expected = FilerEntry("file", content=content, extended={"count": b"1"})
            _assert_same(expected, await filer.look_up(place, "file"))

    async def test_put_makes_and_replaces(self) -> None:
        """Put succeeds whether or not the entry exists."""
        async with self.opened() as filer:
            place = self.place()
            for content in (b"first", b"second"):
                await filer.put(place, FilerEntry("file", content=content))
                _assert_same(
                    FilerEntry("file", content=content), await filer.look_up(place, "file")
                )

    async def test_entries_are_listed_by_name(self) -> None:
        """A listing can be limited by a prefix and a starting name, which is excluded."""
        async with self.opened() as filer:
            place = self.place()
            assert [] == [entry async for entry in filer.list_entries(place)]
            for name in ("b", "a1", "c", "a2", "a3"):
                await filer.create(place, FilerEntry(name, extended={"x": name.encode()}))
            found = [entry async for entry in filer.list_entries(place)]
            assert ["a1", "a2", "a3", "b", "c"] == [entry.name for entry in found]
            assert b"a2" == found[1].extended["x"]
            listing = filer.list_entries(place, prefix="a", after="a1")
            assert ["a2", "a3"] == [entry.name async for entry in listing]

    async def test_a_listing_has_no_end_but_the_last(self) -> None:
        """A directory that is larger than a page is listed completely."""
        async with self.opened() as filer:
            place = self.place()
            names = [f"file-{number:05d}" for number in range(self.many_entries)]
            for start in range(0, len(names), 100):
                part = names[start : start + 100]
                await asyncio.gather(*(filer.create(place, FilerEntry(name)) for name in part))
            assert names == [entry.name async for entry in filer.list_entries(place)]

    async def test_a_listing_may_leave_chunks_out(self) -> None:
        """A listing of only names and attributes has no lists of chunks."""
        async with self.opened() as filer:
            place = self.place()
            chunk = await filer.upload([b"data"])
            await filer.create(place, FilerEntry("file", (chunk,), extended={"x": b"1"}))
            with_chunks = [entry async for entry in filer.list_entries(place)]
            without = [entry async for entry in filer.list_entries(place, chunks=False)]
            assert [(chunk,)] == [entry.chunks for entry in with_chunks]
            assert [()] == [entry.chunks for entry in without]
            assert b"1" == without[0].extended["x"]

    async def test_an_entry_is_deleted(self) -> None:
        """A deleted entry is gone; deleting a missing entry is not an error."""
        async with self.opened() as filer:
            place = self.place()
            await filer.create(place, FilerEntry("file", content=b"x"))
            for _ in range(2):
                await filer.delete(place, "file")
                assert await filer.look_up(place, "file") is None
            await filer.delete(f"{place}/nowhere", "file")

    async def test_a_directory_is_deleted_with_what_is_in_it_when_asked_so(self) -> None:
        """Without that request, the directory stays and the call fails."""
        async with self.opened() as filer:
            place = self.place()
            await filer.create(f"{place}/one/two", FilerEntry("file", content=b"x"))
            assert await _is_refused(FilerError, filer.delete(place, "one"))
            assert await filer.look_up(f"{place}/one/two", "file") is not None
            await filer.delete(place, "one", is_recursive=True)
            assert await filer.look_up(place, "one") is None
            assert await filer.look_up(f"{place}/one/two", "file") is None

    # --- chunks ----------------------------------------------------------------------------------

    async def test_a_chunk_is_read_as_it_was_uploaded(self) -> None:
        """A chunk can be uploaded from buffers of any type, and read whole or in part."""
        async with self.opened() as filer:
            chunk = await filer.upload([b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]])
            assert (0, 6) == (chunk.position, chunk.size_bytes)
            assert b"abcdef" == await filer.read_chunk(chunk, 0, 6)
            assert b"cde" == await filer.read_chunk(chunk, 2, 3)

    async def test_a_large_chunk_is_kept_byte_for_byte(self) -> None:
        """This includes data that compresses well, or looks like gzip or text."""
        async with self.opened() as filer:
            for head in (b"\x1f\x8b\x08", b"{", b"\x00"):
                data = head + bytes(range(256)) * 20_000
                chunk = await filer.upload([data])
                assert len(data) == chunk.size_bytes
                assert data == await filer.read_chunk(chunk, 0, len(data))
                assert data[-9:] == await filer.read_chunk(chunk, len(data) - 9, 9)

    async def test_chunks_have_ids_of_their_own(self) -> None:
        """Each upload gets its own id, even if many run at once."""
        async with self.opened() as filer:
            chunks = await asyncio.gather(*(filer.upload([b"%d" % n]) for n in range(50)))
            assert 50 == len({chunk.file_id for chunk in chunks})
            for number, chunk in enumerate(chunks):
                expected = b"%d" % number
                assert expected == await filer.read_chunk(chunk, 0, len(expected))

    async def test_a_file_of_many_chunks_is_extended(self) -> None:
        """The list of chunks is read back in order, and its old chunks are still readable."""
        async with self.opened() as filer:
            place = self.place()
            chunks: list[Chunk] = []
            for number in range(256):
                chunk = await filer.upload([b"%03d" % number])
                chunks.append(chunk._replace(position=3 * number))
            entry = FilerEntry("file", tuple(chunks[:200]), extended={"count": b"1"})
            await filer.create(place, entry)
            longer = FilerEntry("file", tuple(chunks), extended={"count": b"2"})
            await filer.update(place, longer, {"count": b"1"})
            found = await filer.look_up(place, "file")
            _assert_same(longer, found)
            assert found is not None
            assert 768 == found.size_bytes
            assert b"000" == await filer.read_chunk(found.chunks[0], 0, 3)
            assert b"255" == await filer.read_chunk(found.chunks[255], 0, 3)

    async def test_a_chunk_that_is_gone_is_an_error(self) -> None:
        """A chunk that is shorter than in its entry is an error, too.

        Removing a missing chunk is not an error.
        """
        async with self.opened() as filer:
            chunk, kept = await filer.upload([b"abc"]), await filer.upload([b"def"])
            assert await _is_refused(ChunkMissingError, filer.read_chunk(chunk, 0, 4))
            for _ in range(2):
                await filer.delete_chunks([chunk])
                assert await _is_refused(ChunkMissingError, filer.read_chunk(chunk, 0, 3))
            assert b"def" == await filer.read_chunk(kept, 0, 3)

    # --- open and close --------------------------------------------------------------------------

    async def test_what_was_stored_is_there_for_the_next_one(self) -> None:
        """Entries and chunks exist after closing and opening again; closing twice is harmless."""
        place = self.place()
        async with self.opened() as filer:
            chunk = await filer.upload([b"data"])
            entry = FilerEntry("file", (chunk,), extended={"x": b"1"})
            await filer.create(place, entry)
            await filer.aclose()
        async with self.opened() as filer:
            found = await filer.look_up(place, "file")
            _assert_same(entry, found)
            assert found is not None
            assert b"data" == await filer.read_chunk(found.chunks[0], 0, 4)


def _assert_same(expected: FilerEntry, found: FilerEntry | None) -> None:
    """Compare the fields that the caller sets, as a filer may add attributes."""
    assert found is not None
    assert expected.name == found.name
    assert expected.is_directory == found.is_directory
    assert expected.chunks == found.chunks
    assert expected.content == found.content
    assert dict(expected.extended) == {
        key: value for key, value in found.extended.items() if key in expected.extended
    }


async def _is_refused(error: type[Exception], call: Coroutine[None, None, object]) -> bool:
    """Return whether a call raises this error."""
    try:
        await call
    except error:
        return True
    return False
