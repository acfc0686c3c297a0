"""The twin of `e2e/compose.yaml` without containers: `scripts/system`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from e2e.system import checks
from e2e.system.processes import NotHealthyError, Processes
from e2e.system.prometheus import configuration
from e2e.system.runner import VERDICT, run
from e2e.system.services import EMBEDDED, GATEWAYS, services
from e2e.system.site import LANGUAGES, ROOT, Site
from e2e.system.story import Plan
from tests.monitoring.binary import program
from tests.seaweedfs.binary import weed

if TYPE_CHECKING:
    from types import FrameType

DIRECTORY = ROOT / ".cache" / "system"
LOSING = (sys.executable, "-m", "tests.campaigns.unsafe_serve")


def main() -> int:
    """Start everything, tell the stories, end everything; 0 if all of it is true."""
    parser = argparse.ArgumentParser(prog="scripts/system", description=__doc__)
    parser.add_argument(
        "--control",
        action="store_true",
        help="with a gateway that loses what it has acknowledged: 0 if the verdict says so",
    )
    parser.add_argument(
        "--gateway", choices=GATEWAYS, action="append", help="only this one; may be repeated"
    )
    parser.add_argument(
        "--language", choices=LANGUAGES, action="append", help="only this one; may be repeated"
    )
    parser.add_argument("--no-spark", action="store_true", help="leave Spark out")
    arguments = parser.parse_args()
    # SIGINT, too, as a shell lets programs in the background ignore it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    site = Site.of_machine(
        DIRECTORY,
        weed=weed(),
        prometheus=program("prometheus"),
        kgw=LOSING if arguments.control else (),
    )
    plan = Plan(
        languages=arguments.language or LANGUAGES,
        has_spark=not (arguments.no_spark or arguments.control),
        # The control's story does not come to its end.
        step_s=30.0 if arguments.control else 60.0,
    )
    gateways = [EMBEDDED] if arguments.control else arguments.gateway or GATEWAYS
    for name in ("logs", "results", *("master", "volume", "filer", "archive")):
        (DIRECTORY / name).mkdir(parents=True)
    Path(site.path("prometheus.yaml")).write_text(configuration(site))
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    processes = Processes(DIRECTORY / "logs")
    try:
        say("starting the services (Grafana has no package here: e2e/compose.yaml has it)")
        processes.start(services(site))
        verdict = run(site, DIRECTORY / "results", say, gateways=gateways, plan=plan)
    except (NotHealthyError, OSError) as error:
        print(f"scripts/system: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("scripts/system: interrupted", file=sys.stderr)
        return 130
    finally:
        say("ending the services")
        processes.stop()
    print(verdict.table())
    is_right = verdict.is_good
    if arguments.control:
        is_right = any(one.startswith(checks.LOST) for row in verdict.rows for one in row.problems)
        print(f"The control {'was' if is_right else 'was NOT'} found to lose acknowledged records.")
    print(f"{time.monotonic() - began:.0f} s; the verdict is in {DIRECTORY / 'results' / VERDICT}")
    if not is_right:
        print(f"FAILED; logs are in {DIRECTORY / 'logs'}")
        return 1
    print("passed")
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
