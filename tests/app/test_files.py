"""Campaign A12: what kgw writes is for its owner alone, and it writes through no link.

Processes with several umasks leave data directories, users, backups and copies. The control of the
modes is a file that is open to a group; of the links, a program that follows them.
"""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from kgw.testing.process import SERVE, GatewayProcess
from tests import patience
from tests.cli.conftest import Commands

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

WITH_UMASK = ("sh", "-c", 'umask "$0"; exec "$@"')


def too_open(root: Path) -> list[str]:
    """Return what others than the owner can use, with its mode."""
    found = []
    for path in (root, *root.rglob("*")):
        try:
            mode = stat.S_IMODE(path.lstat().st_mode)
        except FileNotFoundError:
            # A server that runs has removed it meanwhile.
            continue
        allowed = 0o700 if path.is_dir() and not path.is_symlink() else 0o600
        if not path.is_symlink() and mode & ~allowed:
            found.append(f"{path.relative_to(root.parent)} {mode:04o}")
    return sorted(found)


def kgw(umask: str, *arguments: str) -> None:
    """Run a command in a process with a umask."""
    command = [*WITH_UMASK, umask, sys.executable, "-m", "kgw", *arguments]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=patience.seconds(30), check=False
    )
    assert (0, "") == (ended.returncode, ended.stderr if ended.returncode else "")


def work(gateway: GatewayProcess) -> None:
    """Leave records, offsets, settings, and segments that are rolled."""
    commands = Commands(gateway.bootstrap)
    for topic in ("orders", "small"):
        commands.succeed("topics", "create", topic, "--partitions", "2")
    commands.succeed("topics", "alter", "small", "--set", "segment.bytes=1048576")
    commands.succeed("produce", "orders", data="one\ntwo\nthree\n")
    for _ in range(3):
        commands.succeed("produce", "small", data="\n".join("x" * 50_000 for _ in range(20)))
    undo = gateway.data_dir.with_name("undo.json")
    committed = ("--topic", "orders", "--to-earliest", "--execute", "--undo-file", str(undo))
    commands.succeed("groups", "reset-offsets", "g", *committed)


@pytest.mark.campaign
@pytest.mark.parametrize("umask", ["000", "022"])
def test_modes(tmp_path: Path, umask: str) -> None:
    """A first user, a server that is killed and stopped, its backups and its copies."""
    data, backups, restored = tmp_path / "data", tmp_path / "backups", tmp_path / "restored"
    password = tmp_path / "password"
    password.write_text("a password\n")
    password.chmod(0o600)
    first = ("--mechanism", "SCRAM-SHA-256", "--password-file", str(password))
    kgw(umask, "users", "add", "alice", *first, "--data-dir", str(data))
    gateway = GatewayProcess(data, command=[*WITH_UMASK, umask, *SERVE])
    with gateway:
        work(gateway)
        kgw(umask, "backup", "create", str(data), "--to", str(backups))
        assert [] == too_open(data)
        gateway.kill()
        gateway.start()
        assert [] == too_open(data)
        work_again = Commands(gateway.bootstrap)
        assert "orders" in work_again.succeed("topics", "list")
        assert 0 == gateway.stop()
    kgw(umask, "log", "check", str(data))
    kgw(umask, "restore", str(backups), "--to", str(restored))
    assert [] == too_open(data)
    assert [] == too_open(backups)
    assert [] == too_open(restored)


def test_control_a_mode_that_is_too_open(tmp_path: Path) -> None:
    """Each bit for a group or for others is found, of files and of directories."""
    root = tmp_path / "data"
    root.mkdir(0o700)
    file, folder = root / "file", root / "folder"
    file.touch(0o600)
    folder.mkdir(0o700)
    assert [] == too_open(root)
    for path, allowed in ((file, 0o600), (folder, 0o700), (root, 0o700)):
        for bit in (0o040, 0o020, 0o010, 0o004, 0o002, 0o001):
            path.chmod(allowed | bit)
            assert [f"{path.relative_to(root.parent)} {allowed | bit:04o}"] == too_open(root)
        path.chmod(allowed)
    file.chmod(0o700)
    assert ["data/file 0700"] == too_open(root)


# --- links ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that a killed server has left, so that a start has to write."""
    data = tmp_path_factory.mktemp("links") / "data"
    with GatewayProcess(data) as gateway:
        work(gateway)
        gateway.kill()
    return data


def kinds(data: Path) -> list[Path]:
    """Return a file or directory of each kind, relative to the data directory."""
    found: dict[tuple[int, str], Path] = {}
    for path in sorted(data.rglob("*")):
        if path.is_socket():
            continue
        one = path.relative_to(data)
        kind = path.suffix or path.name if path.is_file() else "directory"
        found.setdefault((len(one.parts), kind), one)
    return [*found.values()]


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the bytes of everything in a folder."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in root.rglob("*")
    }


def sockets(folder: str, names: list[str]) -> list[str]:
    """Return the sockets of a folder: the killed server has left one, which cannot be copied."""
    return [name for name in names if Path(folder, name).is_socket()]


def start_over_a_link(stopped: Path, folder: Path, one: Path) -> tuple[bool, bool]:
    """Put a link in place of a file or a directory, to what it was, and start a server over it.

    Return whether it has served, and whether what the link leads to was changed.
    """
    data, outside = folder / "data", folder / "outside"
    shutil.copytree(stopped, data, symlinks=True, ignore=sockets)
    outside.mkdir()
    target = outside / "target"
    (data / one).rename(target)
    (data / one).symlink_to(target)
    before = contents(outside)
    gateway = GatewayProcess(data)
    serves = False
    with suppress(RuntimeError):
        gateway.start(patience.seconds(20))
        serves = True
        commands = Commands(gateway.bootstrap)
        commands.run("produce", "orders", data="more\n")
        commands.run("topics", "create", "new")
        gateway.stop()
    assert "Traceback" not in gateway.log()
    assert "bug of kgw" not in gateway.log()
    return serves, before != contents(outside)


@pytest.mark.campaign
@pytest.mark.damages_storage("links are put in the place of files")
def test_no_link_is_followed(stopped: Path, tmp_path: Path) -> None:
    """A link in the data directory is refused, or replaced; what it leads to stays as it is."""
    changed = {}
    for number, one in enumerate(kinds(stopped)):
        folder = tmp_path / str(number)
        folder.mkdir()
        serves, is_changed = start_over_a_link(stopped, folder, one)
        print(f"{one}: serves={serves} changed={is_changed}")
        if is_changed:
            changed[str(one)] = serves
    assert {} == changed


def test_control_a_program_that_follows_links(tmp_path: Path) -> None:
    """What it writes is seen at the other end of the link."""
    outside, link = tmp_path / "outside", tmp_path / "link"
    outside.mkdir()
    (outside / "target").write_text("before")
    link.symlink_to(outside / "target")
    before = contents(outside)
    link.write_text("after")
    assert before != contents(outside)
    (outside / "target").write_text("before")
    assert before == contents(outside)
    link.chmod(0o640)
    assert before != contents(outside)
