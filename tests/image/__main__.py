"""`scripts/image`: builds the container image, and proves it. See docs/containers.md.

The proof runs in namespaces of its own, so that whatever ends it takes its mounts and processes
along; the control groups are removed here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from secrets import token_hex
from statistics import median
from typing import TYPE_CHECKING

from tests.campaigns.support import Report
from tests.hostile.drains import DRAIN_S, stop_under_load
from tests.image import building, smoke, states
from tests.image.container import PROOF, GatewayContainer, remove_left_over

if TYPE_CHECKING:
    from collections.abc import Callable

STOPS = 50
STARTS = 11
LOOKS = 20
SUMMARY = building.PLACE / "check.json"
IGNORES_SIGTERM = (
    *("python", "-c"),
    "print('ready listeners=x:1', flush=True); import time; time.sleep(60)",
)


class ForgetfulContainer(GatewayContainer):
    """A control: it starts with an empty volume each time."""

    def begin_to_start(self) -> None:
        """Put the volume aside, and start with a new one."""
        if self.data_dir.exists():
            self.data_dir.rename(self.data_dir.with_name(f"aside-{time.monotonic_ns()}"))
        super().begin_to_start()


def run_drains(seed: int) -> Report:
    """K2."""
    report = Report("K2 drain", seed)
    with smoke.own_folder() as folder:
        container = GatewayContainer(folder / "data", as_shipped=True)
        try:
            drains = asyncio.run(stop_under_load(container, STOPS))
            report.count("stops", STOPS)
            report.count("acknowledged", drains.acknowledged)
            report.count("longest_stop_ms", round(drains.longest_s * 1000))
            if drains.longest_s > DRAIN_S:
                report.fail(f"a stop took {drains.longest_s:.1f} s")
        except AssertionError as error:
            report.fail(str(error))
        finally:
            if container.running:
                container.kill()
        control = Report("control", seed)
        forgetful = ForgetfulContainer(folder / "forgetful", as_shipped=True)
        try:
            asyncio.run(stop_under_load(forgetful, 2))
        except AssertionError:
            control.fail("LOST")
        finally:
            if forgetful.running:
                forgetful.kill()
        report.expect_alarm(control, "LOST")
        deaf = GatewayContainer(folder / "deaf", program=IGNORES_SIGTERM).start()
        try:
            deaf.stop(timeout_s=2)
        except subprocess.TimeoutExpired:
            control.fail("it does not stop")
        report.expect_alarm(control, "it does not stop")
    return report


CAMPAIGNS: dict[str, Callable[[int], Report]] = {
    "K1": smoke.run,
    "K2": run_drains,
    "K3": states.run,
}


def measure() -> dict[str, float]:
    """Return what the image weighs, how soon it serves, and what a look at its health costs."""
    image = building.load()
    files = [path for path in image.root.rglob("*") if not path.is_symlink() and path.is_file()]
    with tempfile.NamedTemporaryFile(suffix=".tar.gz") as file:
        with tarfile.open(file.name, "w:gz", compresslevel=6) as archive:
            archive.add(image.root, "/")
        packed_bytes = Path(file.name).stat().st_size
    figures = {
        "size_megabytes": round(sum(path.stat().st_size for path in files) / 1e6, 1),
        "packed_megabytes": round(packed_bytes / 1e6, 1),
    }
    health = image.config.health
    assert health is not None
    with smoke.own_folder() as folder:
        container = GatewayContainer(folder / "data", as_shipped=True)
        starts = []
        for _ in range(STARTS):
            container.start()
            starts.append((container.start_s, container.usage().cpu_s))
            container.stop()
        figures["start_fastest_ms"] = round(min(starts)[0] * 1000)
        figures["start_median_ms"] = round(median(start_s for start_s, _ in starts) * 1000)
        figures["start_processor_ms"] = round(median(cpu_s for _, cpu_s in starts) * 1000)
        with container:
            figures["resident_megabytes"] = container.usage().anonymous_bytes >> 20
            for name, test in (
                ("probe", health.test),
                ("doctor", states.OLD_CHECK),
                ("empty_program", ("CMD", "python", "-c", "")),
            ):
                # With the runtime's own work, which is the same for all.
                figures[f"{name}_processor_ms"] = round(_look_ms(container, test), 1)
    return figures


def _look_ms(container: GatewayContainer, test: tuple[str, ...]) -> float:
    """Return the processor time of a look at its health, by the one who looks."""
    container.is_healthy(test)
    began = os.times()
    for _ in range(LOOKS):
        container.is_healthy(test)
    ended = os.times()
    used_s = ended.children_user + ended.children_system
    return (used_s - began.children_user - began.children_system) / LOOKS * 1000


def check(names: list[str], seed: int) -> bool:
    """Run campaigns, say what came of them, and write the summary. False where one has failed."""
    building.check_tools()
    building.load()
    # Of a run that was killed.
    remove_left_over()
    began_s = time.monotonic()
    reports = {}
    for name in names:
        print(f"{name} begins", flush=True)
        try:
            reports[name] = CAMPAIGNS[name](seed)
        except Exception as error:  # noqa: BLE001 - the other campaigns have their turn
            reports[name] = Report(name, seed)
            reports[name].fail(f"{type(error).__name__}: {error}")
        print(reports[name], flush=True)
    left = remove_left_over()
    passed = not left and not any(report.failure_count for report in reports.values())
    summary = {
        "passed": passed,
        "seed": seed,
        "seconds": round(time.monotonic() - began_s),
        "left_over": left,
        "campaigns": {
            name: {
                "passed": not report.failure_count,
                "counts": dict(report.counts),
                "failures": report.failures,
            }
            for name, report in reports.items()
        },
    }
    SUMMARY.write_text(json.dumps(summary, indent=1) + "\n")
    print(f"{'passed' if passed else 'FAILED'}: {', '.join(names)}; summary in {SUMMARY}")
    return passed


def in_namespaces() -> None:
    """Go on in namespaces of their own: network, mounts, processes. Returns once there."""
    if os.environ.get(PROOF):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    command = [
        *("unshare", "--net", "--mount", "--propagation", "private"),
        *("--pid", "--fork", "--kill-child", "--mount-proc"),
        *(sys.executable, "-m", "tests.image", *sys.argv[1:]),
    ]
    done = subprocess.run(command, env={**os.environ, PROOF: token_hex(4)}, check=False)
    sys.exit(done.returncode)


def main() -> None:
    """Do what the arguments ask for; without any, build."""
    parser = argparse.ArgumentParser(
        prog="scripts/image",
        description="Builds the container image with buildah, and runs it with runc: no engine.",
    )
    parser.add_argument("--install", action="store_true", help="install what is missing with apt")
    parser.add_argument("--base", help="another base image, which is in buildah's storage already")
    parser.add_argument("--check", action="store_true", help="then prove it: K1, K2 and K3")
    parser.add_argument(
        "--only", choices=sorted(CAMPAIGNS), action="append", help="of --check, only this one"
    )
    parser.add_argument("--measure", action="store_true", help="then print size, start and costs")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        if not os.environ.get(PROOF):
            if arguments.install:
                building.install()
            image = building.build(arguments.base)
            print(f"root file system: {image.root}; configuration: {building.PLACE}/config.json")
        if arguments.check or arguments.only or arguments.measure:
            in_namespaces()
        if arguments.measure:
            print(json.dumps(measure(), indent=1))
            remove_left_over()
        if (arguments.check or arguments.only) and not check(
            arguments.only or sorted(CAMPAIGNS), arguments.seed
        ):
            sys.exit(1)
    except building.BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
