"""What holds for every test."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from aiosqlite import Connection
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

from tests.state.servers import (
    DatabaseServer,
    MariadbServer,
    NoServerError,
    PostgresqlServer,
    remove_all,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = [
    "tests.hung",
    "tests.loop_threads",
    "tests.lost_workers",
    "tests.seaweedfs.fixtures",
    "tests.storage_check",
]

# Time limits are pytest's: a slow machine must not turn a property into a flaky test. A fixture
# that lasts for the whole function is shared by its examples knowingly.
settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("full", parent=settings.get_profile("default"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A shell's background job ignores SIGINT, and what nohup starts SIGHUP. So would the processes that
# tests mean to end by them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what tests have left open."""
    # Not at the end of the process: it is killed if it takes longer than ten seconds.
    remove_all()
    # A failed test may leave a database open, whose thread keeps the process from ending.
    if session.testsfailed:
        for left in gc.get_objects():
            if isinstance(left, Connection):
                left.stop()


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> Iterator[None]:
    """Files, sockets and sleeps of kgw that would hold up the event loop are errors."""
    with blockbuster_ctx("kgw") as detector:
        # Locks between the loop and the threads that write are held for a few instructions only.
        detector.functions["threading.Lock.acquire"].deactivate()
        detector.functions["threading.Lock.acquire_lock"].deactivate()
        # Before the first listener is open there is nobody to keep waiting.
        detector.functions["io.TextIOWrapper.read"].can_block_in(
            "kgw/config/memory.py", "available_memory_bytes"
        )
        yield


# --- database servers ---

# The first test of a server waits for its start.
DATABASES = [pytest.param(name, marks=pytest.mark.timeout(60)) for name in ("postgresql", "mysql")]


def _serve(server: type[DatabaseServer]) -> DatabaseServer:
    try:
        return server()
    except NoServerError as error:
        if os.environ.get("DATABASES") == "required":
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def postgresql_server() -> DatabaseServer:
    """Return a PostgreSQL server that all tests share."""
    return _serve(PostgresqlServer)


@pytest.fixture(scope="session")
def mysql_server() -> DatabaseServer:
    """Return a MariaDB server that all tests share."""
    return _serve(MariadbServer)


@pytest.fixture(params=DATABASES)
def database_server(request: pytest.FixtureRequest) -> DatabaseServer:
    """Return each kind of server."""
    started: DatabaseServer = request.getfixturevalue(f"{request.param}_server")
    return started


STORE_OF_TEST = re.compile(
    r"tests/state/(test_\w+)\.py::\w+\[(?:\w+-)?(memory|sqlite|postgresql|mysql)\b"
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests each store has passed, in the suite of all and in that of the servers."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            found = STORE_OF_TEST.match(report.nodeid)
            if found is not None:
                suite = "servers" if found[1] == "test_servers" else "all stores"
                counts[suite, found[2], outcome] += 1
    if counts:
        terminalreporter.section("state stores")
        for (suite, store, outcome), count in sorted(counts.items()):
            terminalreporter.write_line(f"suite of {suite}: {store} {count} {outcome}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Begin with the campaigns, which take longest: at the end one process would wait for them."""
    yield  # pytest-randomly shuffles here
    items.sort(key=lambda item: item.get_closest_marker("campaign") is None)
