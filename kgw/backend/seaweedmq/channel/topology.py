"""The volume servers that the masters of a SeaweedFS know. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.filer import Expiry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kgw.backend.seaweedmq.protos import master_pb2

_HDD: Final = "hdd"

_DAY_S: Final = 86_400
_UNITS_S: Final = (0, 60, 3_600, _DAY_S, 7 * _DAY_S, 30 * _DAY_S, 365 * _DAY_S)
"""The units of a volume's TTL. (Facts: SeaweedFS, weed/storage/needle/volume_ttl.go.)"""


class VolumeServer(NamedTuple):
    """A volume server that is connected to the masters."""

    address: str
    data_center: str
    rack: str
    free_volumes: Mapping[str, int]
    """The number of volumes that can still be added, by type of disk."""
    max_volumes: Mapping[str, int]
    replications: Mapping[int, str]
    """For each volume of which the server has a copy, its replication in three digits."""
    erasure_coded: frozenset[int] = frozenset()
    """The volumes of which the server has shards instead of a copy."""
    expiries: Mapping[int, Expiry] = {}
    """When chunks are deleted, for each volume that deletes its chunks."""


def volume_servers_of(answer: master_pb2.VolumeListResponse) -> list[VolumeServer]:
    """Return the servers that a master lists."""
    return [
        VolumeServer(
            node.id,
            center.id,
            rack.id,
            {disk_type(kind): disk.free_volume_count for kind, disk in node.diskInfos.items()},
            {disk_type(kind): disk.max_volume_count for kind, disk in node.diskInfos.items()},
            {
                volume.id: f"{volume.replica_placement:03d}"
                for disk in node.diskInfos.values()
                for volume in disk.volume_infos
            },
            frozenset(
                shard.id for disk in node.diskInfos.values() for shard in disk.ec_shard_infos
            ),
            {
                number: expiry
                for disk in node.diskInfos.values()
                for number, expiry in _expiries(disk)
            },
        )
        for center in answer.topology_info.data_center_infos
        for rack in center.rack_infos
        for node in rack.data_node_infos
    ]


def _expiries(disk: master_pb2.DiskInfo) -> Iterable[tuple[int, Expiry]]:
    for volume in disk.volume_infos:
        if ttl_s := _ttl_s(volume.ttl):
            yield volume.id, Expiry(ttl_s)
    for shard in disk.ec_shard_infos:
        if shard.expire_at_sec:
            yield shard.id, Expiry(at_s=shard.expire_at_sec)


def _ttl_s(ttl: int) -> int:
    """Return a TTL in seconds; 0 for none, and for a unit that SeaweedFS does not have."""
    count, unit = ttl >> 8 & 0xFF, ttl & 0xFF
    return count * _UNITS_S[unit] if unit < len(_UNITS_S) else 0


def expiries_of(servers: Iterable[VolumeServer]) -> dict[int, Expiry | None]:
    """Return when each volume deletes its chunks; None for a volume that never does."""
    found: dict[int, Expiry | None] = {}
    for server in servers:
        for number in (*server.replications, *server.erasure_coded):
            found[number] = server.expiries.get(number) or found.get(number)
    return found


def disk_type(name: str) -> str:
    """Return the type of disk with this name; SeaweedFS's masters write "" for `hdd`."""
    return name.lower() or _HDD
