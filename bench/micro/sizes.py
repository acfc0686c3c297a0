"""What a server takes in memory and on the disk, by partitions, groups and connections.

Each figure is of a `kgw serve` of its own over an empty data directory, after it has done what is
named and has rested: anonymous memory (what the process alone has), and the bytes of the files as
the system counts their blocks. docs/sizing.md has what it printed.

    scripts/bench --micro sizes [--directory DIR] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kgw.client import AdminClient, AsyncClient, GroupClient
from kgw.testing.batches import make_batch
from kgw.testing.process import GatewayProcess, process_usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RESTS_S = 3.0
GROUP_PARTITIONS = 10
API_VERSIONS = bytes.fromhex("0000000e 0012 0000 00000001 0004 73697a65".replace(" ", ""))


class Figure(NamedTuple):
    """What one server took."""

    name: str
    anonymous_bytes: int
    disk_bytes: int


def disk_bytes(directory: Path) -> int:
    """Return what the files take of the disk, in its blocks."""
    return sum(one.stat().st_blocks * 512 for one in directory.rglob("*"))


async def idle(_: AsyncClient, __: AsyncExitStack) -> None:
    """Nothing."""


def partitions(count: int, *, are_written: bool) -> Callable[..., Awaitable[None]]:
    """Topics of 100 partitions each; a record in each partition, or none."""

    async def work(client: AsyncClient, _: AsyncExitStack) -> None:
        admin = AdminClient(client)
        for number in range(max(1, count // 100)):
            name = f"topic-{number}"
            await admin.create_topic(name, partitions=min(100, count))
            if are_written:
                for index in range(min(100, count)):
                    await client.produce(name, index, make_batch([b"x" * 100]).buffer)

    return work


def groups(count: int) -> Callable[..., Awaitable[None]]:
    """Groups that have committed ten partitions each, without members."""

    async def work(client: AsyncClient, _: AsyncExitStack) -> None:
        await AdminClient(client).create_topic("topic", partitions=GROUP_PARTITIONS)
        committed = {("topic", index): 0 for index in range(GROUP_PARTITIONS)}
        for number in range(count):
            await GroupClient(client).commit(f"group-{number}", committed)

    return work


def connections(count: int) -> Callable[..., Awaitable[None]]:
    """Connections that have asked for ApiVersions once, and stay open."""

    async def work(client: AsyncClient, stack: AsyncExitStack) -> None:
        broker = (await client.cluster()).brokers[0]
        for _ in range(count):
            reader, writer = await asyncio.open_connection(broker.host, broker.port)
            stack.callback(writer.close)
            writer.write(API_VERSIONS)
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(size)

    return work


WORK: dict[str, Callable[..., Awaitable[None]]] = {
    "idle": idle,
    "partitions-1000": partitions(1_000, are_written=False),
    "partitions-5000": partitions(5_000, are_written=False),
    "written-1000": partitions(1_000, are_written=True),
    "written-5000": partitions(5_000, are_written=True),
    "groups-100": groups(100),
    "groups-1000": groups(1_000),
    "connections-100": connections(100),
    "connections-1000": connections(1_000),
}


async def measure(name: str, directory: Path) -> Figure:
    """Have a server do it, and return what it takes then."""
    gateway = GatewayProcess(directory / name)
    gateway.start()
    try:
        async with AsyncExitStack() as stack:
            client = AsyncClient([(gateway.host, gateway.port)])
            await stack.enter_async_context(client)
            await WORK[name](client, stack)
            await asyncio.sleep(RESTS_S)
            usage = process_usage(gateway.pid)
            return Figure(name, usage.anonymous_bytes, disk_bytes(gateway.data_dir))
    finally:
        gateway.stop()


def main() -> int:
    """Measure and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where the data directories are made")
    parser.add_argument("--only", nargs="+", choices=WORK, default=list(WORK))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        for name in arguments.only:
            figure = asyncio.run(measure(name, Path(directory)))
            print(json.dumps(figure._asdict()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
