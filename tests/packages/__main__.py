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

from tests.packages import archives, building, checks, extras
from tests.packages.environments import CommandFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

DIST = building.ROOT / "dist"


class Verdicts:
    """Runs checks one after the other, and remembers what came of each."""

    def __init__(self) -> None:
        self._failed: list[str] = []

    def run(self, title: str, check: Callable[[], str]) -> None:
        """Run one, and print a line about it."""
        began_s = time.monotonic()
        try:
            said, verdict = check(), "ok"
        except (AssertionError, CommandFailedError, OSError, RuntimeError, ValueError) as error:
            said, verdict = f"{type(error).__name__}: {error}", "FAILED"
            self._failed.append(title)
        print(f"{verdict:<6} {time.monotonic() - began_s:5.0f} s  {title}: {said}", flush=True)

    def finish(self) -> int:
        """Print the verdict and return the exit code."""
        print(f"Failed: {', '.join(self._failed)}" if self._failed else "All of it passed.")
        return 1 if self._failed else 0


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
    parser.add_argument("--extra", action="append", help="only this extra; may be given again")
    arguments = parser.parse_args()
    verdicts = Verdicts()
    if arguments.audit:
        verdicts.run("dependency audit", checks.nothing_is_known_of_dependencies)
        return verdicts.finish()
    with tempfile.TemporaryDirectory(prefix="kgw-package-") as scratch:
        folder = Path(scratch)
        built = fill_dist(building.copy_sources(folder / "sources"))
        for one in sorted(DIST.iterdir()):
            print(f"dist/{one.name}: {one.stat().st_size:,} bytes")
        for extra in arguments.extra or ():
            verdicts.run(f"[{extra}]", partial(extras.extra_runs, extra, built, folder))
        if arguments.extra:
            return verdicts.finish()
        verdicts.run("contents", lambda: checks.archives_hold_what_they_should(built))
        verdicts.run("wheel of the sdist", lambda: checks.sdist_builds_the_wheel(built, folder))
        verdicts.run("reproducible", lambda: checks.builds_are_equal(built, folder))
        verdicts.run("control of it", lambda: checks.a_clock_in_a_build_is_found(built, folder))
        if arguments.quick:
            return verdicts.finish()
        verdicts.run("python -m build", lambda: checks.builds_alone(folder))
        verdicts.run("fresh environment", lambda: checks.starts_without_a_compiler(built, folder))
        verdicts.run("by hashes", lambda: checks.installs_by_hashes(DIST, folder))
        verdicts.run("SBOM", lambda: checks.sbom_is_what_is_installed(folder))
        verdicts.run("typed", lambda: checks.users_programs_are_checked(built, folder))
        verdicts.run("uvx and pipx", lambda: checks.runs_with_uvx_and_pipx(built, folder))
        verdicts.run("shells and man", checks.shells_and_manual)
        for extra in extras.of_users():
            verdicts.run(f"[{extra}]", partial(extras.extra_runs, extra, built, folder))
        verdicts.run("dependency audit", checks.nothing_is_known_of_dependencies)
    return verdicts.finish()


if __name__ == "__main__":
    sys.exit(main())
