from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from kgw.backend.seaweedmq.protos import filer_pb2, filer_pb2_grpc
from tests import patience
from tests.seaweedfs.binary import weed
from tests.seaweedfs.cluster import GRPC_ABOVE, SYNCED_STORE, Cluster, NotReadyError, Setup
from tests.seaweedfs.fixtures import supervised

if TYPE_CHECKING:
    from tests.seaweedfs.fixtures import NewSeaweedfs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]
DIRECTORY = "/topics/kafka/orders"
BODY = b"acknowledged"


def listening(pid: int) -> set[tuple[str, int]]:
    """Where a process listens, as the kernel has it: address in hexadecimal digits, and port."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        # Others come and go meanwhile.
        with suppress(FileNotFoundError):
            sockets.add(link.readlink().name)
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in sockets:
                address, port = local.split(":")
                found.add((address, int(port, 16)))
    return found


def put(cluster: Cluster, name: str) -> str:
    """Store a chunk and an entry that names it, and return the chunk's file id."""
    with grpc.insecure_channel(cluster.grpc_address("filer")) as channel:
        stub = filer_pb2_grpc.SeaweedFilerStub(channel)
        assigned = stub.AssignVolume(filer_pb2.AssignVolumeRequest(count=1, path=DIRECTORY))
        assert not assigned.error
        file_id = str(assigned.file_id)
        head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        connection = HTTPConnection(assigned.location.url)
        connection.request("POST", f"/{file_id}", head + BODY + b"\r\n--b--\r\n", headers)
        assert 201 == connection.getresponse().status
        connection.close()
        chunk = filer_pb2.FileChunk(file_id=file_id, size=len(BODY), modified_ts_ns=time.time_ns())
        entry = filer_pb2.Entry(
            name=name, chunks=[chunk], attributes=filer_pb2.FuseAttributes(file_mode=0o644)
        )
        stub.CreateEntry(filer_pb2.CreateEntryRequest(directory=DIRECTORY, entry=entry))
    return file_id


def read(cluster: Cluster, name: str) -> bytes:
    """Read a file through the filer, which asks the volume server."""
    connection = HTTPConnection(cluster.address("filer"))
    connection.request("GET", f"{DIRECTORY}/{name}")
    body = connection.getresponse().read()
    connection.close()
    return body


def test_listens_on_loopback_alone(seaweedfs: Cluster) -> None:
    """Master, volume server and filer listen at 127.0.0.1, for HTTP and gRPC, and nowhere else."""
    for name in ("master", "volume", "filer"):
        pid, port = seaweedfs.pid(name), seaweedfs.ports[name]
        assert pid is not None
        loopback = "0100007F" if sys.byteorder == "little" else "7F000001"
        assert {(loopback, port), (loopback, port + GRPC_ABOVE)} == listening(pid)


def test_a_filer_that_ends_is_started_again(new_seaweedfs: NewSeaweedfs) -> None:
    """In the SeaweedFS that tests share: not all that come later are to suffer by it."""
    cluster = new_seaweedfs()
    ended = cluster.pid("filer")
    with supervised(cluster):
        cluster.send_signal("filer", signal.SIGKILL)
        limit = patience.Limit(30)
        while True:
            try:
                put(cluster, "file")
                break
            except grpc.RpcError:
                assert not limit.is_over
                time.sleep(0.02)
        assert cluster.pid("filer") not in (None, ended)


def test_broker_is_confined(seaweedfs_broker: Cluster) -> None:
    """The broker, which listens on every interface, has another network than we have."""
    pid = seaweedfs_broker.pid("broker")
    assert pid is not None
    assert Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    assert {("0" * 32, seaweedfs_broker.ports["broker"])} == listening(pid)


@pytest.mark.full
@pytest.mark.parametrize("files", [{}, SYNCED_STORE], ids=["leveldb2", "sqlite"])
def test_kills_lose_nothing(files: dict[str, str], new_seaweedfs: NewSeaweedfs) -> None:
    """What was stored is there when filer, volume server and master have been killed."""
    cluster = new_seaweedfs(Setup(files=files))
    for name in ("filer", "volume", "master"):
        put(cluster, f"before-{name}")
        cluster.kill(name)
        assert cluster.pid(name) is None
        cluster.start()
        assert BODY == read(cluster, f"before-{name}")


def test_index_that_a_power_loss_took_is_made_again(new_seaweedfs: NewSeaweedfs) -> None:
    """A volume's index is never synced; `weed fix` makes it of the data, which can be."""
    cluster = new_seaweedfs()
    put(cluster, "file")
    cluster.kill("volume")
    for index in (cluster.directory / "volume").glob("*.idx"):
        os.truncate(index, 0)
    cluster.start("volume")
    assert BODY != read(cluster, "file")
    cluster.kill("volume")
    subprocess.run([weed(), "fix", cluster.directory / "volume"], check=True, capture_output=True)
    cluster.start("volume")
    assert BODY == read(cluster, "file")


def test_several_of_a_kind(new_seaweedfs: NewSeaweedfs) -> None:
    """Two volume servers keep a replica each, when the master is told so."""
    cluster = new_seaweedfs(Setup(volume_servers=2, flags={"master": ["-defaultReplication=001"]}))
    assert ["master", "volume", "volume2", "filer"] == [row.name for row in cluster.status()]
    put(cluster, "file")
    cluster.kill("volume")
    assert BODY == read(cluster, "file")


def test_what_does_not_start_is_shown(new_seaweedfs: NewSeaweedfs) -> None:
    """The error has the last words of the process."""
    with pytest.raises(NotReadyError, match=r"(?s)volume has ended.*nowhere"):
        new_seaweedfs(Setup(flags={"volume": ["-dir=nowhere"]}))


def test_commands(seaweedfs: Cluster, tmp_path: Path) -> None:
    """One is started from the command line, seen, killed in part, started again and stopped."""

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "tests.seaweedfs", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def states(table: str) -> list[str]:
        return [line.split()[2] for line in table.splitlines()]

    place = str(tmp_path / "new")
    assert "has no SeaweedFS" in run("status", str(tmp_path))
    try:
        started = run("start", place, "--free-ports")
        assert started.endswith("/kafka\n"), started
        assert "start it without options" in run("start", place, "--filers=2")
        assert "there are master, volume, filer" in run("restart", place, "broker")
        before = Cluster.of(Path(place))
        pid = before.pid("filer")
        assert ["pid"] * 3 == states(run("restart", place, "filer", "--kill"))
        assert pid != before.pid("filer")
    finally:
        run("stop", place, "--kill")
    assert ["stopped"] * 3 == states(run("status", place))
