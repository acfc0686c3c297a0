"""New certificates under a running listener."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
import threading
from typing import TYPE_CHECKING, cast

import pytest
import uvloop

from kgw.security.tls import reload
from kgw.security.tls.errors import TlsSettingError
from kgw.security.tls.keystores import key_file_warning, read_key_material
from kgw.security.tls.options import TlsOptions
from kgw.security.tls.reload import (
    CertificateFiles,
    Reload,
    ReloadableContext,
    load_problem,
    stamps_of,
)
from kgw.testing.certificates import DAY_S
from tests import patience
from tests.security.tls.handshakes import (
    NOW_S,
    client_context,
    options,
    pki,
    server_context,
    shake,
    with_clients,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

EVERY_S = 10.0
FIRST = pki().server
SECOND = pki().other_server


def subject_of(context: ssl.SSLContext | None) -> str:
    """Return the name in the certificate that a server with this context shows."""
    assert context is not None
    client = client_context()
    outcome = shake(context, client)
    shown = outcome.client.getpeercert()
    assert shown is not None
    names: list[str] = [value for _, value in shown["subjectAltName"]]  # type: ignore[misc, str-unpack]
    return names[0]


class Stores:
    """A keystore and a truststore in files, and what watches them."""

    def __init__(self, folder: Path) -> None:
        self.keystore = folder / "keystore.pem"
        self.truststore = folder / "truststore.pem"
        self.keystore.write_text(FIRST.keystore_pem())
        self.keystore.chmod(0o600)
        self.truststore.write_text(pki().authority.truststore_pem)
        self.options = TlsOptions(
            keystore_location=str(self.keystore),
            truststore_location=str(self.truststore),
            client_auth="requested",
        )
        self.files = CertificateFiles(self.options, NOW_S)
        self.now_s = NOW_S

    def look(self) -> Reload:
        """Look ten seconds later."""
        self.now_s += EVERY_S
        return self.files.look(self.now_s)

    def problem(self) -> str:
        """Look again, and return why the files cannot be loaded."""
        try:
            self.look()
        except Exception as error:  # noqa: BLE001 - the caller compares the sentence
            return load_problem(error)
        return ""


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    """Return files with the first certificate."""
    return Stores(tmp_path)


def test_unchanged_files_give_no_context(stores: Stores) -> None:
    """The first one has been read at the start."""
    assert subject_of(stores.files.first.context) == "localhost"
    assert stores.look() == Reload()


def test_a_new_certificate_gives_a_new_context(stores: Stores) -> None:
    """Once."""
    stores.keystore.write_text(SECOND.keystore_pem())
    assert subject_of(stores.look().context) == "second.example"
    assert stores.look() == Reload()


def test_a_file_of_the_same_size_and_time_is_noticed_by_its_inode(stores: Stores) -> None:
    """A tool may keep the times of the file that it replaces."""
    before = stores.keystore.stat()
    replacement = stores.keystore.with_suffix(".new")
    replacement.write_bytes(stores.keystore.read_bytes())
    os.utime(replacement, ns=(before.st_atime_ns, before.st_mtime_ns))
    replacement.rename(stores.keystore)
    assert stores.look().context is not None


def test_new_authorities_give_a_new_context(stores: Stores) -> None:
    """Clients of the old authority are refused, those of the new one accepted."""
    stores.truststore.write_text(pki().other.truststore_pem)
    context = stores.look().context
    assert context is not None
    assert shake(context, client_context(pki().stranger)).is_connected
    assert not shake(context, client_context(pki().client)).is_connected


def test_a_secret_of_kubernetes_is_noticed(tmp_path: Path) -> None:
    """The file is a link through a link to a directory, and only the latter is replaced."""
    for name, issued in (("..1", FIRST), ("..2", SECOND)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tls.pem").write_text(issued.keystore_pem())
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "tls.pem").symlink_to("..data/tls.pem")
    given = TlsOptions(keystore_location=str(tmp_path / "tls.pem"))
    files = CertificateFiles(given, NOW_S)
    assert files.look(NOW_S) == Reload()
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert subject_of(files.look(NOW_S).context) == "second.example"


def test_files_that_cannot_be_loaded_are_told(stores: Stores) -> None:
    """There is no context then, and the files are tried again."""
    stores.keystore.write_text(FIRST.key_pem() + SECOND.chain_pem)
    sentence = "ssl.keystore.location: the private key does not fit the certificate."
    assert [sentence] * 2 == [stores.problem(), stores.problem()]
    stores.keystore.unlink()
    gone = f"ssl.keystore.location: cannot read {stores.keystore}: No such file or directory."
    assert gone == stores.problem()
    stores.keystore.write_text(SECOND.keystore_pem())
    assert subject_of(stores.look().context) == "second.example"


def test_files_are_tried_again_without_a_new_stamp(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing permission changes no stamp when it is given."""

    def refuse(given: TlsOptions) -> object:
        raise TlsSettingError("no permission")

    stores.keystore.write_text(SECOND.keystore_pem())
    monkeypatch.setattr(reload, "read_key_material", refuse)
    assert ["no permission"] * 2 == [stores.problem(), stores.problem()]
    monkeypatch.undo()
    assert subject_of(stores.look().context) == "second.example"


def test_a_broken_truststore_keeps_the_new_key_back(stores: Stores) -> None:
    """Keystore and truststore are one set."""
    stores.keystore.write_text(SECOND.keystore_pem())
    stores.truststore.write_text("")
    assert f"ssl.truststore.location: {stores.truststore} is empty." == stores.problem()
    stores.truststore.write_text(pki().authority.truststore_pem)
    assert subject_of(stores.look().context) == "second.example"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(errno.EMFILE, "Too many open files", "/tmp/kgw-tls-1"),
            "the certificates cannot be loaded: Too many open files.",
        ),
        (ssl.SSLError("odd"), "the certificates cannot be loaded: SSLError."),
        (MemoryError(), "the certificates cannot be loaded: MemoryError: ."),
    ],
)
def test_an_unexpected_error_ends_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
) -> None:
    """It has a sentence, and the files are loaded when the cause is gone."""

    def fail(*_: object) -> None:
        raise error

    stores.keystore.write_text(SECOND.keystore_pem())
    monkeypatch.setattr(reload, "context_from", fail)
    assert [sentence] * 3 == [stores.problem() for _ in range(3)]
    monkeypatch.undo()
    assert subject_of(stores.look().context) == "second.example"
    assert stores.look() == Reload()


def test_files_that_seem_the_same_are_loaded_for_an_operator(stores: Stores) -> None:
    """A file that was written in place within the resolution of its times has the same stamp."""
    assert stores.look() == Reload()
    assert subject_of(stores.files.look(stores.now_s, is_asked=True).context) == "localhost"
    assert stores.look() == Reload()


def test_a_change_while_the_files_are_read_is_noticed_later(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stamps are from before the files are read."""
    real = read_key_material

    def changed_behind(given: TlsOptions) -> object:
        material = real(given)
        stores.keystore.write_text(SECOND.keystore_pem())
        return material

    monkeypatch.setattr(reload, "read_key_material", changed_behind)
    files = CertificateFiles(stores.options, NOW_S)
    monkeypatch.undo()
    assert subject_of(files.first.context) == "localhost"
    assert subject_of(files.look(NOW_S).context) == "second.example"


def test_warnings_come_with_the_context(stores: Stores) -> None:
    """A certificate that has expired is used, as at the start."""
    late = pki().authority.issue_server(["late"], not_after_s=NOW_S - DAY_S / 2)
    stores.keystore.write_text(late.keystore_pem())
    found = stores.look()
    assert found.context is not None
    (warning,) = found.warnings
    assert warning.startswith("ssl.keystore.location: the certificate CN=late expired on ")
    assert stores.look() == Reload()


@pytest.mark.parametrize(
    ("mode", "is_told"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)]
)
def test_a_key_file_that_others_can_read(stores: Stores, mode: int, is_told: bool) -> None:
    """Its mode is told whenever it is loaded, and it is used."""
    stores.keystore.write_text(SECOND.keystore_pem())
    stores.keystore.chmod(mode)
    found = stores.look()
    assert found.context is not None
    assert found.expiry is not None
    assert found.expiry.certificate.startswith("ssl.keystore.location: the certificate CN=second")
    assert SECOND.certificate.not_valid_after_utc.timestamp() == found.expiry.not_after_s
    sentence = (
        f"ssl.keystore.location: {stores.keystore} has a private key, and its mode {mode:04o} "
        "opens it to other users: set the mode to 0600."
    )
    assert ((sentence,) if is_told else ()) == found.warnings
    assert stores.look() == Reload()


@pytest.mark.parametrize(
    ("mode", "owner", "user", "wanted"),
    [
        (0o600, 1000, 1000, ""),
        (0o640, 1000, 1000, "0600"),
        (0o440, 0, 1000, ""),
        (0o640, 0, 1000, ""),
        (0o660, 0, 1000, "0640"),
        (0o444, 0, 1000, "0640"),
        (0o640, 0, 0, "0600"),
        (0o640, 7, 1000, "0600"),
    ],
)
def test_a_file_of_root_may_be_read_by_its_group(
    mode: int, owner: int, user: int, wanted: str
) -> None:
    """The server could not read it otherwise, as in a pod of Kubernetes."""
    warning = key_file_warning("ssl.keystore.location", "k.pem", mode, owner=owner, user=user)
    sentence = (
        f"ssl.keystore.location: k.pem has a private key, and its mode {mode:04o} opens it to "
        f"other users: set the mode to {wanted}."
    )
    assert (sentence if wanted else None) == warning


def test_a_key_file_that_is_removed_while_it_is_loaded(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content is used; the next look finds that it is gone."""
    real = read_key_material

    def removed_behind(given: TlsOptions) -> object:
        material = real(given)
        stores.keystore.unlink()
        return material

    stores.keystore.write_text(SECOND.keystore_pem())
    monkeypatch.setattr(reload, "read_key_material", removed_behind)
    found = stores.look()
    monkeypatch.undo()
    assert (subject_of(found.context), found.warnings) == ("second.example", ())
    assert "No such file" in stores.problem()


def test_the_first_files_must_be_good(tmp_path: Path) -> None:
    """A listener does not start without a certificate."""
    given = TlsOptions(keystore_location=str(tmp_path / "missing"))
    assert stamps_of(given) == {str(tmp_path / "missing"): None}
    with pytest.raises(TlsSettingError, match="No such file"):
        CertificateFiles(given, NOW_S)


def test_texts_in_the_configuration_never_change() -> None:
    """They name no file."""
    files = CertificateFiles(options(), NOW_S)
    assert files.look(NOW_S + 100) == Reload()


# --- the context of a server ---


def test_a_resumed_session_is_verified_with_the_new_truststore() -> None:
    """An exchange of contexts in `sni_callback` would accept this client."""
    first = with_clients(enabled_protocols=("TLSv1.2",))
    second = first._replace(truststore_certificates=pki().other.truststore_pem)
    context = ReloadableContext(server_context(first))
    client = client_context(pki().client)
    # OpenSSL forgets a session whose connection is dropped without a farewell.
    kept = shake(context, client)
    session = kept.client.session
    assert shake(context, client, session).client.session_reused
    context.replace(server_context(second))
    assert not shake(context, client, session).is_connected


def test_client_authentication_can_begin_and_end() -> None:
    """Each new connection has everything of the new context."""
    context = ReloadableContext(server_context(options()))
    assert shake(context, client_context()).is_connected
    context.replace(server_context(with_clients()))
    assert not shake(context, client_context()).is_connected
    context.replace(server_context(options(enabled_protocols=("TLSv1.2",))))
    assert shake(context, client_context()).server.version() == "TLSv1.2"


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is not a subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    """Sends back what comes, as kgw's connections read."""

    def __init__(self) -> None:
        self._buffer = bytearray(1_000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is not a subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._transport.write(bytes(self._buffer[:nbytes]))


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> bytes:
    """Return the echo."""
    writer.write(text)
    return await reader.readexactly(len(text))


def name_shown(writer: asyncio.StreamWriter) -> str:
    """Return the first name in the server's certificate."""
    shown = writer.get_extra_info("peercert")
    return str(shown["subjectAltName"][0][1])


async def change_under_a_connection(stores: Stores, protocol: type[asyncio.BaseProtocol]) -> None:
    """Tell the whole story."""
    first = stores.files.first.context
    assert first is not None
    context = ReloadableContext(first)
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    opened: list[asyncio.StreamWriter] = []

    async def connect(name: str | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        streams = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_context(), server_hostname=name
        )
        opened.append(streams[1])
        return streams

    try:
        # An address is never sent as the name of the server (SNI).
        old = await connect()
        assert name_shown(old[1]) == "localhost"
        assert await ask(*old, b"a") == b"a"

        stores.keystore.write_text(SECOND.chain_pem)
        with pytest.raises(TlsSettingError):
            await asyncio.to_thread(stores.look)
        still = await connect()
        assert name_shown(still[1]) == "localhost"

        stores.keystore.write_text(SECOND.keystore_pem())
        found = await asyncio.to_thread(stores.look)
        assert found.context is not None
        context.replace(found.context)
        assert await ask(*old, b"b" * 100_000) == b"b" * 100_000
        new = await connect()
        with_name = await connect("localhost")
        assert [name_shown(one[1]) for one in (new, with_name)] == ["second.example"] * 2
        for one in (new, with_name, still, old):
            assert await ask(*one, b"c") == b"c"
    finally:
        for writer in opened:
            writer.close()
            await writer.wait_closed()
        server.close()
        await server.wait_closed()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[..., None]]:
    """Return a function that runs a coroutine in an event loop of each kind."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = request.param

    def in_loop(coroutine: Coroutine[object, object, None]) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(asyncio.wait_for(coroutine, patience.seconds(10)))

    threads = threading.active_count()
    yield in_loop
    assert threads == threading.active_count()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [Echo, BufferedEcho])
def test_a_certificate_changes_under_an_open_connection(
    stores: Stores, run: Callable[..., None], protocol: type[asyncio.BaseProtocol]
) -> None:
    """The connection stays open, and the next client sees the new certificate."""
    run(change_under_a_connection(stores, protocol))
