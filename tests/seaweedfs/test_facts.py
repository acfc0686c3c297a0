"""What the design rests on, asked of a real SeaweedFS: its conditions, and the numbers of fields."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from kgw.backend.seaweedmq.protos import (
    filer_pb2,
    filer_pb2_grpc,
    master_pb2,
    mq_broker_pb2,
    schema_pb2,
    volume_server_pb2,
)
from tests.seaweedfs.binary import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor, FileDescriptor

    from tests.seaweedfs.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


class Directory:
    """A directory of a filer, and what is asked there."""

    def __init__(self, stub: filer_pb2_grpc.SeaweedFilerStub, path: str) -> None:
        self.stub = stub
        self.path = path

    def create(self, name: str, **extended: bytes) -> int:
        """Make a file that must not be there, and return the filer's code."""
        entry = _entry(name, extended)
        request = filer_pb2.CreateEntryRequest(directory=self.path, entry=entry, o_excl=True)
        code: int = self.stub.CreateEntry(request).error_code
        return code

    def update(
        self, name: str, expected: dict[str, bytes], **extended: bytes
    ) -> tuple[grpc.StatusCode, str]:
        """Replace its attributes under a condition, and return what gRPC says."""
        request = filer_pb2.UpdateEntryRequest(
            directory=self.path, entry=_entry(name, extended), expected_extended=expected
        )
        try:
            self.stub.UpdateEntry(request)
        except grpc.RpcError as error:
            return error.code(), error.details()
        return grpc.StatusCode.OK, ""

    def extended(self, name: str) -> dict[str, bytes]:
        """Return its attributes."""
        request = filer_pb2.LookupDirectoryEntryRequest(directory=self.path, name=name)
        return dict(self.stub.LookupDirectoryEntry(request).entry.extended)


def _entry(name: str, extended: dict[str, bytes]) -> filer_pb2.Entry:
    now_s = int(time.time())
    attributes = filer_pb2.FuseAttributes(mtime=now_s, crtime=now_s, file_mode=0o644)
    return filer_pb2.Entry(name=name, attributes=attributes, extended=extended)


@pytest.fixture
def directory(seaweedfs: Cluster) -> Iterator[Directory]:
    """Return a directory that no other test has."""
    with grpc.insecure_channel(seaweedfs.grpc_address("filer")) as channel:
        stub = filer_pb2_grpc.SeaweedFilerStub(channel)
        yield Directory(stub, f"/topics/{seaweedfs.new_namespace()}")


def test_version(directory: Directory) -> None:
    """The version is the one that all facts were found with."""
    configuration = directory.stub.GetFilerConfiguration(filer_pb2.GetFilerConfigurationRequest())
    assert VERSION in configuration.version.split()


def test_update_is_refused_when_an_attribute_differs(directory: Directory) -> None:
    """An update that expects another value changes nothing and says FAILED_PRECONDITION."""
    directory.create("file", epoch=b"2")
    code, text = directory.update("file", {"epoch": b"1"}, epoch=b"9")
    assert grpc.StatusCode.FAILED_PRECONDITION == code
    assert 'extended attribute "epoch" changed' in text
    assert directory.extended("file") == {"epoch": b"2"}


def test_every_expected_attribute_counts(directory: Directory) -> None:
    """Of two expected attributes both must have their values."""
    directory.create("file", epoch=b"2", count=b"7")
    refused, _ = directory.update("file", {"epoch": b"2", "count": b"6"}, epoch=b"2", count=b"7")
    taken, _ = directory.update("file", {"epoch": b"2", "count": b"7"}, epoch=b"2", count=b"8")
    assert grpc.StatusCode.FAILED_PRECONDITION == refused
    assert grpc.StatusCode.OK == taken
    assert directory.extended("file") == {"epoch": b"2", "count": b"8"}


def test_absent_attribute_passes_for_an_empty_value(directory: Directory) -> None:
    """Whoever expects an empty value expects nothing: so kgw never does."""
    directory.create("file", epoch=b"2")
    empty, _ = directory.update("file", {"count": b""}, epoch=b"3")
    other, _ = directory.update("file", {"count": b"1"}, epoch=b"4")
    assert grpc.StatusCode.OK == empty
    assert grpc.StatusCode.FAILED_PRECONDITION == other
    assert directory.extended("file") == {"epoch": b"3"}


def test_update_of_a_missing_entry(directory: Directory) -> None:
    """An update of what is not there makes nothing, and says so in its text alone."""
    directory.create("file")
    code, text = directory.update("other", {"epoch": b"1"}, epoch=b"2")
    assert grpc.StatusCode.UNKNOWN == code
    assert "not found" in text


def test_exclusive_creation_has_one_winner(directory: Directory) -> None:
    """Of eight that create a file at once one is told that it has, the others that it exists."""
    with ThreadPoolExecutor(8) as executor:
        codes = list(
            executor.map(lambda writer: directory.create("file", writer=b"%d" % writer), range(8))
        )
    winner = codes.index(filer_pb2.OK)
    assert [filer_pb2.ENTRY_ALREADY_EXISTS] * 7 == codes[:winner] + codes[winner + 1 :]
    assert directory.extended("file") == {"writer": b"%d" % winner}


def test_conditional_updates_have_one_winner(directory: Directory) -> None:
    """Of eight updates at once that expect the same value one is taken."""
    directory.create("file", count=b"0")
    with ThreadPoolExecutor(8) as executor:
        outcomes = list(
            executor.map(
                lambda writer: directory.update("file", {"count": b"0"}, count=b"%d" % writer)[0],
                range(1, 9),
            )
        )
    assert 1 == outcomes.count(grpc.StatusCode.OK)
    winner = 1 + outcomes.index(grpc.StatusCode.OK)
    assert directory.extended("file") == {"count": b"%d" % winner}


# --- numbers of fields ---


def _reflected(address: str, service: str) -> dict[str, dict[int, tuple[str, int]]]:
    """Return a server's own messages: name and type of each field by its number.

    By gRPC's reflection: ServerReflectionRequest has 4 file_containing_symbol, and its response 4
    file_descriptor_response with 1 file_descriptor_proto, repeated.
    """
    request = filer_pb2.Entry(attributes=filer_pb2.FuseAttributes())
    return {}


def _fields(message: Descriptor) -> Iterator[tuple[str, int, str, int]]:
    for field in message.fields:
        yield message.full_name, field.number, field.name, field.type
    for nested in message.nested_types:
        yield from _fields(nested)
