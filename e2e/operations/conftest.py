"""The SeaweedFS that rows share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from e2e.operations.day import SEED, SERVERS, SETUP, Day, Row, a_row, make_disks
from tests.campaigns.seaweedmq_site import Site
from tests.campaigns.support import Report
from tests.seaweedfs.cluster import Cluster
from tests.seaweedfs.fixtures import seaweedfs_or_skip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager


class NewRow(Protocol):
    """Makes a row of that name, with more settings of its gateway."""

    def __call__(self, name: str, *settings: str) -> AbstractContextManager[Row]: ...


@pytest.fixture(scope="session")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    """Return three volume servers with a master and a filer; a fourth one waits."""
    directory = tmp_path_factory.mktemp("operations")
    with seaweedfs_or_skip():
        cluster = Cluster(directory / "seaweedfs", SETUP)
    make_disks(cluster.directory)
    with cluster.running("master", *SERVERS, "filer"):
        site = Site(directory, cluster, Report("operations", SEED))
        with site.supervised():
            yield Day(site)


@pytest.fixture
def new_row(day: Day) -> NewRow:
    """Return what makes a row; every server runs when it begins."""
    day.cluster.start("master", *SERVERS, "filer")

    def make(name: str, *settings: str) -> AbstractContextManager[Row]:
        return a_row(day, name, *settings)

    return make
