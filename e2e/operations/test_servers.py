"""Servers that are stopped, killed and come back, copies, and backups, under load."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from e2e.operations.day import SEED, SERVERS, Day, a_row, write
from tests import patience
from tests.campaigns.seaweedmq_site import Site
from tests.campaigns.support import Report
from tests.seaweedfs.binary import weed
from tests.seaweedfs.cluster import Cluster, Setup
from tests.seaweedfs.fixtures import seaweedfs_or_skip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.operations.conftest import NewRow
    from kgw.testing.process import GatewayProcess

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

REPLICATED: Final = "kgw.seaweedmq.replication=001"
HANGS_S: Final = 30.0
FULL: Final = Setup(
    volume_servers=len(SERVERS),
    flags={"master": ("-volumeSizeLimitMB=1",), "volume": ("-max=3",)},
)
"""Room for nine volumes of a megabyte; seven are made at once."""
WAITED: Final = "waited for SeaweedFS"


def test_copies_are_made_anew_and_a_stale_server_returns(day: Day, new_row: NewRow) -> None:
    """A killed server's volumes are copied to another one; what it brings back is one too many."""
    with new_row("replicas", REPLICATED) as row, row.load():
        day.cluster.kill(SERVERS[0])
        time.sleep(1.0)
        day.shell(f"volume.fix.replication -apply -collectionPattern={row.name}")
        day.cluster.start(SERVERS[0])
        time.sleep(1.0)
        day.shell(f"volume.fix.replication -apply -collectionPattern={row.name}")


def test_servers_with_copies_are_restarted(day: Day, new_row: NewRow) -> None:
    """One after the other, with two copies of each volume."""
    with new_row("restart", REPLICATED) as row, row.load():
        for server in SERVERS:
            day.cluster.terminate(server)
            time.sleep(1.0)
            day.cluster.start(server)


def test_a_server_with_copies_hangs(day: Day, new_row: NewRow) -> None:
    """It is there and does not answer: appends wait for it until others have their chunks."""
    with new_row("hanging", REPLICATED) as row, row.load(is_read=False):
        day.cluster.send_signal(SERVERS[0], signal.SIGSTOP)
        try:
            time.sleep(HANGS_S)
        finally:
            day.cluster.send_signal(SERVERS[0], signal.SIGCONT)


def test_a_filer_is_restarted(day: Day, new_row: NewRow) -> None:
    """Nothing is written meanwhile, and all goes on by itself."""
    with new_row("filer") as row, row.load(is_read=False), day.site.striking:
        day.cluster.terminate("filer")
        day.cluster.start("filer")


def test_metadata_are_saved(day: Day, new_row: NewRow, tmp_path: Path) -> None:
    """`fs.meta.save` reads the namespace while it is written."""
    with new_row("save") as row, row.load():
        saved = tmp_path / "saved.meta"
        day.shell(f"fs.meta.save -o {saved} /topics")
        row.report.count("saved_bytes", saved.stat().st_size)
        assert saved.stat().st_size


@contextmanager
def running(day: Day, tmp_path: Path, *arguments: str) -> Iterator[None]:
    """Run a command of SeaweedFS that goes on until it is stopped."""
    log = tmp_path / "said.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [weed(), "-logtostderr=true", *arguments, f"-filer={day.cluster.address('filer')}"],
            cwd=tmp_path,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
            stdout=said,
            stderr=said,
        )
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait()


def test_metadata_are_followed(day: Day, new_row: NewRow, tmp_path: Path) -> None:
    """`filer.meta.backup` copies the filer's entries while they change."""
    store = tmp_path / "backup_filer.toml"
    store.write_text('[leveldb2]\nenabled = true\ndir = "./backup"\n')
    with new_row("follow") as row, row.load():
        with running(day, tmp_path, "filer.meta.backup", "-restart", f"-config={store}"):
            time.sleep(5.0)
        copied = sum(path.stat().st_size for path in (tmp_path / "backup").rglob("*.l*"))
        assert copied > 10_000
        row.report.count("copied_bytes", copied)


def test_files_are_followed(day: Day, new_row: NewRow, tmp_path: Path) -> None:
    """`filer.backup` copies the files while they are written."""
    (tmp_path / "replication.toml").write_text(
        f'[sink.local]\nenabled = true\ndirectory = "{tmp_path / "copies"}"\n'
    )
    with new_row("copies") as row, row.load():
        with running(
            day, tmp_path, "filer.backup", "-filerPath=/topics/copies", "-initialSnapshot"
        ):
            time.sleep(5.0)
        copied = sum(path.stat().st_size for path in (tmp_path / "copies").rglob("*.kgw"))
        assert copied > 10_000
        row.report.count("copied_bytes", copied)


@pytest.mark.timeout(300)
def test_volumes_are_full_and_no_more_may_be_made(tmp_path: Path) -> None:
    """With `-max` reached appends wait, and health says so; with room they go on by themselves."""
    with seaweedfs_or_skip():
        cluster = Cluster(tmp_path / "seaweedfs", FULL)
    with cluster.running():
        day = Day(Site(tmp_path, cluster, Report("operations", SEED)))
        with a_row(day, "full", "kgw.admin.listeners=127.0.0.1:0") as row, row.load(is_read=False):
            asyncio.run(write(row, "ballast", 100))
            limit = patience.Limit(120)
            while WAITED not in health(row.gateway):
                assert not limit.is_over
                time.sleep(0.5)
            row.report.count("noticed_full")
            flags = {**FULL.flags, "volume": ("-max=100",)}
            cluster.setup = replace(FULL, flags=flags)
            for server in SERVERS:
                cluster.terminate(server)
                cluster.start(server)


def health(gateway: GatewayProcess) -> str:
    """Return what a gateway says of its health."""
    try:
        with urlopen(f"http://{gateway.host}:{gateway.admin_port}/health/ready") as answer:
            said: bytes = answer.read()
    except HTTPError as error:
        said = error.read()
    return said.decode()
