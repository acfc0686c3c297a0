"""What the build is told, and what the root of the image is made of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.image_root import Root, libraries_of, package_of
from tests.image.building import CERTIFICATES_INSIDE, ROOT, pip_settings

LDD = """\tlinux-vdso.so.1 (0x00007ffd)
\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f1)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f2)
"""


def test_what_pip_is_told() -> None:
    """How to reach the index, and nothing else of what pip knows here."""
    said = "global.index-url='https://pypi.org/simple'\n:env:.timeout='180'\nglobal.user='true'\n"
    lines = pip_settings(said).splitlines()
    expected = [f"cert = {CERTIFICATES_INSIDE}", "index-url = https://pypi.org/simple"]
    assert ["[global]", *expected, "timeout = 180"] == lines


def test_libraries() -> None:
    """Paths of what a program loads; what the kernel has itself is no file."""
    expected = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/ld-linux-x86-64.so.2"]
    assert expected == libraries_of(LDD)
    assert [] == libraries_of("\tstatically linked\n")


def test_a_library_that_is_missing() -> None:
    """It is named: the image would not start."""
    with pytest.raises(RuntimeError, match=r"a library is missing: libx\.so => not found"):
        libraries_of("\tlibx.so => not found\n")


def test_packages() -> None:
    """The package that has a file, also one of several architectures; none for other files."""
    assert "libc6" == package_of("libc6:amd64: /lib/x86_64-linux-gnu/libm.so.6\n")
    said = "diversion by dash from: /bin/sh\ndash: /bin/sh\n"
    assert "dash" == package_of(said)
    assert "" == package_of("")


def test_links_are_followed(tmp_path: Path) -> None:
    """A link is copied with what it leads to, as the loader looks for it by the link's name."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "libx.so.1.2").write_bytes(b"x")
    (source / "libx.so.1").symlink_to("libx.so.1.2")
    root = Root(tmp_path / "target")
    root.add_file(source / "libx.so.1")
    root.add_file(source / "libx.so.1")
    copied = root.place_of(source / "libx.so.1")
    assert Path("libx.so.1.2") == copied.readlink()
    assert b"x" == copied.read_bytes()


@pytest.mark.full
@pytest.mark.timeout(120)
def test_a_root_starts(tmp_path: Path) -> None:
    """The root that is made of this interpreter and a bare environment runs Python, and no shell.

    It needs the right to change the root, and Debian's tools.
    """
    environment, target = tmp_path / "environment", tmp_path / "target"
    python = Path(sys.executable).resolve()
    make = [str(python), "-m", "venv", "--without-pip", str(environment)]
    subprocess.run(make, check=True)
    script = str(ROOT / "scripts" / "image_root.py")
    subprocess.run([str(python), script, str(environment), str(target)], check=True)
    program = ["chroot", str(target), str(environment / "bin" / "python"), "-c"]
    text = "import ctypes, hashlib, sqlite3, ssl, sys; print(ssl.__cached__[0])"
    done = subprocess.run([*program, text], capture_output=True, text=True, check=False)
    assert (0, "/\n") == (done.returncode, done.stdout)
    assert not (target / "bin" / "sh").exists()
