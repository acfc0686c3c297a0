"""The machine under a measurement: what it is, and who else used it meanwhile."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from pathlib import Path
from typing import NamedTuple

# More than this share of the cores' time taken by the hypervisor, and a measurement is dropped.
STOLEN_SHARE_LIMIT = 0.01


class CpuTimes(NamedTuple):
    """Seconds since boot, over all cores, as the kernel counts them."""

    busy_s: float
    stolen_s: float


def parse_cpu_times(stat: str, ticks_per_s: int) -> CpuTimes:
    """The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal, ..."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.split()[1:9])
    busy = user + nice + system + irq + softirq
    return CpuTimes(busy / ticks_per_s, steal / ticks_per_s)


class Moment(NamedTuple):
    """The counters at one point in time; two of them make a `Meanwhile`."""

    clock_s: float
    cores: CpuTimes
    client_cpu_s: float
    server_cpu_s: float

    @classmethod
    def now(cls, server_cpu_s: float) -> Moment:
        """`server_cpu_s` is what the server under test has used so far."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(
            clock_s=time.monotonic(),
            cores=parse_cpu_times(
                Path("/proc/stat").read_text().splitlines()[0], os.sysconf("SC_CLK_TCK")
            ),
            client_cpu_s=own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime,
            server_cpu_s=server_cpu_s,
        )


class Meanwhile(NamedTuple):
    """What happened on the machine between two moments."""

    elapsed_s: float
    server_cpu_s: float
    client_cpu_s: float
    stolen_share: float
    cores_busy_elsewhere: float

    @classmethod
    def between(cls, before: Moment, after: Moment, cores: int) -> Meanwhile:
        """Load generators must have ended by `after`: their time is counted when they have."""
        elapsed_s = max(1e-9, after.clock_s - before.clock_s)
        server_cpu_s = after.server_cpu_s - before.server_cpu_s
        client_cpu_s = after.client_cpu_s - before.client_cpu_s
        busy_s = after.cores.busy_s - before.cores.busy_s
        stolen_s = after.cores.stolen_s - before.cores.stolen_s
        return cls(
            elapsed_s=elapsed_s,
            server_cpu_s=server_cpu_s,
            client_cpu_s=client_cpu_s,
            stolen_share=stolen_s / (elapsed_s * cores),
            cores_busy_elsewhere=max(0.0, busy_s - server_cpu_s - client_cpu_s) / elapsed_s,
        )


def describe(directory: Path) -> dict[str, str | float]:
    """The machine in a few words, with the speed of the disk under `directory` just now."""
    cpu_lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in cpu_lines if line.startswith("model name")]
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cores": os.cpu_count() or 0,
        "processor": models[0] if models else platform.machine(),
        "memory_gb": round(memory_kib * 1024 / 1e9, 1),
        "kernel": platform.release(),
        "file_system": _file_system(directory),
        "read_ahead_kb": _read_ahead_kb(directory),
        # With its build: two of one version can lie a tenth of the processor time apart.
        "python": " ".join(sys.version.split()),
        "disk_syncs_per_s": round(_syncs_per_s(directory, 100, 500)),
        "disk_mb_per_s": round(_syncs_per_s(directory, 1 << 20, 128) * (1 << 20) / 1e6),
    }


def _file_system(directory: Path) -> str:
    """The type of the mount that holds the directory."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    real = directory.resolve()
    holding = [(point, kind) for point, kind in mounts if real.is_relative_to(point)]
    return max(holding, key=lambda mount: len(mount[0]))[1] if holding else "unknown"


def _read_ahead_kb(directory: Path) -> int:
    """How much the kernel reads ahead from the device that holds the directory; 0 if unknown."""
    device = directory.stat().st_dev
    queue = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/bdi/read_ahead_kb")
    return int(queue.read_text()) if queue.exists() else 0


def _syncs_per_s(directory: Path, size_bytes: int, rounds: int) -> float:
    """Pieces appended to one file, each with an fdatasync of its own."""
    piece = os.urandom(size_bytes)
    path = directory / "disk-speed"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        began = time.perf_counter()
        for _ in range(rounds):
            os.write(descriptor, piece)
            os.fdatasync(descriptor)
        return rounds / (time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink()
