"""Builds wheel and sdist into dist/, and checks them as those who install them would.

Run by scripts/package.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.packages import archives, building, checks, extras, local_index
from tests.packages.environments import CommandFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DIST = building.ROOT / "dist"


class Verdicts:
    """Runs checks one after the other, and remembers what came of each."""

    def __init__(self, only: Sequence[str]) -> None:
        """Run all, or only those of these names."""
        self._only = {*only}
        self._ran: list[str] = []
        self._failed: list[str] = []

    def run(self, name: str, check: Callable[[], str]) -> None:
        """Run one, and print a line about it."""
        if self._only and name not in self._only:
            return
        began_s = time.monotonic()
        try:
            said, verdict = check(), "ok"
        except (AssertionError, CommandFailedError, OSError, RuntimeError, ValueError) as error:
            said, verdict = f"{type(error).__name__}: {error}", "FAILED"
            self._failed.append(name)
        self._ran.append(name)
        print(f"{verdict:<6} {time.monotonic() - began_s:5.0f} s  {name}: {said}", flush=True)

    def finish(self) -> int:
        """Print the verdict and return the exit code: 0 where something ran and nothing failed."""
        print(f"{len(self._ran) - len(self._failed)} passed, {len(self._failed)} failed")
        unknown = self._only - {*self._ran}
        if unknown:
            print(f"not run, as there is no such check: {', '.join(sorted(unknown))}")
        return 1 if self._failed or unknown or not self._ran else 0


def fill_dist(sources: Path) -> building.Built:
    """Build into dist/, and put SBOM, requirements and checksums beside."""
    if DIST.exists():
        shutil.rmtree(DIST)
    built = building.built_in(building.build(sources, DIST))
    sbom, lock = building.SBOM.read_text(), building.LOCK.read_text()
    (DIST / "kgw.cdx.json").write_text(sbom)
    pins = checks.requirements_of(built.wheel, lock, json.loads(sbom))
    (DIST / "requirements.txt").write_text(pins)
    sums = "".join(f"{archives.digest(one)}  {one.name}\n" for one in sorted(DIST.iterdir()))
    (DIST / "SHA256SUMS").write_text(sums)
    return built


def main() -> int:
    """Build and check what the arguments say."""
    parser = argparse.ArgumentParser(prog="scripts/package", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without fresh environments")
    parser.add_argument("--audit", action="store_true", help="only ask for vulnerabilities")
    parser.add_argument(
        "--only", action="append", default=[], help="a check by its name; may be given again"
    )
    arguments = parser.parse_args()
    verdicts = Verdicts(arguments.only)
    if not arguments.audit:
        with tempfile.TemporaryDirectory(prefix="kgw-package-") as scratch:
            build_and_check(verdicts, Path(scratch), is_quick=arguments.quick)
    if not arguments.quick:
        verdicts.run("audit", checks.nothing_is_known_of_dependencies)
    return verdicts.finish()


def build_and_check(verdicts: Verdicts, folder: Path, *, is_quick: bool) -> None:
    """Fill dist/, and look at it in every way."""
    built = fill_dist(building.copy_sources(folder / "sources"))
    for one in sorted(DIST.iterdir()):
        print(f"dist/{one.name}: {one.stat().st_size:,} bytes")
    verdicts.run("contents", lambda: checks.archives_hold_what_they_should(built))
    verdicts.run("sdist", lambda: checks.sdist_builds_the_wheel(built, folder))
    verdicts.run("reproducible", lambda: checks.builds_are_equal(built, folder))
    verdicts.run("control", lambda: checks.a_clock_in_a_build_is_found(built, folder))
    if is_quick:
        return
    verdicts.run("build", lambda: checks.builds_alone(folder))
    verdicts.run("fresh", lambda: checks.starts_without_a_compiler(built, folder))
    verdicts.run("index", lambda: local_index.installs_from_an_index(built, folder))
    verdicts.run("hashes", lambda: checks.installs_by_hashes(DIST, folder))
    verdicts.run("sbom", lambda: checks.sbom_is_what_is_installed(folder))
    verdicts.run("typed", lambda: checks.users_programs_are_checked(built, folder))
    verdicts.run("uvx-pipx", lambda: checks.runs_with_uvx_and_pipx(built, folder))
    verdicts.run("shells", checks.shells_and_manual)
    for extra in extras.of_users():
        verdicts.run(extra, partial(extras.extra_runs, extra, built, folder))


if __name__ == "__main__":
    sys.exit(main())
