"""Options and a session for the commands that use Spark."""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack
from socket import create_connection
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self, TypeVar

import click

from kgw.backend.seaweedmq.offline.findings import Severity
from kgw.cli.doctor.spark import find_java
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import note
from kgw.pipeline.errors import OptionError
from kgw.pipeline.jobs.executors import aside, wait_for_executors
from kgw.pipeline.jobs.running import SparkRunner, last_line
from kgw.pipeline.master import DEFAULT_MASTER, Master, master_of
from kgw.version import install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from kgw.cli.shared.settings import FunctionT

UnitT = TypeVar("UnitT")
ResultT = TypeVar("ResultT")

_MASTER_S = 10.0


def spark_options(command: FunctionT) -> FunctionT:
    """Add --master, --parallelism and --conf to a command, as one argument `master`."""

    def callback(ctx: click.Context, _: click.Parameter, url: str) -> Master:
        try:
            return master_of(url, ctx.params.pop("settings"), ctx.params.pop("parallelism"))
        except OptionError as error:
            raise click.UsageError(str(error), ctx) from None

    for option in (
        click.option(
            "--conf",
            "settings",
            multiple=True,
            is_eager=True,
            metavar="KEY=VALUE",
            help="A setting of Spark by its name, as in spark.executor.memory=2g; may be given "
            "several times.",
        ),
        click.option(
            "--parallelism",
            type=click.IntRange(min=1),
            is_eager=True,
            metavar="N",
            help="How many tasks run at once. Default: as many as there are processors; fewer "
            "leave some to a gateway on the same machine.",
        ),
        click.option(
            "--master",
            default=DEFAULT_MASTER,
            callback=callback,
            metavar="MASTER",
            help="Where Spark runs: spark://HOST:PORT, k8s://..., yarn, or every processor of this "
            "machine, with three more attempts at a task that fails.",
        ),
    ):
        command = option(command)
    return command


class SparkWhenNeeded:
    """Runs units on Spark; starts a session for the first one, and stops it with the command.

    If the process already has a session, that one is used and not stopped.
    """

    def __init__(self, app_name: str, master: Master) -> None:
        self._app_name = app_name
        self._master = master
        self._session: SparkSession | None = None
        self._runner: SparkRunner | None = None
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    @property
    def session(self) -> SparkSession:
        """The Spark session. Raises CommandError."""
        if self._session is None:
            self._session = self._start()
        return self._session

    @property
    def parallelism(self) -> int:
        """How many units run at once."""
        return self._started().parallelism

    def run(
        self, units: Iterable[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Run units on Spark; see `Runner`."""
        return self._started().run(units, work)

    def _started(self) -> SparkRunner:
        if self._runner is None:
            self._runner = SparkRunner(self.session, self._app_name)
        return self._runner

    def _start(self) -> SparkSession:
        # Hide PySpark's warnings about a newer pandas and about functions without its type hints.
        for category in (FutureWarning, UserWarning):
            warnings.filterwarnings("ignore", category=category, module="pyspark")
        try:
            from pyspark.sql import SparkSession

            from kgw.pipeline.session import session
        except ImportError as error:
            raise CommandError(
                f"Spark cannot be used: {error}. Install it with {install_command('spark')}"
            ) from None
        is_ours = SparkSession.getActiveSession() is None
        master = self._master
        if is_ours:
            check_master(master, os.environ)
        # Spark makes this directory for tables of its own, which no command uses.
        warehouse = self._ending.enter_context(TemporaryDirectory(prefix="kgw-spark-"))
        settings = {"spark.sql.warehouse.dir": warehouse, **master.settings}
        starting = aside(lambda: session(self._app_name, master=master.url, settings=settings))
        try:
            spark = starting.result()
        except Exception as error:
            raise CommandError(f"Spark cannot start: {last_line(error)}") from error
        if is_ours:
            self._ending.callback(spark.stop)
            if not master.is_local:
                wait_for_executors(spark, on_waiting=self._tell_waiting)
        return spark

    def _tell_waiting(self) -> None:
        note(
            f"{self._master.url} has given no executor yet; waiting. Has it free processors and "
            "memory, and can its workers reach spark.driver.host?"
        )


def check_master(master: Master, environment: Mapping[str, str]) -> None:
    """Raise CommandError if Java is missing, or if the cluster is not found.

    Spark would report this in many lines, or only after a minute.
    """
    java = find_java(environment)
    if java.severity is Severity.PROBLEM:
        raise CommandError(f"Spark cannot start: Java: {java.detail}")
    if master.url == "yarn" and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & {*environment}:
        raise CommandError("where YARN is, is not said: set HADOOP_CONF_DIR or YARN_CONF_DIR")
    if master.url.startswith("spark://"):
        failures = []
        for address in master.url.removeprefix("spark://").split(","):
            host, _, port = address.rpartition(":")
            try:
                with create_connection((host.strip("[]"), int(port)), _MASTER_S):
                    return
            except (OSError, ValueError) as error:
                failures.append(f"{address}: {error}")
        raise CommandError(f"no master of Spark can be reached at {'; '.join(failures)}")
