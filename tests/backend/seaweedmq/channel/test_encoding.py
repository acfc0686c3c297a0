from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.seaweedmq.channel.encoding import UpdateEncoder, entry_of, message_of
from kgw.backend.seaweedmq.filer import Chunk, FilerEntry
from kgw.backend.seaweedmq.protos import filer_pb2
from kgw.errors import CorruptionError

CHUNK = st.builds(
    Chunk,
    st.integers(1, 9).map("{},01c0ffee".format),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 30),
    st.integers(0, 1 << 60),
    st.binary(max_size=3),
    st.booleans(),
)
ENTRY = st.builds(
    FilerEntry,
    st.sampled_from(["a", "b", "c"]),
    st.lists(CHUNK, max_size=4).map(tuple),
    extended=st.dictionaries(st.text(max_size=3), st.binary(min_size=1, max_size=3), max_size=3),
    modified_s=st.integers(1, 1 << 40),
)


@given(entry=ENTRY, content=st.binary(max_size=4), is_directory=st.booleans())
def test_an_entry_comes_back_as_it_went(
    entry: FilerEntry, content: bytes, is_directory: bool
) -> None:
    """Everything that an entry has is on the wire."""
    entry = entry._replace(content=content, is_directory=is_directory)
    assert entry == entry_of("/a", message_of(entry, 5))


@given(entries=st.lists(ENTRY, max_size=6), files_kept=st.integers(0, 3))
def test_updates_say_what_entries_say_whatever_was_before(
    entries: list[FilerEntry], files_kept: int
) -> None:
    """Chunks that are remembered are those of the entry, or are not used."""
    encoder = UpdateEncoder(files_kept)
    grown: dict[str, tuple[Chunk, ...]] = {}
    for entry in entries:
        # Most updates add to what the one before had.
        longer = grown.get(entry.name, ()) + entry.chunks
        for chunks in (longer, longer, entry.chunks if len(longer) % 3 == 0 else longer):
            request = encoder.request("/a", entry._replace(chunks=chunks), {"x": b"1"}, 5)
            sent = entry_of("/a", filer_pb2.Entry.FromString(request.entry))
            assert entry._replace(chunks=chunks) == sent
            assert ("/a", {"x": b"1"}) == (request.directory, dict(request.expected_extended))
            grown[entry.name] = chunks


def test_an_update_leaves_the_time_of_creation_to_the_filer() -> None:
    """It has the one of the creation, unless another is given."""
    request = UpdateEncoder().request("/a", FilerEntry("file"), {"x": b"1"}, 5)
    attributes = filer_pb2.Entry.FromString(request.entry).attributes
    assert (5, 0) == (attributes.mtime, attributes.crtime)
    attributes = message_of(FilerEntry("file"), 5).attributes
    assert (5, 5) == (attributes.mtime, attributes.crtime)


def test_a_time_before_time_began_is_none() -> None:
    """Go's zero time is what entries have that were written without one."""
    message = filer_pb2.Entry(name="a", attributes={"mtime": -62_135_596_800})
    assert 0 == entry_of("/a", message).modified_s


def test_when_an_entry_expires_is_read_and_never_written() -> None:
    """So long after it was made; what is written of it takes the TTL from it."""
    message = filer_pb2.Entry(name="a", attributes={"mtime": 9, "crtime": 100, "ttl_sec": 7})
    entry = entry_of("/a", message)
    assert 107 == entry.expires_s
    request = UpdateEncoder().request("/a", entry, {"x": b"1"}, 5)
    for written in (filer_pb2.Entry.FromString(request.entry), message_of(entry, 5)):
        assert 0 == written.attributes.ttl_sec
        assert 0 == entry_of("/a", written).expires_s


def test_chunks_listed_in_another_chunk_are_refused() -> None:
    """Without them the file would look shorter than it is."""
    message = filer_pb2.Entry(name="a", chunks=[{"file_id": "1,2", "is_chunk_manifest": True}])
    with pytest.raises(CorruptionError, match="chunk manifest"):
        entry_of("/topics", message)
