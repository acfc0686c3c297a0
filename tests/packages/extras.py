"""Each extra, installed in a fresh environment and used for what it is there for."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from tests.otel.receiver import Receiver
from tests.packages import checks
from tests.packages.building import ROOT
from tests.packages.environments import CommandFailedError, Environment
from tests.seaweedfs.binary import fetch
from tests.seaweedfs.cluster import Cluster, Setup
from tests.state.servers import MariadbServer, NoServerError, PostgresqlServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.packages.building import Built

OF_THE_PROJECT = frozenset({"test", "check", "examples", "fuzz"})
"""Extras of those who work on kgw."""

_SPARK = """
from kgw.pipeline.session import session

spark = session("extras")
rows = (
    spark.read.format("kgw")
    .option("kafka.bootstrap.servers", "{bootstrap}")
    .option("subscribe", "greetings")
    .load()
)
print([bytes(row.value).decode() for row in rows.select("value").collect()])
spark.stop()
"""
_TABLES = {
    "delta": "import deltalake, kgw.pipeline.archive.tables.delta",
    "iceberg": "import pyiceberg, kgw.pipeline.archive.tables.iceberg",
}


def declared() -> dict[str, list[str]]:
    """Return every extra with what it asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    return extras


def of_users() -> list[str]:
    """Return the extras that are for who uses kgw."""
    return sorted(declared().keys() - OF_THE_PROJECT)


def extra_runs(extra: str, built: Built, folder: Path) -> str:
    """Install an extra, and use it."""
    path = _path_of_java() if extra in {"spark", "all"} else ""
    environment = Environment(folder / extra, path=path)
    # pyspark is published as an sdist alone; it is Python.
    only_that = ["--no-binary", "pyspark"] if extra in {"spark", "all"} else []
    install_s = environment.install(*only_that, f"{built.wheel}[{extra}]")
    _keeps_to_this_kgw(environment, extra)
    uses = [_USES[extra]] if extra in _USES else [] if extra != "all" else list(_USES.values())
    for use in uses or [_serves]:
        use(environment, folder / f"{extra}-data")
    done = ", ".join((use.__doc__ or "").rstrip(".").lower() for use in uses or [_serves])
    return f"installed in {install_s:.0f} s; {done}"


def _keeps_to_this_kgw(environment: Environment, extra: str) -> None:
    """Do what messages tell of a missing extra: pip keeps the kgw that is installed."""
    before = environment.run("kgw", "--version")
    environment.install(f"kgw-broker[{extra}]")
    assert before == environment.run("kgw", "--version")


def _serves(environment: Environment, folder: Path) -> None:
    """Served from a data directory."""
    with environment.serving(folder / "served") as server:
        checks.round_trip(environment, server)


def _keeps_state_in_postgresql(environment: Environment, folder: Path) -> None:
    """Served with its state in PostgreSQL."""
    _keeps_state(PostgresqlServer, environment, folder / "postgresql")


def _keeps_state_in_mariadb(environment: Environment, folder: Path) -> None:
    """Served with its state in MariaDB."""
    _keeps_state(MariadbServer, environment, folder / "mariadb")


def _keeps_state(
    kind: type[PostgresqlServer | MariadbServer], environment: Environment, folder: Path
) -> None:
    try:
        database = kind()
    except NoServerError as error:
        raise CommandFailedError(str(error)) from None
    try:
        url = f"kgw.state.url={database.url(database.new_place())}"
        for _ in range(2):
            with environment.serving(folder, "--set", url) as server:
                listed = environment.run("kgw", "topics", "list", "-b", server.bootstrap)
                if "greetings" not in listed:
                    checks.round_trip(environment, server)
        assert "greetings" in listed, listed
    finally:
        database.remove()


def _keeps_records_in_seaweedfs(environment: Environment, folder: Path) -> None:
    """Served with its records in a real SeaweedFS."""
    fetch()
    folder.mkdir(exist_ok=True)
    with Cluster(folder / "seaweedfs", Setup()).running() as cluster:
        url = cluster.url(cluster.new_namespace())
        with environment.serving(folder / "seaweedmq", "--backend", url) as server:
            checks.round_trip(environment, server)


def _exports_metrics(environment: Environment, folder: Path) -> None:
    """Exported metrics over OTLP."""
    with Receiver() as receiver:
        endpoint = f"kgw.otel.endpoint={receiver.endpoint}"
        with environment.serving(folder / "otel", "--set", endpoint) as server:
            checks.round_trip(environment, server)
        while not receiver.exports.empty():
            last = receiver.exports.get()
    assert last.metrics["kgw_appended_records_total"].sum.data_points[0].as_double


def _is_read_by_spark(environment: Environment, folder: Path) -> None:
    """Read by Spark with format("kgw")."""
    with environment.serving(folder / "spark") as server:
        checks.round_trip(environment, server)
        program = _SPARK.format(bootstrap=server.bootstrap)
        read = environment.run("python", "-c", program, cwd=folder)
    assert "['hello']\n" == read, read


def _can_make_delta_tables(environment: Environment, folder: Path) -> None:
    """Imported what makes Delta tables."""
    environment.run("python", "-c", _TABLES["delta"])


def _can_make_iceberg_tables(environment: Environment, folder: Path) -> None:
    """Imported what makes Iceberg tables."""
    environment.run("python", "-c", _TABLES["iceberg"])


_USES: Mapping[str, Callable[[Environment, Path], None]] = {
    "postgresql": _keeps_state_in_postgresql,
    "mysql": _keeps_state_in_mariadb,
    "seaweedmq": _keeps_records_in_seaweedfs,
    "otel": _exports_metrics,
    "spark": _is_read_by_spark,
    "delta": _can_make_delta_tables,
    "iceberg": _can_make_iceberg_tables,
}


def _path_of_java() -> str:
    """Return the folders that Spark's scripts need: of java, and of the shell's tools."""
    java = shutil.which("java")
    if java is None:
        raise CommandFailedError("Spark needs a Java runtime, and there is none on PATH")
    return f"{Path(java).parent}:{os.defpath.strip(':')}"
