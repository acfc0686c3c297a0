"""Each answer of a real process is preceded by the syncs that it needs, as strace sees them."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kgw.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.campaigns import power_loss_serve
from tests.campaigns.power_loss import record
from tests.campaigns.power_loss_work import (
    Batch,
    Book,
    Wire,
    checked,
    commit_request,
    create_request,
    setting_request,
)
from tests.campaigns.traced_disk import TracedDisk
from tests.campaigns.traces import have_strace

if TYPE_CHECKING:
    from kgw.protocol.schema import Request
    from kgw.testing.process import GatewayProcess
    from tests.campaigns.power_loss_work import Place

TOPIC = "answered"
PARTITIONS = 4
DATABASE = "data/meta.sqlite"
SEED = 20_261

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.slow,
    pytest.mark.timeout(60),
    pytest.mark.skipif(
        not os.environ.get("CI") and not have_strace(), reason="needs strace to see system calls"
    ),
]


class Needed(NamedTuple):
    """What must be durable when an answer is sent."""

    what: str
    marker: bytes
    """Bytes that nothing else has."""
    files: int = 1
    """In so many files at least."""
    is_in_database: bool = False
    """In a row instead, when SQLite opens what is durable."""
    is_gone: bool = False
    """In no row."""


async def ask_one_by_one(gateway: GatewayProcess, needed: dict[Place, Needed]) -> Book:
    """Send requests, each after the answer to the one before, and note what each answer needs."""
    random = Random(SEED)
    wire = await Wire.open(gateway.host, gateway.port)

    async def ask(request: Request, version: int, need: Needed) -> None:
        needed[wire.send(request, version)] = need
        checked(await wire.receive(), object)

    async def produce(partition: int, size_bytes: int, acks: int) -> None:
        value = random.randbytes(size_bytes)
        batch = Batch((0, 0), "one", TOPIC, partition, None, (value,))
        await ask(batch.request(acks), 9, Needed(f"{size_bytes} bytes, acks={acks}", value))

    try:
        name = TOPIC.encode()
        creation = create_request(TOPIC, PARTITIONS, {})
        # Each partition's directory holds a file that names the topic, beside the database.
        await ask(creation, 5, Needed("CreateTopics", name, PARTITIONS))
        needed_of_row = Needed("CreateTopics, its row", b"another", is_in_database=True)
        await ask(create_request("another", 1, {}), 5, needed_of_row)
        for number in range(2):
            for partition in range(PARTITIONS):
                await produce(partition, 100, acks=(-1, 1)[number])
            await produce(number, 200_000, acks=(1, -1)[number])
        for number in range(1, 4):
            offsets = {0: 1_000_000 + number}
            marker = b"at-%d" % offsets[0]
            commit = commit_request("group", offsets, TOPIC)
            await ask(commit, 8, Needed("OffsetCommit", marker, is_in_database=True))
            value = str(987_650 + number)
            request = setting_request(TOPIC, "max.message.bytes", value)
            needed_of_value = Needed("AlterConfigs", value.encode(), is_in_database=True)
            await ask(request, 1, needed_of_value)
        deletion = DeleteTopicsRequest(topic_names=["another"], timeout_ms=30_000)
        await ask(
            deletion, 5, Needed("DeleteTopics", b"another", is_in_database=True, is_gone=True)
        )
    finally:
        await wire.aclose()
    return Book()


def answered_too_early(directory: Path, bug: str = "none") -> list[str]:
    """Return each answer that was sent before all that it needs was durable."""
    needed: dict[Place, Needed] = {}
    recording = record(
        directory / "recording",
        power_loss_serve.command(bug),
        partial(ask_one_by_one, needed=needed),
    )
    assert needed.keys() <= recording.answers.keys()
    disk = TracedDisk(recording.root)
    events = iter(recording.events)
    event = next(events)
    early: list[str] = []
    for place, need in sorted(needed.items(), key=lambda one: recording.answers[one[0]]):
        while event.at <= recording.answers[place][0]:
            disk.take(event)
            event = next(events)
        early += [
            f"{need.what}: {problem}" for problem in _doubts(disk, need, directory / "database")
        ]
    return early


def _doubts(disk: TracedDisk, need: Needed, directory: Path) -> list[str]:
    durable = disk.durable_files()
    database = {path: durable.pop(path) for path in list(durable) if path.startswith(DATABASE)}
    if need.is_in_database:
        is_there = need.marker in _rows(database, directory)
        return [] if is_there != need.is_gone else [f"durable rows have it: {is_there}"]
    found = sum(need.marker in content for content in durable.values())
    return [] if found >= need.files else [f"durable in {found} files, not {need.files}"]


def _rows(database: dict[str, bytes], directory: Path) -> bytes:
    """Return all that SQLite reads out of a database, but for the changes that others may ask for.

    Those name what is gone, too.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for path, content in database.items():
        (directory / Path(path).name).write_bytes(content)
    with closing(sqlite3.connect(directory / Path(DATABASE).name)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'state_change'"
        )
        rows = [connection.execute(f'SELECT * FROM "{name}"').fetchall() for (name,) in tables]  # noqa: S608
    values = [value for table in rows for row in table for value in row]
    return b"\n".join(
        value if isinstance(value, bytes) else str(value).encode() for value in values
    )


def test_every_answer_is_durable(tmp_path: Path) -> None:
    """When an answer is sent all that it needs has been synced, by a sync begun after the write."""
    assert [] == answered_too_early(tmp_path)


@pytest.mark.parametrize(
    ("bug", "what"),
    [
        ("void-fdatasync", "200000 bytes"),
        ("write-back-only", "200000 bytes"),
        ("void-kernel-queue", "CreateTopics"),
        ("void-sync-directory", "CreateTopics"),
        ("no-journal", "100 bytes"),
        ("normal-database", "OffsetCommit"),
    ],
)
def test_missing_syncs_are_found(tmp_path: Path, bug: str, what: str) -> None:
    """A gateway that leaves out a sync is found out by an answer that needs it."""
    early = answered_too_early(tmp_path, bug)
    assert [one for one in early if one.startswith(what)]
