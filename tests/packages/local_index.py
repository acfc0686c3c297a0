"""A package index on loopback, and what somebody does who installs kgw from one."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from tests.packages import checks
from tests.packages.environments import Environment, run_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.packages.building import Built

_TEST = """
import time

from kafka import KafkaProducer


def test_a_record_is_there(kgw_broker):
    with KafkaProducer(bootstrap_servers=kgw_broker.bootstrap) as producer:
        assert producer.send("greetings", b"hello").get(10).offset == 0
    assert [b"hello"] == [record.value for record in kgw_broker.records("greetings")]
"""


@contextmanager
def index_of(files: Iterable[Path], folder: Path) -> Iterator[str]:
    """Serve wheels as an index in `folder`, and yield its address for `pip --index-url`."""
    for file in files:
        project = folder / "simple" / canonicalize_name(file.name.partition("-")[0])
        project.mkdir(parents=True, exist_ok=True)
        (project / file.name).symlink_to(file.resolve())
    # Its listing of a folder is what a simple index answers: links to files.
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/simple"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Write nothing."""


def use(environment: Environment, folder: Path) -> None:
    """Serve, write a record and read it, and run a test with the pytest plugin."""
    with environment.serving(folder / "data") as server:
        checks.round_trip(environment, server)
    (folder / "test_it.py").write_text(_TEST)
    said = environment.run("python", "-m", "pytest", "-q", "test_it.py", cwd=folder)
    assert "1 passed" in said, said


def installs_from_an_index(built: Built, folder: Path) -> str:
    """Install kgw-broker by its name, of wheels that were fetched before, and use it."""
    wheels, beside = folder / "wheels", ["pytest", "kafka-python"]
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"]
    environment = Environment(folder / "from-index")
    command = [*fetch, "--dest", str(wheels), str(built.wheel), *beside]
    run_command(command, environment.variables)
    with index_of(wheels.iterdir(), folder / "index") as address:
        began_s = time.monotonic()
        environment.install("--index-url", address, "kgw-broker", *beside)
        use(environment, folder)
        took_s = time.monotonic() - began_s
    return f"installed, served, a record written and read, a test run in {took_s:.1f} s"
