"""What `kgw doctor` finds out about a SeaweedFS, beside a gateway that may use it meanwhile."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.backend import private_directory
from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.fence import check_fence, other_filers
from kgw.backend.seaweedmq.lease_rules import NAME, LeaseEntry
from kgw.backend.seaweedmq.offline.views import LogView
from kgw.backend.seaweedmq.topics import TopicDirectories, twins
from kgw.errors import CorruptionError, DataDirectoryError, StorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.backend.seaweedmq.filer import Filer

_LEAST_VERSION: Final = (4, 48)
_VERSION: Final = re.compile(r"\b(\d+)\.(\d+)")
_PROBE: Final = b"kgw doctor"


class Severity(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """One thing that was looked at."""

    subject: str
    severity: Severity
    detail: str
    """What was found, and what to do about it."""


class Setup(NamedTuple):
    """How a gateway is told to use a SeaweedFS."""

    namespace: str
    replication: str
    """"" for what the filer does by itself."""
    collection: str
    is_synced: bool
    is_secured: bool


def judge_version(text: str) -> Finding:
    """Return what is to be said of a filer's version."""
    # As in "8000GB 4.48 pypi": the size of volumes, the version, the build.
    found = _VERSION.search(text)
    if found is None:
        return Finding(
            "version", Severity.WARNING, f"the filer says {text!r}; kgw is tried with 4.48"
        )
    if (int(found[1]), int(found[2])) < _LEAST_VERSION:
        return Finding(
            "version",
            Severity.WARNING,
            f"SeaweedFS {text}: kgw is tried with 4.48, and 4.44 was seen to hang; install 4.48 "
            "or later",
        )
    return Finding("version", Severity.OK, f"SeaweedFS {text}")


def judge_setup(setup: Setup) -> list[Finding]:
    """Return what is to be said of how chunks are stored, and of encryption."""
    copies = setup.replication or "as the filer has it by itself"
    synced = (
        Finding(
            "fsync",
            Severity.OK,
            "kgw.seaweedmq.fsync=true: volume servers sync each chunk; the filer's store must, "
            "too, see docs/seaweedmq.md",
        )
        if setup.is_synced
        else Finding(
            "fsync",
            Severity.WARNING,
            "kgw.seaweedmq.fsync=false: a loss of power on a machine that holds all copies of a "
            "chunk loses acknowledged records; set it, or replicate over machines that do not lose "
            "power together",
        )
    )
    secured = (
        Finding("tls", Severity.OK, "gRPC is secured by kgw.seaweedmq.security.file")
        if setup.is_secured
        else Finding(
            "tls",
            Severity.WARNING,
            "nothing is encrypted between kgw and SeaweedFS; set kgw.seaweedmq.security.file where "
            "the network is not trusted",
        )
    )
    placed = f"replication {copies}; collection {setup.collection or 'as the filer has it'}"
    return [Finding("replication", Severity.OK, placed), synced, secured]


async def examine(filer: Filer, setup: Setup, probe: str, now_s: float) -> AsyncIterator[Finding]:
    """Yield what is found of an open filer. `probe` is a name that nobody else has.

    `now_s` is by the monotonic clock.
    Raises FilerError when it does not answer any more.
    """
    for finding in judge_setup(setup):
        yield finding
    yield await _filers(filer, now_s)
    yield await _fence(filer, setup.namespace, probe)
    yield await _volumes(filer)
    yield await _lease(filer, setup.namespace)
    async for finding in _topics(filer, setup.namespace):
        yield finding


async def _filers(filer: Filer, now_s: float) -> Finding:
    problem = await other_filers(filer, now_s)
    if problem is not None:
        return Finding("filers", Severity.PROBLEM, problem)
    return Finding("filers", Severity.OK, "no other filer is known")


async def _fence(filer: Filer, namespace: str, probe: str) -> Finding:
    try:
        await check_fence(filer, private_directory(namespace), probe)
    except DataDirectoryError as error:
        return Finding("fence", Severity.PROBLEM, str(error))
    return Finding("fence", Severity.OK, "the filer refuses stale writers")


async def _volumes(filer: Filer) -> Finding:
    """Try what every append does first: a chunk is stored, read, and removed."""
    try:
        chunk = await filer.upload([_PROBE])
        try:
            data = await filer.read_chunk(chunk, 0, chunk.size_bytes)
        finally:
            await filer.delete_chunks([chunk])
    except StorageError as error:
        return Finding(
            "volumes",
            Severity.PROBLEM,
            f"a chunk cannot be stored and read: {error}. Look at volume.list in weed shell: the "
            "replication needs free volumes on so many volume servers",
        )
    if data != _PROBE:
        return Finding("volumes", Severity.PROBLEM, "a chunk was not read as it was stored")
    return Finding("volumes", Severity.OK, "a chunk was stored, read and removed")


async def _lease(filer: Filer, namespace: str) -> Finding:
    entry = await filer.look_up(private_directory(namespace), NAME)
    if entry is None:
        return Finding("lease", Severity.OK, "no gateway has ever served the namespace")
    try:
        lease = LeaseEntry.decode(entry)
    except CorruptionError as error:
        return Finding("lease", Severity.PROBLEM, f"{private_directory(namespace)}/{error}")
    node = "at an unknown address"
    if lease.node is not None:
        places = (f"{one.host}:{one.port}" for one in lease.node.listeners.values())
        node = f"node {lease.node.node_id} at {', '.join(places)}"
    state = "has let go" if lease.is_released else f"holds it, for {lease.lease_ms} ms at a time"
    return Finding(
        "lease",
        Severity.OK,
        f"the gateway {node} {state}: epoch {lease.epoch}, {lease.change} changes",
    )


async def _topics(filer: Filer, namespace: str) -> AsyncIterator[Finding]:
    directories = TopicDirectories(filer, namespace)
    found = await directories.list_all()
    for detail in twins(found):
        yield Finding("topics", Severity.PROBLEM, detail)
    places = [place for places in found.values() for place in places]
    partitions = 0
    for place in sorted(places):
        for partition in await directories.partitions(place):
            partitions += 1
            directory = place.partition(partition)
            try:
                view = await LogView.open(filer, directory)
            except CorruptionError as error:
                yield Finding("partition", Severity.PROBLEM, f"{error}; see `kgw log check`")
                continue
            if view is None:
                yield Finding(
                    "partition",
                    Severity.WARNING,
                    f"{directory}/{LEADER} is missing, as is every log file: a creation was not "
                    "finished, or all was removed",
                )
                continue
            async for entry in filer.list_entries(directory, chunks=False):
                if not (
                    entry.is_directory or entry.name.endswith(".offset") or entry.name in view.names
                ):
                    yield Finding(
                        "partition",
                        Severity.WARNING,
                        f"{directory}/{entry.name} is named by no list and not read: SMQ's broker "
                        "has written to a topic of kgw",
                    )
    yield Finding("topics", Severity.OK, f"{len(places)} topics with {partitions} partitions")
