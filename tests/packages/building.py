"""Building wheel and sdist: from copies of the sources, as builds write beside what they read."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
SBOM = ROOT / "requirements" / "kgw.cdx.json"
LOCK = ROOT / "requirements" / "run.txt"
TOOLS = ROOT / ".cache" / "package" / "bin"
"""Of requirements/package.txt; scripts/package installs them."""


class Built(NamedTuple):
    """What a build made."""

    wheel: Path
    sdist: Path


def hooks() -> Any:
    """Return hatch_build.py as a module."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commit_time() -> str:
    """Return when the last commit was made, as SOURCE_DATE_EPOCH."""
    return _git("log", "-1", "--format=%ct").strip()


def copy_sources(to: Path) -> Path:
    """Copy what git knows or would take, and return where."""
    for name in _git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and (ROOT / name).is_file():
            target = to / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    return to


def build(
    sources: Path,
    to: Path,
    *,
    kinds: Sequence[str] = ("sdist", "wheel"),
    before: Sequence[str] = (),
    **environment: str,
) -> Path:
    """Build with the hatchling that is installed here, and return the folder.

    The copy of the sources has no git: it is told which commit it is of. RuntimeError with what the
    build said.
    """
    targets = [argument for kind in kinds for argument in ("-t", kind)]
    done = subprocess.run(
        [*before, sys.executable, "-m", "hatchling", "build", "-d", str(to), *targets],
        check=False,
        cwd=sources,
        env=environment_of_a_build(environment),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the build failed: {done.stdout}{done.stderr}")
    return to


def environment_of_a_build(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that a build of this checkout's copy needs."""
    told = {"SOURCE_DATE_EPOCH": commit_time(), "KGW_COMMIT": hooks().commit(str(ROOT))}
    return {**os.environ, **told, **more}


def built_in(folder: Path) -> Built:
    """Return the only wheel and the only sdist of a folder. ValueError where there are others."""
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return Built(wheel, sdist)


def unpack(sdist: Path, to: Path) -> Path:
    """Unpack an sdist and return the folder that it makes."""
    with tarfile.open(sdist) as archive:
        archive.extractall(to, filter="data")
    (folder,) = to.iterdir()
    return folder


def _git(*arguments: str) -> str:
    return subprocess.check_output(["git", "-C", str(ROOT), *arguments], text=True)
