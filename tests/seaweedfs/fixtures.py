"""A real SeaweedFS for tests; a plug-in of pytest.

`seaweedfs` is shared by all tests of a process: each takes a namespace of its own. Whoever kills
processes, or needs another setup, makes one with `new_seaweedfs`. Without the program, or without
the right to make a network namespace for the broker, the tests are skipped and say why; with CI set
they fail. What the processes said stands in the report of a failed test.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.seaweedfs.binary import NoWeedError
from tests.seaweedfs.cluster import Cluster, Setup
from tests.seaweedfs.namespace import NoNamespaceError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_LOOK_S = 0.2

_RUNNING = pytest.StashKey[list[Cluster]]()


class NewSeaweedfs(Protocol):
    """Starts one more, which is killed when the test is over."""

    def __call__(self, setup: Setup | None = None) -> Cluster: ...


def pytest_configure(config: pytest.Config) -> None:
    """Nothing runs yet."""
    config.stash[_RUNNING] = []


@pytest.fixture(scope="session")
def seaweedfs(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Cluster]:
    """Return a SeaweedFS with one process of each kind; the broker waits for `seaweedfs_broker`."""
    directory = tmp_path_factory.mktemp("seaweedfs")
    with ExitStack() as stack:
        with seaweedfs_or_skip():
            cluster = Cluster(directory, Setup(has_broker=True))
            stack.enter_context(cluster.running("master", "volume", "filer"))
        stack.enter_context(supervised(cluster))
        pytestconfig.stash[_RUNNING].append(cluster)
        yield cluster


@contextmanager
def supervised(cluster: Cluster) -> Iterator[None]:
    """Start a filer again that ends by itself, as a manager of services would.

    SeaweedFS's may, where a gateway is killed while it changes something
    (docs/decisions/0106-faults-of-seaweedfs.md). Such a filer ends with the supervision.
    """
    is_over = Event()

    def supervise() -> None:
        while not is_over.wait(_LOOK_S):
            cluster.start("filer")

    thread = Thread(target=supervise, name="supervisor of a filer")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.fixture(scope="session")
def seaweedfs_broker(seaweedfs: Cluster) -> Cluster:
    """Return the same one, with a broker, which takes some seconds to start."""
    with seaweedfs_or_skip():
        seaweedfs.start("broker")
    return seaweedfs


@pytest.fixture
def new_seaweedfs(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[NewSeaweedfs]:
    """Return what starts others, for tests that kill processes or need another setup."""
    running = pytestconfig.stash[_RUNNING]
    before = len(running)
    with ExitStack() as stack:

        def start(setup: Setup | None = None) -> Cluster:
            with seaweedfs_or_skip():
                cluster = Cluster(tmp_path_factory.mktemp("seaweedfs"), setup)
                stack.enter_context(cluster.running())
            running.append(cluster)
            return cluster

        yield start
    del running[before:]


@contextmanager
def seaweedfs_or_skip() -> Iterator[None]:
    """Skip when what is done needs a program or a right that is not there; with CI set, fail."""
    try:
        yield
    except (NoWeedError, NoNamespaceError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what SeaweedFS said to the report of a test that failed with it."""
    report = yield
    asked = {"seaweedfs", "new_seaweedfs"}.intersection(getattr(item, "fixturenames", ()))
    if report.failed and asked:
        for cluster in item.config.stash[_RUNNING]:
            report.sections.append((f"SeaweedFS in {cluster.directory}", cluster.last_words()))
    return report
