"""K1: clients, limits and rights of a container that is run as it should be."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kgw.client import AsyncClient
from kgw.errors import ErrorCode
from kgw.protocol.framing import request_frame
from kgw.testing.batches import make_batch
from tests.campaigns.disk_full import small_disk
from tests.campaigns.support import Report
from tests.handlers.support import batch, produce_request
from tests.hostile import attacks, drains
from tests.image import oci
from tests.image.building import PLACE, ROOT, load
from tests.image.container import DESCRIPTORS, GatewayContainer
from tests.image.rules import config_problems, process_problems, read_facts, root_problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LIBRARIES = ("clients", "groups", "transactions")
TWO_LISTENERS = {
    "KGW_LISTENERS": "HOST://0.0.0.0:9092,NETWORK://0.0.0.0:19092",
    "KGW_ADVERTISED_LISTENERS": "HOST://localhost:9092,NETWORK://kgw:19092",
}
"""What docs/containers.md has for clients on the host and in other containers."""
ELSEWHERE = "192.0.2.1"
"""An address for documentation, on the loopback device of this network namespace."""
PRODUCERS = 64
IN_FLIGHT = 8
RECORDS = 12
"""Of each producer, beside those in flight."""
VALUE_BYTES = 900_000
DISK_BYTES = 2 << 30
WRITTEN_BYTES_PER_S = 100 << 20
"""A disk that is slower than the producers."""


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Give a folder for volumes and bundles."""
    with tempfile.TemporaryDirectory(prefix="kgw-image-") as name:
        yield Path(name)


def check_rights(report: Report) -> None:
    """The image, its files and its process are as they should be; it can be reached."""
    image = load()
    for problem in config_problems(image.config):
        report.fail(f"image: {problem}")
    for problem in root_problems(read_facts(image.root), image.config.volumes):
        report.fail(f"root: {problem}")
    with own_folder() as folder, GatewayContainer(folder / "data", as_shipped=True) as container:
        report.count("ready_after_ms", round(container.start_s * 1000))
        for problem in process_problems(container.facts(), oci.MEMORY_BYTES):
            report.fail(f"process: {problem}")
        _expect(report, container, "kgw doctor", True, "kgw", "doctor")
        report.count("programs")
        if not container.is_healthy():
            report.fail("its health check does not work in there")
        _expect(report, container, "a write to the root", False, *_python("open('/x', 'w')"))
        _expect(report, container, "a write to /tmp", False, *_python("open('/tmp/x', 'w')"))
        _expect(report, container, "a shell", False, "sh", "-c", "true")
        _expect(report, container, "pip", False, *_python("import pip"))
        # e2e/compose.yaml puts it into the image, in front of the gateway.
        agent = (ROOT / "e2e" / "system" / "agent.py").read_text()
        _expect(report, container, "the agent", True, *_python(agent), "--help")
        subprocess.run(["ip", "address", "add", f"{ELSEWHERE}/32", "dev", "lo"], check=True)
        told = asyncio.run(_advertised((ELSEWHERE, container.port)))
        report.count("addresses")
        if told != (ELSEWHERE, container.port):
            report.fail(f"a client that came to {ELSEWHERE} is sent to {told}")
        report.count("peak_megabytes", container.cgroup.peak_bytes >> 20)


def check_listeners(report: Report) -> None:
    """Clients inside and outside of an engine's network are each told an address of theirs."""
    with (
        own_folder() as folder,
        GatewayContainer(folder / "data", as_shipped=True, env=TWO_LISTENERS) as container,
    ):
        for port, expected in ((container.port, ("localhost", 9092)), (19_092, ("kgw", 19_092))):
            report.count("listeners")
            told = asyncio.run(_advertised(("127.0.0.1", port)))
            if told != expected:
                report.fail(f"a client of port {port} is sent to {told}, not to {expected}")
        asyncio.run(_produce_one(("localhost", container.port)))


def _python(text: str) -> Sequence[str]:
    return ("python", "-c", text)


def _expect(
    report: Report, container: GatewayContainer, what: str, works: bool, *command: str
) -> None:
    report.count("programs")
    done = container.execute(*command)
    if works != (done.returncode == 0):
        word = "does not work" if works else "works"
        report.fail(f"{what} {word} in there: {(done.stdout + done.stderr).strip()[-300:]}")


async def _advertised(address: tuple[str, int]) -> tuple[str, int]:
    async with AsyncClient([address]) as client:
        (broker,) = (await client.cluster()).brokers
        return broker.host, broker.port


def check_root_is_left_alone(report: Report, *, is_control: bool = False) -> None:
    """With a root that it may write, it writes nothing there. A control writes one file."""
    image = load()
    with own_folder() as folder:
        for name in ("upper", "work", "root"):
            (folder / name).mkdir()
        options = f"lowerdir={image.root},upperdir={folder}/upper,workdir={folder}/work"
        mount = ["mount", "-t", "overlay", "-o", options, "overlay", str(folder / "root")]
        subprocess.run(mount, check=True)
        try:
            container = GatewayContainer(
                folder / "data",
                image=image._replace(root=folder / "root"),
                as_shipped=True,
                # Whoever may write there.
                hardening=oci.Hardening(
                    user=(0, 0), read_only_root=False, capabilities=("CAP_DAC_OVERRIDE",)
                ),
            )
            with container:
                asyncio.run(_produce_one((container.host, container.port)))
                container.execute("kgw", "topics", "list")
                if is_control:
                    container.execute(*_python("open('/opt/written', 'w')"))
            report.count("roots_that_can_be_written")
        finally:
            subprocess.run(["umount", str(folder / "root")], check=True)
        for path in sorted((folder / "upper").rglob("*")):
            if not path.is_dir():
                report.fail(f"it wrote /{path.relative_to(folder / 'upper')}")


async def _produce_one(address: tuple[str, int]) -> None:
    async with AsyncClient([address]) as client:
        await client.topic("one", auto_create=True)
        await client.produce("one", 0, make_batch([b"value"]).buffer)


def check_libraries(report: Report) -> None:
    """Real client libraries do all that they do with `kgw serve`, with a container for each."""
    files = [f"tests/interop/test_{name}.py" for name in LIBRARIES]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n2", "-p", "no:cacheprovider"),
            *("-m", "not full", "-k", "not seaweedmq", *files),
        ],
        cwd=ROOT,
        env={**os.environ, "INTEROP_BACKEND": "image", "INTEROP_CLIENTS": "required"},
        capture_output=True,
        text=True,
        check=False,
    )
    (PLACE / "libraries.log").write_text(done.stdout + done.stderr)
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr[-300:]]
    for number, word in zip(last[0].split()[::2], last[0].split()[1::2], strict=False):
        if number.isdecimal():
            report.count(f"library_tests_{word.strip(',')}", int(number))
    report.require("library_tests_passed", 90)
    if done.returncode:
        named = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        report.fail(
            f"client libraries: {last[0]}; {'; '.join(named)}; see {PLACE / 'libraries.log'}"
        )


class Burst(NamedTuple):
    """What one producer of a burst was told."""

    stored: dict[int, int]
    """By offset, the number of the record."""
    refused: list[str]
    is_answered: bool
    """False where its connection ended before."""


def check_memory(report: Report, request_memory_bytes: int = -1) -> None:
    """Producers that send far more than fits do not end it; what it acknowledged is there.

    A control lets requests take more memory than there is.
    """
    with small_disk(report, DISK_BYTES) as disk:
        device = disk.stat().st_dev
        limits = oci.Limits(
            descriptors=DESCRIPTORS,
            device=(os.major(device), os.minor(device)),
            written_bytes_per_s=WRITTEN_BYTES_PER_S,
        )
        container = GatewayContainer(
            disk / "data",
            as_shipped=True,
            limits=limits,
            env={"KGW_REQUEST_MEMORY_BYTES": str(request_memory_bytes)},
        )
        container.start()
        try:
            _check_burst(report, container)
        finally:
            code = container.stop()
        report.count("bursts")
        if code:
            report.fail(f"it ended with {code}")


def _check_burst(report: Report, container: GatewayContainer) -> None:
    address = (container.host, container.port)
    bursts = asyncio.run(_burst(address))
    ended = sum(not burst.is_answered for burst in bursts)
    if ended:
        report.fail(f"{ended} of {PRODUCERS} connections ended before all was answered")
        return
    stored = {offset: one for burst in bursts for offset, one in burst.stored.items()}
    report.count("burst_megabytes_stored", len(stored) * VALUE_BYTES >> 20)
    for code in (code for burst in bursts for code in burst.refused):
        report.count(f"burst_refused_{code}")
    report.require("burst_megabytes_stored", 4 * oci.MEMORY_BYTES >> 20)
    if len(stored) != sum(len(burst.stored) for burst in bursts):
        report.fail("two records of the burst have one offset")
    report.count("burst_peak_megabytes", container.usage().peak_bytes >> 20)
    kills = container.cgroup.out_of_memory_kills
    report.count("out_of_memory_kills", kills)
    if kills:
        report.fail(f"{kills} killed for want of memory")
    if not container.is_healthy():
        report.fail("it is not healthy after the burst")
    found = asyncio.run(drains.read_log(address))
    lost = [offset for offset, one in stored.items() if found.get(offset, b"")[:8] != _start(one)]
    report.count("burst_records_read", len(stored))
    if lost:
        report.fail(f"LOST: {len(lost)} records of the burst, the first at {min(lost)}")


def _start(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _value(number: int) -> bytes:
    """Return what does not compress, and is not the same twice."""
    return _start(number) + random.Random(number).randbytes(VALUE_BYTES - 8)


async def _burst(address: tuple[str, int]) -> list[Burst]:
    await drains.high_watermark(address)
    return await asyncio.gather(*(_produce(address, number) for number in range(PRODUCERS)))


async def _produce(address: tuple[str, int], number: int) -> Burst:
    """Keep several large requests in flight, each the same record, until enough was sent."""
    stored: dict[int, int] = {}
    refused = []
    request = produce_request(batch(_value(number)))
    frame = b"".join(request_frame(request, 9, 7, "burst"))
    async with attacks.connected(address) as streams:
        try:
            streams[1].write(frame * IN_FLIGHT)
            for sent in range(IN_FLIGHT, IN_FLIGHT + RECORDS + IN_FLIGHT):
                answer = await drains.answer(streams, request.api_key, 9)
                partition = answer.responses[0].partition_responses[0]
                if partition.error_code == ErrorCode.NONE:
                    stored[partition.base_offset] = number
                else:
                    refused.append(ErrorCode(partition.error_code).name)
                if sent < IN_FLIGHT + RECORDS:
                    streams[1].write(frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            return Burst(stored, refused, is_answered=False)
    return Burst(stored, refused, is_answered=True)


def check_controls(report: Report) -> None:
    """A container that is run carelessly, and one that writes to its root, are found."""
    careless = oci.Hardening(
        user=(0, 0),
        read_only_root=False,
        no_new_privileges=False,
        capabilities=("CAP_CHOWN", "CAP_DAC_OVERRIDE"),
    )
    with own_folder() as folder:
        limits = oci.Limits(memory_bytes=2 * oci.MEMORY_BYTES)
        container = GatewayContainer(
            folder / "data", as_shipped=True, hardening=careless, limits=limits
        )
        with container:
            control = Report("control", report.seed)
            for problem in process_problems(container.facts(), oci.MEMORY_BYTES):
                control.fail(problem)
            # Larger than the gateway, and so what the kernel kills for want of memory.
            container.execute(*_python(f"len(b'x' * {4 * oci.MEMORY_BYTES})"))
            control.fail(f"{container.cgroup.out_of_memory_kills} was killed for want of memory")
    whats = ("ids", "capabilities", "more rights", "root file system", "its memory", "1 was killed")
    for what in whats:
        report.expect_alarm(control, what)
    control = Report("control", report.seed)
    check_root_is_left_alone(control, is_control=True)
    report.expect_alarm(control, "it wrote /opt/written")
    control = Report("control", report.seed)
    check_memory(control, request_memory_bytes=8 * oci.MEMORY_BYTES)
    report.expect_alarm(control, "it ended with 137")


def run(seed: int) -> Report:
    """K1."""
    report = Report("K1 hardened image", seed)
    check_rights(report)
    check_listeners(report)
    check_root_is_left_alone(report)
    check_controls(report)
    check_memory(report)
    check_libraries(report)
    return report
