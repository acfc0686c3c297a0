"""D6, the half outside: system calls of a real process fail, as strace makes them.

Run as `python -m tests.campaigns.failing_calls --full --seed N`. Needs strace.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from kgw.client.admin import AdminClient
from kgw.client.client import AsyncClient
from kgw.client.errors import ClientError
from kgw.testing.batches import make_batch, read_stored
from kgw.testing.process import SERVE, GatewayProcess
from tests import patience
from tests.campaigns.history import FinalLog, Outcome, Poll, Send, check_history
from tests.campaigns.support import Report, main

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from typing import TypeVar

    from tests.campaigns.history import Event

    _Result = TypeVar("_Result")

HOPEFUL_SERVE = (sys.executable, "-m", "tests.campaigns.hopeful_serve", "serve")
TOPIC = "failing"
PARTITIONS = 3
STEPS = 90
ANSWER_S = 10.0
SETTINGS = ("kgw.cache.bytes=0", "kgw.min.free.bytes=0", "kgw.checkpoint.bytes=1048576")
TRACED = "pwritev2,pwrite64,fdatasync,fsync,ftruncate,rename,unlink,pread64"
_CALL = re.compile(
    r"^(?P<thread>\d+) +(?P<time_s>[\d.]+) (?P<call>\w+)"
    r"\((?:\d+<(?P<file>[^>]*)>|\"(?P<path>[^\"]*)\").*"
    r"(?P<end>\(INJECTED\)|<unfinished \.\.\.>)$"
)
_RESUMED = re.compile(
    r"^(?P<thread>\d+) +(?P<time_s>[\d.]+) <\.\.\. (?P<call>\w+) resumed>(?P<result>.*)$"
)
NO_KERNEL_SYNCS = "io_setup:error=ENOSYS"
"""Has threads sync records. The kernel's own syncs would be no calls of which one could fail."""


class Injection(NamedTuple):
    """Which system call fails, how, from which one on; each thread counts for itself."""

    call: str
    error: str
    nth: int
    persistent: bool

    def __str__(self) -> str:
        return f"{self.call}:error={self.error}:when={self.nth}{'+' if self.persistent else ''}"

    def command(self, serve: Sequence[str], trace: Path) -> list[str]:
        """Return what runs the gateway so. It stays the process that is started, and killed."""
        options = ["-D", "-f", "-qq", "-y", "-ttt", "--seccomp-bpf", "-o", str(trace)]
        options += ["-e", f"trace={TRACED},io_setup", "-e", f"inject={self}"]
        if self.call == "fdatasync":
            options += ["-e", f"inject={NO_KERNEL_SYNCS}"]
        return ["strace", *options, *serve]


class Strike(NamedTuple):
    """A call that was made to fail."""

    time_s: float
    call: str
    path: str

    @property
    def is_sync_of_records(self) -> bool:
        """Whether it leaves open what is on the disk."""
        return self.call == "fdatasync" and self.path.endswith((".log", ".journal"))


def choose(random: Random) -> Injection:
    """Choose a call that the gateway makes, most of all those that write."""
    writes = ("pwritev2", "pwritev2", "pwrite64", "fsync", *["fdatasync"] * 4)
    call = random.choice((*writes, *TRACED.split(",")))
    # Few threads rename or remove often; what is written is written hundreds of times.
    most = {"pwritev2": 60, "pwrite64": 60, "fdatasync": 30, "pread64": 200}.get(call, 6)
    errors = ("EIO",) if call == "pread64" else ("EIO", "ENOSPC")
    return Injection(call, random.choice(errors), random.randint(1, most), random.random() < 0.5)


def read_strikes(trace: Path) -> list[Strike]:
    """Return every call that strace made to fail."""
    strikes: list[Strike] = []
    begun: dict[str, Strike] = {}
    for line in trace.read_text(errors="replace").splitlines():
        if (call := _CALL.match(line)) is not None:
            name = call["file"] or call["path"] or ""
            strike = Strike(float(call["time_s"]), call["call"], name)
            if call["end"] == "(INJECTED)":
                strikes.append(strike)
            else:
                # Another thread's call is written before its end.
                begun[call["thread"]] = strike
        elif (resumed := _RESUMED.match(line)) is not None:
            ended = begun.pop(resumed["thread"], None)
            # It may be the end of a call that is not looked at: `io_setup`, which always fails.
            is_same = ended is not None and ended.call == resumed["call"]
            if ended is not None and is_same and resumed["result"].endswith("(INJECTED)"):
                # It has failed when it ends.
                strikes.append(ended._replace(time_s=float(resumed["time_s"])))
    return strikes


class Script:
    """What one client does while calls fail, and what it was told."""

    def __init__(self, report: Report, random: Random) -> None:
        self._report = report
        self._random = random
        self._client: AsyncClient
        self.sends: list[Send] = []
        self.polls: list[Event] = []
        self.answered: list[tuple[float, int, int]] = []
        """When a produce was sent that was acknowledged, and where its record is."""
        self.failed_reads = 0

    async def use(self, gateway: GatewayProcess, *, is_healthy: bool) -> None:
        """Connect and do one of the two parts."""
        async with AsyncClient([(gateway.host, gateway.port)], retry_s=0) as client:
            self._client = client
            await (self.prepare() if is_healthy else self.run())

    async def prepare(self) -> None:
        """Create the topic and produce a little, while nothing fails."""
        await AdminClient(self._client).create_topic(TOPIC, partitions=PARTITIONS)
        for _ in range(PARTITIONS * 3):
            await self._produce()

    async def run(self) -> None:
        """Produce, read back, create and delete topics."""
        admin = AdminClient(self._client)
        for number in range(STEPS):
            await self._produce()
            if number % 3 == 0:
                await self._read_one()
            if number % 15 == 0:
                with suppress(ClientError):
                    await self._answer(admin.create_topic(f"other-{number}", partitions=1))
                    await self._answer(admin.delete_topic(f"other-{number}"))
                with suppress(ClientError):
                    await self._answer(self._client.init_producer_id())

    async def _answer(self, question: Awaitable[_Result]) -> _Result:
        """Wait for an answer: an error is one, silence is not."""
        return await asyncio.wait_for(question, patience.seconds(ANSWER_S))

    async def _produce(self) -> None:
        partition = self._random.randrange(PARTITIONS)
        size_bytes = self._random.choice((100, 100, 3_000, 70_000))
        value = b"%d-" % len(self.sends) + self._random.randbytes(size_bytes)
        batch = bytes(make_batch([value]).buffer)
        began_s = time.time()
        offset, outcome = None, Outcome.INFO
        try:
            produced = await self._answer(
                self._client.produce(TOPIC, partition, batch, retry=False)
            )
            offset, outcome = produced.base_offset, Outcome.OK
            self.answered.append((began_s, partition, offset))
            self._report.count("acknowledged")
        except ClientError:
            self._report.count("refused")
        self.sends.append(Send("client", partition, value, outcome, offset))

    async def _read_one(self) -> None:
        if not self.answered:
            return
        _, partition, offset = self._random.choice(self.answered)
        self._report.count("reads")
        try:
            fetched = await self._answer(
                self._client.fetch(TOPIC, {partition: offset}, partition_max_bytes=1)
            )
        except ClientError:
            self.failed_reads += 1
            return
        records = [
            (record.offset, record.value)
            for one in fetched
            for record in read_stored([one.records])
        ]
        if [offset] != [at for at, _ in records]:
            self.failed_reads += 1
        self.polls.append(Poll(f"reader-{len(self.polls)}", partition, tuple(records)))


async def _read_all(gateway: GatewayProcess) -> dict[int, FinalLog]:
    """Read every partition of the topic from its start."""
    final: dict[int, FinalLog] = {}
    async with AsyncClient([(gateway.host, gateway.port)]) as client:
        ends = await client.list_offsets(TOPIC, dict.fromkeys(range(PARTITIONS), -1))
        for partition, found in ends.items():
            records: list[tuple[int, bytes]] = []
            while len(records) < found.offset:
                fetched = await client.fetch(TOPIC, {partition: len(records)})
                more = [(r.offset, r.value) for one in fetched for r in read_stored([one.records])]
                if not more:
                    break
                records += more
            final[partition] = FinalLog(0, found.offset, records)
    return final


def run_one(
    report: Report, seed: int, injection: Injection, serve: Sequence[str] = SERVE
) -> list[Strike]:
    """Run the script with one call failing, kill the process, and look at what it has left."""
    place = f"seed {seed} {injection}"
    script = Script(report, Random(seed))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        trace = directory / "trace"
        healthy = GatewayProcess(directory / "data", *SETTINGS)
        healthy.start()
        asyncio.run(script.use(healthy, is_healthy=True))
        healthy.kill()
        gateway = GatewayProcess(
            directory / "data", *SETTINGS, command=injection.command(serve, trace)
        )
        try:
            gateway.start()
            asyncio.run(script.use(gateway, is_healthy=False))
            if gateway.ended:
                report.fail(f"{place}: the process ended: {gateway.log()[-2_000:]}")
        except RuntimeError:
            report.count("starts_refused")
        except (ClientError, TimeoutError) as error:
            report.fail(f"{place}: {error!r}: {gateway.log()[-2_000:]}")
        finally:
            if gateway.running:
                gateway.kill()
        strikes = read_strikes(trace)
        if "Traceback" in gateway.log():
            report.fail(f"{place}: a crash: {gateway.log()[-2_000:]}")
        judge(report, place, script, strikes, injection)
        try:
            with healthy:
                final = asyncio.run(_read_all(healthy))
        except (RuntimeError, ClientError) as error:
            report.fail(f"{place}: no start after it: {error}"[:2_000])
            return strikes
        for anomaly in check_history([*script.sends, *script.polls], final, keeps_all=True):
            report.fail(f"{place}: {anomaly.kind.value}: {anomaly.detail[:300]}")
    return strikes


def judge(
    report: Report, place: str, script: Script, strikes: list[Strike], injection: Injection
) -> None:
    """Compare what was answered with the times at which calls failed."""
    failed_s = [strike.time_s for strike in strikes if strike.is_sync_of_records]
    if failed_s:
        report.count("runs_with_a_failed_sync")
        late = [one for one in script.answered if one[0] > failed_s[0]]
        if late:
            report.fail(f"{place}: {len(late)} acknowledged after a failed sync")
    if script.failed_reads and injection.call != "pread64":
        report.fail(f"{place}: {script.failed_reads} reads failed")


def run_many(report: Report, seed: int, wanted: int) -> None:
    """Run until so many injections have struck."""
    random = Random(seed)
    for number in range(2 * wanted):
        if report.counts["struck"] >= wanted:
            return
        injection = choose(random)
        strikes = run_one(report, seed * 1_000 + number, injection)
        report.count("runs")
        if strikes:
            report.count("struck")
            report.count(f"struck_{injection.call}_{injection.error}")
            report.count("failed_calls", len(strikes))


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("failing-calls", seed)
    wanted = 60 if full else 10
    run_many(report, seed, wanted)
    report.require("struck", wanted)
    report.require("runs_with_a_failed_sync", wanted // 10)
    control = Report("control: failed syncs are not noticed", seed)
    run_one(control, seed, Injection("fdatasync", "EIO", 20, persistent=True), HOPEFUL_SERVE)
    report.expect_alarm(control, "acknowledged after")
    return report


if __name__ == "__main__":
    main(run)
