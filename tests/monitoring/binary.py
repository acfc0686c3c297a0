"""The programs `prometheus` and `promtool`: the system's, else those of Debian's package.

The package is unpacked into .cache/prometheus and not installed; apt checks what it downloads.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

CACHE = Path(__file__).parents[2] / ".cache" / "prometheus"
_DOWNLOAD = ("apt-get", "download", "-qq", "prometheus")


class NoPrometheusError(Exception):
    """Prometheus is not there; the message says how to get it."""


def program(name: str) -> Path:
    """Return `prometheus` or `promtool`. Raises NoPrometheusError."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    path = CACHE / "usr" / "bin" / name
    if not path.exists():
        raise NoPrometheusError(
            f"there is no {name}: `scripts/monitoring install` fetches Debian's package; "
            "elsewhere, have it on PATH"
        )
    return path


def fetch() -> None:
    """Fetch the programs unless they are there. Raises NoPrometheusError."""
    try:
        program("prometheus")
        program("promtool")
    except NoPrometheusError:
        _fetch()


def _fetch() -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise NoPrometheusError(
                f"there is neither Prometheus on PATH nor {tool} to fetch Debian's package with: "
                "install Prometheus"
            )
    CACHE.parent.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=CACHE.parent) as name:
        directory = Path(name)
        # For apt's own user, which downloads where it may.
        directory.chmod(0o755)
        failure = _run(_DOWNLOAD, directory)
        if failure:
            # A new machine has no list of packages yet.
            failure = _run(("apt-get", "update", "-qq"), directory) or _run(_DOWNLOAD, directory)
        packages = list(directory.glob("prometheus_*.deb"))
        if failure or not packages:
            raise NoPrometheusError(f"Debian's package cannot be fetched: {failure or 'no file'}")
        unpacked = directory / "unpacked"
        failure = _run(("dpkg-deb", "--extract", str(packages[0]), str(unpacked)), directory)
        if failure:
            raise NoPrometheusError(f"{packages[0].name} cannot be unpacked: {failure}")
        try:
            unpacked.rename(CACHE)
        except OSError:
            # Another has been faster.
            program("promtool")


def _run(command: tuple[str, ...], directory: Path) -> str:
    """Run a command; return what it said where it failed, else ""."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return said[-1] if done.returncode else ""


if __name__ == "__main__":
    try:
        fetch()
    except NoPrometheusError as error:
        sys.exit(f"error: {error}")
