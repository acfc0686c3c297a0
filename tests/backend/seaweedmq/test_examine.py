"""What `kgw doctor` says of a SeaweedFS."""

from __future__ import annotations

from contextlib import aclosing
from inspect import isawaitable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.channel.cipher import encrypt
from kgw.backend.seaweedmq.channel.topology import (
    VolumeServer,
    expiries_of,
    volume_servers_of,
)
from kgw.backend.seaweedmq.filer import Expiry, FilerEntry, FilerError
from kgw.backend.seaweedmq.lease.rules import LeaseEntry
from kgw.backend.seaweedmq.offline import examine as examine_module
from kgw.backend.seaweedmq.offline import replication, state_findings, views
from kgw.backend.seaweedmq.offline.examine import (
    Setup,
    examine,
    judge_lease,
    judge_setup,
    version_finding,
)
from kgw.backend.seaweedmq.offline.findings import Severity
from kgw.backend.seaweedmq.offline.replication import judge_copies, judge_volume_servers
from kgw.backend.seaweedmq.path_rules import PathRule
from kgw.backend.seaweedmq.protos import master_pb2
from kgw.backend.seaweedmq.state.placed_state import StateDatabase
from kgw.backend.seaweedmq.watch import fence
from kgw.config import Listener, Node
from kgw.errors import CorruptionError, StorageError
from kgw.testing.filer import VOLUMES, CallKind, FilerStore, MemoryFiler
from tests.backend.seaweedmq.damages import FILES, STATE_KINDS, Damaged
from tests.backend.seaweedmq.old_filers import WithoutConditions, WithoutExclusion
from tests.backend.seaweedmq.state.test_offset_mirror import row
from tests.findings import pattern_of, unplanted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from kgw.backend.seaweedmq.filer import Chunk
    from kgw.backend.seaweedmq.offline.findings import CheckResult

SETUP = Setup("kafka", "001", "000", "", "", is_synced=True, is_secured=True, is_mirrored=True)
NOW_S = 1_700_000_000


def server(
    address: str, place: str = "c1/r1", free: int = 1, volumes: dict[int, str] | None = None
) -> VolumeServer:
    """Return a volume server with disks of type hdd."""
    center, _, rack = place.partition("/")
    return VolumeServer(address, center, rack, {"hdd": free}, {"hdd": 8}, volumes or {})


SERVERS = [server("a:8080"), server("b:8080")]


async def found_of(
    filer: MemoryFiler, *answers: list[VolumeServer] | StorageError, setup: Setup = SETUP
) -> list[CheckResult]:
    """Examine it. The masters answer so, and then that there are SERVERS."""
    left = [*answers]

    async def volume_servers() -> list[VolumeServer]:
        answer = left.pop(0) if left else SERVERS
        if isinstance(answer, StorageError):
            raise answer
        return answer

    return [one async for one in examine(filer, setup, "probe", NOW_S, 0.0, volume_servers)]


VERSIONS = (
    ("8000GB 4.48 pypi", Severity.OK, "SeaweedFS 8000GB 4.48 pypi"),
    ("30GB 5.01 abc", Severity.OK, "SeaweedFS 30GB 5.01 abc"),
    (
        "30GB 4.44 abc",
        Severity.WARNING,
        (
            "SeaweedFS 30GB 4.44 abc: kgw is tried with 4.48, and 4.44 was seen to hang; "
            "install 4.48 or later"
        ),
    ),
    (
        "8000GB 4.40 pypi",
        Severity.PROBLEM,
        (
            "SeaweedFS 8000GB 4.40 pypi: before 4.41 the filer takes no lock for a conditional "
            "update, so that two gateways could write to one partition; install 4.48 or later"
        ),
    ),
    (
        "",
        Severity.WARNING,
        (
            "the filer says '' of its version: kgw is tried with 4.48, and needs 4.41 or later, "
            "whose conditional updates exclude each other. Make sure that this one is made of it"
        ),
    ),
)


@pytest.mark.parametrize(("text", "severity", "says"), VERSIONS)
def test_old_versions_are_warned_of(text: str, severity: Severity, says: str) -> None:
    """As a filer says it."""
    found = version_finding(text)
    assert (severity, says) == (found.severity, found.detail)


async def test_other_filers_are_a_problem() -> None:
    """Kgw does not start beside them."""
    filer = MemoryFiler()
    filer.addresses.append("b:8888")
    await filer.open()
    async with aclosing(filer):
        found = await found_of(filer)
    assert ["filers"] == [one.subject for one in found if one.severity is Severity.PROBLEM]


async def test_filers_that_nobody_tells_are_warned_of() -> None:
    """There may be others."""
    filer = WithoutMasters()
    await filer.open()
    async with aclosing(filer):
        found = await found_of(filer)
    assert ["filers"] == [one.subject for one in found if one.severity is Severity.WARNING]


NOTHING_STORED = "the namespace has no chunks yet"


async def test_a_sound_filer_is_found_so_and_left_as_it_was() -> None:
    """The entry and the chunk of the test are removed."""
    filer = MemoryFiler()
    await filer.open()
    async with aclosing(filer):
        found = await found_of(filer)
        assert {Severity.OK} == {one.severity for one in found}
        assert [NOTHING_STORED] == [one.detail for one in found if one.subject == "copies"]
        assert not [one async for one in filer.list_entries("/topics/.kgw/kafka")]


async def test_a_volume_server_that_is_away_is_a_problem() -> None:
    """Everything else is said all the same."""
    filer = MemoryFiler()
    await filer.open()
    async with aclosing(filer):
        filer.fail_next(CallKind.UPLOAD, StorageError("no free volumes left"))
        found = await found_of(filer)
    assert ["volumes"] == [one.subject for one in found if one.severity is Severity.PROBLEM]
    assert "topics" in [one.subject for one in found]


async def test_a_lease_that_is_none_can_be_removed() -> None:
    """The message says so; where there is none, somebody may have."""
    filer = MemoryFiler()
    await filer.open()
    async with aclosing(filer):
        (none,) = [one for one in await found_of(filer) if one.subject == "lease"]
        assert (Severity.OK, True) == (none.severity, "removed it" in none.detail)
        await filer.create("/topics/.kgw/kafka", FilerEntry("gateway", content=b"x"))
        (lease,) = [one for one in await found_of(filer) if one.subject == "lease"]
    assert Severity.PROBLEM is lease.severity
    assert "/topics/.kgw/kafka/gateway is not a lease" in lease.detail
    assert lease.detail.endswith("with no gateway running, remove it: it is made anew")


async def test_the_copies_of_the_state_are_looked_at() -> None:
    """Its files have chunks as those of topics do."""
    filer = MemoryFiler()
    await filer.open()
    async with aclosing(filer):
        chunk = (await filer.upload([b"x"]))._replace(file_id="7,01ab")
        await filer.create("/topics/.kgw/kafka/state", FilerEntry("file", (chunk,)))
        (gone,) = [one for one in await found_of(filer) if one.severity is Severity.PROBLEM]
    assert gone.detail.startswith("volume 7 is on no volume server")


async def test_a_volume_that_is_made_meanwhile_is_not_lost() -> None:
    """The masters are asked again once it is known which volumes there have to be."""
    filer = MemoryFiler()
    await filer.open()
    async with aclosing(filer):
        chunk = (await filer.upload([b"x"]))._replace(file_id="7,01ab")
        await filer.create("/topics/.kgw/kafka/state", FilerEntry("file", (chunk,)))
        later = [server(one, volumes={7: "001"}) for one in "ab"]
        assert {Severity.OK} == {one.severity for one in await found_of(filer, SERVERS, later)}


# --- each kind of finding -------------------------------------------------------------------------


class KeepsNoAttributes(MemoryFiler):
    """A filer that forgets attributes when an entry is changed."""

    async def update(
        self,
        directory: str,
        entry: FilerEntry,
        expected: Mapping[str, bytes],
        *,
        deadline_s: float | None = None,
    ) -> None:
        bare = entry._replace(extended={})
        await super().update(directory, bare, expected, deadline_s=deadline_s)


class WithoutMasters(MemoryFiler):
    """A filer whose masters are away."""

    async def filers(self, *, deadline_s: float | None = None) -> list[str]:
        raise FilerError("the masters cannot be reached")


class ReadsOtherwise(MemoryFiler):
    """A filer behind something that changes what the doctor has stored."""

    async def read_chunk(
        self, chunk: Chunk, start: int, size_bytes: int, *, deadline_s: float | None = None
    ) -> bytes:
        data = await super().read_chunk(chunk, start, size_bytes, deadline_s=deadline_s)
        return data.replace(b"kgw doctor", b"KGW DOCTOR")


class RemovesMeanwhile(MemoryFiler):
    """A filer that is told to remove a partition just before its files are listed."""

    async def list_entries(
        self, directory: str, *, prefix: str = "", after: str = "", chunks: bool = True
    ) -> AsyncIterator[FilerEntry]:
        if chunks and directory.startswith("/topics/kafka/orders/"):
            place, _, name = directory.rpartition("/")
            await self.delete(place, name, is_recursive=True)
        listed = super().list_entries(directory, prefix=prefix, after=after, chunks=chunks)
        async for entry in listed:
            yield entry


class DamagedMeanwhile(MemoryFiler):
    """A filer whose leader entry of a partition is damaged just before files are listed."""

    async def list_entries(
        self, directory: str, *, prefix: str = "", after: str = "", chunks: bool = True
    ) -> AsyncIterator[FilerEntry]:
        if chunks and directory.startswith("/topics/kafka/orders/"):
            entry = await self.look_up(directory, LEADER)
            assert entry is not None
            await self.put(directory, entry._replace(content=b"{"))
        listed = super().list_entries(directory, prefix=prefix, after=after, chunks=chunks)
        async for entry in listed:
            yield entry


def held(replication: str = "001", *, without: int = 0) -> list[VolumeServer]:
    """Return two servers that have all volumes, but for one."""
    volumes = {number: replication for number in VOLUMES if number != without}
    return [server(one, volumes=volumes) for one in ("a", "b")]


class Case(NamedTuple):
    """One thing that can be wrong, or is worth a word."""

    subject: str
    severity: Severity
    says: str
    plant: Callable[[Damaged, MemoryFiler], Any] = lambda *_: None
    setup: Mapping[str, Any] = MappingProxyType({})
    filer: type[MemoryFiler] = MemoryFiler
    answers: tuple[list[VolumeServer] | StorageError, ...] = ()
    """Of the masters; after them, that all is well."""


def leased(age_s: int, *, is_released: bool = False) -> Callable[[Damaged, MemoryFiler], None]:
    """Have a lease that was renewed so long ago."""

    def plant(damaged: Damaged, _: MemoryFiler) -> None:
        lease = LeaseEntry(b"h", 3, 9, 10_000, is_released=is_released)
        entry = lease.encode()._replace(modified_s=NOW_S - age_s)
        damaged.store.put("/topics/.kgw/kafka", entry)

    return plant


def of_files(name: str) -> Callable[[Damaged, MemoryFiler], Any]:
    """Damage files as a check names it."""
    return lambda damaged, _: FILES[name].plant(damaged)


def bound(damaged: Damaged, _: MemoryFiler) -> Any:
    """Have the state in a database."""
    return damaged.commit(StateDatabase("postgresql://db/kgw", "id", is_bound=True).change())


PROBLEM, WARNING, OK = Severity.PROBLEM, Severity.WARNING, Severity.OK


class WithUnknownRules(MemoryFiler):
    """Its file of rules cannot be understood."""

    async def rules(self) -> tuple[PathRule, ...]:
        raise CorruptionError("/etc/seaweedfs/filer.conf cannot be understood: x")


EXPIRING: Mapping[str, Any] = {
    "replications": dict.fromkeys(range(1, 9), "001"),
    "expiries": {8: Expiry(7 * 86_400)},
}
"""Of servers with another volume, whose chunks live for a week."""


def _move_chunk(damaged: Damaged, volume: int) -> None:
    """Have the first chunk of a sealed file in another volume."""
    entry = damaged.entry(damaged.files[0])
    chunk = entry.chunks[0]._replace(file_id=f"{volume},01ab")
    damaged.put(entry._replace(chunks=(chunk, *entry.chunks[1:])))


def _expire_file(damaged: Damaged, at_s: int) -> None:
    """Have a sealed file that the filer will remove."""
    damaged.put(damaged.entry(damaged.files[0])._replace(expires_s=at_s))


def set_rules(filer: MemoryFiler, *rules: PathRule) -> None:
    """Have them as `fs.configure` sets them."""
    filer.path_rules = rules


CASES = {
    "chunks are not synced": Case(
        "fsync",
        WARNING,
        "kgw.seaweedmq.fsync=false: a loss of power on a machine that holds all copies of a "
        "chunk loses acknowledged records; set it, or replicate over machines that do not lose "
        "power together",
        setup={"is_synced": False},
    ),
    "nothing is encrypted": Case(
        "tls",
        WARNING,
        "nothing is encrypted between kgw and SeaweedFS; set kgw.seaweedmq.security.file where "
        "the network is not trusted",
        setup={"is_secured": False},
    ),
    "a single copy": Case(
        "replication",
        WARNING,
        "000; collection as the filer has it: each chunk is on one disk, and lost with it. Have "
        "kgw.seaweedmq.replication ask for copies, as in 001",
        setup={"replication": "000"},
    ),
    "another filer": Case(
        "filers",
        PROBLEM,
        "the SeaweedFS has 2 filers (b:8888, memory:8888), and neither excludes the other's "
        "writers: kgw needs one without others, or in a group of its own (weed filer -filerGroup)",
        lambda _, filer: filer.addresses.append("b:8888"),
    ),
    "nobody knows of filers": Case(
        "filers",
        WARNING,
        "the masters do not say which filers there are: the masters cannot be reached; start "
        "them again",
        filer=WithoutMasters,
    ),
    "conditions are ignored": Case(
        "fence",
        PROBLEM,
        "the filer has changed …/… under a condition that was false: two gateways could write to "
        "one partition. kgw needs SeaweedFS 4.48 or later",
        filer=WithoutConditions,
    ),
    "an entry is made twice": Case(
        "fence",
        PROBLEM,
        "the filer has made …/… twice, exclusively both times: two gateways could write to one "
        "partition. kgw needs SeaweedFS 4.48 or later",
        filer=WithoutExclusion,
    ),
    "attributes are not kept": Case(
        "fence",
        PROBLEM,
        "the filer has not kept the attributes of …/…, under which kgw writes",
        filer=KeepsNoAttributes,
    ),
    "the fence cannot be tried": Case(
        "fence",
        PROBLEM,
        "whether the filer refuses stale writers cannot be tested: cannot create probe: refused",
        lambda _, filer: filer.fail_next(CallKind.CREATE),
    ),
    "no volume can be written": Case(
        "volumes",
        PROBLEM,
        "a chunk cannot be stored and read: no volume can be written: no free volumes left. Look "
        "at volume.list in weed shell: the replication needs free volumes on so many volume "
        "servers",
        lambda damaged, _: setattr(damaged.store, "is_full", True),
    ),
    "a chunk is read otherwise": Case(
        "volumes",
        PROBLEM,
        "a chunk was not read as it was stored; something between kgw and the volume servers "
        "changes it: connect directly",
        filer=ReadsOtherwise,
    ),
    "the masters are away": Case(
        "masters",
        PROBLEM,
        "they do not say which volume servers there are: away. Without a master no chunk gets a "
        "place: start it again",
        answers=(StorageError("away"),),
    ),
    "the masters have gone meanwhile": Case(
        "masters",
        PROBLEM,
        "they do not say which volume servers there are: away. Without a master no chunk gets a "
        "place: start it again",
        answers=(held(), StorageError("away")),
    ),
    "no volume server": Case(
        "volume servers",
        PROBLEM,
        "the masters know of none: start one, or look at its log",
        answers=([],),
    ),
    "no room for a volume": Case(
        "volume servers",
        WARNING,
        "2 with disks of type hdd: a (c1/r1, 1 of 8 volumes free), b (c1/r1, 0 of 8 volumes "
        "free). No volume can be made for replication 001: appends go on until those that there "
        "are are full, and are refused then. Start volume servers where copies are to be, raise "
        "their -max, or ask for fewer copies (kgw.seaweedmq.replication)",
        answers=([server("a"), server("b", free=0)],),
    ),
    "a volume that nobody has": Case(
        "copies",
        PROBLEM,
        "volume 3 is on no volume server that the masters know: the records in there cannot be "
        "read. Start the volume server that has them",
        answers=(held(), held(without=3)),
    ),
    "a volume with a copy too few": Case(
        "copies",
        WARNING,
        "volume 3 is there in fewer copies than they are to have: start the volume server that "
        "is away, or run volume.fix.replication in weed shell",
        answers=(held(), [held()[0], held(without=3)[1]]),
    ),
    "volumes of before": Case(
        "copies",
        WARNING,
        "volumes 1, 2, 3, 4, 5, 6, 7 are to have fewer copies than replication 001, with which "
        "new ones are made: volume.configure.replication and volume.fix.replication in weed "
        "shell change that",
        answers=(held(), held("000")),
    ),
    "no lease": Case(
        "lease",
        OK,
        "there is no lease: no gateway has served the namespace, or somebody has removed it",
        lambda damaged, _: damaged.remove("gateway", "/topics/.kgw/kafka"),
    ),
    "a lease that is given back": Case(
        "lease",
        OK,
        "nobody serves the namespace: the gateway at an unknown address let go of it at "
        "2023-11-14 21:58:20 UTC, 900 s ago; epoch 3, 9 changes",
        leased(900, is_released=True),
    ),
    "a lease that has run out": Case(
        "lease",
        WARNING,
        "the gateway at an unknown address holds it, for 10000 ms at a time, and renewed it last "
        "at 2023-11-14 22:13:09 UTC, 11 s ago: it was killed, or cannot reach the filer, or its "
        "clock is wrong. A stand-by takes over by itself; with none, start the gateway again; "
        "epoch 3, 9 changes",
        leased(11),
    ),
    "no lease at all": Case(
        "lease",
        PROBLEM,
        "…/gateway is not a lease of kgw: KeyError('kgw-identity'); with no gateway running, "
        "remove it: it is made anew",
        lambda damaged, _: damaged.put(FilerEntry("gateway", content=b"x"), "/topics/.kgw/kafka"),
    ),
    "a state that is damaged": Case(
        "state",
        PROBLEM,
        "kept in the SeaweedFS, in …: … at position 146: the checksum is wrong; see Damage in "
        "docs/seaweedmq-state.md",
        lambda damaged, _: STATE_KINDS["a commit's checksum"].plant(damaged),
    ),
    "a state without its last commit": Case(
        "state",
        PROBLEM,
        "kept in the SeaweedFS, in …: …/… ends at commit 61, where 62 were stored; see Damage in "
        "docs/seaweedmq-state.md",
        lambda damaged, _: STATE_KINDS["the last commit is missing"].plant(damaged),
    ),
    "a state in a database": Case(
        "state", OK, "kept in postgresql://db/kgw; not looked into", bound
    ),
    "no state": Case(
        "state",
        OK,
        "kept in the SeaweedFS, in …: there is none yet",
        lambda damaged, _: STATE_KINDS["there is no state"].plant(damaged),
    ),
    "no mirror": Case(
        "mirror", OK, "off: kgw.seaweedmq.mirror.offsets=false", setup={"is_mirrored": False}
    ),
    "a mirror that is behind": Case(
        "mirror",
        OK,
        "1 committed offsets, 1 of them not what their file says: those that a gateway commits "
        "right now, and those of before a kill or of a time without the mirror, which go with "
        "the group's next commit in that partition",
        lambda damaged, _: damaged.commit(row({0: 4})),
    ),
    "a copy of a topic": Case(
        "topics",
        PROBLEM,
        "… and … have one topic id, …: one is a copy; move it out of the namespace (fs.mv in "
        "weed shell)",
        of_files("a copy of the topic"),
    ),
    "a leader entry that is damaged": Case(
        "partition",
        PROBLEM,
        "…: cannot be understood: …; see `kgw log check`",
        of_files("the leader entry is no JSON"),
    ),
    "a leader entry that is damaged meanwhile": Case(
        "partition",
        PROBLEM,
        "…: cannot be understood: …; see `kgw log check`",
        of_files("a sealed file is gone"),
        filer=DamagedMeanwhile,
    ),
    "a partition without anything": Case(
        "partition",
        WARNING,
        "…/leader.offset is missing, as is every log file: a creation was not finished, or all was "
        "removed; a gateway that knows the topic makes it anew, empty, at its next start",
        of_files("all is gone"),
    ),
    "the files of another partition": Case(
        "partition",
        PROBLEM,
        "… has the files of another partition, other-1: no gateway opens it; move them back "
        "(fs.mv in weed shell)",
        of_files("the leader entry is another's"),
    ),
    "a sealed file that is gone": Case(
        "partition",
        PROBLEM,
        "…/… is gone: the records in there cannot be read; bring it back, from a backup of the "
        "filer's metadata (fs.meta.load in weed shell)",
        of_files("a sealed file is gone"),
    ),
    "an active file that is gone": Case(
        "partition",
        PROBLEM,
        "…/… is gone: the records in there cannot be read; bring it back, from a backup of the "
        "filer's metadata (fs.meta.load in weed shell)",
        of_files("the active file is gone"),
    ),
    "rules that nobody can read": Case(
        "rules",
        PROBLEM,
        "they are unknown: …",
        lambda *_: None,
        filer=WithUnknownRules,
    ),
    "a rule that lets records expire": Case(
        "rules",
        PROBLEM,
        "a rule of the filer lets what is stored in … expire (fs.configure -locationPrefix=…, ttl "
        "…): acknowledged records would be deleted. Take the TTL from it, and have retention.ms "
        "delete records",
        lambda _, filer: set_rules(filer, PathRule("/topics/", ttl="7d")),
    ),
    "a rule that is not obeyed": Case(
        "rules",
        WARNING,
        "a rule of the filer for … is not obeyed (…): chunks get their places by the rules for …",
        lambda _, filer: set_rules(filer, PathRule("/topics/kafka/orders/", places=("disk",))),
    ),
    "a rule for places": Case(
        "rules",
        OK,
        "… by the filer's rule for …, where no setting of kgw says otherwise",
        lambda _, filer: set_rules(filer, PathRule("/topics/", places=("disk",))),
    ),
    "chunks from before the filer encrypted": Case(
        "encryption",
        WARNING,
        "… chunks of the namespace are encrypted, … are in the clear: those were written before "
        "the filer ran with -encryptVolumeData. They go with retention and compaction; `kgw log "
        "copy` writes all of them anew, into another namespace",
        lambda damaged, _: _encrypt(damaged.store, 1),
    ),
    "a filer that encrypts no more": Case(
        "encryption",
        WARNING,
        "… chunks of the namespace are encrypted, … are in the clear: the filer runs without "
        "-encryptVolumeData now, and what is written from now on is in the clear; start it with "
        "that option again, unless this is meant",
        lambda damaged, _: _encrypt(damaged.store, 1, is_on=False),
    ),
    "chunks that expire": Case(
        "expiry",
        PROBLEM,
        "…/0000-0031: 1 of … chunks are in volumes with a TTL (8): SeaweedFS deletes them from "
        "2023-11-… UTC on, also when the rule that gave it is gone. Copy the namespace before "
        "(kgw log copy, kgw state copy), or read the records and produce them again",
        lambda damaged, _: _move_chunk(damaged, 8),
        answers=(held(), [one._replace(**EXPIRING) for one in held()]),
    ),
    "a file that expires": Case(
        "expiry",
        PROBLEM,
        "…/0000-0031: files that have a TTL themselves are …: SeaweedFS deletes them from "
        "2023-11-14 22:13:20 UTC on, also when the rule that gave it is gone. Copy the namespace "
        "before (kgw log copy, kgw state copy), or read the records and produce them again",
        lambda damaged, _: _expire_file(damaged, NOW_S),
    ),
    "a file that no list names": Case(
        "partition",
        WARNING,
        "…/… is named by no list and not read: SMQ's broker has written to a topic of kgw. Its "
        "records are not part of the topic: move the file away",
        of_files("a file that no list names"),
    ),
}


def _encrypt(store: FilerStore, count: int, *, is_on: bool = True) -> None:
    """Encrypt the first chunks that entries name, and those that are stored from now on."""
    for entries in store.directories.values():
        for name, entry in entries.items():
            chunks = []
            for chunk in entry.chunks:
                key = b""
                if count > 0:
                    encrypted = encrypt([store.chunks[chunk.file_id]])
                    store.chunks[chunk.file_id] = b"".join(encrypted.pieces)
                    key = encrypted.key
                    count -= 1
                chunks.append(chunk._replace(cipher_key=key))
            entries[name] = entry._replace(chunks=tuple(chunks))
    store.encrypts = is_on


ENCRYPTED = "… chunks of the namespace are encrypted, … are in the clear"


async def test_a_namespace_whose_chunks_are_all_encrypted_is_well() -> None:
    """And says so."""
    case = Case("", OK, "", lambda damaged, _: _encrypt(damaged.store, 1 << 30))
    found = await examined(Damaged(), case)
    assert {OK} == {one.severity for one in found}
    (said,) = [one.detail for one in found if one.subject == "encryption"]
    assert pattern_of(ENCRYPTED).fullmatch(said)
    assert said.endswith(" encrypted, 0 are in the clear")


async def examined(damaged: Damaged, case: Case) -> list[CheckResult]:
    """Return what is found of a namespace where something is wrong."""
    await damaged.begin()
    leased(3)(damaged, MemoryFiler())
    filer = case.filer(damaged.store)
    planted = case.plant(damaged, filer)
    if isawaitable(planted):
        await planted
    await filer.open()
    async with aclosing(filer):
        return await found_of(
            filer, *(case.answers or (held(),)), *[held()], setup=SETUP._replace(**case.setup)
        )


async def test_a_namespace_with_nothing_wrong_is_found_so() -> None:
    """With a topic, a state and a gateway: every subject is spoken of once, and all is well."""
    found = await examined(Damaged(), Case("", OK, ""))
    assert {OK} == {one.severity for one in found}
    subjects = [one.subject for one in found]
    assert len(set(subjects)) == len(subjects)


async def test_a_partition_that_is_removed_meanwhile_has_lost_nothing() -> None:
    """A gateway may serve the namespace, and delete a topic."""
    damaged = Damaged()
    found = await examined(damaged, Case("", OK, "", filer=RemovesMeanwhile))
    assert not [path for path in damaged.store.directories if path.endswith("/0000-0031")]
    assert {OK} == {one.severity for one in found}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_each_kind_of_finding_is_said_alone(case: Case) -> None:
    """With its severity, and nothing beside it is warned of."""
    found = await examined(Damaged(), case)
    says = pattern_of(case.says)
    said = [one for one in found if says.fullmatch(one.detail)]
    assert [(case.subject, case.severity)] == [(one.subject, one.severity) for one in said]
    assert [] == [one for one in found if one.severity is not OK and one not in said]


UNSEEN_BY_READERS = (
    # A gateway reads what came before it, and so does who waits for the next snapshot.
    "there is no state",
    # Rows are not looked into.
    "a topic's row is gone",
    "a topic's row cannot be read",
    "a topic's directory is gone",
    "a partition's directory is gone",
    "a directory is gone of what the state knows nothing of",
    "the row of a log's end is no number",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STATE_KINDS if name not in UNSEEN_BY_READERS])
async def test_each_damage_of_the_state_is_a_problem(name: str) -> None:
    """Beside a gateway as well, which reads the state as its next start will."""
    case = Case("state", PROBLEM, "", lambda damaged, _: STATE_KINDS[name].plant(damaged))
    found = await examined(Damaged(), case)
    (state,) = [one for one in found if one.subject == "state"]
    assert (PROBLEM, True) == (state.severity, "see Damage" in state.detail)


async def test_each_message_of_the_doctor_is_tried() -> None:
    """A message that nothing plants, and that a sound namespace does not give, nobody has seen."""
    found = await examined(Damaged(), Case("", OK, ""))
    said = [one.detail for one in found] + [case.says for case in CASES.values()]
    said += [*(says for *_, says in VERSIONS), NOTHING_STORED, ENCRYPTED]
    modules = [examine_module, replication, state_findings]
    assert [] == unplanted(modules, said, makers=["CheckResult", "ok", "warning", "problem"])
    assert [] == unplanted([fence], said, makers=["DataDirectoryError"])
    assert [] == unplanted([views], said, makers=["DamagedStateError"])


@pytest.mark.parametrize("answers", [(), (SERVERS,)])
async def test_masters_that_are_away_are_a_problem(answers: tuple[list[VolumeServer], ...]) -> None:
    """One, and whatever does not need them is said."""
    filer = MemoryFiler()
    await filer.open()
    async with aclosing(filer):
        found = await found_of(filer, *answers, StorageError("away"))
    assert ["masters"] == [one.subject for one in found if one.severity is Severity.PROBLEM]
    assert {"topics", "volumes"} <= {one.subject for one in found}


@pytest.mark.parametrize(
    ("asked", "default", "severity"),
    [
        ("001", "000", Severity.OK),
        ("", "010", Severity.OK),
        ("", "", Severity.OK),
        ("", "000", Severity.WARNING),
        ("000", "001", Severity.WARNING),
    ],
)
def test_a_single_copy_is_warned_of(asked: str, default: str, severity: Severity) -> None:
    """Whoever asks for it; where nobody says what it is, there is nothing to warn of."""
    setup = SETUP._replace(replication=asked, default_replication=default)
    assert severity is judge_setup(setup)[0].severity


@pytest.mark.parametrize(
    ("lease", "age_s", "severity", "words"),
    [
        (LeaseEntry(b"h", 3, 9, 10_000), 3, Severity.OK, "renewed 3 s ago"),
        (LeaseEntry(b"h", 3, 9, 10_000), -2, Severity.OK, "renewed 0 s ago"),
        (LeaseEntry(b"h", 3, 9, 10_000), 11, Severity.WARNING, "renewed it last"),
        (LeaseEntry(b"h", 3, 9, 10_000, is_released=True), 900, Severity.OK, "let go"),
    ],
)
def test_who_holds_the_lease_and_since_when(
    lease: LeaseEntry, age_s: int, severity: Severity, words: str
) -> None:
    """A lease that has run out, and that nobody has taken, is a gateway that is away."""
    node = Node(4, {"PLAINTEXT": Listener("PLAINTEXT", "one", 9092)})
    finding = judge_lease(lease._replace(node=node), NOW_S - age_s, NOW_S)
    assert severity is finding.severity
    assert "node 4 at one:9092" in finding.detail
    assert words in finding.detail


@pytest.mark.parametrize(
    ("replication", "servers", "severity"),
    [
        ("000", [], Severity.PROBLEM),
        ("000", [server("a")], Severity.OK),
        ("000", [server("a", free=0)], Severity.WARNING),
        ("001", [server("a")], Severity.WARNING),
        ("001", [server("a"), server("b", "c1/r2")], Severity.WARNING),
        ("001", [server("a"), server("b", free=0)], Severity.WARNING),
        ("001", [server("a"), server("b")], Severity.OK),
        ("010", [server("a"), server("b")], Severity.WARNING),
        ("010", [server("a"), server("b", "c2/r1")], Severity.WARNING),
        ("010", [server("a"), server("b", "c1/r2")], Severity.OK),
        ("100", [server("a"), server("b", "c2/r1")], Severity.OK),
        ("101", [server("a"), server("b", "c2/r1")], Severity.WARNING),
        ("101", [server("a"), server("b", "c2/r1"), server("c", "c2/r1")], Severity.OK),
        ("", [server("a")], Severity.OK),
    ],
)
def test_whether_there_is_room_for_another_volume(
    replication: str, servers: list[VolumeServer], severity: Severity
) -> None:
    """With a server for each copy that the replication asks for."""
    assert severity is judge_volume_servers(servers, replication).severity


def test_disks_of_another_type_do_not_count() -> None:
    """A setting names the type; hdd is what there is without."""
    assert Severity.WARNING is judge_volume_servers([server("a")], "000", "ssd").severity
    assert Severity.OK is judge_volume_servers([server("a")], "000", "HDD").severity


def test_which_volumes_have_fewer_copies_than_they_should() -> None:
    """Than they were made with, and than is asked for now; those that are gone first."""
    servers = [
        server("a", volumes={1: "001", 2: "001", 3: "000"}),
        server("b", volumes={1: "001"})._replace(erasure_coded=frozenset({5})),
    ]
    assert [Severity.OK] == [one.severity for one in judge_copies({1, 5}, servers, "001")]
    found = judge_copies({1, 2, 3, 4, 5}, servers, "001")
    assert [Severity.PROBLEM, Severity.WARNING, Severity.WARNING] == [one.severity for one in found]
    assert ["volume 4 is on no", "volume 2 is there in", "volume 3 is to have"] == [
        " ".join(one.detail.split()[:5]) for one in found
    ]
    (many,) = judge_copies(set(range(10, 30)), servers, "000")
    assert "10, 11, 12, 13, 14, 15, 16, 17, 18, 19 and 10 more are" in many.detail
    (none,) = judge_copies(set(), servers, "001")
    assert Severity.OK is none.severity


def test_servers_are_as_a_master_lists_them() -> None:
    """By data center and rack, with volumes, and shards of volumes."""
    answer = master_pb2.VolumeListResponse()
    center = answer.topology_info.data_center_infos.add(id="c1")
    node = center.rack_infos.add(id="r1").data_node_infos.add(id="a:8080")
    disk = node.diskInfos[""]
    disk.free_volume_count, disk.max_volume_count = 3, 8
    disk.volume_infos.add(id=7, replica_placement=10)
    disk.ec_shard_infos.add(id=9)
    expected = VolumeServer(
        "a:8080", "c1", "r1", {"hdd": 3}, {"hdd": 8}, {7: "010"}, frozenset({9})
    )
    assert [expected] == volume_servers_of(answer)


MINUTE_S, DAY_S = 60, 86_400
TTLS = {
    # As SeaweedFS writes them: the count, then the unit.
    0x0000: None,
    0x0301: Expiry(3 * MINUTE_S),
    0x0402: Expiry(4 * 60 * MINUTE_S),
    0x0503: Expiry(5 * DAY_S),
    0x0604: Expiry(6 * 7 * DAY_S),
    0x0705: Expiry(7 * 30 * DAY_S),
    0xFF06: Expiry(255 * 365 * DAY_S),
    # Units that there are none of.
    0x0100: None,
    0x0107: None,
}


@pytest.mark.parametrize("ttl", TTLS)
def test_volumes_say_when_they_delete_what_they_hold(ttl: int) -> None:
    """By their TTL, or by the time that an erasure-coded one has; whoever else has a copy."""
    answer = master_pb2.VolumeListResponse()
    rack = answer.topology_info.data_center_infos.add().rack_infos.add()
    for number, (volume_ttl, end_s) in enumerate(((ttl, 0), (0, 1_700))):
        disk = rack.data_node_infos.add().diskInfos[""]
        disk.volume_infos.add(id=7, ttl=volume_ttl)
        disk.volume_infos.add(id=8)
        disk.ec_shard_infos.add(id=9, expire_at_sec=end_s)
        disk.ec_shard_infos.add(id=10 + number)
    expected = {7: TTLS[ttl], 8: None, 9: Expiry(at_s=1_700), 10: None, 11: None}
    assert expected == expiries_of(volume_servers_of(answer))
