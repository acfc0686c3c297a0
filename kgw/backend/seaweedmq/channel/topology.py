"""The volume servers of a SeaweedFS, as its masters know them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.backend.seaweedmq.protos import master_pb2

_HDD: Final = "hdd"


class VolumeServer(NamedTuple):
    """A volume server that is connected to the masters."""

    address: str
    data_center: str
    rack: str
    free_volumes: Mapping[str, int]
    """How many more volumes it takes, by type of disk."""
    max_volumes: Mapping[str, int]
    replications: Mapping[int, str]
    """Three digits for each volume that it has a copy of."""
    erasure_coded: frozenset[int] = frozenset()
    """Volumes of which it has shards instead of a copy."""


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
        )
        for center in answer.topology_info.data_center_infos
        for rack in center.rack_infos
        for node in rack.data_node_infos
    ]


def disk_type(name: str) -> str:
    """Return the type of disk that a name means: SeaweedFS's masters write "" for `hdd`."""
    return name.lower() or _HDD
