"""Builds the project's Dockerfile with buildah: no daemon, no registry, no engine.

What comes out is a folder with the root file system and the configuration, as a runtime wants them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.image.rules import ImageConfig, parse_config

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".cache" / "image"
LOOK_ALIKE = "localhost/kgw-python:3.11-bookworm"
IMAGE = "localhost/kgw:built"
SUITE = "bookworm"
# What the Dockerfile asks of the official image of Python. debootstrap does not know by itself who
# provides python3.11-distutils.
PACKAGES = "python3.11,python3.11-venv,python3-distutils,ca-certificates"
NEEDED = {
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "runc": "runc",
    "mkfs.ext4": "e2fsprogs",
    "unshare": "util-linux",
    "ip": "iproute2",
}
"""Programs, and Debian's packages that have them."""
INPUTS = (
    *("Dockerfile", ".dockerignore", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"),
    *("requirements/run.txt", "requirements/image.txt", "requirements/kgw.cdx.json"),
    *("docs/reference/kgw.1", "scripts/image_root.py", "kgw"),
)
# What pip has to be told to reach its index from here.
PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "timeout", "proxy")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
CERTIFICATES_INSIDE = "/run/certificates-of-the-builder.crt"


class BuildError(Exception):
    """Why there is no image, in a line."""


class Image(NamedTuple):
    """A built image, unpacked."""

    root: Path
    config: ImageConfig


def missing_packages() -> list[str]:
    """Return Debian's packages that are needed and not there."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return sorted({pack for name, pack in NEEDED.items() if shutil.which(name, path=path) is None})


def install() -> None:
    """Install what is missing with apt. Raises BuildError."""
    missing = missing_packages()
    if missing:
        _run("apt-get", "update", "--quiet=2")
        _run(
            *("apt-get", "install", "--yes", "--quiet=2", "--no-install-recommends"),
            *missing,
            DEBIAN_FRONTEND="noninteractive",
        )


def check_tools() -> None:
    """Raise BuildError where this machine cannot build and run images."""
    if os.geteuid() != 0:
        raise BuildError("only root can build and run the image here")
    missing = missing_packages()
    if missing:
        raise BuildError(
            f"packages are missing: {' '.join(missing)}; `scripts/image --install` fetches them"
        )


def inputs_stamp(extra: str) -> str:
    """Return what changes when anything does that the image is made of."""
    digest = hashlib.sha256(extra.encode())
    for name in INPUTS:
        top = ROOT / name
        for path in sorted(top.rglob("*.py*")) if top.is_dir() else [top]:
            if path.suffix in {".pyc", ".pyi"} or "_pb2" in path.name:
                continue
            digest.update(f"{path.relative_to(ROOT)}\0".encode())
            digest.update(path.read_bytes())
    for path in sorted((ROOT / "kgw").rglob("*.proto")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def commit() -> str:
    """Return the commit that is built, "" where git does not know."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--match", ""]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def pip_settings(said: str) -> str:
    """Return a pip.conf for the build from what `pip config list` has said."""
    lines = ["[global]", f"cert = {CERTIFICATES_INSIDE}"]
    for line in said.splitlines():
        name, _, value = line.partition("=")
        name = name.rpartition(".")[2]
        if name in PIP_SETTINGS:
            lines.append(f"{name} = {value.strip(chr(39))}")
    return "\n".join(lines) + "\n"


def load() -> Image:
    """Return the image that was built last. Raises BuildError where none was."""
    try:
        document = json.loads((PLACE / "config.json").read_text())
    except OSError:
        raise BuildError("no image is built yet; `scripts/image` builds it") from None
    return Image(PLACE / "root", parse_config(document))


def build(base: str | None = None) -> Image:
    """Build the image and unpack it, unless that was done of the same files.

    `base` is another base image than the Dockerfile's; a look-alike of that one is made without
    it. Raises BuildError.
    """
    check_tools()
    PLACE.mkdir(parents=True, exist_ok=True)
    stamp_path = PLACE / "stamp"
    stamp = inputs_stamp(base or "")
    if stamp_path.exists() and stamp == stamp_path.read_text():
        return load()
    stamp_path.unlink(missing_ok=True)
    if base is None:
        base = LOOK_ALIKE
        _make_look_alike()
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    (PLACE / "pip.conf").write_text(pip_settings(said.stdout))
    volumes = ["--volume", f"{PLACE / 'pip.conf'}:/etc/pip.conf:ro"]
    if CERTIFICATES.exists():
        volumes += ["--volume", f"{CERTIFICATES}:{CERTIFICATES_INSIDE}:ro"]
    _buildah(
        *("build", "--isolation", "chroot", "--network", "host", "--pull-never"),
        # An OCI image has no place for a health check.
        *("--format", "docker"),
        *("--build-arg", f"PYTHON_IMAGE={base}", "--build-arg", f"KGW_COMMIT={commit()}"),
        # So that a change of kgw alone does not install everything anew.
        *(["--layers"] if _has_overlay() else []),
        *volumes,
        *("--tag", IMAGE, str(ROOT)),
    )
    _unpack()
    stamp_path.write_text(stamp)
    return load()


def _make_look_alike() -> None:
    """Make an image that has what the Dockerfile asks of the official one of Python."""
    if _buildah("images", "--quiet", "--filter", f"reference={LOOK_ALIKE}"):
        return
    folder = PLACE / "base"
    shutil.rmtree(folder, ignore_errors=True)
    _run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(folder))
    (folder / "usr" / "bin" / "python").symlink_to("python3.11")
    container = _buildah("from", "scratch")
    _buildah("add", "--quiet", container, str(folder), "/")
    _buildah("commit", "--quiet", "--rm", container, LOOK_ALIKE)
    shutil.rmtree(folder)


def _unpack() -> None:
    """Leave the image's root and its configuration in folders of their own."""
    root = PLACE / "root"
    shutil.rmtree(root, ignore_errors=True)
    container = _buildah("from", "--pull-never", IMAGE)
    try:
        mounted = _buildah("mount", container)
        _run("cp", "--archive", mounted, str(root))
        _buildah("umount", container)
    finally:
        _buildah("rm", container)
    found = json.loads(_buildah("inspect", "--type", "image", IMAGE))
    (PLACE / "config.json").write_text(json.dumps(found["Docker"]["config"], indent=1))


def _has_overlay() -> bool:
    """Whether layers can be laid over each other here; else each one is a whole copy."""
    found = subprocess.run(
        ["stat", "--file-system", "--format=%T", str(PLACE)],
        capture_output=True,
        text=True,
        check=False,
    )
    kinds = Path("/proc/filesystems").read_text().split()
    return "overlay" in kinds and found.stdout.strip() not in {"overlayfs", "tmpfs"}


def _buildah(*arguments: str) -> str:
    driver = "overlay" if _has_overlay() else "vfs"
    where = ("--root", str(PLACE / driver), "--runroot", str(PLACE / f"{driver}-run"))
    return _run("buildah", *where, "--storage-driver", driver, *arguments)


def _run(*command: str, **environment: str) -> str:
    """Run a program and return what it says; everything else goes to the log beside the image."""
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / "build.log").open("a+") as log:
        print("$", *command, file=log, flush=True)
        start = log.tell()
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environment},
            check=False,
        )
        log.write(done.stdout)
        if done.returncode:
            log.seek(start)
            last = "".join(log.readlines()[-12:])
            raise BuildError(f"{' '.join(command[:2])} failed; {PLACE / 'build.log'} ends:\n{last}")
    return done.stdout.strip()
