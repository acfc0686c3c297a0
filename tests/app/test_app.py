"""The process as a user starts it, by what it says, listens at, and ends with."""

from __future__ import annotations

import json
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.admin_http import get
from tests import patience
from tests.cli.conftest import Commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

API_VERSIONS_V0 = bytes.fromhex("0000000a00120000") + b"\0\0\0\7\xff\xff"
WITHOUT = """
import sys
sys.modules[sys.argv.pop(1)] = None
from kgw.cli.main import main
main()
"""


class Serving:
    """`kgw serve` in a process, over a data directory of its own."""

    def __init__(self, data_dir: Path, *arguments: str, without: str = "") -> None:
        """`without` is a module that cannot be imported."""
        program = ["-c", WITHOUT, without] if without else ["-m", "kgw"]
        command = [sys.executable, *program, "serve", "--data-dir", str(data_dir), *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ready(self) -> str:
        """Return the first line of standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def port(self) -> int:
        """Wait for the ready line and return the port in it."""
        fields = dict(part.split("=", 1) for part in self.ready().split()[1:])
        return int(fields["listeners"].rpartition(":")[2])

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return exit code and standard error."""
        self.process.send_signal(number)
        return self.wait()

    def close(self) -> None:
        """Kill it if it runs, and close its pipes, also where it has ended by itself."""
        if self.process.poll() is None:
            self.process.kill()
        with self.process:
            pass

    def wait(self) -> tuple[int, str]:
        """Return exit code and standard error."""
        _, errors = self.process.communicate(timeout=patience.seconds(15))
        return self.process.returncode, errors


def let_in(address: str, count: int) -> list[bool]:
    """Open so many connections at the same time; return which are served, once all are closed."""
    host, _, port = address.rpartition(":")
    clients = []
    served = []
    for _ in range(count):
        clients.append(socket.create_connection((host, int(port))))
        try:
            clients[-1].sendall(API_VERSIONS_V0)
            served.append(clients[-1].recv(1) != b"")
        except ConnectionError:
            served.append(False)
    for client in clients:
        # The server counts one out before it closes it.
        with client, suppress(OSError):
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
    return served


def create_topic(port: int, name: str, partitions: int) -> None:
    """Create a topic as a client does."""
    Commands(f"127.0.0.1:{port}").succeed("topics", "create", name, "-p", str(partitions))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[list[Serving]]:
    """Collects what a test starts, and ends it."""
    started: list[Serving] = []
    yield started
    for one in started:
        one.close()


@pytest.mark.slow
class TestProcess:
    def test_ready_line_and_exit(self, tmp_path: Path, start: list[Serving]) -> None:
        """One line says where it serves; SIGTERM ends it with 0; its log is JSON."""
        start.append(serving := Serving(tmp_path / "data", "--listen", "127.0.0.1:0"))
        line = serving.ready()
        fields = dict(part.split("=", 1) for part in line.split()[1:])
        assert line.startswith("ready ")
        assert "0" == fields["node_id"]
        assert str(tmp_path / "data") == fields["data_dir"]
        assert str(serving.process.pid) == fields["pid"]
        port = int(fields["listeners"].removeprefix("127.0.0.1:"))
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(API_VERSIONS_V0)
            assert 4 == len(client.recv(4))
        code, errors = serving.end()
        assert 0 == code
        events = [json.loads(one)["event"] for one in errors.splitlines()]
        assert ["ready", "stopping", "stopped"] == events

    def test_json_ready_line(self, tmp_path: Path, start: list[Serving]) -> None:
        """With --json the ready line is an object, and Ctrl-C ends like SIGTERM.

        Clients are told what is configured; else what was bound; else what they connected to.
        """
        arguments = ["--json", "--listen", "127.0.0.1:0", "--listen", "OTHER://127.0.0.1:0"]
        arguments += ["--listen", "ANY://0.0.0.0:0"]
        arguments += ["--set", "advertised.listeners=OTHER://kgw.example:0"]
        arguments += ["--set", "kgw.listeners.without.login=true"]
        start.append(serving := Serving(tmp_path / "data", *arguments))
        ready = json.loads(serving.ready())
        assert "ready" == ready["event"]
        names, hosts = ["PLAINTEXT", "OTHER", "ANY"], ["127.0.0.1", "kgw.example", ""]
        ports = [one["port"] for one in ready["listeners"]]
        assert names == [one["name"] for one in ready["listeners"]]
        assert list(zip(names, hosts, ports, strict=True)) == [
            (one["name"], one["host"], one["port"]) for one in ready["advertised"]
        ]
        assert 0 == serving.end(signal.SIGINT)[0]

    def test_admin_listener(self, tmp_path: Path, start: list[Serving]) -> None:
        """Its port is in the ready line, it answers, and it ends with the process."""
        arguments = ["--json", "--listen", "127.0.0.1:0"]
        arguments += ["--set", "kgw.admin.listeners=127.0.0.1:0"]
        start.append(serving := Serving(tmp_path / "data", *arguments))
        (admin,) = json.loads(serving.ready())["admin"]
        with socket.create_connection(
            ("127.0.0.1", admin["port"]), timeout=patience.seconds(10)
        ) as client:
            client.sendall(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        code, errors = serving.end()
        assert 0 == code
        events = [json.loads(one)["event"] for one in errors.splitlines()]
        assert ["ready", "stopping", "stopped"] == events

    def test_admin_listener_during_a_long_start(self, tmp_path: Path, start: list[Serving]) -> None:
        """What takes long to open is not waited for: it lives, and is not ready."""
        with closing(socket.create_server(("127.0.0.1", 0))) as silent:
            state = f"postgresql://kgw@127.0.0.1:{silent.getsockname()[1]}/kgw"
            arguments = ["--set", f"kgw.state.url={state}", "--set", "kgw.log.level=debug"]
            arguments += ["--set", "kgw.admin.listeners=127.0.0.1:0"]
            start.append(serving := Serving(tmp_path / "data", *arguments))
            assert serving.process.stderr is not None
            events = map(json.loads, serving.process.stderr)
            said = next(one for one in events if one["event"].startswith("still opening"))
            port = int(said["admin"].rpartition(":")[2])
            expected = {"health/live": b"200", "health/ready": b"503", "api/v1/lag": b"503"}
            for path, status in expected.items():
                with socket.create_connection(
                    ("127.0.0.1", port), timeout=patience.seconds(10)
                ) as client:
                    client.sendall(f"GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                    assert b"HTTP/1.1 " + status == client.recv(4096)[:12]
            serving.process.kill()

    def test_stopped_before_it_serves(self) -> None:
        """As process 1, SIGTERM ends it with 0 from the beginning, where others need no handler."""
        program = (
            "import os, signal, kgw.__main__, kgw.cli.main\n"
            "here = os.getpid()\n"
            "kgw.cli.main.main = lambda **_: (os.kill(here, signal.SIGTERM), print('it goes on'))\n"
            "os.getpid = lambda: {pid}\n"
            "kgw.__main__.run()\n"
        )
        for pid, code in (("1", 0), ("here", -signal.SIGTERM)):
            command = [sys.executable, "-c", program.format(pid=pid)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert (code, "") == (done.returncode, done.stdout)

    def test_told_to_take_over_before_it_can_be(self) -> None:
        """SIGUSR1 and SIGUSR2 wait until a server takes them; other commands end with them."""
        program = (
            "import os, signal, sys, kgw.__main__, kgw.cli.main\n"
            "def main(**_):\n"
            "    os.kill(os.getpid(), signal.{name})\n"
            "    print(signal.{name} in signal.sigpending())\n"
            "kgw.cli.main.main = main\n"
            "kgw.__main__.run()\n"
        )
        for name in ("SIGUSR1", "SIGUSR2"):
            for command, expected in (
                ("serve", (0, "True\n")),
                ("top", (-signal.Signals[name], "")),
            ):
                arguments = [sys.executable, "-c", program.format(name=name), command]
                done = subprocess.run(arguments, capture_output=True, text=True, check=False)
                assert expected == (done.returncode, done.stdout), done.stderr

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_a_start_that_cannot_end_is_stopped(
        self, tmp_path: Path, start: list[Serving], number: signal.Signals
    ) -> None:
        """It has the time of a stop; SIGUSR1 and SIGUSR2 change nothing, and are told of."""
        with closing(socket.create_server(("127.0.0.1", 0))) as silent:
            state = f"postgresql://kgw@127.0.0.1:{silent.getsockname()[1]}/kgw"
            arguments = ["--set", f"kgw.state.url={state}", "--set", "kgw.log.level=debug"]
            arguments += ["--set", "kgw.shutdown.timeout.ms=1"]
            start.append(serving := Serving(tmp_path / "data", *arguments))
            assert serving.process.stderr is not None
            events = map(json.loads, serving.process.stderr)
            next(one for one in events if one["event"].startswith("still opening"))
            for telling in (signal.SIGUSR1, signal.SIGUSR2):
                serving.process.send_signal(telling)
                said = next(one for one in events if one["event"].startswith("a signal that"))
                assert telling.name == said["signal"]
            code, errors = serving.end(number)
            assert 0 == code
            assert "stopped in the middle of a start" in errors

    def test_signals_while_it_serves(self, tmp_path: Path, start: list[Serving]) -> None:
        """Nobody can take over from it, which it says; its terminal that is gone ends it."""
        start.append(serving := Serving(tmp_path / "data", "--listen", "127.0.0.1:0"))
        serving.ready()
        assert serving.process.stderr is not None
        for telling in (signal.SIGUSR1, signal.SIGUSR2):
            serving.process.send_signal(telling)
            while telling.name not in serving.process.stderr.readline():
                pass
        code, errors = serving.end(signal.SIGHUP)
        assert 0 == code
        assert "stopped" == json.loads(errors.splitlines()[-1])["event"]

    def test_a_terminal_that_is_gone_may_be_ignored(
        self, tmp_path: Path, start: list[Serving]
    ) -> None:
        """As `nohup` has it."""
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            start.append(serving := Serving(tmp_path / "data", "--listen", "127.0.0.1:0"))
        finally:
            signal.signal(signal.SIGHUP, before)
        serving.ready()
        serving.process.send_signal(signal.SIGHUP)
        serving.process.send_signal(signal.SIGUSR2)
        assert serving.process.stderr is not None
        while "SIGUSR2" not in serving.process.stderr.readline():
            pass
        assert serving.process.poll() is None
        assert 0 == serving.end()[0]

    def test_lag_survives_a_kill(self, tmp_path: Path, start: list[Serving]) -> None:
        """Positions and the history of lag are there again after kill -9."""
        arguments = ["--json", "--listen", "127.0.0.1:0"]
        arguments += ["--set", "kgw.admin.listeners=127.0.0.1:0"]
        arguments += ["--set", "kgw.lag.interval.ms=100"]
        start.append(first := Serving(tmp_path / "data", *arguments))
        ready = json.loads(first.ready())
        port, admin = ready["listeners"][0]["port"], ("127.0.0.1", ready["admin"][0]["port"])
        create_topic(port, "events", partitions=1)
        reset = ("groups", "reset-offsets", "readers", "-t", "events", "--to-earliest", "--execute")
        undo_file = str(tmp_path / "undo.json")
        Commands(f"127.0.0.1:{port}").succeed(*reset, "--undo-file", undo_file)
        samples: list[dict[str, object]] = []
        while not samples:
            samples = get(admin, "/api/v1/lag/history", group="readers")["samples"]
        first.process.kill()
        first.wait()
        start.append(second := Serving(tmp_path / "data", *arguments))
        ready = json.loads(second.ready())
        admin = ("127.0.0.1", ready["admin"][0]["port"])
        again = get(admin, "/api/v1/lag/history", group="readers", limit=1_000)["samples"]
        assert samples[0] == again[0]
        (place,) = get(admin, "/api/v1/lag/partitions", group="readers")["partitions"]
        assert (0, 0, None) == (place["committed_offset"], place["lag"], place["anomaly"])

    def test_admin_for_everybody(self, tmp_path: Path, start: list[Serving]) -> None:
        """Without authentication the admin side is refused to other machines."""
        arguments = ["--listen", "127.0.0.1:0", "--set", "kgw.admin.listeners=0.0.0.0:9644"]
        start.append(serving := Serving(tmp_path / "data", *arguments))
        code, errors = serving.wait()
        assert 2 == code
        assert "kgw.admin.listeners" in errors
        assert "loopback" in errors

    def test_second_signal(self, tmp_path: Path, start: list[Serving]) -> None:
        """While a request keeps the drain waiting, a second signal ends the process at once."""
        start.append(serving := Serving(tmp_path / "data", "--listen", "127.0.0.1:0"))
        port = serving.port()
        with socket.create_connection(("127.0.0.1", port)):
            # The client never closes, which the drain gives a second for.
            serving.process.send_signal(signal.SIGTERM)
            assert serving.process.stderr is not None
            while "stopping" not in serving.process.stderr.readline():
                pass
            assert 130 == serving.end()[0]

    @pytest.mark.parametrize(
        ("data_dir", "exit_code", "said"),
        [("other", 5, "error: cannot listen at PLAINTEXT://{address}"), ("data", 4, "error: ")],
    )
    def test_what_another_process_has(
        self, tmp_path: Path, start: list[Serving], data_dir: str, exit_code: int, said: str
    ) -> None:
        """A taken port, or else a data directory in use, is one line and an exit code."""
        start.append(first := Serving(tmp_path / "data", "--listen", "127.0.0.1:0"))
        address = f"127.0.0.1:{first.port()}"
        start.append(second := Serving(tmp_path / data_dir, "--listen", address))
        code, errors = second.wait()
        assert exit_code == code
        assert errors.splitlines()[-1].startswith(said.format(address=address))
        assert "Traceback" not in errors
        # A command that was mistyped leaves nothing to be taken for data later.
        assert ["data"] == [one.name for one in tmp_path.iterdir()]

    @pytest.mark.parametrize("name", ["kgw.admin.listeners", "kgw.smq.agent.listener"])
    def test_every_listener_is_there_before_a_new_directory(
        self, tmp_path: Path, start: list[Serving], name: str
    ) -> None:
        """Also those that are not for Kafka's clients; a directory that is there starts as ever."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            arguments = ("--listen", "127.0.0.1:0", "--set", f"{name}={address}")
            start.append(refused := Serving(tmp_path / "data", *arguments))
            code, errors = refused.wait()
        assert 5 == code
        assert f"{address}: Address already in use" in errors
        assert [] == list(tmp_path.iterdir())
        start.append(serving := Serving(tmp_path / "data", *arguments))
        assert "listeners=127.0.0.1:" in serving.ready()
        assert 0 == serving.end()[0]
        assert (tmp_path / "data").exists()

    def test_data_directory_that_is_a_file(self, tmp_path: Path, start: list[Serving]) -> None:
        """One that cannot be made is one line and exit code 4, with --json one object."""
        data_dir = tmp_path / "no\nsuch\x1b thing"
        data_dir.write_text("")
        for option in ((), ("--json",)):
            start.append(serving := Serving(data_dir, *option))
            code, errors = serving.wait()
            assert 4 == code
            (line,) = errors.splitlines()
            said = json.loads(line)["error"] if option else line.removeprefix("error: ")
            assert f"{tmp_path}/no\\nsuch\\x1b thing: Not a directory" == said

    def test_lost_database(self, tmp_path: Path, start: list[Serving]) -> None:
        """Partitions without their database are not served: clients would create them anew."""
        start.append(first := Serving(tmp_path / "data", "--listen", "127.0.0.1:0"))
        create_topic(first.port(), "events", partitions=2)
        first.end()
        for path in (tmp_path / "data").glob("meta.sqlite*"):
            path.unlink()
        start.append(second := Serving(tmp_path / "data", "--listen", "127.0.0.1:0"))
        code, errors = second.wait()
        assert 4 == code
        assert "kgw log adopt" in errors.splitlines()[-1]

    def test_records_of_no_topic_are_reported(self, tmp_path: Path, start: list[Serving]) -> None:
        """Partitions that the database does not know are left alone, and the start says so."""
        start.append(first := Serving(tmp_path / "data", "--listen", "127.0.0.1:0"))
        create_topic(first.port(), "events", partitions=2)
        assert "kgw log adopt" not in first.end()[1]
        with closing(sqlite3.connect(tmp_path / "data" / "meta.sqlite")) as database, database:
            database.execute("DELETE FROM state_entry WHERE kind = 'topic'")
        start.append(second := Serving(tmp_path / "data", "--listen", "127.0.0.1:0"))
        second.ready()
        # Each look at what is wrong says so, too.
        line, *others = [line for line in second.end()[1].splitlines() if "kgw log adopt" in line]
        assert ("warning", 2) == (json.loads(line)["level"], json.loads(line)["partitions"])
        assert ["unclaimed"] * len(others) == [json.loads(other)["reason"] for other in others]

    def test_restart_on_the_same_port(self, tmp_path: Path, start: list[Serving]) -> None:
        """A restart need not wait for the connections of the run before."""
        start.append(first := Serving(tmp_path / "data", "--listen", "127.0.0.1:0"))
        port = first.port()
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(API_VERSIONS_V0)
            assert 4 == len(client.recv(4))
            first.process.send_signal(signal.SIGTERM)
            while client.recv(4096):
                pass
        assert 0 == first.wait()[0]
        start.append(second := Serving(tmp_path / "data", "--listen", f"127.0.0.1:{port}"))
        assert port == second.port()
        assert 0 == second.end()[0]

    @pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits are set from outside")
    def test_want_of_descriptors_is_told(self, tmp_path: Path, start: list[Serving]) -> None:
        """In the log, by readiness and by the doctor, when some are free again."""
        arguments = ("--listen", "127.0.0.1:0", "--set", "kgw.admin.listeners=127.0.0.1:0")
        start.append(serving := Serving(tmp_path / "data", *arguments))
        fields = dict(part.split("=", 1) for part in serving.ready().split()[1:])
        host, _, port = fields["admin"].rpartition(":")
        kgw = Commands(fields["listeners"])
        # What is imported for that is there afterwards.
        assert "ok" in kgw.run("doctor").stdout
        get((host, int(port)), "/health/ready")
        limits = resource.prlimit(serving.process.pid, resource.RLIMIT_NOFILE)
        # Numbers that the last connections give back are above the limit, too: the standard streams
        # have all that are below.
        resource.prlimit(serving.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        said = "no connection can be accepted: Too many open files"
        assert serving.process.stderr is not None
        while said not in serving.process.stderr.readline():
            pass
        resource.prlimit(serving.process.pid, resource.RLIMIT_NOFILE, limits)
        health = get((host, int(port)), "/health/ready")
        assert said in json.dumps(health)
        assert said in kgw.run("doctor").stdout
        assert 0 == serving.end()[0]

    def test_limits_of_connections_change_live(self, tmp_path: Path, start: list[Serving]) -> None:
        """They hold for the next connection, and outlive a restart that is given others."""
        start.append(first := Serving(tmp_path / "data", "--listen", "127.0.0.1:0"))
        kgw = Commands(f"127.0.0.1:{first.port()}")
        kgw.succeed("config", "alter", "--set", "max.connections.per.ip=4")
        assert [True] * 4 + [False] == let_in(kgw.bootstrap, 5)
        kgw.succeed("config", "alter", "--set", "max.connections=3")
        assert [True] * 3 + [False] == let_in(kgw.bootstrap, 4)
        assert 0 == first.end()[0]
        given = ["--set", "max.connections=500", "--listen", kgw.bootstrap]
        start.append(second := Serving(tmp_path / "data", *given))
        second.ready()
        assert [True] * 3 + [False] == let_in(kgw.bootstrap, 4)
        kgw.succeed("config", "alter", "--unset", "max.connections")
        assert [True] * 4 + [False] == let_in(kgw.bootstrap, 5)
        kgw.succeed("config", "alter", "--unset", "max.connections.per.ip")
        assert [True] * 9 == let_in(kgw.bootstrap, 9)
        assert 0 == second.end()[0]

    @pytest.mark.parametrize(
        ("module", "said"),
        [
            ("uvloop", "uvloop is not installed"),
            ("kgw.handlers.join_group", "what requests need cannot be imported"),
        ],
    )
    def test_what_cannot_be_imported_is_logged(
        self, tmp_path: Path, start: list[Serving], module: str, said: str
    ) -> None:
        """The log says it, and the server goes on: asyncio's own loop serves without uvloop."""
        start.append(
            serving := Serving(tmp_path / "data", "--listen", "127.0.0.1:0", without=module)
        )
        serving.ready()
        assert serving.process.stderr is not None
        while said not in serving.process.stderr.readline():
            pass
        assert 0 == serving.end()[0]
