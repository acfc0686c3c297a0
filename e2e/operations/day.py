"""A SeaweedFS as its operators have it, gateways over it, and what is done to it under load.

Each row of the table in docs/seaweedmq.md is a `Row` with a namespace and a collection of its own,
so that rows share the processes and not the volumes. The gateway of a row keeps nothing in memory:
whatever is read comes from the volume servers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.request import Request, urlopen

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.client import AdminClient as KgwAdminClient
from kgw.client import AsyncClient
from tests import patience
from tests.campaigns import cold_serve
from tests.campaigns.seaweedmq_load import EMPTY_POLLS, Load
from tests.campaigns.seaweedmq_site import Site, killed_in_the_end
from tests.campaigns.support import Report
from tests.campaigns.transactors import READ_S, read_topic
from tests.handlers.support import batch
from tests.seaweedfs.binary import weed
from tests.seaweedfs.cluster import Setup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kgw.testing.process import GatewayProcess
    from tests.seaweedfs.cluster import Cluster

SEED: Final = 20_261
SERVERS: Final = ("volume", "volume2", "volume3")
FOURTH: Final = "volume4"
"""A server more, which a row starts that needs one."""
DISKS: Final = ("", "ssd")
"""Folders of each server: one of disks of type hdd, one of type ssd."""
SETUP: Final = Setup(
    volume_servers=len(SERVERS) + 1,
    flags={
        # `volume.balance` rounds to hundredths of what a server may hold.
        "master": ("-volumeSizeLimitMB=8",),
        "volume": (
            "-dir=.,ssd",
            "-disk=hdd,ssd",
            "-max=60,30",
            # Without it no volume is copied from a server at 127.0.0.1.
            "-volume.allowUntrustedRemoteEndpoints",
        ),
    },
)
SHELL_S: Final = 240.0
BESIDE_S: Final = 1.5
"""For how long there is load before an operation and after it."""

OLD: Final = "old"
"""A topic that nobody writes to while it is read again and again."""
OLD_PARTITIONS: Final = 8
OLD_RECORDS: Final = 20
"""Of each partition, and each a chunk of its own."""
OLD_BYTES: Final = 2_000


LARGE_BYTES: Final = 50_000
"""Of a record of `write`."""


class Volume(NamedTuple):
    """A volume as one server has it."""

    server: str
    number: int
    size_bytes: int
    deleted_bytes: int
    is_read_only: bool


class Day:
    """The processes that rows share, and what operators do to them."""

    def __init__(self, site: Site) -> None:
        self.site = site

    @property
    def cluster(self) -> Cluster:
        """The processes of SeaweedFS."""
        return self.site.cluster

    def shell(self, *commands: str) -> str:
        """Run commands in `weed shell`, under its lock; return what it says."""
        addresses = [f"-{name}={self.cluster.address(name)}" for name in ("master", "filer")]
        ended = subprocess.run(
            [weed(), "shell", *addresses],
            input="\n".join(["lock", *commands, "unlock"]) + "\n",
            capture_output=True,
            text=True,
            timeout=patience.seconds(SHELL_S),
            check=False,
        )
        said = ended.stdout + ended.stderr
        print(said, flush=True)
        assert ended.returncode == 0, said
        assert "error:" not in said, said
        return said

    def volumes(self, collection: str) -> list[Volume]:
        """Return the volumes of a collection, each as often as a server has it."""
        found = []
        for server in (*SERVERS, FOURTH):
            if self.cluster.pid(server) is None:
                continue
            with urlopen(f"http://{self.cluster.address(server)}/status") as answer:
                listed = json.load(answer)["Volumes"] or ()
            found += [
                Volume(
                    server,
                    one["Id"],
                    one["Size"],
                    one["DeletedByteCount"],
                    one["ReadOnly"],
                )
                for one in listed
                if one["Collection"] == collection
            ]
        return found

    def coded(self, collection: str) -> dict[str, set[str]]:
        """Return the shards of coded volumes that each server has on its disks."""
        return {
            server: {
                path.name
                for path in (self.cluster.directory / server).glob(f"{collection}_*.ec[0-9][0-9]")
            }
            for server in (*SERVERS, FOURTH)
        }

    def remove_chunk(self, file_id: str) -> None:
        """Remove a chunk from the server that has it, as a command for a single file does."""
        volume = file_id.partition(",")[0]
        master = self.cluster.address("master")
        with urlopen(f"http://{master}/dir/lookup?volumeId={volume}") as answer:
            (place,) = json.load(answer)["locations"]
        request = Request(f"http://{place['url']}/{file_id}", method="DELETE")
        with urlopen(request) as answer:  # noqa: S310 - HTTP, as above
            assert answer.status in {200, 202}


class OldReader:
    """Reads a topic from its start to its end, again and again, and compares it with itself."""

    def __init__(self, gateway: GatewayProcess, report: Report) -> None:
        self._gateway = gateway
        self._report = report
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.written: dict[int, list[bytes]] = {}
        self.longest_s = 0.0
        """Of all passes."""
        self.within_s = READ_S
        """What does not come in that time is missing."""

    def write(self) -> None:
        """Make the topic."""
        admin = AdminClient({"bootstrap.servers": self._gateway.bootstrap})
        (created,) = admin.create_topics([NewTopic(OLD, OLD_PARTITIONS, 1)]).values()
        created.result(patience.seconds(20))
        producer = Producer({"bootstrap.servers": self._gateway.bootstrap, "linger.ms": 0})
        for number in range(OLD_RECORDS):
            for partition in range(OLD_PARTITIONS):
                value = (b"%d-%d-" % (partition, number)).ljust(OLD_BYTES, b"o")
                self.written.setdefault(partition, []).append(value)
                producer.produce(OLD, value, partition=partition)
            assert producer.flush(patience.seconds(30)) == 0

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(patience.seconds(120))

    def _run(self) -> None:
        while not self._is_over.is_set():
            self.read()

    def read(self) -> None:
        """Read all of it once."""
        began_s = time.monotonic()
        try:
            found = read_topic(
                self._gateway.bootstrap, OLD, range(OLD_PARTITIONS), within_s=self.within_s
            )
        except KafkaException as error:
            self._report.fail(f"old records cannot be read: {error}")
            return
        self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        self._report.count("old_records_read", sum(len(one[2]) for one in found.values()))
        for partition, (_, _, records) in found.items():
            if records != list(enumerate(self.written[partition])):
                self._report.fail(
                    f"old records of partition {partition}: {len(records)} of {OLD_RECORDS} read"
                )


class Row:
    """A row of the table: a gateway, its load, and what has become of its records."""

    def __init__(self, day: Day, name: str, *settings: str) -> None:
        self.day = day
        self.name = name
        """Of the namespace, and of the collection."""
        self.report = Report(f"operations-{name}", SEED)
        self.settings = (f"kgw.seaweedmq.collection={name}", *settings)
        day.site.report = self.report
        self.url = day.cluster.url(name)
        self.gateway = day.site.gateway(
            self.url,
            (*cold_serve.COMMAND, "--take-over"),
            *cold_serve.SETTINGS,
            *self.settings,
        )
        self.old = OldReader(self.gateway, self.report)
        self.checked = ""
        """What `kgw log check` said last."""
        self._judge_again: Callable[[], None] = lambda: None

    @contextmanager
    def load(
        self, *, is_read: bool = True, is_safe: bool = True, empty_polls: int = EMPTY_POLLS
    ) -> Iterator[None]:
        """Write and read while something is done; afterwards everything acknowledged is there.

        `is_read` says that old records can be read all the time. What is not safe leaves what was
        found in the report. The gateway is started unless it runs.
        """
        report = self.report
        if not self.gateway.running:
            self.start()
        with Load(self.gateway.bootstrap, SEED, empty_polls=empty_polls) as load:
            time.sleep(patience.seconds(BESIDE_S))
            began_s = time.monotonic()
            with self.old if is_read else nullcontext():
                yield
                report.count("operation_ms", round(1_000 * (time.monotonic() - began_s)))
                time.sleep(patience.seconds(BESIDE_S))
            if self.gateway.ended:
                report.fail(f"the gateway has ended: {self.gateway.log()[-2_000:]}")
                report.conclude()
            load.ask_bounds()
            final = load.judge(report)
            report.count("longest_wait_ms", round(1_000 * load.clients.longest_wait_s()))
        report.count("longest_old_read_ms", round(1_000 * self.old.longest_s))
        assert self.gateway.stop() == 0
        self._judge_again = partial(load.judge_again, report, final)
        report.require("acknowledged", 1_000)
        report.require("transactions", 5)
        self._examine()
        if is_safe:
            report.conclude()
        else:
            print(report, flush=True)

    def _examine(self) -> None:
        """Note what kgw's commands find, and what a new gateway does not have."""
        status, self.checked = kgw("log", "check", "--records", self.url)
        if status:
            self.report.fail(f"kgw log check: {self.checked[:2_000]}")
        status, said = kgw(*self._doctor)
        if status:
            self.report.fail(f"kgw doctor: {said[-2_000:]}")
        self.day.site.start(self.gateway)
        self._judge_again()
        self.old.read()
        assert self.gateway.stop() == 0

    def must_be_whole(self) -> None:
        """Fail unless kgw's commands find nothing, and a new gateway has every record."""
        self._examine()
        self.report.conclude()

    def start(self) -> None:
        """Start the gateway, and write the records that are old later."""
        self.day.site.start(self.gateway)
        self.old.write()

    def log_check(self) -> str:
        """Return what `kgw log check` names. It must name something."""
        status, said = kgw("log", "check", self.url)
        assert status == 1, said
        return said

    def doctor(self) -> str:
        """Return what `kgw doctor` says. It must find a problem."""
        status, said = kgw(*self._doctor)
        assert status == 1, said
        return said

    @property
    def _doctor(self) -> Sequence[str]:
        assignments = [word for setting in self.settings for word in ("--set", setting)]
        return ["doctor", "--backend", self.url, *assignments]


async def write(row: Row, topic: str, records: int) -> None:
    """Write a topic of large records."""
    async with AsyncClient([(row.gateway.host, row.gateway.port)]) as client:
        await KgwAdminClient(client).create_topic(topic)
        await client.topic(topic)
        for _ in range(records):
            await client.produce(topic, 0, batch(bytes(LARGE_BYTES)))


def kgw(*arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code and what it says."""
    ended = subprocess.run(
        [sys.executable, "-m", "kgw", *arguments],
        capture_output=True,
        text=True,
        timeout=patience.seconds(120),
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


def make_disks(directory: Path) -> None:
    """Make the folders that volume servers are told of, below that of the processes."""
    for server in (*SERVERS, FOURTH):
        for disk in DISKS:
            (directory / server / disk).mkdir(parents=True, exist_ok=True)


@contextmanager
def a_row(day: Day, name: str, *settings: str) -> Iterator[Row]:
    """Give a row, and leave none of its processes and volumes behind."""
    row = Row(day, name, *settings)
    with killed_in_the_end(row.gateway):
        yield row
    day.shell(
        f"fs.rm -rf /topics/{name} /topics/.kgw/{name}",
        f"collection.delete -collection={name} -apply",
    )
