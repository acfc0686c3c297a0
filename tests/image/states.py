"""K3: what is said of a container's health in each of its states, and that process 1 is one."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import http.client
import os
import signal
import struct
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.client import AdminClient, AsyncClient, ClientError
from kgw.testing.batches import make_batch
from tests.campaigns.disk_full import RESERVE_BYTES, fill_up, small_disk
from tests.campaigns.support import Report
from tests.hostile import attacks
from tests.image import oci
from tests.image.container import ADMIN_PORT, GatewayContainer
from tests.image.rules import HealthFacts, health_problems
from tests.image.smoke import own_folder
from tests.signals import send

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WITHIN_S = 10.0
"""How long a state may take to come."""
SLOW_COMPACTION = {
    "KGW_LOG_INITIAL_TASK_DELAY_MS": "100",
    "KGW_LOG_CLEANER_BACKOFF_MS": "100",
    "KGW_LOG_CLEANER_IO_MAX_BYTES_PER_SECOND": "300000",
}
"""So that its process is there long enough to be seen."""
OLD_CHECK = ("CMD", "kgw", "doctor", "--json")
"""A control: a health check that asks Kafka's port, and knows nothing of a full disk."""
_FORKS = (
    "import os, time; print('ready listeners=x:1', flush=True); os.fork() or os._exit(0); "
    "time.sleep(60)"
)
LEAVES_A_ZOMBIE = ("python", "-c", _FORKS)
READ_BYTES_PER_S = 4 << 20
"""Of a disk so slow that a recovery can be watched."""
TAIL_RECORDS = 400
TAIL_BYTES = 16_000
ENDS_OF_A_START = {signal.SIGTERM: (0,), signal.SIGINT: (0, 1, 130)}
"""Exit codes; Python's own handler of SIGINT is there before any of kgw's."""
SHUT_DOWN_EXT4 = 0x8004587D
"""EXT4_IOC_SHUTDOWN: from then on every call fails, as on a disk that was pulled."""
SHUT_DOWN_AT_ONCE = 2
FULL, FAILED = "full", "failed"


def status(path: str) -> int | None:
    """Return the HTTP status of a path of the admin side, None where nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", ADMIN_PORT, timeout=5)
    with contextlib.closing(connection):
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None


def look(container: GatewayContainer, test: Sequence[str] | None = None) -> HealthFacts:
    """Ask everybody who is asked about health."""
    return HealthFacts(
        is_live=None if (found := status("/health/live")) is None else found == 200,
        is_ready=status("/health/ready") == 200,
        is_healthy=container.is_healthy(test),
    )


def _wait_until(holds: Callable[[], bool], within_s: float = WITHIN_S) -> bool:
    ends_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > ends_s:
            return False
        time.sleep(0.02)
    return True


def judge(
    report: Report,
    container: GatewayContainer,
    state: str,
    *,
    is_ready: bool,
    test: Sequence[str] | None = None,
) -> None:
    """Note where what is said of a state is not so."""
    report.count(f"state_{state}")
    for problem in health_problems(state, look(container, test), is_ready=is_ready):
        report.fail(problem)


async def _append(address: tuple[str, int], records: int, size_bytes: int) -> bool:
    """Append records one by one; False when one is refused."""
    async with AsyncClient([address]) as client:
        try:
            await client.topic("states", auto_create=True)
            for _ in range(records):
                value = os.urandom(size_bytes)
                await client.produce("states", 0, make_batch([value]).buffer, retry=False)
        except ClientError:
            return False
    return True


def append(container: GatewayContainer, records: int = 1, size_bytes: int = 1000) -> bool:
    """Append records; False when one is refused."""
    return asyncio.run(_append((container.host, container.port), records, size_bytes))


def check_full(report: Report, test: Sequence[str] | None = None) -> None:
    """A full disk is told of, and so is its end. A control has another health check."""
    with small_disk(report) as disk:
        reserve = {"KGW_MIN_FREE_BYTES": str(RESERVE_BYTES)}
        with GatewayContainer(disk / "data", as_shipped=True, env=reserve) as container:
            if not _wait_until(lambda: status("/health/ready") == 200):
                report.fail("it does not get ready")
            judge(report, container, "ready", is_ready=True, test=test)
            if not append(container):
                report.fail("nothing can be appended before the disk is full")
            fill_up(disk / "ballast")
            if append(container, 200, 500_000):
                report.fail("appends go on although the disk is full")
            judge(report, container, FULL, is_ready=False, test=test)
            (disk / "ballast").unlink()
            if not _wait_until(lambda: status("/health/ready") == 200):
                report.fail("it does not get ready once the disk is freed")
            judge(report, container, "freed", is_ready=True, test=test)
            if not append(container):
                report.fail("nothing can be appended once the disk is freed")


def check_failed(report: Report) -> None:
    """A disk that fails is told of; the process lives, and can be stopped."""
    with small_disk(report) as disk:
        container = GatewayContainer(disk / "data", as_shipped=True).start()
        try:
            append(container)
            folder = os.open(disk, os.O_RDONLY)
            try:
                fcntl.ioctl(folder, SHUT_DOWN_EXT4, struct.pack("I", SHUT_DOWN_AT_ONCE))
            finally:
                os.close(folder)
            if append(container):
                report.fail("appends go on although the disk has failed")
            judge(report, container, FAILED, is_ready=False)
        finally:
            code = container.stop()
        report.count("ended_after_failure")
        if code not in {0, 1}:
            report.fail(f"with a failed disk it ends with {code}")


def check_recovering(report: Report) -> None:
    """While it recovers it lives and is not ready; then it is."""
    with small_disk(report) as disk:
        device = disk.stat().st_dev
        slow = oci.Limits(
            device=(os.major(device), os.minor(device)), read_bytes_per_s=READ_BYTES_PER_S
        )
        container = GatewayContainer(disk / "data", as_shipped=True)
        container.start()
        append(container, TAIL_RECORDS, TAIL_BYTES)
        container.kill()
        _forget_pages(disk)
        container.limits = slow
        container.begin_to_start()
        try:
            if not _wait_until(lambda: status("/health/live") == 200):
                report.fail("recovering: it is not said to live")
            if _port_answers(container):
                report.fail("the recovery was over before it could be looked at")
            judge(report, container, "recovering", is_ready=False)
            if not _wait_until(lambda: status("/health/ready") == 200, 60):
                report.fail("it does not get ready after its recovery")
            judge(report, container, "recovered", is_ready=True)
        finally:
            code = container.stop()
        if code:
            report.fail(f"after its recovery it ends with {code}")


def _forget_pages(disk: Path) -> None:
    """Have the kernel read the files of a disk anew."""
    for path in disk.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def _port_answers(container: GatewayContainer) -> bool:
    async def ask() -> bool:
        try:
            return await attacks.answered((container.host, container.port))
        except OSError:
            return False

    return asyncio.run(ask())


async def _stop_and_look(report: Report, container: GatewayContainer) -> None:
    """Look while a client that does not hang up holds the stop."""
    async with attacks.connected((container.host, container.port)) as streams:
        streams[1].write(attacks.API_VERSIONS_V0)
        await streams[0].read(4)
        container.signal(signal.SIGTERM)

        def is_stopping() -> bool:
            return status("/health/ready") == 503

        if not await asyncio.to_thread(_wait_until, is_stopping, 2.0):
            report.fail("stopping: it is not said that it is not ready")
        await asyncio.to_thread(judge, report, container, "stopping", is_ready=False)


def check_stopping(report: Report) -> None:
    """Once it was told to stop it lives and is not ready."""
    with own_folder() as folder:
        container = GatewayContainer(folder / "data", as_shipped=True).start()
        try:
            _wait_until(lambda: status("/health/ready") == 200)
            asyncio.run(_stop_and_look(report, container))
        finally:
            code = container.wait()
        if code:
            report.fail(f"it ends with {code}")


def children(pid: int) -> list[tuple[int, str]]:
    """Return the processes that a process has started, and the state of each: Z is a zombie."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, _, rest = (folder / "stat").read_text().rpartition(")")
            state, parent = rest.split()[:2]
            if int(parent) == pid:
                found.append((int(name.split()[0]), state))
    return found


async def _make_work_for_compaction(address: tuple[str, int], topic: str) -> None:
    async with AsyncClient([address]) as client:
        settings = {
            "cleanup.policy": "compact",
            "segment.bytes": "65536",
            "min.cleanable.dirty.ratio": "0.01",
        }
        await AdminClient(client).create_topic(topic, partitions=1, config=settings)
        for number in range(40):
            batch = make_batch([os.urandom(8_000)], keys=[b"%d" % (number % 4)])
            await client.produce(topic, 0, batch.buffer)


def _is_caught(container: GatewayContainer, number: signal.Signals) -> bool:
    """Whether process 1 has a handler for a signal: without one the kernel drops it."""
    try:
        folder = Path(f"/proc/{container.pid}")
        program = (folder / "cmdline").read_bytes()
        said = (folder / "status").read_text()
    except (OSError, ValueError):
        return False
    caught = int(said.partition("SigCgt:")[2].split()[0], 16)
    return b"kgw" in program and bool(caught >> (number - 1) & 1)


def check_process_one(report: Report) -> None:
    """Process 1 takes in children that end or are killed, and hears SIGINT and SIGTERM."""
    with own_folder() as folder:
        container = GatewayContainer(folder / "data", as_shipped=True, env=SLOW_COMPACTION)
        with container:
            address = (container.host, container.port)
            for number in range(3):
                asyncio.run(_make_work_for_compaction(address, f"compacted-{number}"))
                if not _wait_until(lambda: bool(children(container.pid))):
                    report.fail("no child was started for compaction")
                    continue
                report.count("children")
                if number == 1:
                    for pid, _ in children(container.pid):
                        if send(pid, signal.SIGKILL):
                            report.count("children_killed")
                if not _wait_until(lambda: not children(container.pid)):
                    report.fail(f"children are left: {children(container.pid)}")
        report.require("children_killed", 1)
        for one in (signal.SIGTERM, signal.SIGINT):
            container.begin_to_start()
            if not _wait_until(partial(_is_caught, container, one)):
                report.fail(f"{one.name} is not listened for")
            container.signal(one)
            report.count("signals_during_start")
            if (code := container.wait()) not in ENDS_OF_A_START[one]:
                report.fail(f"during its start {one.name} ends it with {code}")
            container.start()
            container.signal(one)
            report.count("signals")
            if (code := container.wait()) != 0:
                report.fail(f"{one.name} ends it with {code}")


def check_zombies_are_seen(report: Report) -> None:
    """A control: a process 1 that does not take in its child."""
    with own_folder() as folder:
        careless = GatewayContainer(folder / "data", program=LEAVES_A_ZOMBIE).start()
        try:
            if _wait_until(lambda: [one for _, one in children(careless.pid)] == ["Z"]):
                report.fail("a zombie is left")
        finally:
            careless.kill()


def run(seed: int) -> Report:
    """K3."""
    report = Report("K3 health and process 1", seed)
    check_full(report)
    check_failed(report)
    check_recovering(report)
    check_stopping(report)
    check_process_one(report)
    control = Report("control", seed)
    check_full(control, OLD_CHECK)
    report.expect_alarm(control, f"{FULL}: the image's health check says healthy")
    check_zombies_are_seen(control)
    report.expect_alarm(control, "a zombie is left")
    return report
