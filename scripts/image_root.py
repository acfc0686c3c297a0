"""Puts together the root of the container image: Python, an environment, and what they load.

The Dockerfile runs it: `python image_root.py ENVIRONMENT TARGET`, as root, on Debian.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

USER_ID = 10001
LEFT_OUT = shutil.ignore_patterns(
    "__pycache__",
    "*.pyc",
    # Of the standard library: its tests, what has a window, what builds and installs.
    "config-*",
    "dist-packages",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtle.py",
    "turtledemo",
    "_ctypes_test*",
    "_test*.so",
    "_tkinter*",
    "xxlimited*",
)
# Of the environment: what a shell would read, sources of C, and zstandard's half for PyPy, 11 MB.
LEFT_OUT_OF_ENVIRONMENT = shutil.ignore_patterns(
    *("__pycache__", "*.pyc", "activate*", "Activate*", "include", "*.pxd", "*.pyx", "*.pyi"),
    "_cffi.cpython*",
)
FILES = ("/etc/os-release", "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/openssl.cnf")
WRITTEN = {
    "etc/passwd": f"root:x:0:0::/:/nologin\nkgw:x:{USER_ID}:{USER_ID}::/var/lib/kgw:/nologin\n",
    "etc/group": f"root:x:0:\nkgw:x:{USER_ID}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_LIBRARY = re.compile(r"(?:=>\s+|^\s*)(/\S+)\s+\(0x", re.MULTILINE)


def libraries_of(said: str) -> list[str]:
    """Return the paths in what `ldd` has said.

    Raises RuntimeError where it names a library that is missing.
    """
    missing = [line.strip() for line in said.splitlines() if line.endswith("not found")]
    if missing:
        raise RuntimeError(f"a library is missing: {'; '.join(missing)}")
    return _LIBRARY.findall(said)


def package_of(said: str) -> str:
    """Return the package in what `dpkg-query --search` has said, "" where it knows none."""
    lines = [line for line in said.splitlines() if not line.startswith("diversion ")]
    return lines[0].split(":", 1)[0].split(",", 1)[0] if lines else ""


class Root:
    """The root that is being made; what is copied has the same path in it as here."""

    def __init__(self, target: Path) -> None:
        """Make it, with the links that a merged /usr has."""
        self.target = target
        (target / "usr").mkdir(parents=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            here = Path("/", name)
            if here.is_symlink():
                (target / name).symlink_to(here.readlink())
                (target / "usr" / name).mkdir()

    def place_of(self, path: Path) -> Path:
        """Where a path of here is in it; its folders are made."""
        place = self.target / path.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def add_file(self, path: Path) -> None:
        """Copy a file; where it is a link, also what it leads to."""
        # By the folder's real name: /lib may be a link itself.
        path = path.parent.resolve() / path.name
        place = self.place_of(path)
        if place.is_symlink() or place.exists():
            return
        if path.is_symlink():
            place.symlink_to(path.readlink())
            self.add_file(path.parent / path.readlink())
        else:
            shutil.copy2(path, place)

    def add_tree(self, path: Path, ignore: Callable[[Any, list[str]], set[str]]) -> None:
        """Copy a folder, without what `ignore` names."""
        shutil.copytree(path, self.place_of(path), symlinks=True, ignore=ignore)

    def programs(self) -> Iterator[Path]:
        """Yield every file in it that a dynamic loader reads."""
        for folder, _, names in os.walk(self.target):
            for name in names:
                path = Path(folder, name)
                if not path.is_symlink():
                    with path.open("rb") as file:
                        if file.read(4) == b"\x7fELF":
                            yield path

    def add_libraries(self) -> list[Path]:
        """Copy what its programs load; return the paths."""
        found: set[str] = set()
        for program in list(self.programs()):
            said = _output("ldd", str(program))
            found.update(libraries_of(said))
        # What a program brings itself is there already.
        outside = sorted(Path(path) for path in found if not path.startswith(f"{self.target}/"))
        for library in outside:
            self.add_file(library)
        return outside

    def add_packages(self, files: Iterable[Path]) -> None:
        """Say which of Debian's packages the files are of, where scanners look, with licences."""
        packages = {
            package_of(_output("dpkg-query", "--search", str(name)))
            for path in files
            for name in (path, path.resolve())
        }
        for package in sorted(packages - {""}):
            status = self.place_of(Path("/var/lib/dpkg/status.d", package))
            status.write_text(_output("dpkg-query", "--status", package))
            licence = Path("/usr/share/doc", package, "copyright")
            if licence.exists():
                shutil.copy2(licence, self.place_of(licence))

    def compile(self, folders: Iterable[Path]) -> None:
        """Compile what is in them: on a read-only root no start could keep what it compiles."""
        for folder in folders:
            if not compileall.compile_dir(
                self.place_of(folder),
                quiet=1,
                workers=0,
                stripdir=str(self.target),
                prependdir="/",
                # Of files that do not change: no start needs to compare them with their sources.
                invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
            ):
                raise RuntimeError(f"something below {folder} could not be compiled")


def _output(*command: str) -> str:
    """Return what a program says; what it complains about is not of interest."""
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout


def main(environment: Path, target: Path) -> None:
    """Make the root of the image in `target`, which must not exist yet."""
    root = Root(target)
    library = Path(sysconfig.get_path("stdlib"))
    root.add_tree(library, LEFT_OUT)
    root.add_tree(environment, LEFT_OUT_OF_ENVIRONMENT)
    interpreter = environment / "bin" / "python"
    while interpreter.is_relative_to(environment):
        interpreter = interpreter.parent / interpreter.readlink()
    root.add_file(interpreter)
    libraries = root.add_libraries()
    root.add_packages([*libraries, interpreter.resolve(), library / "os.py"])
    for path in filter(Path.exists, map(Path, FILES)):
        root.add_file(path)
    for name, text in WRITTEN.items():
        place = root.place_of(Path("/", name))
        place.write_text(text)
    for name, mode in (("dev", 0o755), ("proc", 0o755), ("sys", 0o755), ("tmp", 0o1777)):
        place = root.place_of(Path("/", name))
        place.mkdir(exist_ok=True)
        place.chmod(mode)
    # Where libraries are that the loader would not look for by itself.
    folders = sorted({str(path.parent.resolve()) for path in libraries})
    subprocess.run(["ldconfig", "-r", str(target), *folders], check=True)
    root.compile([library, environment])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
