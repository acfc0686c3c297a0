"""Makes a fixture of D13: a data directory as the server of any revision leaves it.

`python -m tests.campaigns.old_data_fixture REVISION NAME [--at MODULE:FUNCTION]`

The revision's own server runs from a copy of its code, today's client gives it a fixed load, and
the directory is kept twice: of a server that was stopped in order, and of one that was killed.
Each goes to `old_directories/NAME-stopped.tar.xz` (or `-killed`), with a manifest beside it that
says what was answered, and what is left out because the revision did not know it. With `--at`
there is one more, `NAME-at-FUNCTION`: of a server that was started again and killed there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgw.client import AdminClient, AsyncClient, ClientError, Connection, GroupClient
from kgw.records.batch import Compression, split_batches
from kgw.records.builder import BatchBuilder
from kgw.testing.process import GatewayProcess
from tests import patience
from tests.campaigns.old_server import old_server
from tests.groups.wire import WireMember, settle

if TYPE_CHECKING:
    from collections.abc import Sequence

DIRECTORY = Path(__file__).parent / "old_directories"
SUFFIX = ".tar.xz"
FOR_EVER = {"retention.ms": "-1"}
"""What is kept has its own times: a fixture must not lose its records to its age."""
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "codecs": (2, {"segment.bytes": "1024"}),
    "retried": (1, {}),
    "trimmed": (1, {"segment.bytes": "1024"}),
    "compacted": (
        1,
        {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"},
    ),
    "relaxed": (1, {"kgw.durability": "relaxed"}),
    "wide": (16, {}),
}
"""Their partitions and settings. A revision that does not know a setting has no such topic."""
GROUP, LONE_GROUP, INSTANCE = "workers", "lone", "static-1"
COMPACTION_S = 5.0
SOON = ("log.initial.task.delay.ms=0", "log.cleaner.backoff.ms=100")
"""For a compaction before the end of the load; left out where a revision does not know them."""


DYING = """
import os, signal, {module}
{module}.{function} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
from kgw.cli.main import main
main(prog_name="kgw")
"""
DEATH_S = 30.0


class Load:
    """A fixed load, and what was answered to it."""

    def __init__(self, client: AsyncClient, address: tuple[str, int]) -> None:
        self._client = client
        self._address = address
        self._admin = AdminClient(client)
        self._made_ms = time.time_ns() // 1_000_000
        self.topics: dict[str, Any] = {}
        self.groups: dict[str, dict[str, int]] = {}
        self.members: list[dict[str, Any]] = []
        self.producer: dict[str, Any] = {}
        self.left_out: list[str] = []

    async def run(self) -> None:
        """Give the load."""
        for name, (partitions, settings) in TOPICS.items():
            await self._create(name, partitions, settings)
        await self._produce_codecs()
        await self._produce_retried()
        for part in (self._trim, self._produce_compacted, self._produce_relaxed):
            try:
                await part()
            except (ClientError, KeyError) as error:
                self.left_out.append(f"{part.__name__.strip('_')}: {error}")
        await self._commit()
        await self._admin.create_topic("gone", partitions=1, config=FOR_EVER)
        await self._append("gone", 0, [(None, b"gone")])
        await self._admin.delete_topic("gone")

    def manifest(self) -> dict[str, Any]:
        """Return what the directory has to hold."""
        return {
            "made_ms": self._made_ms,
            "topics": self.topics,
            "absent": ["gone"],
            "groups": self.groups,
            "members": self.members,
            "producer": self.producer,
            "left_out": self.left_out,
        }

    async def _create(self, name: str, partitions: int, settings: dict[str, str]) -> None:
        config = FOR_EVER | settings
        try:
            await self._admin.create_topic(name, partitions=partitions, config=config)
        except ClientError as error:
            self.left_out.append(f"topic {name}: {error}")
            return
        empty = [{"start": 0, "next": 0, "records": []} for _ in range(partitions)]
        self.topics[name] = {"config": config, "partitions": empty}

    async def _append(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes | None, bytes | None]],
        compression: Compression = Compression.NONE,
        producer: tuple[int, int, int] = (-1, -1, -1),
    ) -> int:
        producer_id, producer_epoch, base_sequence = producer
        builder = BatchBuilder(
            compression=compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        timestamp_ms = self._made_ms
        for key, value in records:
            builder.add(key=key, value=value, timestamp_ms=timestamp_ms)
        # Each request on its own: a batch of its own in the log, and a group of its own.
        produced = await self._client.produce(topic, partition, bytes(builder.build()), retry=False)
        kept = self.topics.get(topic, {"partitions": [{"records": []}] * 9})["partitions"]
        for number, (key, value) in enumerate(records):
            texts = [None if one is None else one.decode() for one in (key, value)]
            kept[partition]["records"].append([produced.base_offset + number, *texts])
        kept[partition]["next"] = produced.base_offset + len(records)
        return produced.base_offset

    async def _produce_codecs(self) -> None:
        for number in range(10):
            compression = Compression(number % 5)
            records = [(b"k%d" % one, b"%d of %d." % (one, number) + b"." * 40) for one in range(5)]
            for partition in (0, 1):
                await self._append("codecs", partition, records, compression)

    async def _produce_retried(self) -> None:
        producer_id, epoch = await self._client.init_producer_id()
        batches: list[list[Any]] = []
        for sequence in range(0, 14, 2):
            values = [b"sequence %d" % (sequence + one) for one in range(2)]
            offset = await self._append(
                "retried",
                0,
                [(None, value) for value in values],
                producer=(producer_id, epoch, sequence),
            )
            batches.append([sequence, offset, [value.decode() for value in values]])
        self.producer = {"id": producer_id, "epoch": epoch, "made_ms": self._made_ms}
        self.producer["batches"] = batches[-5:]

    async def _trim(self) -> None:
        for number in range(12):
            await self._append("trimmed", 0, [(None, b"%d" % number + b"." * 90)])
        kept = self.topics["trimmed"]["partitions"][0]
        answer = await self._admin.delete_records("trimmed", {0: 7})
        if not isinstance(answer[0], int):
            raise answer[0]
        kept["start"] = 7
        kept["records"] = [one for one in kept["records"] if one[0] >= kept["start"]]

    async def _produce_compacted(self) -> None:
        kept = self.topics["compacted"]["partitions"][0]
        for number in range(24):
            value = None if number == 20 else b"%d" % number + b"." * 40
            await self._append("compacted", 0, [(b"key %d" % (number % 4), value)])
        limit = patience.Limit(COMPACTION_S)
        while not (is_compacted := await self._lacks_first("compacted")):
            if limit.is_over:
                break
            await asyncio.sleep(0.05)
        if not is_compacted:
            self.left_out.append("compaction: nothing was compacted within its time")
        kept["is_compacted"] = True

    async def _lacks_first(self, topic: str) -> bool:
        """Whether the record at offset 0 has gone; its batch may be left without records."""
        fetched = await self._client.fetch(topic, {0: 0}, partition_max_bytes=1)
        first = split_batches(fetched[0].records)[0]
        return bool(first.base_offset or not first.record_count)

    async def _produce_relaxed(self) -> None:
        for number in range(5):
            await self._append("relaxed", 0, [(None, b"relaxed %d" % number)])

    async def _commit(self) -> None:
        places = {("codecs", 0): 21, ("codecs", 1): 34, ("retried", 0): 5}
        await GroupClient(self._client).commit(LONE_GROUP, places)
        # So many of one topic are stored as a block where nothing else comes with them.
        wide = {("wide", number): number for number in range(TOPICS["wide"][0])}
        await GroupClient(self._client).commit(LONE_GROUP, wide)
        places |= wide
        self.groups[LONE_GROUP] = {
            f"{topic}/{number}": at for (topic, number), at in places.items()
        }

        host, port = self._address
        connections = [await Connection.open(host, port) for _ in range(2)]
        members = [
            WireMember(GROUP, connection.send, instance=instance)
            for connection, instance in zip(connections, (INSTANCE, None), strict=True)
        ]
        await settle(members)
        for first in (3, 12):
            code = await members[0].commit("codecs", {0: first, 1: first + 5})
            assert not code, code.name
        code = await members[1].commit("retried", {0: 9})
        assert not code, code.name
        self.groups[GROUP] = {"codecs/0": 12, "codecs/1": 17, "retried/0": 9}
        self.members = [
            {"id": one.member_id, "instance": one.instance, "generation": one.generation}
            for one in members
        ]
        for connection in connections:
            await connection.aclose()


async def load(gateway: GatewayProcess) -> dict[str, Any]:
    """Give a gateway the fixed load; returns what its directory has to hold."""
    address = (gateway.host, gateway.port)
    async with AsyncClient([address], retry_s=0) as client:
        given = Load(client, address)
        await given.run()
    return given.manifest()


def make(revision: str, name: str, at: str | None) -> None:
    """Make the fixtures of a revision."""
    said = subprocess.run(
        ["git", "log", "-1", "--format=%h %s", revision], check=True, capture_output=True, text=True
    )
    short, _, subject = said.stdout.strip().partition(" ")
    with tempfile.TemporaryDirectory(prefix="kgw-old-") as parent, old_server(revision) as command:
        for ended in ("stopped", "killed"):
            gateway = GatewayProcess(Path(parent) / ended, *SOON, command=command)
            try:
                gateway.start()
            except RuntimeError:
                gateway = GatewayProcess(Path(parent) / ended, command=command).start()
            try:
                manifest = asyncio.run(load(gateway))
            finally:
                gateway.kill() if ended == "killed" else gateway.stop()
            manifest = {"revision": short, "subject": subject, "ended": ended, **manifest}
            _keep(Path(parent) / ended, DIRECTORY / f"{name}-{ended}", manifest)
        if at is not None:
            data = Path(parent) / "dying"
            # With its usual delays nothing is compacted before the load has ended.
            with GatewayProcess(data, command=command) as gateway:
                manifest = asyncio.run(load(gateway))
            module, _, function = at.partition(":")
            source = DYING.format(module=module, function=function)
            _die([*command[:-3], "-c", source, "serve"], data)
            manifest = {
                "revision": short,
                "subject": subject,
                "ended": f"killed at {at}",
                **manifest,
            }
            _keep(data, DIRECTORY / f"{name}-at-{function.strip('_')}", manifest)


def _die(command: list[str], data: Path) -> None:
    """Start a server and wait until it has killed itself."""
    gateway = GatewayProcess(data, *SOON, command=command).start()
    limit = patience.Limit(DEATH_S)
    while not gateway.ended and not limit.is_over:
        time.sleep(0.05)
    has_died = gateway.ended
    gateway.kill()
    if not has_died:
        raise SystemExit("the server has not come by there")


def _keep(data: Path, target: Path, manifest: dict[str, Any]) -> None:
    """Store a directory; a journal is mostly zeros, which become holes and take nothing."""
    holed = data.with_name(data.name + ".holed")
    subprocess.run(["cp", "-a", "--sparse=always", data, holed], check=True)
    packed = target.with_name(target.name + SUFFIX)
    owner = ("--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--sort=name")
    tar = ["tar", "--sparse", "--xz", *owner, "-C", str(holed), "-cf", str(packed), "."]
    subprocess.run(tar, check=True)
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in manifest.items()]
    target.with_name(target.name + ".json").write_text("{" + ",\n".join(lines) + "}\n")
    print(f"{packed.name}: {packed.stat().st_size} bytes; left out: {manifest['left_out']}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("revision", help="whose server is to write the directory")
    parser.add_argument("name", help="what the fixture is called, such as 0003-before-compaction")
    parser.add_argument("--at", help="where the server of one more fixture is killed")
    given = parser.parse_args()
    make(given.revision, given.name, given.at)
