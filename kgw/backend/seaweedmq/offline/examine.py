"""The checks of `kgw doctor` on a SeaweedFS, while a gateway may use it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.backend import (
    directories_of,
    private_directory,
    state_directories,
)
from kgw.backend.seaweedmq.chain import ChainOptions
from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.channel.topology import expiries_of
from kgw.backend.seaweedmq.filer import FilerError
from kgw.backend.seaweedmq.lease.rules import NAME, LeaseEntry
from kgw.backend.seaweedmq.offline.findings import CheckResult, Severity
from kgw.backend.seaweedmq.offline.replication import judge_copies, judge_volume_servers
from kgw.backend.seaweedmq.offline.state_findings import examine_mirror, examine_state
from kgw.backend.seaweedmq.offline.views import LogView
from kgw.backend.seaweedmq.path_rules import effective, forbidden, unheeded
from kgw.backend.seaweedmq.topics.directories import TopicDirectories, twins
from kgw.backend.seaweedmq.watch.expiry import StoredFiles
from kgw.backend.seaweedmq.watch.fence import check_fence, find_other_filers
from kgw.backend.seaweedmq.watch.versions import judge_version
from kgw.errors import CorruptionError, DataDirectoryError, StorageError
from kgw.types import PartitionKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from kgw.backend.seaweedmq.channel.topology import VolumeServer
    from kgw.backend.seaweedmq.filer import Filer, FilerEntry
    from kgw.backend.seaweedmq.topics.directories import TopicPlace
    from kgw.types import TopicId

_PROBE: Final = b"kgw doctor"
_LARGEST: Final = ChainOptions().chunk_bytes
"""The usual largest size of a chunk. A chunk with a single large batch may be larger."""


class Setup(NamedTuple):
    """The settings by which a gateway uses a SeaweedFS."""

    namespace: str
    replication: str
    """The configured replication; "" for the filer's default."""
    default_replication: str
    """The filer's default; "" if it is unknown."""
    collection: str
    disk_type: str
    is_synced: bool
    is_secured: bool
    is_mirrored: bool
    """Whether committed offsets are also written for SMQ's tools."""

    @property
    def asked_replication(self) -> str:
        """The replication of new volumes."""
        return self.replication or self.default_replication


def version_finding(said: str) -> CheckResult:
    """Return the finding about a filer's version."""
    verdict = judge_version(said)
    severity = Severity.OK if verdict.is_sound else Severity.WARNING
    return CheckResult(
        "version", Severity.PROBLEM if verdict.is_refused else severity, verdict.text
    )


def judge_setup(setup: Setup) -> list[CheckResult]:
    """Return the findings about how chunks are stored, and about encryption."""
    synced = (
        CheckResult.ok(
            "fsync",
            "kgw.seaweedmq.fsync=true: volume servers sync each chunk; the filer's store must, "
            "too, see docs/seaweedmq.md",
        )
        if setup.is_synced
        else CheckResult.warning(
            "fsync",
            "kgw.seaweedmq.fsync=false: a loss of power on a machine that holds all copies of a "
            "chunk loses acknowledged records; set it, or replicate over machines that do not lose "
            "power together",
        )
    )
    secured = (
        CheckResult.ok("tls", "gRPC is secured by kgw.seaweedmq.security.file")
        if setup.is_secured
        else CheckResult.warning(
            "tls",
            "nothing is encrypted between kgw and SeaweedFS; set kgw.seaweedmq.security.file where "
            "the network is not trusted",
        )
    )
    return [_placed(setup), synced, secured]


def _placed(setup: Setup) -> CheckResult:
    asked = setup.replication or f"{setup.default_replication or 'unknown'} (SeaweedFS's default)"
    placed = f"{asked}; collection {setup.collection or 'as the filer has it'}"
    if setup.asked_replication.strip("0") or not setup.asked_replication:
        return CheckResult.ok("replication", placed)
    return CheckResult.warning(
        "replication",
        f"{placed}: each chunk is on one disk, and lost with it. Have kgw.seaweedmq.replication "
        "ask for copies, as in 001",
    )


def judge_lease(lease: LeaseEntry, renewed_s: int, now_s: int) -> CheckResult:
    """Return the finding about a lease. `renewed_s` is its last renewal, by the wall clock."""
    node = "at an unknown address"
    if lease.node is not None:
        places = (f"{one.host}:{one.port}" for one in lease.node.listeners.values())
        node = f"node {lease.node.node_id} at {', '.join(places)}"
    since = f"{datetime.fromtimestamp(renewed_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    ages = f"{max(0, now_s - renewed_s)} s ago"
    counted = f"epoch {lease.epoch}, {lease.change} changes"
    if lease.is_released:
        return CheckResult.ok(
            "lease",
            f"nobody serves the namespace: the gateway {node} let go of it at {since}, {ages}; "
            f"{counted}",
        )
    held = f"the gateway {node} holds it, for {lease.lease_ms} ms at a time"
    if now_s - renewed_s > lease.lease_ms / 1000:
        return CheckResult.warning(
            "lease",
            f"{held}, and renewed it last at {since}, {ages}: it was killed, or cannot reach the "
            "filer, or its clock is wrong. A stand-by takes over by itself; with none, start the "
            f"gateway again; {counted}",
        )
    return CheckResult.ok("lease", f"{held}; renewed {ages}; {counted}")


async def examine(
    filer: Filer,
    setup: Setup,
    probe: str,
    now_s: int,
    monotonic_s: float,
    volume_servers: Callable[[], Awaitable[Sequence[VolumeServer]]],
) -> AsyncIterator[CheckResult]:
    """Yield the findings about an open filer. `probe` is an unused name for an entry.

    `now_s` is by the wall clock, `monotonic_s` by the monotonic one. `volume_servers` asks the
    masters. Raises FilerError when the filer no longer answers.
    """
    for finding in judge_setup(setup):
        yield finding
    yield await _filers(filer, monotonic_s)
    for finding in await _rules(filer, setup.namespace):
        yield finding
    yield await _fence(filer, setup.namespace, probe)
    # Check the lease before the checks that may take long.
    yield await _lease(filer, setup.namespace, now_s)
    servers = await _servers(volume_servers)
    if isinstance(servers, CheckResult):
        yield servers
    else:
        yield judge_volume_servers(servers, setup.asked_replication, setup.disk_type)
    yield await _volumes(filer)
    stored = _Stored()
    for directory in state_directories(setup.namespace):
        async for entry in filer.list_entries(directory):
            stored.add(directory, entry)
    found = await examine_state(filer, setup.namespace)
    yield found.finding
    directories = TopicDirectories(filer, setup.namespace)
    places = await directories.list_all()
    if not setup.is_mirrored:
        yield CheckResult.ok("mirror", "off: kgw.seaweedmq.mirror.offsets=false")
    elif found.table is not None:
        yield await examine_mirror(filer, places, found.table)
    async for finding in _topics(filer, directories, places, stored):
        yield finding
    yield judge_encryption(filer.encrypts, stored.encrypted, stored.clear)
    if isinstance(servers, CheckResult):
        return
    # Ask again, because new chunks may be in volumes that were made meanwhile.
    servers = await _servers(volume_servers)
    if isinstance(servers, CheckResult):
        yield servers
    else:
        for finding in judge_copies(stored.volumes, servers, setup.asked_replication):
            yield finding
        for finding in judge_expiry(stored.files, servers):
            yield finding


async def _servers(
    volume_servers: Callable[[], Awaitable[Sequence[VolumeServer]]],
) -> Sequence[VolumeServer] | CheckResult:
    try:
        return await volume_servers()
    except StorageError as error:
        return CheckResult.problem(
            "masters",
            f"they do not say which volume servers there are: {error}. Without a master no chunk "
            "gets a place: start it again",
        )


class _Stored:
    """Counts the chunks of a namespace."""

    def __init__(self) -> None:
        self.files: dict[str, StoredFiles] = {}
        """By directory."""
        self.encrypted = self.clear = 0
        """The numbers of encrypted and unencrypted chunks."""

    @property
    def volumes(self) -> set[int]:
        """The volumes that hold the chunks."""
        return {number for files in self.files.values() for number in files.volumes}

    def add(self, directory: str, entry: FilerEntry) -> None:
        """Count the chunks of a file."""
        self.files.setdefault(directory, StoredFiles()).add(entry)
        for chunk in entry.chunks:
            if chunk.cipher_key:
                self.encrypted += 1
            else:
                self.clear += 1


def judge_expiry(
    files: Mapping[str, StoredFiles], servers: Sequence[VolumeServer]
) -> list[CheckResult]:
    """Return the findings about chunks and files that SeaweedFS will delete, by directory."""
    expiries = expiries_of(servers)
    found = [
        CheckResult.problem("expiry", text)
        for directory, stored in files.items()
        if (text := stored.judge(directory, expiries)) is not None
    ]
    return found or [CheckResult.ok("expiry", "no chunk and no file has a TTL")]


def judge_encryption(encrypts: bool, encrypted: int, clear: int) -> CheckResult:
    """Return the finding about the encryption of chunks, compared with the filer's setting."""
    if not encrypts and not encrypted:
        return CheckResult.ok(
            "encryption",
            "off: the volumes hold chunks in the clear (weed filer -encryptVolumeData has them "
            "encrypted)",
        )
    counted = f"{encrypted} chunks of the namespace are encrypted, {clear} are in the clear"
    if not encrypts:
        return CheckResult.warning(
            "encryption",
            f"{counted}: the filer runs without -encryptVolumeData now, and what is written from "
            "now on is in the clear; start it with that option again, unless this is meant",
        )
    if clear:
        return CheckResult.warning(
            "encryption",
            f"{counted}: those were written before the filer ran with -encryptVolumeData. They go "
            "with retention and compaction; `kgw log copy` writes all of them anew, into another "
            "namespace",
        )
    return CheckResult.ok("encryption", counted)


async def _filers(filer: Filer, monotonic_s: float) -> CheckResult:
    try:
        problem = await find_other_filers(filer, monotonic_s)
    except FilerError as error:
        return CheckResult.warning(
            "filers",
            f"the masters do not say which filers there are: {error}; start them again",
        )
    if problem is not None:
        return CheckResult.problem("filers", problem)
    return CheckResult.ok("filers", "no other filer is known")


async def _rules(filer: Filer, namespace: str) -> list[CheckResult]:
    """Return the findings about the filer's rules by path."""
    directories = directories_of(namespace)
    chunks, _ = directories
    try:
        rules = await filer.rules()
    except StorageError as error:
        return [CheckResult.problem("rules", f"they are unknown: {error}")]
    if problem := forbidden(rules, directories):
        return [CheckResult.problem("rules", problem)]
    if warnings := unheeded(rules, directories, chunks):
        return [CheckResult.warning("rules", one) for one in warnings]
    holds = effective(rules, chunks)
    if not holds.places:
        return [CheckResult.ok("rules", "the filer has none for the namespace")]
    return [
        CheckResult.ok(
            "rules",
            f"{', '.join(holds.places)} by the filer's rule for {holds.prefix}, where no setting "
            "of kgw says otherwise",
        )
    ]


async def _fence(filer: Filer, namespace: str, probe: str) -> CheckResult:
    try:
        await check_fence(filer, private_directory(namespace), probe)
    except DataDirectoryError as error:
        return CheckResult.problem("fence", str(error))
    return CheckResult.ok("fence", "the filer refuses stale writers")


async def _volumes(filer: Filer) -> CheckResult:
    """Try the first step of an append: store a chunk, read it and remove it."""
    try:
        chunk = await filer.upload([_PROBE, bytes(_LARGEST - len(_PROBE))])
        try:
            data = await filer.read_chunk(chunk, 0, len(_PROBE))
        finally:
            await filer.delete_chunks([chunk])
    except StorageError as error:
        return CheckResult.problem(
            "volumes",
            f"a chunk cannot be stored and read: {error}. Look at volume.list in weed shell: the "
            "replication needs free volumes on so many volume servers",
        )
    if data != _PROBE:
        return CheckResult.problem(
            "volumes",
            "a chunk was not read as it was stored; something between kgw and the volume servers "
            "changes it: connect directly",
        )
    return CheckResult.ok("volumes", "a chunk was stored, read and removed")


async def _lease(filer: Filer, namespace: str, now_s: int) -> CheckResult:
    entry = await filer.look_up(private_directory(namespace), NAME)
    if entry is None:
        return CheckResult.ok(
            "lease",
            "there is no lease: no gateway has served the namespace, or somebody has removed it",
        )
    try:
        lease = LeaseEntry.decode(entry)
    except CorruptionError as error:
        return CheckResult.problem(
            "lease",
            f"{private_directory(namespace)}/{error}; with no gateway running, remove "
            "it: it is made anew",
        )
    return judge_lease(lease, entry.modified_s, now_s)


async def _topics(
    filer: Filer,
    directories: TopicDirectories,
    found: Mapping[TopicId, list[TopicPlace]],
    stored: _Stored,
) -> AsyncIterator[CheckResult]:
    """Check every partition, and add the chunks of its files to `stored`."""
    for detail in twins(found):
        yield CheckResult.problem("topics", detail)
    places = sorted((place, topic_id) for topic_id, places in found.items() for place in places)
    partitions = 0
    for place, topic_id in places:
        for partition in await directories.partitions(place):
            partitions += 1
            directory = place.partition(partition)
            try:
                view = await LogView.open(filer, directory)
            except CorruptionError as error:
                yield CheckResult.problem("partition", f"{error}; see `kgw log check`")
                continue
            if view is None:
                yield CheckResult.warning(
                    "partition",
                    f"{directory}/{LEADER} is missing, as is every log file: a creation was not "
                    "finished, or all was removed; a gateway that knows the topic makes it anew, "
                    "empty, at its next start",
                )
                continue
            if view.marks.identity != str(PartitionKey(topic_id, partition)).encode():
                yield CheckResult.problem(
                    "partition",
                    f"{directory} has the files of another partition, "
                    f"{view.marks.identity.decode(errors='replace')}: no gateway opens it; move "
                    "them back (fs.mv in weed shell)",
                )
            there: set[str] = set()
            unnamed: list[str] = []
            async for entry in filer.list_entries(directory):
                if entry.is_directory:
                    continue
                there.add(entry.name)
                if entry.name.endswith(".offset") or entry.name in view.names:
                    stored.add(directory, entry)
                else:
                    unnamed.append(entry.name)
            gone = view.expected_names - there
            if unnamed or gone:
                # A gateway may have listed or removed these files meanwhile, or removed the
                # partition.
                try:
                    again = await LogView.open(filer, directory)
                except CorruptionError as error:
                    yield CheckResult.problem("partition", f"{error}; see `kgw log check`")
                    continue
                if again is None:
                    continue
                unnamed = [name for name in unnamed if name not in again.names]
                gone &= again.expected_names
            for name in sorted(gone):
                yield CheckResult.problem(
                    "partition",
                    f"{directory}/{name} is gone: the records in there cannot be read; bring it "
                    "back, from a backup of the filer's metadata (fs.meta.load in weed shell)",
                )
            for name in unnamed:
                yield CheckResult.warning(
                    "partition",
                    f"{directory}/{name} is named by no list and not read: SMQ's broker has "
                    "written to a topic of kgw. Its records are not part of the topic: move the "
                    "file away",
                )
    yield CheckResult.ok("topics", f"{len(places)} topics with {partitions} partitions")
