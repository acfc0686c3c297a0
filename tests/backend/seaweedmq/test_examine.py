"""What `kgw doctor` says of a SeaweedFS."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.channel.topology import VolumeServer, volume_servers_of
from kgw.backend.seaweedmq.filer import Entry, FilerError
from kgw.backend.seaweedmq.lease_rules import LeaseEntry
from kgw.backend.seaweedmq.offline.examine import (
    Setup,
    examine,
    judge_lease,
    judge_setup,
    judge_version,
)
from kgw.backend.seaweedmq.offline.findings import Severity
from kgw.backend.seaweedmq.offline.replication import judge_copies, judge_volume_servers
from kgw.backend.seaweedmq.protos import master_pb2
from kgw.config import Listener, Node
from kgw.errors import StorageError
from kgw.testing.filer import CallKind, MemoryFiler

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.offline.findings import Finding

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
    filer: MemoryFiler, *answers: list[VolumeServer] | StorageError
) -> list[Finding]:
    """Examine it. The masters answer so, and then that there are SERVERS."""
    left = [*answers]

    async def volume_servers() -> list[VolumeServer]:
        answer = left.pop(0) if left else SERVERS
        if isinstance(answer, StorageError):
            raise answer
        return answer

    return [one async for one in examine(filer, SETUP, "probe", NOW_S, 0.0, volume_servers)]


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("8000GB 4.48 pypi", Severity.OK),
        ("30GB 5.01 abc", Severity.OK),
        ("30GB 4.44 abc", Severity.WARNING),
        ("", Severity.WARNING),
    ],
)
def test_old_versions_are_warned_of(text: str, severity: Severity) -> None:
    """As a filer says it."""
    assert severity is judge_version(text).severity


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

    class WithoutMasters(MemoryFiler):
        async def filers(self, *, deadline_s: float | None = None) -> list[str]:
            raise FilerError("the masters cannot be reached")

    filer = WithoutMasters()
    await filer.open()
    async with aclosing(filer):
        found = await found_of(filer)
    assert ["filers"] == [one.subject for one in found if one.severity is Severity.WARNING]


async def test_a_sound_filer_is_found_so_and_left_as_it_was() -> None:
    """The entry and the chunk of the test are removed."""
    filer = MemoryFiler()
    await filer.open()
    async with aclosing(filer):
        found = await found_of(filer)
        assert {Severity.OK} == {one.severity for one in found}
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
        await filer.create("/topics/.kgw/kafka", Entry("gateway", content=b"x"))
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
        await filer.create("/topics/.kgw/kafka/state", Entry("file", (chunk,)))
        (gone,) = [one for one in await found_of(filer) if one.severity is Severity.PROBLEM]
    assert gone.detail.startswith("volume 7 is on no volume server")


async def test_a_volume_that_is_made_meanwhile_is_not_lost() -> None:
    """The masters are asked again once it is known which volumes there have to be."""
    filer = MemoryFiler()
    await filer.open()
    async with aclosing(filer):
        chunk = (await filer.upload([b"x"]))._replace(file_id="7,01ab")
        await filer.create("/topics/.kgw/kafka/state", Entry("file", (chunk,)))
        later = [server(one, volumes={7: "001"}) for one in "ab"]
        assert {Severity.OK} == {one.severity for one in await found_of(filer, SERVERS, later)}


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
