from __future__ import annotations

import asyncio
import gc
import ssl
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from aiohttp import web
from grpc import StatusCode

from kgw.backend.seaweedmq.channel.calls import FINISH_S
from kgw.backend.seaweedmq.channel.channel import FilerChannel
from kgw.backend.seaweedmq.channel.cipher import decrypt
from kgw.backend.seaweedmq.channel.options import ChannelOptions, Security, load_security
from kgw.backend.seaweedmq.channel.servers import AVOIDED_S, SILENT_S
from kgw.backend.seaweedmq.filer import (
    Chunk,
    ChunkMissingError,
    ChunkTooLargeError,
    ConditionFailedError,
    EntryExistsError,
    EntryMissingError,
    FilerEntry,
    FilerError,
    OutcomeUnknownError,
)
from kgw.backend.seaweedmq.from_config import filer_channel
from kgw.backend.seaweedmq.offline.opening import reached
from kgw.backend.seaweedmq.path_rules import PathRule
from kgw.backend.seaweedmq.protos import filer_pb2, master_pb2, remote_pb2, volume_server_pb2
from kgw.clock import SystemClock
from kgw.config import Config
from kgw.errors import CorruptionError, DataDirectoryError
from kgw.metrics import Metrics
from kgw.problems import NO_VOLUME, VOLUME_SERVER
from kgw.testing.clock import ManualClock
from kgw.testing.filer_suite import FilerSuite
from tests import patience
from tests.backend.seaweedmq.channel.missing import without_package
from tests.backend.seaweedmq.channel.scripted import HOST, Abort, HastyClock, ScriptedFiler
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from google.protobuf.message import Message

    from kgw.clock import Clock

CERTIFICATE = Path(__file__).parents[3] / "state" / "self-signed.pem"
"""Of `kgw-test`, with its key; its own authority."""

PLACE = "/topics/a"
MADE = FilerEntry("file", content=b"a", extended={"count": b"1"})
CHANGED = FilerEntry("file", content=b"b", extended={"count": b"2"})
AWAY = Abort(StatusCode.UNAVAILABLE, "Socket closed")


class Parts:
    """A channel, what it talks to, and what it counts."""

    def __init__(self, filer: ScriptedFiler, options: ChannelOptions, clock: Clock | None) -> None:
        self.filer = filer
        self.clock = HastyClock()
        self.metrics = Metrics()
        self.channel = FilerChannel(options, clock or self.clock, self.metrics)


@asynccontextmanager
async def opened(
    filer: ScriptedFiler | None = None,
    *,
    timeout_s: float | None = None,
    security: Security | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Parts]:
    """Start a filer and open a channel to it."""
    async with filer or ScriptedFiler() as started:
        options = ChannelOptions(
            started.address,
            timeout_s=timeout_s or patience.seconds(10),
            security=security or Security(),
        )
        parts = Parts(started, options, clock)
        await parts.channel.open()
        try:
            yield parts
        finally:
            await parts.channel.aclose()


@pytest.mark.slow
@pytest.mark.timeout(60)
class TestSuiteOverTheWire(FilerSuite):
    """Every promise of `Filer`, with real gRPC and HTTP between the channel and what is kept."""

    many_entries = 150
    """Listed in pages of 128."""

    @pytest.fixture(autouse=True)
    async def started(self) -> AsyncIterator[None]:
        async with ScriptedFiler(servers=2) as self.filer:
            yield

    def make_filer(self) -> FilerChannel:
        return FilerChannel(ChannelOptions(self.filer.address), HastyClock(), Metrics())


# --- opening ---


async def test_a_filer_is_reached_at_the_port_of_grpc_that_its_url_names() -> None:
    """It was told another one than 10,000 above its HTTP port, as every one of these tests is."""
    async with ScriptedFiler() as filer:
        config = Config.of(backend=f"seaweedmq://{HOST}:8888.{filer.port}/kafka")
        channel = filer_channel(config, HastyClock(), Metrics())
        await channel.open()
        await channel.aclose()
        async with reached(config.backend) as namespace:
            assert "4.48" == namespace.filer.version


async def test_a_filer_says_what_it_is() -> None:
    """Its version is known once the channel is open."""
    async with opened() as parts:
        assert "4.48" == parts.channel.version


@pytest.mark.parametrize("master", ["nowhere", "host:0", "host:9333.x", ""])
async def test_a_master_whose_address_cannot_be_is_an_error_of_the_filer(master: str) -> None:
    """Whoever asks the masters is told, as when none of them answers."""
    filer = ScriptedFiler()
    said = filer_pb2.GetFilerConfigurationResponse(version="4.48", masters=[master])
    filer.script(filer_pb2.GetFilerConfigurationRequest, said)
    async with opened(filer) as parts:
        with pytest.raises(FilerError, match="names a master that cannot be"):
            await parts.channel.filers()


@pytest.mark.slow
async def test_a_filer_may_take_its_time_to_greet() -> None:
    """A busy or distant filer that greets after half a second is none that fails."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        with suppress(OSError):
            from_filer, to_filer = await asyncio.open_connection(HOST, filer.port)
            await asyncio.gather(_pass_on(reader, to_filer), _pass_on(from_filer, writer))

    async with ScriptedFiler() as filer:
        server = await asyncio.start_server(relay, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        channel = FilerChannel(ChannelOptions(f"{HOST}:8888.{port}"), HastyClock(), Metrics())
        await channel.open()
        await channel.aclose()
        server.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65_536):
        writer.write(piece)
    writer.close()


async def test_a_port_where_nothing_listens_is_named() -> None:
    """Whoever mistyped the address learns which one was tried."""
    async with ScriptedFiler() as filer:
        address = filer.address
    channel = FilerChannel(ChannelOptions(address), HastyClock(), Metrics())
    with pytest.raises(DataDirectoryError, match=f"gRPC {HOST}:.*nothing listens there"):
        await channel.open()
    await channel.aclose()


async def test_an_http_port_is_recognised() -> None:
    """The HTTP port given as the gRPC port is a likely mistake."""
    async with ScriptedFiler() as filer:
        port = filer.servers[0].url.rpartition(":")[2]
        channel = FilerChannel(ChannelOptions(f"{HOST}:{port}.{port}"), HastyClock(), Metrics())
        with pytest.raises(DataDirectoryError, match="that is an HTTP port"):
            await channel.open()


async def test_another_server_of_grpc_is_no_filer() -> None:
    """A master or a volume server does not know what a filer is asked."""
    filer = ScriptedFiler()
    filer.script(
        filer_pb2.GetFilerConfigurationRequest, Abort(StatusCode.UNIMPLEMENTED, "unknown service")
    )
    with pytest.raises(DataDirectoryError, match="give the filer's address"):
        async with opened(filer):
            pass


async def test_the_filers_of_a_cluster_are_listed() -> None:
    """The masters are asked one after the other."""
    async with opened() as parts:
        parts.filer.filer_addresses = ["a:8888.18888", "b:8888.18888"]
        assert ["a:8888.18888", "b:8888.18888"] == await parts.channel.filers()
        assert {"list_nodes": 1} == parts.metrics.filer_retries


@pytest.mark.parametrize("kind", ["filer", "broker"])
async def test_a_master_that_does_not_lead_is_not_believed(kind: str) -> None:
    """It knows of no servers, and not even of the filer that names it."""
    async with opened() as parts:
        parts.filer.filer_addresses = ["a:8888.18888", "b:8888.18888"]
        parts.filer.script(
            master_pb2.ListClusterNodesRequest, master_pb2.ListClusterNodesResponse()
        )
        assert parts.filer.filer_addresses == await parts.channel.nodes(kind)


async def test_a_channel_that_is_not_open_refuses_calls() -> None:
    """Before it is opened and after it was closed."""
    async with opened() as parts:
        await parts.channel.aclose()
        closed = parts.channel
        new = FilerChannel(ChannelOptions(parts.filer.address), parts.clock, parts.metrics)
        for channel in (closed, new):
            for call in (
                channel.look_up(PLACE, "file"),
                channel.create(PLACE, MADE),
                channel.upload([b"abc"]),
            ):
                assert "the filer is not open" == str(await _error_of(call))


def _tls_filer() -> ScriptedFiler:
    """Return a filer that shows a certificate and wants one, on gRPC and HTTPS."""
    pem = CERTIFICATE.read_bytes()
    https = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=CERTIFICATE)
    https.load_cert_chain(CERTIFICATE)
    https.verify_mode = ssl.CERT_REQUIRED
    credentials = grpc.ssl_server_credentials([(pem, pem)], pem, require_client_auth=True)
    return ScriptedFiler(credentials=credentials, https=https)


async def test_certificates_go_both_ways(tmp_path: Path) -> None:
    """As a security.toml names them, over gRPC and HTTPS."""
    toml = tmp_path / "security.toml"
    files = f"ca = '{CERTIFICATE}'\ncert = '{CERTIFICATE}'\nkey = '{CERTIFICATE}'\n"
    toml.write_text(
        f"[grpc]\nca = '{CERTIFICATE}'\n[grpc.client]\n{files}"
        f"[https.client]\nenabled = true\ninsecure_skip_verify = true\n{files}"
    )
    security = await asyncio.to_thread(load_security, toml)
    async with _tls_filer() as filer:
        options = ChannelOptions(
            filer.address, security=security, tls_name="kgw-test", timeout_s=patience.seconds(3)
        )
        channel = FilerChannel(options, HastyClock(), Metrics())
        await channel.open()
        chunk = await channel.upload([b"abc"])
        assert b"abc" == await channel.read_chunk(chunk, 0, 3)
        await channel.delete_chunks([chunk])
        await channel.aclose()


async def test_tls_at_one_end_alone_is_said() -> None:
    """Whichever end it is."""
    pem = CERTIFICATE.read_bytes()
    async with ScriptedFiler() as plain, _tls_filer() as encrypted:
        for address, security in (
            (plain.address, Security(grpc_ca=pem)),
            (encrypted.address, Security()),
            (encrypted.address, Security(grpc_ca=pem)),
        ):
            options = ChannelOptions(
                address, security=security, tls_name="kgw-test", timeout_s=patience.seconds(3)
            )
            channel = FilerChannel(options, HastyClock(), Metrics())
            with pytest.raises(DataDirectoryError, match="TLS"):
                await channel.open()


# --- changes: what is known of them ---


async def test_a_lost_answer_of_a_change_is_an_unknown_outcome() -> None:
    """The change was made, and nobody was told; it is not sent again."""
    async with opened() as parts:
        lost = Abort(StatusCode.UNAVAILABLE, "Socket closed", is_done=True)
        parts.filer.script(filer_pb2.CreateEntryRequest, lost)
        parts.filer.script(filer_pb2.UpdateEntryRequest, lost)
        parts.filer.script(filer_pb2.DeleteEntryRequest, lost)
        with pytest.raises(OutcomeUnknownError):
            await parts.channel.create(PLACE, MADE)
        with pytest.raises(OutcomeUnknownError):
            await parts.channel.update(PLACE, CHANGED, {"count": b"1"})
        with pytest.raises(OutcomeUnknownError):
            await parts.channel.delete(PLACE, "file")
        for kind in (
            filer_pb2.CreateEntryRequest,
            filer_pb2.UpdateEntryRequest,
            filer_pb2.DeleteEntryRequest,
        ):
            assert 1 == parts.filer.count(kind)
        assert {
            ("create", "unknown"): 1,
            ("update", "unknown"): 1,
            ("delete", "unknown"): 1,
        } == parts.metrics.filer_calls


async def test_a_filer_that_stops_during_an_update_leaves_it_unknown() -> None:
    """The connection is gone when the update was on its way."""
    async with opened() as parts:
        arrived, stopped = asyncio.Event(), asyncio.Event()

        async def never() -> None:
            arrived.set()
            await stopped.wait()

        parts.filer.scripts[filer_pb2.UpdateEntryRequest] = [never]
        update = asyncio.create_task(parts.channel.update(PLACE, CHANGED, {"count": b"1"}))
        await arrived.wait()
        await parts.filer.stop()
        with pytest.raises(OutcomeUnknownError):
            await update
        stopped.set()


async def begun(parts: Parts) -> tuple[asyncio.Task[None], asyncio.Event]:
    """Return an update that the filer has begun, and what has the filer go on."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def held() -> None:
        arrived.set()
        await go_on.wait()

    await parts.channel.create(PLACE, MADE)
    parts.filer.scripts[filer_pb2.UpdateEntryRequest] = [held]
    update = asyncio.create_task(parts.channel.update(PLACE, CHANGED, {"count": b"1"}))
    await arrived.wait()
    return update, go_on


async def test_a_change_that_nobody_waits_for_goes_on() -> None:
    """The filer is not told that its caller was cancelled: SeaweedFS's may end by that."""
    async with opened(clock=ManualClock()) as parts:
        update, go_on = await begun(parts)
        update.cancel()
        with pytest.raises(asyncio.CancelledError):
            await update
        closing = asyncio.create_task(parts.channel.aclose())
        # A close that waits for nothing would be over when another channel has made a call.
        async with opened():
            assert not closing.done()
        go_on.set()
        await closing
        assert 1 == parts.metrics.filer_calls["update", "done"]


async def test_a_close_waits_for_a_hung_filer_for_a_limited_time() -> None:
    """Of changes that it has begun nobody knows then."""
    clock = ManualClock()
    async with opened(clock=clock) as parts:
        update, go_on = await begun(parts)
        closing = asyncio.create_task(parts.channel.aclose())
        await turns()
        clock.advance(FINISH_S)
        await closing
        with pytest.raises(OutcomeUnknownError):
            await update
        go_on.set()


async def test_a_change_that_cannot_be_sent_was_not_made() -> None:
    """Without a connection to send it on, nothing is unknown."""
    async with opened() as parts:
        await parts.filer.stop()
        for _ in range(10):
            # The channel may have yet to hear of it: a change on the old connection is unknown.
            if not isinstance(
                await _error_of(parts.channel.create(PLACE, MADE)), OutcomeUnknownError
            ):
                break
        errors = [
            await _error_of(parts.channel.create(PLACE, MADE)),
            await _error_of(parts.channel.update(PLACE, CHANGED, {"count": b"1"})),
            await _error_of(parts.channel.delete(PLACE, "file")),
        ]
    assert not any(isinstance(error, OutcomeUnknownError) for error in errors)


async def test_a_slow_answer_of_a_change_is_an_unknown_outcome() -> None:
    """Whether it was made shows only later."""
    async with opened(timeout_s=patience.seconds(0.3)) as parts:
        go_on = asyncio.Event()

        async def slow() -> None:
            await go_on.wait()

        parts.filer.scripts[filer_pb2.UpdateEntryRequest] = [slow]
        with pytest.raises(OutcomeUnknownError, match="DEADLINE_EXCEEDED"):
            await parts.channel.update(PLACE, CHANGED, {"count": b"1"})
        go_on.set()


async def test_a_change_past_its_deadline_is_not_sent() -> None:
    """So it was certainly not made."""
    async with opened() as parts:
        error = await _error_of(
            parts.channel.create(PLACE, MADE, deadline_s=parts.clock.monotonic_s())
        )
        assert not isinstance(error, OutcomeUnknownError)
        assert 0 == parts.filer.count(filer_pb2.CreateEntryRequest)


async def test_an_error_of_the_filers_store_is_an_unknown_outcome() -> None:
    """Of gRPC's statuses or by a text in its answer: only the store knows what it has kept."""
    async with opened() as parts:
        broken = Abort(StatusCode.UNKNOWN, "UpdateEntry: leveldb: disk trouble")
        parts.filer.script(filer_pb2.UpdateEntryRequest, broken)
        parts.filer.script(
            filer_pb2.CreateEntryRequest, filer_pb2.CreateEntryResponse(error="disk trouble")
        )
        with pytest.raises(OutcomeUnknownError):
            await parts.channel.update(PLACE, CHANGED, {"count": b"1"})
        with pytest.raises(OutcomeUnknownError):
            await parts.channel.create(PLACE, MADE)


async def test_what_the_filer_refuses_is_known() -> None:
    """By status or by the code in an answer whose status is OK."""
    async with opened() as parts:
        await parts.channel.create(PLACE, MADE)
        with pytest.raises(EntryExistsError):
            await parts.channel.create(PLACE, MADE)
        parts.filer.script(
            filer_pb2.CreateEntryRequest, Abort(StatusCode.ALREADY_EXISTS, "entry already exists")
        )
        with pytest.raises(EntryExistsError):
            await parts.channel.create(PLACE, MADE)
        with pytest.raises(ConditionFailedError):
            await parts.channel.update(PLACE, CHANGED, {"count": b"2"})
        with pytest.raises(EntryMissingError):
            await parts.channel.update(PLACE, FilerEntry("other"), {"count": b"1"})
        with pytest.raises(ValueError, match="absent"):
            await parts.channel.update(PLACE, CHANGED, {"count": b""})
        assert {
            ("create", "done"): 1,
            ("create", "refused"): 2,
            ("update", "refused"): 1,
            ("update", "missing"): 1,
        } == parts.metrics.filer_calls


# --- look-ups ---


async def test_look_ups_are_tried_until_they_succeed() -> None:
    """A filer that is away for a moment costs time, and each try is counted."""
    async with opened() as parts:
        await parts.channel.create(PLACE, MADE)
        parts.filer.script(filer_pb2.LookupDirectoryEntryRequest, AWAY, AWAY)
        parts.filer.script(filer_pb2.ListEntriesRequest, AWAY)
        found = await parts.channel.look_up(PLACE, "file")
        assert found is not None
        assert b"a" == found.content
        assert ["file"] == [entry.name async for entry in parts.channel.list_entries(PLACE)]
        assert {"look_up": 2, "list": 1} == parts.metrics.filer_retries


async def test_look_ups_are_given_up_at_the_deadline() -> None:
    """The error is what was wrong last; it is never "there is no such entry"."""
    async with opened() as parts:
        parts.filer.every_answer[filer_pb2.LookupDirectoryEntryRequest] = AWAY
        deadline_s = parts.clock.monotonic_s() + 3
        with pytest.raises(FilerError, match="Socket closed; given up"):
            await parts.channel.look_up(PLACE, "file", deadline_s=deadline_s)
        assert parts.clock.monotonic_s() <= deadline_s


async def test_a_filer_that_came_back_is_found_by_itself() -> None:
    """A refused connection is tried again like any other failure."""
    async with opened() as parts:
        parts.filer.script(
            filer_pb2.LookupDirectoryEntryRequest,
            Abort(StatusCode.UNAVAILABLE, "failed to connect to all addresses"),
        )
        assert await parts.channel.look_up(PLACE, "file") is None


async def test_what_is_refused_for_good_is_not_tried_again() -> None:
    """A certificate that the filer does not accept stays one."""
    async with opened() as parts:
        parts.filer.script(
            filer_pb2.LookupDirectoryEntryRequest, Abort(StatusCode.UNAUTHENTICATED, "who?")
        )
        with pytest.raises(FilerError, match="who"):
            await parts.channel.look_up(PLACE, "file")
        assert {} == parts.metrics.filer_retries


# --- uploads ---


async def test_file_ids_are_asked_for_many_at_a_time_and_do_not_last() -> None:
    """A volume fills up, and a token expires."""
    async with opened() as parts:
        for number in range(10):
            await parts.channel.upload([b"%d" % number])
        assert 1 == parts.filer.count(filer_pb2.AssignVolumeRequest)
        parts.clock.advance(5.0)
        await parts.channel.upload([b"later"])
        assert 2 == parts.filer.count(filer_pb2.AssignVolumeRequest)
        for _ in range(31):
            await parts.channel.upload([b"x"])
        assert 2 == parts.filer.count(filer_pb2.AssignVolumeRequest)


async def test_file_ids_are_asked_for_before_they_run_out() -> None:
    """An upload does not wait for an assignment while others are left; a failed one is repeated."""
    async with opened() as parts:
        await parts.channel.upload([b"x" * 100])
        given = asyncio.Event()

        async def late() -> Message | None:
            await given.wait()
            return None

        failed = filer_pb2.AssignVolumeResponse(error="no writable volumes")
        parts.filer.script(filer_pb2.AssignVolumeRequest, failed)
        parts.filer.scripts[filer_pb2.AssignVolumeRequest].append(late)
        chunks = {(await parts.channel.upload([b"x" * 100])).file_id for _ in range(63)}
        assert 63 == len(chunks)
        waiting = asyncio.create_task(parts.channel.upload([b"x" * 100]))
        # On a busy machine the failed one is repeated by this upload, no sooner.
        limit = patience.Limit(10)
        while parts.filer.count(filer_pb2.AssignVolumeRequest) < 3:
            assert not limit.is_over
            await asyncio.sleep(0)
        assert not waiting.done()
        given.set()
        assert (await waiting).file_id not in chunks


async def test_a_failed_assignment_that_nobody_waits_for_is_not_logged_as_a_bug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next upload repeats it, while ids are left."""
    async with opened() as parts:
        await parts.channel.upload([b"x"])
        failed = filer_pb2.AssignVolumeResponse(error="no writable volumes")
        parts.filer.script(filer_pb2.AssignVolumeRequest, failed)
        limit = patience.Limit(10)
        while parts.filer.count(filer_pb2.AssignVolumeRequest) < 3:
            assert not limit.is_over
            await parts.channel.upload([b"x"])
        gc.collect()
        assert "never retrieved" not in caplog.text


async def test_the_master_is_told_how_large_chunks_are() -> None:
    """It holds a volume for full by what it expects there, 1 MB a chunk unless it is told."""
    async with opened() as parts:
        for size_bytes in [800, 8000, *([800] * 40)]:
            await parts.channel.upload([b"x" * size_bytes])
        # More ids are asked for beside uploads.
        limit = patience.Limit(10)
        while parts.filer.count(filer_pb2.AssignVolumeRequest) < 2:
            assert not limit.is_over
            await asyncio.sleep(0)
        requests = [
            one for one in parts.filer.requests if isinstance(one, filer_pb2.AssignVolumeRequest)
        ]
        assert 800 == requests[0].expected_data_size
        assert 800 < requests[1].expected_data_size < 900


async def test_a_failed_upload_is_made_elsewhere_and_cleaned_up_behind() -> None:
    """A full disk, a short write and a broken connection are one server's; the id is not reused."""
    async with opened(ScriptedFiler(servers=4)) as parts:
        full, short, broken, healthy = parts.filer.servers

        async def refuse(request: web.Request) -> web.StreamResponse:
            return _response(507, "no space left")

        async def cut(request: web.Request) -> web.StreamResponse:
            short.chunks[request.path[1:]] = b"ab"
            return _json(201, {"size": 2})

        async def drop(request: web.Request) -> web.StreamResponse:
            assert request.transport is not None
            request.transport.abort()
            return _response(500)

        # A request whose connection breaks is sent once more by the HTTP client, as PUT may be.
        full.answers, short.answers, broken.answers = [refuse], [cut], [drop, drop]
        chunk = await parts.channel.upload([b"abc", b"def"])
        assert {chunk.file_id: b"abcdef"} == healthy.chunks
        assert 3 == parts.metrics.filer_retries["upload"]
        assert {"uploaded": 6} == parts.metrics.filer_bytes
        for _ in range(3):
            await parts.filer.removals.get()
        assert {} == short.chunks


async def test_a_chunk_that_volume_servers_do_not_take_is_not_sent_again() -> None:
    """The limit is theirs (-fileSizeLimitMB), and is named."""
    async with opened() as parts:

        async def refuse(request: web.Request) -> web.StreamResponse:
            return _json(400, {"error": "file over the limited 1048576 bytes"})

        parts.filer.servers[0].answers = [refuse]
        with pytest.raises(ChunkTooLargeError, match=r"chunk of 3 bytes .*-fileSizeLimitMB"):
            await parts.channel.upload([b"abc"])
        assert {} == parts.metrics.filer_retries


async def test_an_upload_without_a_volume_waits_for_one() -> None:
    """Volumes grow when they are asked for."""
    async with opened() as parts:
        growing = filer_pb2.AssignVolumeResponse(error="no writable volumes, growth in progress")
        parts.filer.script(filer_pb2.AssignVolumeRequest, growing, growing)
        await parts.channel.upload([b"abc"])
        parts.filer.every_answer[filer_pb2.AssignVolumeRequest] = growing
        parts.clock.advance(5.0)
        with pytest.raises(FilerError, match="no volume can be written: no writable volumes"):
            await parts.channel.upload([b"abc"])


@pytest.mark.slow
async def test_a_volume_server_that_hangs_does_not_use_up_the_deadline() -> None:
    """Half of what is left is for the next one."""
    async with opened(ScriptedFiler(servers=2), timeout_s=patience.seconds(2)) as parts:
        go_on = asyncio.Event()

        async def hang(request: web.Request) -> web.StreamResponse:
            await go_on.wait()
            return _response(500)

        parts.filer.servers[0].answers = [hang]
        chunk = await parts.channel.upload([b"abc"])
        assert {chunk.file_id: b"abc"} == parts.filer.servers[1].chunks
        go_on.set()


async def test_an_upload_is_synced_where_a_rule_of_the_path_asks_for_it() -> None:
    """As of the next ids, whatever the gateway's own setting; the filer tells with them."""
    async with opened() as parts:
        (server,) = parts.filer.servers
        for is_synced in (False, True, False):
            parts.filer.is_synced = is_synced
            await parts.channel.upload([b"x"])
            parts.clock.advance(5.0)
        assert [None, "true", None] == [one.query.get("fsync") for one in server.requests]


async def test_ids_that_were_asked_for_before_are_forgotten() -> None:
    """Those that are there, and those that are on their way: a rule may have made them expire."""
    async with opened() as parts:
        parts.clock.advance(1.0)
        await parts.channel.upload([b"x"])
        before = parts.filer.count(filer_pb2.AssignVolumeRequest)
        parts.channel.forget_places()
        await parts.channel.upload([b"x"])
        assert before < parts.filer.count(filer_pb2.AssignVolumeRequest)
        parts.channel.forget_places()
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def late() -> filer_pb2.AssignVolumeResponse | None:
            asked.set()
            await go_on.wait()
            return filer_pb2.AssignVolumeResponse(
                file_id="99,010000c0ffee",
                count=4,
                location=filer_pb2.Location(url=parts.filer.servers[0].url),
            )

        parts.filer.scripts.setdefault(filer_pb2.AssignVolumeRequest, []).append(late)
        upload = asyncio.ensure_future(parts.channel.upload([b"x"]))
        await asked.wait()
        parts.channel.forget_places()
        go_on.set()
        assert not (await upload).file_id.startswith("99,")


async def test_an_upload_carries_the_token_that_came_with_its_id() -> None:
    """SeaweedFS signs it for the ids of one answer."""
    async with opened() as parts:
        parts.filer.auth = "signed"
        await parts.channel.upload([b"abc"])
        headers = parts.filer.servers[0].requests[0].headers
        assert "Bearer signed" == headers["Authorization"]


# --- encryption ---


def _encrypting(servers: int = 1) -> ScriptedFiler:
    filer = ScriptedFiler(servers=servers)
    filer.encrypts = True
    return filer


async def test_a_filer_that_encrypts_gets_encrypted_chunks() -> None:
    """What its volume servers hold says nothing, and its length is that of the content."""
    async with opened(_encrypting()) as parts:
        assert parts.channel.encrypts
        chunk = await parts.channel.upload([b"abc", b"def"])
        (stored,) = parts.filer.servers[0].chunks.values()
        assert b"abc" not in stored
        assert b"abcdef" == decrypt(chunk.cipher_key, stored, 6, is_compressed=False)
        assert 6 == chunk.size_bytes
        await parts.channel.create(PLACE, FilerEntry("file", (chunk,)))
        found = await parts.channel.look_up(PLACE, "file")
        assert found is not None
        assert b"cd" == await parts.channel.read_chunk(found.chunks[0], 2, 2)
        # Only whole can it be decrypted, and no more than it has is asked for.
        (asked,) = (one for one in parts.filer.servers[0].requests if one.method == "GET")
        assert f"bytes=0-{len(stored) - 1}" == asked.headers["Range"]
        with pytest.raises(ChunkMissingError, match="too short for 5 bytes from 2"):
            await parts.channel.read_chunk(found.chunks[0], 2, 5)


async def test_large_chunks_are_encrypted_too() -> None:
    """In a thread, and in pieces as they come."""
    async with opened(_encrypting()) as parts:
        pieces = [bytes([number]) * 100_000 for number in range(5)]
        chunk = await parts.channel.upload(pieces)
        assert b"".join(pieces) == await parts.channel.read_chunk(chunk, 0, 500_000)


async def test_chunks_in_the_clear_are_read_where_the_filer_encrypts() -> None:
    """They were stored before it was told to; the other way round as well."""
    async with opened(_encrypting()) as parts:
        clear = Chunk("0,01c0ffee", 0, 3)
        parts.filer.servers[0].chunks[clear.file_id] = b"abc"
        encrypted = await parts.channel.upload([b"def"])
        assert b"abc" == await parts.channel.read_chunk(clear, 0, 3)
    parts.filer.encrypts = False
    async with opened(parts.filer) as again:
        assert not again.channel.encrypts
        assert b"def" == await again.channel.read_chunk(encrypted, 0, 3)
        assert not (await again.channel.upload([b"ghi"])).cipher_key


async def test_a_filer_that_is_started_anew_may_encrypt_from_then_on() -> None:
    """Or no more: whoever asks again follows it."""
    async with opened() as parts:
        clear = await parts.channel.upload([b"abc"])
        for is_on in (True, False):
            parts.filer.encrypts = is_on
            await parts.channel.refresh()
            assert is_on == parts.channel.encrypts
            chunk = await parts.channel.upload([b"def"])
            assert is_on == bool(chunk.cipher_key)
            assert b"def" == await parts.channel.read_chunk(chunk, 0, 3)
        assert b"abc" == await parts.channel.read_chunk(clear, 0, 3)


async def test_without_the_package_a_filer_that_encrypts_later_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is stored in the clear meanwhile, and whoever stores is answered."""
    async with opened() as parts:
        parts.filer.encrypts = True
        without_package(monkeypatch)
        with pytest.raises(DataDirectoryError, match="package cryptography"):
            await parts.channel.refresh()
        with pytest.raises(FilerError, match="package cryptography"):
            await parts.channel.upload([b"abc"])
        assert not parts.filer.servers[0].requests


# --- rules by path ---


async def test_rules_and_remote_mounts_are_read() -> None:
    """Inline, or from the chunks that a long file has; none where there is no file."""
    async with opened() as parts:
        channel = parts.channel
        assert () == await channel.rules()
        content = b'{"locations": [{"locationPrefix": "/a/", "ttl": "3d"}]}'
        chunk = await channel.upload([content])
        await channel.create("/etc/seaweedfs", FilerEntry("filer.conf", (chunk,)))
        bucket = remote_pb2.RemoteStorageLocation(name="cloud", bucket="b", path="/p")
        mapping = remote_pb2.RemoteStorageMapping(mappings={"/b": bucket, "/c/": bucket})
        await channel.create(
            "/etc/remote", FilerEntry("mount.mapping", content=mapping.SerializeToString())
        )
        expected = {
            PathRule("/a/", ttl="3d"),
            PathRule("/b/", is_remote=True),
            PathRule("/c/", is_remote=True),
        }
        assert expected == set(await channel.rules())
        await channel.put("/etc/remote", FilerEntry("mount.mapping", content=b"\xff"))
        with pytest.raises(CorruptionError, match=r"/etc/remote/mount\.mapping cannot be under"):
            await channel.rules()


async def test_the_master_that_has_answered_is_asked_first() -> None:
    """Twice a second: the others are not tried in vain each time."""
    async with opened() as parts:
        for _ in range(5):
            await parts.channel.filers()
        assert {"list_nodes": 1} == parts.metrics.filer_retries


async def test_an_encrypted_chunk_is_read_from_the_replica_that_is_not_altered() -> None:
    """Where all are altered it counts as gone, and what is read is nothing else."""
    async with opened(_encrypting(servers=2)) as parts:
        first, second = parts.filer.servers
        chunk = await parts.channel.upload([b"abc"])
        volume = chunk.file_id.partition(",")[0]
        parts.filer.locations[volume] = [first, second]
        good = (first.chunks | second.chunks)[chunk.file_id]
        altered = good[:-1] + bytes([good[-1] ^ 1])
        first.chunks[chunk.file_id], second.chunks[chunk.file_id] = altered, good
        assert b"abc" == await parts.channel.read_chunk(chunk, 0, 3)
        second.chunks[chunk.file_id] = altered
        with pytest.raises(ChunkMissingError, match="cannot be decrypted"):
            await parts.channel.read_chunk(chunk, 0, 3)


# --- reading ---


async def test_a_volume_that_has_moved_is_looked_up_again() -> None:
    """Where it was known to be, nobody has it any more."""
    async with opened(ScriptedFiler(servers=2)) as parts:
        old, new = parts.filer.servers
        chunk = await parts.channel.upload([b"abcdef"])
        assert b"abc" == await parts.channel.read_chunk(chunk, 0, 3)
        assert b"def" == await parts.channel.read_chunk(chunk, 3, 3)
        assert 1 == parts.filer.count(filer_pb2.LookupVolumeRequest)
        new.chunks, old.chunks = old.chunks, {}
        parts.filer.locations["0"] = [new]
        assert b"abc" == await parts.channel.read_chunk(chunk, 0, 3)
        assert 2 == parts.filer.count(filer_pb2.LookupVolumeRequest)


async def test_another_replica_is_read_when_one_fails() -> None:
    """Whether it is down, broken, or has lost the chunk; at once, without another look-up."""
    async with opened(ScriptedFiler(servers=4)) as parts:
        down, broken, empty, good = parts.filer.servers
        await down.stop()
        chunk = Chunk("7,01c0ffee", 0, 3)
        good.chunks[chunk.file_id] = b"abc"
        parts.filer.locations["7"] = [down, broken, empty, good]

        async def fail(request: web.Request) -> web.StreamResponse:
            return _response(500)

        broken.answers = [fail]
        assert b"abc" == await parts.channel.read_chunk(chunk, 0, 3)
        assert {} == parts.metrics.filer_retries
        assert {"read": 3} == parts.metrics.filer_bytes


class Hanging:
    """A volume server's answer that comes when the test says so."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.has_come = asyncio.Event()
        self.count = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Wait."""
        self.count += 1
        self.has_come.set()
        await self.may_go_on.wait()
        return _response(500)


async def _come(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), patience.seconds(5))


async def test_another_replica_is_read_when_one_hangs() -> None:
    """Beside it, after a moment; others try the one that hangs last, for a while."""
    async with opened(ScriptedFiler(servers=2)) as parts:
        hung, good = parts.filer.servers
        chunk = Chunk("7,01c0ffee", 0, 3)
        good.chunks[chunk.file_id] = b"abc"
        parts.filer.locations["7"] = [hung, good]
        hangs = hung.every_answer = Hanging()
        reading = asyncio.ensure_future(parts.channel.read_chunk(chunk, 0, 3))
        await _come(hangs.has_come)
        assert not good.requests
        parts.clock.advance(SILENT_S)
        assert b"abc" == await reading
        for _ in range(50):
            assert b"abc" == await parts.channel.read_chunk(chunk, 0, 3)
        assert 1 == hangs.count
        parts.clock.advance(AVOIDED_S)
        # It may have paused for a moment.
        assert () == tuple(parts.channel.problems)
        reading = asyncio.ensure_future(parts.channel.read_chunk(chunk, 0, 3))
        hangs.has_come.clear()
        await _come(hangs.has_come)
        assert 2 == hangs.count
        parts.clock.advance(SILENT_S)
        assert b"abc" == await reading
        (problem,) = parts.channel.problems
        assert VOLUME_SERVER is problem.reason
        assert hung.url in problem.text
        hung.every_answer = None
        hung.chunks[chunk.file_id] = b"abc"
        parts.clock.advance(AVOIDED_S)
        assert b"abc" == await parts.channel.read_chunk(chunk, 0, 3)
        assert () == tuple(parts.channel.problems)
        hangs.may_go_on.set()


async def test_a_server_that_breaks_uploads_off_is_named() -> None:
    """It gives no status that would say why."""
    async with opened(ScriptedFiler(servers=1)) as parts:
        (server,) = parts.filer.servers

        async def break_off(request: web.Request) -> web.StreamResponse:
            assert request.transport is not None
            request.transport.close()
            return web.Response()

        server.every_answer = break_off
        with pytest.raises(FilerError):
            await parts.channel.upload([b"abc"])
        parts.clock.advance(1)
        (problem,) = parts.channel.problems
        assert VOLUME_SERVER is problem.reason
        assert server.url in problem.text


async def test_a_slow_replica_that_answers_first_is_taken() -> None:
    """And then it is not avoided."""
    async with opened(ScriptedFiler(servers=2)) as parts:
        slow, other = parts.filer.servers
        chunk = Chunk("7,01c0ffee", 0, 3)
        parts.filer.locations["7"] = [slow, other]
        begun, may_answer = asyncio.Event(), asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            begun.set()
            await may_answer.wait()
            return web.Response(status=206, body=b"abc")

        slow.every_answer = answer
        hangs = other.every_answer = Hanging()
        reading = asyncio.ensure_future(parts.channel.read_chunk(chunk, 0, 3))
        await _come(begun)
        parts.clock.advance(SILENT_S)
        await _come(hangs.has_come)
        may_answer.set()
        assert b"abc" == await reading
        assert b"abc" == await parts.channel.read_chunk(chunk, 0, 3)
        assert 1 == hangs.count
        hangs.may_go_on.set()


async def test_a_failing_server_is_named_and_a_chunk_that_is_too_large_names_none() -> None:
    """Uploads that go elsewhere in the end are told of as well."""
    async with opened(ScriptedFiler(servers=1)) as parts:
        (server,) = parts.filer.servers

        async def refuse(request: web.Request) -> web.StreamResponse:
            return _json(400, {"error": "file over the limited 1048576 bytes"})

        server.answers = [refuse]
        with pytest.raises(ChunkTooLargeError):
            await parts.channel.upload([b"abc"])
        parts.clock.advance(1)
        assert () == tuple(parts.channel.problems)

        async def fail(request: web.Request) -> web.StreamResponse:
            return _response(507, "no space left")

        server.every_answer = fail
        with pytest.raises(FilerError, match="507"):
            await parts.channel.upload([b"abc"])
        parts.clock.advance(1)
        (problem,) = parts.channel.problems
        assert VOLUME_SERVER is problem.reason
        assert server.url in problem.text
        server.every_answer = None
        await parts.channel.upload([b"abc"])
        assert () == tuple(parts.channel.problems)


async def test_no_volume_is_told_until_there_is_one() -> None:
    """Whether somebody uploads or not: it is asked for again, and a moment of it is nothing."""
    async with opened() as parts:
        none = filer_pb2.AssignVolumeResponse(error="no free volumes left")
        parts.filer.every_answer[filer_pb2.AssignVolumeRequest] = none
        deadline_s = parts.clock.monotonic_s() + 0.9
        with pytest.raises(FilerError, match="no free volumes left"):
            await parts.channel.upload([b"abc"], deadline_s=deadline_s)
        assert () == tuple(parts.channel.problems)
        parts.clock.advance(1)
        (problem,) = parts.channel.problems
        assert NO_VOLUME is problem.reason
        assert "no free volumes left" in problem.text
        await parts.channel.look()
        assert parts.channel.problems
        del parts.filer.every_answer[filer_pb2.AssignVolumeRequest]
        await parts.channel.look()
        assert () == tuple(parts.channel.problems)
        asked = parts.filer.count(filer_pb2.AssignVolumeRequest)
        await parts.channel.look()
        assert asked == parts.filer.count(filer_pb2.AssignVolumeRequest)


@pytest.mark.slow
async def test_one_deadline_covers_a_call_and_all_that_is_tried() -> None:
    """Four servers hang; together they get no more time than one would."""
    clock = SystemClock()
    async with opened(ScriptedFiler(servers=4), clock=clock) as parts:
        go_on = asyncio.Event()

        asked_s: list[float] = []

        async def hang(request: web.Request) -> web.StreamResponse:
            asked_s.append(clock.monotonic_s())
            await go_on.wait()
            return _response(500)

        chunk = Chunk("7,01c0ffee", 0, 3)
        parts.filer.locations["7"] = parts.filer.servers
        for server in parts.filer.servers:
            server.every_answer = hang
        deadline_s = clock.monotonic_s() + patience.seconds(1.5)
        with pytest.raises(FilerError, match="given up at the deadline"):
            await parts.channel.read_chunk(chunk, 0, 3, deadline_s=deadline_s)
        # Where each had all the time, the second would be asked when it is over.
        assert asked_s[1] < deadline_s
        go_on.set()


async def test_a_chunk_that_no_server_has_is_missing() -> None:
    """It is asked for again over a while, as volumes move; then it is damage."""
    async with opened() as parts:
        chunk = await parts.channel.upload([b"abc"])
        with pytest.raises(ChunkMissingError, match="too short for 4 bytes from 0"):
            await parts.channel.read_chunk(chunk, 0, 4)
        parts.filer.servers[0].chunks.clear()
        with pytest.raises(ChunkMissingError, match=r"is not there .*`weed fix -volumeId=0`"):
            await parts.channel.read_chunk(chunk, 0, 3)
        assert {"read": 10} == parts.metrics.filer_retries


async def test_a_chunk_whose_servers_are_away_is_not_missing() -> None:
    """Nobody could say that it is gone: the error is one that may pass."""
    async with opened(ScriptedFiler(servers=2)) as parts:
        empty, broken = parts.filer.servers
        chunk = Chunk("7,01c0ffee", 0, 3)
        parts.filer.locations["7"] = [empty, broken]

        async def fail(request: web.Request) -> web.StreamResponse:
            return _response(503)

        broken.every_answer = fail
        with pytest.raises(FilerError, match="answers 503; given up at the deadline"):
            await parts.channel.read_chunk(chunk, 0, 3)


async def test_a_volume_that_nobody_knows_is_not_a_missing_chunk() -> None:
    """Its server may be starting."""
    async with opened() as parts:
        unknown = Abort(StatusCode.UNKNOWN, "volume id 7 not found")
        parts.filer.every_answer[filer_pb2.LookupVolumeRequest] = unknown
        with pytest.raises(FilerError, match="volume id 7 not found"):
            await parts.channel.read_chunk(Chunk("7,01c0ffee", 0, 3), 0, 3)


async def test_a_server_that_sends_the_whole_chunk_is_understood() -> None:
    """As one does that knows nothing of ranges."""
    async with opened() as parts:
        chunk = await parts.channel.upload([b"abcdef"])

        async def whole(request: web.Request) -> web.StreamResponse:
            return _response(200, "abcdef")

        parts.filer.servers[0].answers = [whole]
        assert b"cd" == await parts.channel.read_chunk(chunk, 2, 2)
        assert {} == parts.metrics.filer_retries


async def test_reads_carry_a_token_where_there_is_a_key() -> None:
    """Without the key, what is missing is said."""
    async with opened(security=Security(read_key="secret")) as parts:
        chunk = await parts.channel.upload([b"abc"])
        await parts.channel.read_chunk(chunk, 0, 3)
        headers = parts.filer.servers[0].requests[-1].headers
        assert headers["Authorization"].startswith("Bearer ey")

        async def refuse(request: web.Request) -> web.StreamResponse:
            return _response(401)

        parts.filer.servers[0].answers = [refuse]
        with pytest.raises(FilerError, match=r"jwt\.signing\.read"):
            await parts.channel.read_chunk(chunk, 0, 3)


# --- removing ---


async def test_chunks_are_removed_from_every_replica() -> None:
    """A removal is repeated until each server has confirmed it."""
    async with opened(ScriptedFiler(servers=2)) as parts:
        chunk = await parts.channel.upload([b"abc"])
        parts.filer.locations["0"] = parts.filer.servers
        parts.filer.script(volume_server_pb2.BatchDeleteRequest, AWAY)
        await parts.channel.delete_chunks([chunk])
        assert 3 == parts.filer.count(volume_server_pb2.BatchDeleteRequest)
        assert {} == parts.filer.servers[0].chunks


async def test_a_chunk_that_cannot_be_removed_is_an_error() -> None:
    """As on a volume that is read-only."""
    async with opened() as parts:
        refused = volume_server_pb2.BatchDeleteResponse(
            results=[{"file_id": "0,1", "status": 500, "error": "read only"}]
        )
        parts.filer.every_answer[volume_server_pb2.BatchDeleteRequest] = refused
        with pytest.raises(FilerError, match="read only; given up"):
            await parts.channel.delete_chunks([Chunk("0,1", 0, 3)])


def _response(status: int, text: str = "") -> web.Response:
    return web.Response(status=status, text=text)


def _json(status: int, data: object) -> web.Response:
    return web.json_response(data, status=status)


async def _error_of(call: Coroutine[None, None, object]) -> Exception:
    try:
        await call
    except FilerError as error:
        return error
    raise AssertionError("it was done")
