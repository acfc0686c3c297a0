"""What can be damaged in a namespace, each kind by itself, and what is said of it."""

from __future__ import annotations

import struct
from contextlib import aclosing
from inspect import isawaitable
from json import dumps, loads
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kgw.backend.base import LogSettings, Snapshot
from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.chain.leader import LEADER, Leader, leader_entry, read_leader
from kgw.backend.seaweedmq.chain.marks import EPOCH, IDENTITY, NOTE, NOTES, NUMBER
from kgw.backend.seaweedmq.entries.layouts import Layout, encode
from kgw.backend.seaweedmq.entries.log_entries import LENGTH, append_around, walk
from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.log.snapshots import NAME as SNAPSHOT
from kgw.backend.seaweedmq.offline.opening import state_directory
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.backend.seaweedmq.state.snapshots import encode_detail
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.backend.seaweedmq.topics.known_ends import KIND as END
from kgw.offsets.committed import CommittedOffset
from kgw.offsets.rows import encode_row, row_key
from kgw.records.crc import crc32c
from kgw.state.base import Change
from kgw.state.kinds import GROUP_OFFSETS, TOPIC
from kgw.testing.backend_harness import KEY
from kgw.testing.backend_harness import TOPIC as NAME
from kgw.testing.batches import make_batch
from kgw.testing.filer import MemoryFiler
from tests.backend.seaweedmq.namespaces import ROW, VALUES, Filers, opened_namespace_state
from tests.backend.seaweedmq.state.driver import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kgw.backend.seaweedmq.chain.marks import Marks
    from kgw.backend.seaweedmq.entries.log_entries import LogEntry
    from kgw.backend.seaweedmq.filer import Chunk
    from kgw.records.batch import RecordBatch

TOPIC_PLACE: Final = "/topics/kafka/orders"
STATE: Final = state_directory("kafka")
SNAPSHOTS: Final = f"{STATE}-snapshots"
_HEAD: Final = struct.Struct(">BBqII")
"""Of a payload of the state: format, sort, offset, part, checksum."""
FILE_BYTES: Final = 200
"""So that a file has two batches."""
SINGLE: Final = 8
"""Batches that are appended one by one; three more are one chunk, the last one."""
BATCHES: Final = SINGLE + 3


class Damaged(Filers):
    """A namespace with a topic of some files and a state with snapshots, to be damaged."""

    async def begin(self, layout: Layout = Layout.BATCHES) -> None:
        """Store what there is before it is damaged."""
        filer = MemoryFiler(self.store, self.clock)
        state = ChainStateStore(filer, self.clock, STATE, SMALL)
        # No room for what is joined, so that files stay as they are.
        options = SeaweedMqOptions(layout=layout)
        backend = SeaweedMqBackend(filer, "kafka", state, options, self.clock)
        await backend.open()
        async with aclosing(backend):
            await state.apply([Change(TOPIC, ROW.key, ROW.encode())])
            for number in range(60):
                await state.apply([Change("group", str(number % 7), b"%d" % number)])
            while not self.entry(self.leader(STATE)[0].rows[-1].name, STATE).chunks:
                await state.apply([Change("group", "last", b"x")])
            log = await backend.create_partition(KEY, NAME, LogSettings(segment_bytes=FILE_BYTES))
            for _ in range(SINGLE):
                await log.append([make_batch(VALUES)])
            await log.append([make_batch(VALUES) for _ in range(BATCHES - SINGLE)])
            await log.save_snapshot(Snapshot(3, b"s" * 20_000))

    # --- entries ---

    def entry(self, name: str, directory: str = "") -> FilerEntry:
        """Return an entry, of the partition unless another directory is named."""
        return self.store.directories[directory or self.partition][name]

    def put(self, entry: FilerEntry, directory: str = "") -> None:
        """Put another one in its place. Chunks of the one before stay."""
        self.store.directories[directory or self.partition][entry.name] = entry

    def remove(self, name: str, directory: str = "") -> None:
        """Remove an entry."""
        del self.store.directories[directory or self.partition][name]

    def mark(self, name: str, **changes: bytes | None) -> None:
        """Change attributes of an entry, or remove them."""
        entry = self.entry(name)
        extended = dict(entry.extended)
        for key, value in changes.items():
            if value is None:
                del extended[key]
            else:
                extended[key] = value
        self.put(entry._replace(extended=extended))

    def leader(self, directory: str = "") -> tuple[Leader, Marks]:
        """Return what a leader entry says."""
        return read_leader(self.entry(LEADER, directory), LEADER)

    def lead(self, leader: Leader, marks: Marks | None = None, directory: str = "") -> None:
        """Have a leader entry say something else."""
        marks = marks or self.leader(directory)[1]
        self.put(leader_entry(leader, marks, 0), directory)

    async def plant(self, kind: Kind) -> None:
        """Store what there is, and damage it."""
        await self.begin(kind.layout)
        planted = kind.plant(self)
        if isawaitable(planted):
            await planted

    async def commit(self, change: Change) -> None:
        """Change a row of the state."""
        async with opened_namespace_state(self) as state:
            await state.apply([change])

    @property
    def files(self) -> list[str]:
        """The names of the log files, the active one last."""
        return [row.name for row in self.leader()[0].rows]

    # --- chunks ---

    def chunk(self, name: str, number: int = -1, directory: str = "") -> Chunk:
        """Return a chunk of a file."""
        return self.entry(name, directory).chunks[number]

    def rewrite(
        self,
        change: Callable[[bytes], bytes],
        name: str = "",
        number: int = -1,
        directory: str = "",
    ) -> None:
        """Have a chunk hold other bytes, of the active file's last one unless another is named."""
        name = name or self.files[-1]
        chunk = self.chunk(name, number, directory)
        data = change(self.store.chunks[chunk.file_id])
        self.store.chunks[chunk.file_id] = data
        entry = self.entry(name, directory)
        chunks = list(entry.chunks)
        chunks[number] = chunk._replace(size_bytes=len(data))
        self.put(entry._replace(chunks=tuple(chunks)), directory)


class Kind(NamedTuple):
    """One kind of damage."""

    says: str
    """What is said of it, as a whole: "…" stands for anything."""
    where: str
    """The end of the path that is named."""
    plant: Callable[[Damaged], Any]
    layout: Layout = Layout.BATCHES


# --- what is in a file ---


def again(entry: LogEntry, **changes: Any) -> bytes:
    """Return an entry, with other fields."""
    entry = entry._replace(**changes)
    before, behind = bytearray(), bytearray()
    append_around(
        before,
        behind,
        offset=entry.offset,
        ts_ns=entry.ts_ns,
        data_bytes=len(entry.data),
        key=entry.key,
        key_hash=entry.key_hash,
        extension=entry.extension,
    )
    return bytes(before + entry.data + behind)


def raw(body: bytes) -> bytes:
    """Return an entry with a body that is none."""
    return LENGTH.pack(len(body)) + body


def of_entries(
    build: Callable[[list[LogEntry]], Iterable[bytes]],
) -> Callable[[Damaged], None]:
    """Have the last chunk hold other entries."""
    return lambda damaged: damaged.rewrite(lambda data: b"".join(build(list(walk(data)))))


def of_bytes(build: Callable[[bytes], bytes]) -> Callable[[Damaged], None]:
    """Have the last chunk hold other bytes."""
    return lambda damaged: damaged.rewrite(build)


def with_first(change: Callable[[LogEntry], bytes]) -> Callable[[Damaged], None]:
    """Have another entry in the place of the last chunk's first one."""
    return of_entries(lambda entries: [change(entries[0]), *map(again, entries[1:])])


def flipped(data: bytes | memoryview, at: int) -> bytes:
    """Return bytes of which one is another."""
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def lying(damaged: Damaged) -> None:
    """Put a batch with sound checksums in the place of one, whose records are others than it says.

    As a producer may send it where only headers are looked at.
    """
    batch = make_batch(VALUES)
    batch.assign(3 * SINGLE, 0)
    batch.replace_records(b"no records", batch.compression, batch.record_count)
    damaged.rewrite(
        lambda data: b"".join([_entry_of(batch, next(walk(data))), *map(again, [*walk(data)][1:])])
    )


def _entry_of(batch: RecordBatch, like: LogEntry) -> bytes:
    encoded = encode([batch], Layout.BATCHES, like.ts_ns)
    return b"".join(bytes(piece) for piece in encoded.pieces)


CHUNKS: Final = {
    "bytes of a chunk are gone": Kind(
        "offsets 3 to 5 cannot be read: chunk … is gone",
        "file",
        lambda damaged: damaged.store.chunks.pop(damaged.chunk(damaged.files[0]).file_id),
    ),
    "an entry is missing": Kind(
        "offsets 27 to 29 are damaged, at position 116: entries are missing",
        "file",
        of_entries(lambda entries: [again(entries[0]), again(entries[2])]),
    ),
    "the last entries are missing": Kind(
        "offsets 27 to 32 are damaged, at position 116: entries are missing",
        "file",
        of_entries(lambda entries: [again(entries[0])]),
    ),
    "an entry is there twice, in the place of another": Kind(
        "offsets 27 to 29 are damaged, at position 116: a batch at offset 24 comes behind 26",
        "file",
        of_entries(lambda entries: [again(entries[0]), again(entries[0]), again(entries[2])]),
    ),
    "an entry is another's": Kind(
        "offsets 24 to 26 are damaged, at position 0: an entry that kgw has not written",
        "file",
        with_first(lambda entry: again(entry, key=memoryview(b"key"))),
    ),
    "an entry has another mark": Kind(
        "offsets 24 to 26 are damaged, at position 0: an entry that kgw has not written",
        "file",
        with_first(lambda entry: again(entry, key=memoryview(flipped(entry.key, 1)))),
    ),
    "the header of a batch": Kind(
        "offsets 24 to 26 are damaged, at position 0: the header of the batch fails its checksum",
        "file",
        # The leader epoch, which Kafka's own checksum leaves out.
        with_first(lambda entry: again(entry, data=memoryview(flipped(entry.data, 15)))),
    ),
    "the records of a batch": Kind(
        "offsets 24 to 26 are damaged, at position 0: the batch fails its checksum",
        "file",
        with_first(lambda entry: again(entry, data=memoryview(flipped(entry.data, -1)))),
    ),
    "an entry at another offset": Kind(
        "offsets 24 to 26 are damaged, at position 0: the entry's length or offset is not that "
        "of its batch",
        "file",
        with_first(lambda entry: again(entry, offset=entry.offset + 1)),
    ),
    "the end of a chunk is cut off": Kind(
        "offsets 30 to 32 are damaged, at position 116: an entry at byte 232 claims 112 bytes "
        "where 107 are left",
        "file",
        of_bytes(lambda data: data[:-5]),
    ),
    "a length is cut off": Kind(
        "offsets 30 to 32 are damaged, at position 116: a length is cut off at byte 232",
        "file",
        of_bytes(lambda data: data[: [*walk(data)][-1].position + 2]),
    ),
    "a number that is cut off": Kind(
        "offsets 24 to 32 are damaged, at position 0: a number is cut off",
        "file",
        with_first(lambda _: raw(b"\x08")),
    ),
    "a number that is too long": Kind(
        "offsets 24 to 32 are damaged, at position 0: a number at byte 11 has more than 64 bits",
        "file",
        with_first(lambda _: raw(b"\x08" + b"\xff" * 11)),
    ),
    "a field of no type": Kind(
        "offsets 24 to 32 are damaged, at position 0: the entry at byte 0 has a field of type 3",
        "file",
        with_first(lambda _: raw(b"\x0b")),
    ),
    "a field that is cut off": Kind(
        "offsets 24 to 32 are damaged, at position 0: a field of the entry at byte 0 is cut off",
        "file",
        with_first(lambda _: raw(b"\x1a\x7f")),
    ),
    "a batch that lies": Kind(
        "the batch at offset 24 is not what its header says: …", "file", lying
    ),
}

_RECORDS: Final = {
    "the last record of a batch is missing": Kind(
        "offsets 24 to 26 are damaged, at position 134: records of a batch are missing",
        "file",
        of_entries(lambda entries: map(again, [*entries[:2], *entries[3:]])),
    ),
    "a batch comes behind half of one": Kind(
        "offsets 24 to 32 are damaged, at position 134: records of a batch are missing",
        "file",
        of_entries(lambda entries: [*map(again, entries[:2]), _entry_of(_batch(27), entries[3])]),
    ),
    "the first record of a batch is missing": Kind(
        "offsets 24 to 26 are damaged, at position 0: a record without the beginning of its batch",
        "file",
        of_entries(lambda entries: map(again, entries[1:])),
    ),
    "a record at another offset": Kind(
        "offsets 24 to 26 are damaged, at position 0: a record at offset 124 stands in the batch "
        "of offsets 24 to 26",
        "file",
        with_first(lambda entry: again(entry, offset=entry.offset + 100)),
    ),
    "a record with another value": Kind(
        "offsets 24 to 26 are damaged, at position 134: the records of the batch at offset 24 "
        "are not those that its checksum was taken over",
        "file",
        with_first(lambda entry: again(entry, data=memoryview(b"z"))),
    ),
    "the header of a batch of records": Kind(
        "offsets 24 to 26 are damaged, at position 0: the header of a batch of records is damaged",
        "file",
        with_first(lambda entry: again(entry, extension=memoryview(flipped(entry.extension, -9)))),
    ),
    "our field of a record has another part": Kind(
        "offsets 24 to 26 are damaged, at position 0: our field of a record has a part 9",
        "file",
        with_first(lambda entry: again(entry, extension=memoryview(b"\x09"))),
    ),
    "our field of a record is cut off": Kind(
        "offsets 24 to 26 are damaged, at position 0: our field of a record is cut off",
        "file",
        with_first(lambda entry: again(entry, extension=memoryview(b"\x1a\x7f"))),
    ),
}


RECORDS: Final = {name: kind._replace(layout=Layout.RECORDS) for name, kind in _RECORDS.items()}


def _batch(base_offset: int) -> RecordBatch:
    batch = make_batch(VALUES)
    batch.assign(base_offset, 0)
    return batch


# --- which files there are ---


def of_leader(change: Callable[[dict[str, Any]], Any]) -> Callable[[Damaged], None]:
    """Have the content of the leader entry say something else, under its old checksum."""

    def plant(damaged: Damaged) -> None:
        entry = damaged.entry(LEADER)
        body = loads(entry.content)
        changed = change(body)
        content = changed if isinstance(changed, bytes) else dumps(body).encode()
        damaged.put(entry._replace(content=content))

    return plant


def of_detail(change: Callable[[dict[str, Any]], Any]) -> Callable[[Damaged], None]:
    """Have the partition's detail say something else, soundly."""

    def plant(damaged: Damaged) -> None:
        leader, _ = damaged.leader()
        fields = loads(leader.detail)
        change(fields)
        damaged.lead(leader._replace(detail=dumps(fields).encode()))

    return plant


def all_gone(damaged: Damaged) -> None:
    """Remove every log file and the leader entry."""
    for name in (*damaged.files, LEADER):
        damaged.remove(name)


def of_another(damaged: Damaged) -> None:
    """Have a partition's files in the directory of another."""
    names = damaged.files
    leader, marks = damaged.leader()
    for name in names:
        damaged.mark(name, **{IDENTITY: b"other-1"})
    damaged.lead(leader, marks._replace(identity=b"other-1"))


def without_a_file(damaged: Damaged) -> None:
    """Have the leader entry not list a file, which is gone, too."""
    leader, _ = damaged.leader()
    damaged.remove(leader.rows[1].name)
    damaged.lead(leader._replace(rows=(leader.rows[0], *leader.rows[2:])))


def without_last_chunk(damaged: Damaged, number: int = -1) -> None:
    """Have a file lack its last chunk, the active one, as an older copy of its entry would."""
    name = damaged.files[number]
    entry = damaged.entry(name)
    notes = entry.extended[NOTES]
    (end_offset, *_) = NOTE.unpack(notes[-NOTE.size :])
    damaged.put(entry._replace(chunks=entry.chunks[:-1]))
    damaged.mark(name, **{NOTES: notes[: -NOTE.size], "offset_max": NUMBER.pack(end_offset - 1)})


def shortened(damaged: Damaged) -> None:
    """Have a sealed file's last chunk be shorter than it was."""
    name = damaged.files[0]
    entry = damaged.entry(name)
    *before, last = entry.chunks
    damaged.put(entry._replace(chunks=(*before, last._replace(size_bytes=last.size_bytes - 1))))


def moved(damaged: Damaged) -> None:
    """Have a hole between two chunks of the active file."""
    name = damaged.files[-1]
    entry = damaged.entry(name)
    *before, last = entry.chunks
    damaged.put(entry._replace(chunks=(*before, last._replace(position=last.position + 1))))


def noted_twice(damaged: Damaged) -> None:
    """Have a file's attributes tell of a chunk that it does not have."""
    name = damaged.files[-1]
    notes = damaged.entry(name).extended[NOTES]
    damaged.mark(name, **{NOTES: notes + notes[-NOTE.size :]})


def copy_of_the_topic(damaged: Damaged) -> None:
    """Have a copy of the topic's directory, with nothing in it."""
    names = damaged.store.directories[TOPIC_PLACE]
    (version,) = [entry for entry in names.values() if entry.is_directory]
    copy = version._replace(name="v2099-01-01-00-00-00")
    damaged.store.create(TOPIC_PLACE, copy)


def of_snapshot(change: Callable[[bytes], bytes]) -> Callable[[Damaged], None]:
    """Have the snapshot of derived state hold other bytes."""
    return lambda damaged: damaged.rewrite(change, SNAPSHOT)


def unknown(plant: Callable[[Damaged], Any]) -> Callable[[Damaged], Any]:
    """Have the state know nothing of where the log ended, and plant something."""

    async def both(damaged: Damaged) -> None:
        await damaged.commit(Change(END, str(KEY), None))
        plant(damaged)

    return both


def committed(offset: int) -> Change:
    """Return the row of a group that has committed an offset of the partition."""
    group_id, topic_id = "readers", KEY.topic_id
    rows = encode_row({KEY.partition: CommittedOffset(offset, -1, "", 0, -1, 0.0)})
    return Change(GROUP_OFFSETS, row_key(group_id, topic_id, (GROUP_OFFSETS, "0")), rows)


FILES: Final = {
    "all is gone": Kind(
        "is missing: nothing says which files there are; it held records up to offset 33",
        LEADER,
        all_gone,
    ),
    "all is gone of what the state knows nothing of": Kind(
        "is missing: nothing says which files there are", LEADER, unknown(all_gone)
    ),
    "the leader entry is gone": Kind(
        "it is gone, and nothing but it says which of the 5 log files there belong to the log, "
        "and where it begins. Bring it back, from a backup of the filer's metadata (fs.meta.load "
        "in weed shell)",
        LEADER,
        lambda damaged: damaged.remove(LEADER),
    ),
    "the leader entry is another's": Kind("is that of other-1", LEADER, of_another),
    "the leader entry has no marks": Kind(
        "not written by kgw, or damaged: KeyError('kgw.epoch')",
        LEADER,
        lambda damaged: damaged.mark(LEADER, **{EPOCH: None}),
    ),
    "the leader entry is of another version": Kind(
        "version 2, and this kgw knows 1 only",
        LEADER,
        of_leader(lambda body: body.update(version=2)),
    ),
    "the leader entry fails its checksum": Kind(
        "its checksum is wrong", LEADER, of_leader(lambda body: body.update(last_name="x"))
    ),
    "the leader entry has other marks": Kind(
        "its attributes contradict its content",
        LEADER,
        lambda damaged: damaged.mark(LEADER, **{EPOCH: NUMBER.pack(77)}),
    ),
    "the leader entry is no JSON": Kind(
        "cannot be understood: …", LEADER, of_leader(lambda _: b"{")
    ),
    "the detail is of another version": Kind(
        "a partition's detail is of version 9, this kgw knows 1",
        LEADER,
        of_detail(lambda fields: fields.update(version=9)),
    ),
    "the detail has no epoch": Kind(
        "a partition's detail has no leader epoch",
        LEADER,
        of_detail(lambda fields: fields.update(epochs=[])),
    ),
    "the detail lacks a field": Kind(
        "a partition's detail cannot be understood: 'epochs'",
        LEADER,
        of_detail(lambda fields: fields.pop("epochs")),
    ),
    "the log begins behind its end": Kind(
        "the log begins at 99, behind its end 33",
        LEADER,
        of_detail(lambda fields: fields.update(log_start_offset=99)),
    ),
    "the log ends before its end": Kind(
        "the log ends at 24, before 33, where it ended at an orderly stop: what is between them "
        "is gone",
        LEADER,
        unknown(without_last_chunk),
    ),
    "the log ends before the state says it did": Kind(
        "the log ends at 33, before 40, where the state has it end: what is between them is gone",
        LEADER,
        lambda damaged: damaged.commit(Change(END, str(KEY), b"40")),
    ),
    "a group is behind the log's end": Kind(
        "group readers has committed offset 34, behind the log's end 33: either somebody has set "
        "it so, or the log has lost its end",
        LEADER,
        lambda damaged: damaged.commit(committed(34)),
    ),
    "a file is not listed": Kind("begins at 12, where 6 was expected", "file", without_a_file),
    "a sealed file is gone": Kind(
        "it is gone", "file", lambda damaged: damaged.remove(damaged.files[0])
    ),
    "the active file is gone": Kind(
        "it is gone", "file", lambda damaged: damaged.remove(damaged.files[-1])
    ),
    "a file is another's": Kind(
        "it is another's",
        "file",
        lambda damaged: damaged.mark(damaged.files[1], **{IDENTITY: b"other-1"}),
    ),
    "a file has no marks": Kind(
        "not written by kgw, or damaged: KeyError('kgw.identity')",
        "file",
        lambda damaged: damaged.mark(damaged.files[1], **{IDENTITY: None}),
    ),
    "a file has no notes": Kind(
        "its attributes are damaged: KeyError('kgw.notes')",
        "file",
        lambda damaged: damaged.mark(damaged.files[1], **{NOTES: None}),
    ),
    "a file has too many notes": Kind("1 chunks, but 2 are described", "file", noted_twice),
    "a hole between chunks": Kind("chunk 0 does not follow the one before it", "file", moved),
    "a sealed file lacks its end": Kind(
        "114 bytes to offset 3, but the leader entry has 230 to 6",
        "file",
        lambda damaged: without_last_chunk(damaged, 0),
    ),
    "a sealed file is shorter": Kind(
        "229 bytes to offset 6, but the leader entry has 230 to 6", "file", shortened
    ),
    "a file that no list names": Kind(
        "is named by no list, and not read: has SMQ's broker written to this topic?",
        "2026-01-01-00-00-00",
        lambda damaged: damaged.put(FilerEntry("2026-01-01-00-00-00", content=b"x")),
    ),
    "a copy of the topic": Kind(
        "… and … have one topic id, …: one is a copy; move it out of the namespace (fs.mv in "
        "weed shell)",
        "/topics/kafka",
        copy_of_the_topic,
    ),
    "a snapshot is cut off": Kind(
        "it is cut off; it is not used", SNAPSHOT, of_snapshot(lambda data: data[:9])
    ),
    "a snapshot fails its checksum": Kind(
        "it fails its checksum; it is not used",
        SNAPSHOT,
        of_snapshot(lambda data: flipped(data, -1)),
    ),
    "a snapshot of another format": Kind(
        "it fails its checksum; it is not used",
        SNAPSHOT,
        of_snapshot(lambda data: flipped(data, 0)),
    ),
    "a snapshot's bytes are gone": Kind(
        "chunk … is gone; it is not used",
        SNAPSHOT,
        lambda damaged: damaged.store.chunks.pop(damaged.chunk(SNAPSHOT).file_id),
    ),
}


# --- the state ---


def of_commit(change: Callable[[bytes], bytes]) -> Callable[[Damaged], None]:
    """Have the last commit of the state hold other bytes."""

    def plant(damaged: Damaged) -> None:
        leader, _ = damaged.leader(STATE)
        name = leader.rows[-1].name
        damaged.rewrite(change, name, directory=STATE)

    return plant


def recommitted(
    items: Callable[[bytes], bytes], *, offset: int = 0, form: int = 1
) -> Callable[[Damaged], None]:
    """Have the last commit hold other items, under a sound checksum."""

    def change(data: bytes) -> bytes:
        (entry,) = walk(data)
        head = bytearray(entry.data[: _HEAD.size])
        said = [*_HEAD.unpack(head)]
        rest = items(bytes(entry.data[_HEAD.size :]))
        said[0], said[2] = form, said[2] + offset
        _HEAD.pack_into(head, 0, *said)
        said[-1] = crc32c(rest, crc32c(bytes(head[: _HEAD.size - 4])))
        _HEAD.pack_into(head, 0, *said)
        return again(entry, data=memoryview(bytes(head) + rest))

    return of_commit(change)


def of_payload(change: Callable[[bytes], bytes]) -> Callable[[Damaged], None]:
    """Have the last commit's payload be other bytes, in a sound entry."""
    return of_commit(
        lambda data: b"".join(
            again(one, data=memoryview(change(bytes(one.data)))) for one in walk(data)
        )
    )


def of_state_detail(detail: bytes) -> Callable[[Damaged], None]:
    """Have the state's leader entry keep other words, soundly."""

    def plant(damaged: Damaged) -> None:
        leader, _ = damaged.leader(STATE)
        damaged.lead(leader._replace(detail=detail), directory=STATE)

    return plant


def of_newest_snapshot(plant: Callable[[Damaged, str], Any]) -> Callable[[Damaged], None]:
    """Damage the newest snapshot of the state."""

    def damage(damaged: Damaged) -> None:
        names = damaged.store.directories[SNAPSHOTS]
        plant(damaged, max(names, key=lambda name: int(name.rpartition("-")[2])))

    return damage


def _lost_part(damaged: Damaged, name: str) -> None:
    entry = damaged.entry(name, SNAPSHOTS)
    damaged.put(entry._replace(chunks=entry.chunks[:-1]), SNAPSHOTS)


def _of_two_entries(data: bytes) -> bytes:
    """Return as many bytes, which are two entries."""
    rest = len(data) - 2 * LENGTH.size
    odd = rest % 2
    return raw(b"") + raw(b"\x08\x80\x00" * odd + b"\x08\x00" * ((rest - 3 * odd) // 2))


def in_snapshot(change: Callable[[bytes], bytes]) -> Callable[[Damaged], None]:
    """Have the first part of the state's newest snapshot hold other bytes."""
    return of_newest_snapshot(
        lambda damaged, name: damaged.rewrite(change, name, 0, directory=SNAPSHOTS)
    )


STATE_KINDS: Final = {
    "there is no state": Kind(
        "there is no state: see `kgw log adopt`",
        "state",
        lambda damaged: damaged.store.delete("/topics/.kgw", "kafka", is_recursive=True),
    ),
    "the state's leader entry is of another version": Kind(
        "the state's leader entry has version 9; this program reads 1",
        "state",
        of_state_detail(b'{"version": 9, "snapshots": []}'),
    ),
    "the state's leader entry cannot be read": Kind(
        "the state's leader entry cannot be read: …", "state", of_state_detail(b"{")
    ),
    "the state's leader entry names no snapshot": Kind(
        "the state's leader entry names no snapshot", "state", of_state_detail(encode_detail([]))
    ),
    "the last commit is missing": Kind(
        "… ends at commit 61, where 62 were stored", "state", of_commit(lambda _: b"")
    ),
    "a commit's checksum": Kind(
        "…/… at position 146: the checksum is wrong",
        "state",
        of_payload(lambda data: flipped(data, -1)),
    ),
    "a commit that is too short": Kind(
        "…/… at position 146: 5 bytes are too few for a payload",
        "state",
        of_payload(lambda data: data[:5]),
    ),
    "a commit of another place": Kind(
        "…/… at position 146: it belongs at (1, 62, 0), not at (1, 61, 0) (sort, offset, part)",
        "state",
        recommitted(lambda items: items, offset=1),
    ),
    "a commit of another format": Kind(
        "…/… at position 146: its format is 9, this program reads 1",
        "state",
        recommitted(lambda items: items, form=9),
    ),
    "a commit with an unknown item": Kind(
        "…/… at position 146: an item has the tag 99, which this program does not know",
        "state",
        recommitted(lambda items: b"\x63" + items[1:]),
    ),
    "a commit with an item that is cut off": Kind(
        "…/… at position 146: an item is cut off", "state", recommitted(lambda items: items[:-1])
    ),
    "a commit with half an item": Kind(
        "…/… at position 146: an item cannot be read: …",
        "state",
        recommitted(lambda items: items + b"\x01"),
    ),
    "a commit's bytes are gone": Kind(
        "…/… at position 146: …/…: chunk 2, from offset 61: chunk … is gone",
        "state",
        lambda damaged: damaged.store.chunks.pop(
            damaged.chunk(damaged.leader(STATE)[0].rows[-1].name, -1, STATE).file_id
        ),
    ),
    "a file of commits is gone": Kind(
        "…: it is gone, and may have held records",
        "state",
        lambda damaged: damaged.remove(damaged.leader(STATE)[0].rows[-1].name, STATE),
    ),
    "a topic's row is gone": Kind(
        "topic orders (…) has files, and the state does not know it; see `kgw log adopt`",
        "state",
        lambda damaged: damaged.commit(Change(TOPIC, ROW.key, None)),
    ),
    "a topic's row cannot be read": Kind(
        "the row of topic … cannot be read: …",
        "state",
        lambda damaged: damaged.commit(Change(TOPIC, ROW.key, b"{")),
    ),
    "a topic's directory is gone": Kind(
        "partitions are gone that held records, and are not opened: 0 up to offset 33",
        "/topics/kafka/orders",
        lambda damaged: damaged.store.delete("/topics/kafka", "orders", is_recursive=True),
    ),
    "a partition's directory is gone": Kind(
        "partitions are gone that held records, and are not opened: 0 up to offset 33",
        "/topics/kafka/orders",
        lambda damaged: damaged.store.delete(*damaged.partition.rsplit("/", 1), is_recursive=True),
    ),
    "a directory is gone of what the state knows nothing of": Kind(
        "partitions 0 are gone, and the state knows them: the next start makes them anew, empty",
        "/topics/kafka/orders",
        unknown(
            lambda damaged: damaged.store.delete(
                *damaged.partition.rsplit("/", 1), is_recursive=True
            )
        ),
    ),
    "the row of a log's end is no number": Kind(
        "the log-end row … is no number",
        "state",
        lambda damaged: damaged.commit(Change(END, str(KEY), b"many")),
    ),
    "the newest snapshot is gone": Kind(
        "a snapshot of the state is damaged, what came before it was read: … is gone",
        "state",
        of_newest_snapshot(lambda damaged, name: damaged.remove(name, SNAPSHOTS)),
    ),
    "the newest snapshot lacks a part": Kind(
        "a snapshot of the state is damaged, what came before it was read: … has 2 parts and 332 "
        "bytes, where 3 and 609 were written",
        "state",
        of_newest_snapshot(_lost_part),
    ),
    "a part of a snapshot is two": Kind(
        "a snapshot of the state is damaged, what came before it was read: … at position 0: "
        "there are 2 log entries, not one",
        "state",
        in_snapshot(_of_two_entries),
    ),
    "a part of a snapshot fails its checksum": Kind(
        "a snapshot of the state is damaged, what came before it was read: … at position 0: the "
        "checksum is wrong",
        "state",
        in_snapshot(lambda data: flipped(data, len(data) // 2)),
    ),
}

KINDS: Final = {**FILES, **CHUNKS, **RECORDS, **STATE_KINDS}
