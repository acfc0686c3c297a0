from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Self

import pytest

from kgw.admin.server import AdminServer
from kgw.cli.shared.errors import ExitCode
from kgw.client import AsyncClient, ServerRefusedError
from kgw.config import Listener
from kgw.errors import ErrorCode
from kgw.lag.samples import history_points
from kgw.offsets.committed import DAMAGED_OFFSET, NO_EXPIRY_MS, CommittedOffset
from kgw.offsets.lag import FoundAnomaly, LagAnomaly
from tests import patience
from tests.cli.conftest import Commands
from tests.client.serving import ServerThread

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path
    from typing import Any


class WatchedThread(ServerThread):
    """A server with an admin listener."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.run(self._open())
        return self

    def __exit__(self, *args: object) -> None:
        self.run(self._server.aclose())
        super().__exit__(*args)

    def run(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run something in the server's loop."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(patience.seconds(10))

    async def _open(self) -> None:
        self._server = AdminServer(self.gateway, 8)
        (bound,) = await self._server.bind([Listener("ADMIN", "127.0.0.1", 0)])
        await self._server.start()
        self.admin = f"127.0.0.1:{bound.port}"


@pytest.fixture(scope="module")
def server() -> Iterator[WatchedThread]:
    """A server that can be asked over HTTP too; sampled when somebody asks."""
    with WatchedThread(lag_interval_ms=0) as thread:
        yield thread


@pytest.fixture(scope="module")
def behind(server: WatchedThread, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two groups in a topic of two partitions, ten records in each; returns the topic's name."""
    kgw = Commands(server.address)
    kgw.succeed("topics", "create", "behind", "-p", "2")
    for partition in ("0", "1"):
        kgw.succeed("produce", "behind", "-p", partition, data="v\n" * 10)
    for group, offset in (("slow", 1), ("quick", 9)):
        moved(kgw, group, "behind", offset, tmp_path_factory.mktemp("undo"))
    return "behind"


def moved(kgw: Commands, group: str, topic: str, offset: int, folder: Path) -> None:
    """Let a group stand at one offset in every partition of a topic."""
    command = ["groups", "reset-offsets", group, "--topic", topic, "--to-offset", str(offset)]
    kgw.succeed(*command, "--execute", "--undo-file", str(folder / f"{group}.json"))


def test_sums_and_places(tmp_path: Path) -> None:
    """Totals, the greatest lag first, over Kafka's protocol alone."""
    with ServerThread() as thread:
        kgw = Commands(thread.address)
        assert "committed anything" in kgw.run("offsets", "lag").stderr
        kgw.succeed("topics", "create", "orders", "-p", "2")
        kgw.succeed("produce", "orders", "-p", "0", data="v\n" * 10)
        kgw.succeed("produce", "orders", "-p", "1", data="v\n" * 4)
        moved(kgw, "slow", "orders", 1, tmp_path)
        moved(kgw, "quick", "orders", 3, tmp_path)
        told = kgw.json("offsets", "lag")
        assert 20 == told["lag"]
        assert [("slow", 12), ("quick", 8)] == [
            (one["group"], one["lag"]) for one in told["groups"]
        ]
        assert [(0, 9), (1, 3)] == [
            (one["partition"], one["lag"]) for one in told["groups"][0]["partitions"]
        ]
        assert None is told["groups"][0]["time_lag_ms"]
        text = kgw.succeed("offsets", "lag", "--group", "slow").splitlines()
        assert ["slow", "orders", "2", "12", "?"] == text[1].split()
        assert "total lag 12" == text[-1]
        text = kgw.succeed("offsets", "lag", "-g", "quick", "--partitions").splitlines()
        assert ["quick", "orders", "0", "3", "0", "10", "7", "?"] == text[1].split()
        assert 0 == kgw.run("offsets", "lag", "--check").exit_code


@pytest.mark.parametrize(
    "arguments", [("-g", "slo"), ("-t", "elsewhere"), ("-g", "slow", "-g", "slo")]
)
def test_mistyped_names_are_no_lag_of_zero(
    kgw: Commands, behind: str, arguments: tuple[str, ...]
) -> None:
    """A name without committed offsets is an error: a check of it would find nothing for ever."""
    message = kgw.fail(ExitCode.FAILED, "offsets", "lag", "--check", *arguments)
    assert "no committed offsets of" in message


def test_a_name_too_long_to_ask_for_hides_no_others(
    kgw: Commands, server: WatchedThread, behind: str, tmp_path: Path
) -> None:
    """Ages of a group that the admin listener refuses are unknown; the others' are there."""
    long = "x" * 2_000
    move = ["groups", "reset-offsets", long, "--topic", behind, "--to-offset", "1", "--execute"]
    kgw.succeed(*move, "--undo-file", str(tmp_path / "undo.json"))
    told = kgw.run("offsets", "lag", "--json", "--admin", server.admin)
    assert ExitCode.OK == told.exit_code
    assert "longer than 1000 characters" in told.stderr
    ages = {one["group"]: one["time_lag_ms"] for one in json.loads(told.stdout)["groups"]}
    assert None is ages[long]
    assert None is not ages["slow"]
    kgw.succeed("groups", "delete", long, "--yes")


def test_more_at_risk_than_are_named(
    kgw: Commands, server: WatchedThread, behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check fails when there are places at risk that the admin listener does not name."""
    lag = server.gateway.lag
    monkeypatch.setattr(lag, "at_risk_listed", 0)
    kgw.succeed("topics", "alter", behind, "--set", "retention.ms=600000")
    server.run(server.gateway.lag.sample())
    result = kgw.run("offsets", "lag", "-g", "quick", "--check", "--admin", server.admin)
    assert ExitCode.FAILED == result.exit_code
    assert "4 more places are at risk" in result.stderr
    kgw.succeed("topics", "alter", behind, "--unset", "retention.ms")
    server.run(server.gateway.lag.sample())


def test_with_an_admin_address(kgw: Commands, server: WatchedThread, behind: str) -> None:
    """Ages, what is at risk, clients and the history come from kgw itself."""
    admin = ("--admin", server.admin)
    text = kgw.succeed("offsets", "lag", *admin, "-g", "slow")
    assert "?" not in text
    kgw.succeed("topics", "alter", behind, "--set", "retention.ms=600000")
    server.run(server.gateway.lag.sample())
    result = kgw.run("offsets", "lag", *admin, "-g", "slow", "--check")
    assert ExitCode.FAILED == result.exit_code
    assert "2 at risk" in result.stdout
    assert ExitCode.OK == kgw.run("offsets", "lag", "-g", "slow", "--check").exit_code
    kgw.succeed("topics", "alter", behind, "--unset", "retention.ms")
    server.run(server.gateway.lag.sample())
    kgw.succeed("consume", behind, "--max-records", "3")
    (client, *_) = kgw.json("offsets", "lag", "--clients", *admin, "-t", behind)
    assert ("kgw-cli", behind) == (client["client"], client["topic"])
    assert "kgw-cli" in kgw.succeed("offsets", "lag", "--clients", *admin)
    assert "no samples" in kgw.run("offsets", "lag", "--history", "-g", "slow", *admin).stderr
    sample = server.gateway.lag.latest
    assert sample is not None
    server.run(server.gateway.backend.state.lag_history.append(history_points(sample)))
    assert "18" in kgw.succeed("offsets", "lag", "--history", "-g", "slow", *admin)
    told = kgw.json("offsets", "lag", "--history", "-g", "slow", "-t", behind, *admin)
    assert [18] == [one["lag"] for one in told["samples"]]


def test_anomalies(kgw: Commands, server: WatchedThread, tmp_path: Path) -> None:
    """What cannot be right is marked, makes --check fail, and is never a number."""
    kgw.succeed("topics", "create", "odd", "-p", "3")
    kgw.succeed("produce", "odd", "-p", "0", data="v\n" * 3)
    moved(kgw, "ahead", "odd", 3, tmp_path)
    topic = server.gateway.catalog.topics["odd"]
    table = server.gateway.groups.offsets("ahead")
    assert table is not None
    damaged = CommittedOffset(DAMAGED_OFFSET, -1, "", 0, NO_EXPIRY_MS, 0.0)
    table.apply({topic.topic_id: dict.fromkeys(range(16), damaged)})
    server.run(server.gateway.lag.sample())
    admin = ("--admin", server.admin)
    text = kgw.succeed("offsets", "lag", "--anomalies", *admin)
    assert 3 == text.count("lasts")
    assert "since the start: 3 committed-damaged" in text
    narrowed = kgw.succeed("offsets", "lag", "--anomalies", "-g", "ahead", "-t", "odd", *admin)
    assert 3 == narrowed.count("lasts")
    assert "since the start" not in narrowed
    assert "None are" in kgw.run("offsets", "lag", "--anomalies", "-g", "slow", *admin).stderr
    counted = kgw.json("offsets", "lag", "--anomalies", *admin)["counted"]
    assert 3 == counted["committed-damaged"]
    told = kgw.json("offsets", "lag", "-g", "ahead")
    (group,) = told["groups"]
    assert (None, 3) == (group["lag"], group["unknown_lags"])
    assert [None] * 3 == [one["lag"] for one in group["partitions"]]
    assert "0 + ?" in kgw.succeed("offsets", "lag", "-g", "ahead")
    result = kgw.run("offsets", "lag", "-g", "ahead", "--check", "--partitions")
    assert ExitCode.FAILED == result.exit_code
    assert 3 == result.stdout.count("committed-damaged")


def test_groups_that_stand_are_marked(
    kgw: Commands, server: WatchedThread, behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the topics in which they do; --anomalies names no partition."""
    lag = server.gateway.lag
    topic_id = server.gateway.catalog.topics[behind].topic_id
    finding = FoundAnomaly(LagAnomaly.GROUP_STANDING, "slow", topic_id, None)
    monkeypatch.setattr(lag, "findings", lambda: [(finding, behind, 0)])
    admin = ("--admin", server.admin)
    result = kgw.run("offsets", "lag", "-g", "slow", "--check", *admin)
    assert ExitCode.FAILED == result.exit_code
    assert "2 group-standing" in result.stdout
    assert ExitCode.OK == kgw.run("offsets", "lag", "-g", "quick", "--check", *admin).exit_code
    text = kgw.succeed("offsets", "lag", "--anomalies", *admin)
    assert ["group-standing", "slow", behind, "-"] == text.splitlines()[1].split()[:4]
    (lasting,) = kgw.json("offsets", "lag", "--anomalies", *admin)["lasting"]
    assert None is lasting["partition"]


def test_a_failed_look_up_is_no_zero(
    kgw: Commands, behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the ends cannot be had, the lag is unknown, said, and the exit code 1."""

    async def bounds(*_: object) -> None:
        raise ServerRefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "cannot look up an offset")

    monkeypatch.setattr(AsyncClient, "bounds", bounds)
    result = kgw.run("offsets", "lag", "-g", "slow")
    assert ExitCode.FAILED == result.exit_code
    assert "2 KAFKA_STORAGE_ERROR" in result.stdout
    assert "total lag 0 + ?" in result.stdout
    told = kgw.run("offsets", "lag", "-g", "slow", "--json")
    assert '"lag": null' in told.stdout


def test_watch(kgw: Commands, behind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same again until Ctrl-C, each time as one line with --json."""
    slept: list[float] = []
    pause = time.sleep

    def sleep(seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            # As Py4J's, where a test of Spark was in this process before.
            pause(seconds)
            return
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    result = kgw.run("offsets", "lag", "-g", "slow", "--watch", "5", "--json")
    assert ExitCode.INTERRUPTED == result.exit_code
    assert 2 == len(result.stdout.splitlines())
    slept.clear()
    assert 2 == kgw.run("offsets", "lag", "-g", "slow", "--watch", "5").stdout.count("total lag")


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("--clients",), "need --admin"),
            (("--anomalies",), "need --admin"),
            (("--history", "-g", "slow"), "need --admin"),
            (("--history", "--admin", "127.0.0.1:1"), "one --group"),
            (("--admin", "nowhere"), "no port"),
            (("--clients", "--history", "--admin", "127.0.0.1:1"), "each stand for themselves"),
            (("--anomalies", "--check", "--admin", "127.0.0.1:1"), "each stand for themselves"),
            (("--clients", "-g", "slow", "--admin", "127.0.0.1:1"), "no --group"),
            (("--clients", "-t", "a", "-t", "b", "--admin", "127.0.0.1:1"), "once"),
            (("--check", "--watch", "1"), "does not end"),
        ],
    )
    def test_wrong_options(self, kgw: Commands, arguments: tuple[str, ...], reason: str) -> None:
        """What cannot be answered is refused before anything is asked."""
        assert reason in kgw.fail(ExitCode.USAGE, "offsets", "lag", *arguments)

    def test_no_admin_listener(self, kgw: Commands) -> None:
        """Nothing there is exit code 3; a Kafka listener, or another's HTTP, is said to be none."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            command = ("offsets", "lag", "--clients", "--admin")
            assert "cannot ask" in kgw.fail(ExitCode.CANNOT_CONNECT, *command, address)

    @pytest.mark.parametrize("body", [b"<html>", b"[]"])
    def test_another_server(self, kgw: Commands, body: bytes) -> None:
        """An answer that is no JSON object is not taken for one."""

        class Other(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        with HTTPServer(("127.0.0.1", 0), Other) as other:
            thread = threading.Thread(target=other.handle_request)
            thread.start()
            address = f"http://127.0.0.1:{other.server_port}/"
            message = kgw.fail(ExitCode.FAILED, "offsets", "lag", "--clients", "--admin", address)
            thread.join(patience.seconds(5))
        assert "no admin listener" in message

    def test_errors_of_the_admin_side(self, kgw: Commands, server: WatchedThread) -> None:
        """What it refuses is told in its words."""
        arguments = ("--clients", "--admin", server.admin, "-t", "x" * 1_001)
        assert "longer than" in kgw.fail(ExitCode.FAILED, "offsets", "lag", *arguments)


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that holds a token."""
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text("correct-horse-battery\n")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def guarded(token_file: Path) -> Iterator[WatchedThread]:
    """A server whose admin side wants the token of the file."""
    with WatchedThread(lag_interval_ms=0, admin_token_file=str(token_file)) as thread:
        yield thread


class TestTokens:
    def test_a_token(
        self, guarded: WatchedThread, token_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is given by a file, as an option or in the environment."""
        kgw = Commands(guarded.address)
        command = ("offsets", "lag", "--clients", "--admin", guarded.admin)
        assert [] == kgw.json(*command, "--token-file", str(token_file))
        monkeypatch.setenv("KGW_ADMIN_TOKEN_FILE", str(token_file))
        assert [] == kgw.json(*command)

    def test_no_token(self, guarded: WatchedThread, token_file: Path, tmp_path: Path) -> None:
        """Without it, or with another, or a file that cannot be used, the command says so."""
        kgw = Commands(guarded.address)
        command = ("offsets", "lag", "--clients", "--admin", guarded.admin)
        where = f"http://{guarded.admin}"
        wanted = "a token (--token-file), or a user with a password (--command-config)"
        assert f"{where} wants {wanted}" == kgw.fail(ExitCode.USAGE, *command)
        other = tmp_path / "other"
        other.write_text("another-token-altogether")
        other.chmod(0o600)
        said = kgw.fail(ExitCode.USAGE, *command, "--token-file", str(other))
        assert f"{where} does not take the token" == said
        said = kgw.fail(ExitCode.USAGE, *command, "--token-file", str(tmp_path / "none"))
        assert "--token-file: the token file" in said
        assert "No such file" in said
