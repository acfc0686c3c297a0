"""Findings about volume servers, and about the copies of a namespace's chunks. Pure.

A replication has three digits. They are the numbers of further copies in other data centers, in
other racks of the data center, and on other servers of the rack.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from kgw.backend.seaweedmq.channel.topology import disk_type
from kgw.backend.seaweedmq.offline.findings import CheckResult

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kgw.backend.seaweedmq.channel.topology import VolumeServer

_REPLICATION: Final = re.compile(r"[0-9]{3}")
_NAMED: Final = 10
"""The most volumes that a finding names."""


def copies_of(replication: str) -> int:
    """Return the number of copies of a replication."""
    return 1 + sum(map(int, replication))


def judge_volume_servers(
    servers: Sequence[VolumeServer], replication: str, disk: str = ""
) -> CheckResult:
    """Return the finding about the servers, and about their space for new volumes."""
    subject = "volume servers"
    if not servers:
        return CheckResult.problem(
            subject, "the masters know of none: start one, or look at its log"
        )
    disk = disk_type(disk)
    described = ", ".join(
        f"{one.address} ({one.data_center}/{one.rack}, {one.free_volumes.get(disk, 0)} of "
        f"{one.max_volumes.get(disk, 0)} volumes free)"
        for one in sorted(servers)
    )
    detail = f"{len(servers)} with disks of type {disk}: {described}"
    # No warning about an unknown replication, which the filer itself refuses.
    if not _REPLICATION.fullmatch(replication) or _can_grow(servers, replication, disk):
        return CheckResult.ok(subject, detail)
    return CheckResult.warning(
        subject,
        f"{detail}. No volume can be made for replication {replication}: appends go on until those "
        "that there are are full, and are refused then. Start volume servers where copies are to "
        "be, raise their -max, or ask for fewer copies (kgw.seaweedmq.replication)",
    )


def _can_grow(servers: Iterable[VolumeServer], replication: str, disk: str) -> bool:
    """Return whether each copy of a new volume has a server with room for it."""
    free = [one for one in servers if one.free_volumes.get(disk, 0) > 0]
    centers, racks, others = map(int, replication)
    return any(
        len({one.data_center for one in free} - {main.data_center}) >= centers
        and len({one.rack for one in free if one.data_center == main.data_center} - {main.rack})
        >= racks
        and sum(one[1:3] == main[1:3] for one in free) - 1 >= others
        for main in free
    )


def judge_copies(
    volumes: Collection[int], servers: Sequence[VolumeServer], replication: str
) -> list[CheckResult]:
    """Return the findings about the volumes that hold a namespace's chunks."""
    subject = "copies"
    if not volumes:
        return [CheckResult.ok(subject, "the namespace has no chunks yet")]
    found = Counter(number for one in servers for number in one.replications)
    coded = frozenset[int]().union(*(one.erasure_coded for one in servers))
    promised: Mapping[int, str] = {
        number: text for one in servers for number, text in one.replications.items()
    }
    gone = [one for one in volumes if one not in found and one not in coded]
    short = [one for one in volumes if one in found and found[one] < copies_of(promised[one])]
    fewer = [
        one
        for one in volumes
        if one in found
        and _REPLICATION.fullmatch(replication)
        and copies_of(promised[one]) < copies_of(replication)
    ]
    findings = []
    if gone:
        findings.append(
            CheckResult.problem(
                subject,
                f"{_named(gone)} on no volume server that the masters know: the records in there "
                "cannot be read. Start the volume server that has them",
            )
        )
    if short:
        findings.append(
            CheckResult.warning(
                subject,
                f"{_named(short)} there in fewer copies than they are to have: start the volume "
                "server that is away, or run volume.fix.replication in weed shell",
            )
        )
    if fewer:
        findings.append(
            CheckResult.warning(
                subject,
                f"{_named(fewer)} to have fewer copies than replication {replication}, with which "
                "new ones are made: volume.configure.replication and volume.fix.replication in "
                "weed shell change that",
            )
        )
    if not findings:
        counts = Counter(found[one] for one in volumes if one in found)
        copies = ", ".join(
            f"{count} in {copies} {'copies' if copies > 1 else 'copy'} each"
            for copies, count in sorted(counts.items())
        )
        shards = sum(one not in found for one in volumes)
        coded_text = [f"{shards} erasure coded"] if shards else []
        findings.append(
            CheckResult.ok(
                subject,
                f"the chunks are in {len(volumes)} volume{'s' * (len(volumes) > 1)}: "
                + ", ".join([*filter(None, [copies]), *coded_text]),
            )
        )
    return findings


def _named(volumes: Sequence[int]) -> str:
    names = ", ".join(map(str, sorted(volumes)[:_NAMED]))
    if len(volumes) == 1:
        return f"volume {names} is"
    more = f" and {len(volumes) - _NAMED} more" if len(volumes) > _NAMED else ""
    return f"volumes {names}{more} are"
