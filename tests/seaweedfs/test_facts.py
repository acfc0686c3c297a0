"""What the design rests on, asked of a real SeaweedFS: its conditions, its fields' numbers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message_factory import GetMessages
from google.protobuf.text_format import Parse

from kgw.backend.seaweedmq.protos import (
    filer_pb2,
    filer_pb2_grpc,
    master_pb2,
    mq_broker_pb2,
    remote_pb2,
    schema_pb2,
    volume_server_pb2,
)
from tests.seaweedfs.binary import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto

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
        entry = _entry(name, extended).SerializeToString()
        request = filer_pb2.UpdateEntryRequest(
            directory=self.path, entry=entry, expected_extended=expected
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

Fields = dict[str, tuple[int, str]]
SYMBOLS = {
    "filer_pb.SeaweedFiler": ("filer", [filer_pb2]),
    "remote_pb.RemoteStorageMapping": ("filer", [remote_pb2]),
    "master_pb.Seaweed": ("master", [master_pb2]),
    "volume_server_pb.VolumeServer": ("volume", [volume_server_pb2]),
    "messaging_pb.SeaweedMessaging": ("broker", [mq_broker_pb2, schema_pb2]),
}
ENCODED = {"filer_pb.UpdateEntryRequest.entry"}
"""Messages that kgw encodes by itself, and declares as bytes: the same on the wire."""
REFLECTION = """
    name: "reflection"
    message_type {
        name: "Request"
        field { name: "file_containing_symbol" number: 4 type: TYPE_STRING }
    }
    message_type {
        name: "Files"
        field { name: "files" number: 1 type: TYPE_BYTES label: LABEL_REPEATED }
    }
    message_type {
        name: "Response"
        field { name: "found" number: 4 type: TYPE_MESSAGE type_name: "Files" }
    }
"""


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_messages_are_the_servers_own(symbol: str, seaweedfs_broker: Cluster) -> None:
    """Each field that kgw knows has the number and the type that the server itself gives it."""
    name, modules = SYMBOLS[symbol]
    theirs = _reflected(seaweedfs_broker.grpc_address(name), symbol)
    for module in modules:
        ours = _fields(FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
        for encoded in ENCODED & ours.keys():
            assert (theirs[encoded][0], "TYPE_BYTES ") == ours.pop(encoded)
        assert ours.items() <= theirs.items(), dict(ours.items() - theirs.items())


def _reflected(address: str, symbol: str) -> Fields:
    """Return the fields of the files that declare a service or a message, as its server has them.

    By gRPC's reflection, of which REFLECTION declares what is needed.
    """
    messages = GetMessages([Parse(REFLECTION, FileDescriptorProto())])
    request = messages["Request"](file_containing_symbol=symbol)
    with grpc.insecure_channel(address) as channel:
        ask = channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            request_serializer=messages["Request"].SerializeToString,
            response_deserializer=messages["Response"].FromString,
        )
        (answer,) = ask(iter([request]))
    fields: Fields = {}
    for declared in answer.found.files:
        fields |= _fields(FileDescriptorProto.FromString(declared))
    return fields


def _fields(file: FileDescriptorProto) -> Fields:
    """Return the number and the type of every field, and the number of every value of an enum."""
    fields: Fields = {}

    def add(path: str, messages: Iterable[DescriptorProto]) -> None:
        for message in messages:
            of = f"{path}.{message.name}"
            for field in message.field:
                kind = FieldDescriptorProto.Type.Name(field.type)
                fields[f"{of}.{field.name}"] = field.number, f"{kind} {field.type_name}"
            for enum in message.enum_type:
                add_values(of, enum)
            add(of, message.nested_type)

    def add_values(path: str, enum: EnumDescriptorProto) -> None:
        for value in enum.value:
            fields[f"{path}.{enum.name}.{value.name}"] = value.number, "value"

    add(file.package, file.message_type)
    for enum in file.enum_type:
        add_values(file.package, enum)
    return fields
