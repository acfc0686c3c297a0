"""What is done to one gateway while five languages use it, step by step."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from e2e.system import checks
from e2e.system.driver import Driver, DriverError
from e2e.system.evidence import PARTITIONS, Evidence
from e2e.system.reading import ReadingError, read_topic
from e2e.system.site import COPYING, LANGUAGES
from e2e.system.verdict import Row
from e2e.system.workers import (
    Consuming,
    Copying,
    Producing,
    Watching,
    Worker,
    bootstrap_address,
    committed_by,
)
from kgw.client import AsyncClient
from kgw.client.admin import AdminClient
from kgw.client.errors import ClientError
from kgw.client.values import LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from e2e.system.site import Site

TOPIC = "orders"
AFTER_KILL_RECORDS = 500
INTERRUPTED = 130
COUNT = "select count(*) as records from orders"
SPARK = (
    *("--master", "local[1]", "--conf", "spark.driver.memory=512m"),
    *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=1"),
)


class StoryError(Exception):
    """The story did not go on; the message says at which step."""


class Plan(NamedTuple):
    """Who takes part."""

    languages: Sequence[str] = LANGUAGES
    copying: Sequence[str] = COPYING
    has_spark: bool = True
    step_s: float = 60.0
    """How long a step may take."""


class Story:
    """One gateway, and everybody who uses it."""

    def __init__(
        self, site: Site, gateway: str, plan: Plan, results: Path, say: Callable[[str], None]
    ) -> None:
        self.gateway = gateway
        self.evidence = Evidence()
        self._site = site
        self._plan = plan
        self._say = say
        self._bootstrap = site.at(f"{gateway}.kafka")
        self._archive = f"{site.path('archive')}/{gateway}"
        through = (self._bootstrap, self.evidence)
        self._producers = [
            Producing(site, one, *through, results / self._journal(one)) for one in plan.languages
        ]
        self._consumers = {one: Consuming(site, one, *through) for one in plan.languages}
        self._copiers = [Copying(site, one, *through) for one in plan.copying]
        self._watcher = Watching(site, self._bootstrap, TOPIC, self.evidence)
        self._ends: dict[int, int] = {}
        self._spark: Driver | None = None
        self._is_following = False
        self._beside = ThreadPoolExecutor(1)
        self._rows: list[Row] = []

    # --- the story ---

    def tell(self) -> list[Row]:
        """Go through all steps, and return what must be true and whether it is.

        Never raises StoryError: a story that does not go on is a row that is not true.
        """
        for what, do in (
            ("the story goes on to its end", self._go_on),
            ("all that takes part can be ended", self._end),
            ("all topics can be read", self._judge),
        ):
            try:
                do()
            except (StoryError, DriverError, ReadingError, ClientError, OSError) as error:
                self._row(what, [str(error)])
        return self._rows

    def _go_on(self) -> None:
        self._create_topics()
        self._say(f"producers in {', '.join(self._plan.languages)} begin")
        for one in (*self._producers, *self._copiers, self._watcher):
            one.start()
        if self._plan.has_spark:
            self._spark = Driver(self._site, "spark")
            self._follow()
        self._join()
        counting = self._beside.submit(self._count) if self._plan.has_spark else None
        self._leave_and_die()
        if counting is not None:
            counting.result()
        self._kill_gateway()
        self._stop(self._producers)
        self._drain()
        self._stop([*self._consumers.values(), *self._copiers, self._watcher])
        self.evidence.note_commits(committed_by(self._bootstrap, TOPIC))
        if self._plan.has_spark:
            self._end_archive()

    def _create_topics(self) -> None:
        async def create() -> None:
            async with AsyncClient([bootstrap_address(self._bootstrap)]) as client:
                for name in (TOPIC, *(one.name for one in self._copiers)):
                    await AdminClient(client).create_topic(name, partitions=PARTITIONS)

        asyncio.run(create())

    def _join(self) -> None:
        members = list(self._consumers)
        first, later = members[:3], members[3:]
        for some in (first, later):
            for language in some:
                self._consumers[language].start()
            joined = first if some is first else members
            self._until(f"{', '.join(joined)} share the topic", partial(self._share, joined))

    def _leave_and_die(self) -> None:
        members = list(self._consumers)
        leaving, dying = members[-1], members[len(members) // 2]
        self._consumers[leaving].leave()
        others = [one for one in members if one != leaving]
        self._until(f"{leaving} has left, the others share", lambda: self._share(others))
        self._consumers[leaving].join_again()
        self._until(f"{leaving} is back", lambda: self._share(members))
        driver = Driver(self._site, f"consumer-{dying}")
        try:
            driver.kill()
            self.evidence.note_seen(dying, [], [])
            others = [one for one in members if one != dying]
            self._until(f"{dying} was killed, the others share", lambda: self._share(others))
            driver.start()
        finally:
            driver.close()
        self._until(f"{dying} is back", lambda: self._share(members))

    def _kill_gateway(self) -> None:
        driver = Driver(self._site, self.gateway)
        try:
            self._say("kill -9 of the gateway")
            driver.kill()
            acknowledged = self.evidence.acknowledged_count()
            seen = {one: len(self.evidence.seen[one]) for one in self._plan.languages}
            time.sleep(1)
            driver.start()
        finally:
            driver.close()

        def goes_on() -> bool:
            more = self.evidence.acknowledged_count() - acknowledged
            return more >= AFTER_KILL_RECORDS and all(
                len(self.evidence.seen[one]) > seen[one] for one in seen
            )

        self._until("all go on after its start", goes_on)

    def _drain(self) -> None:
        self._ends = self._log_ends()
        everything = sum(self._ends.values())

        def is_drained() -> bool:
            groups = (TOPIC, *(one.name for one in self._copiers))
            return (
                len(self.evidence.seen_places()) >= everything
                and self._share(self._plan.languages)
                and all(committed_by(self._bootstrap, group) == self._ends for group in groups)
            )

        what = f"the group shares the topic, and all {everything} records were read and copied"
        self._until(what, is_drained)

    # --- Spark ---

    def _follow(self) -> None:
        self._spark_ask(
            "start",
            name="archive",
            arguments=[
                *("archive", "--topic", TOPIC, "--out", self._archive, "--follow"),
                *("--max-lag", "PT5S", "--bootstrap", self._bootstrap, *SPARK),
            ],
        )
        self._is_following = True
        self._say("Spark archives")

    def _count(self) -> None:
        """Count what is archived and what came since, by SQL, while it is produced."""
        least = self.evidence.acknowledged_count()
        counted = self._sql()
        most = self.evidence.sent_count()
        problems = [] if least <= counted <= most else [f"{counted}, not {least} to {most}"]
        self._row("SQL counts archive and topic in the middle", problems, f"{counted} rows")
        self._say(f"SQL counts {counted} rows, {least} to {most} are right")

    def _end_follow(self) -> None:
        """End the archive, unless it was ended: the next story has one of its own."""
        if self._is_following:
            self._is_following = False
            code = self._spark_ask("stop", name="archive")["exit"]
            problems = [] if code == INTERRUPTED else [f"exit code {code}"]
            self._row("the archive has followed through the kill", problems)

    def _end_archive(self) -> None:
        self._until("all is archived", self._is_archived)
        self._end_follow()
        counted = self._sql()
        everything = sum(self._ends.values())
        problems = [] if counted == everything else [f"{counted}, not {everything}"]
        self._row("SQL counts all in the end", problems, f"{counted} rows")
        self._audit("the archive is the topic", ["--archive", self._archive, "--level", "3"])
        results = self._site.path("results")
        journals = [
            word
            for one in self._plan.languages
            for word in ("--journal", f"{results}/{self._journal(one)}")
        ]
        self._audit("kgw's own audit finds what was acknowledged", ["--level", "4", *journals])

    def _is_archived(self) -> bool:
        status = self._spark_ask("status", name="archive")["exit"]
        if status is not None:
            raise StoryError(f"the archive has ended with exit code {status}")
        lag = self._pipeline("lag", "--archive", self._archive, "--json")
        if lag["exit"]:
            raise StoryError(f"the archive's lag: exit code {lag['exit']}: {lag['output']}")
        found = json.loads(lag["output"])
        return found["totals"]["read_lag"] == 0 and bool(found["partitions"])

    def _audit(self, what: str, arguments: Sequence[str]) -> None:
        done = self._pipeline("audit", "--topic", TOPIC, *arguments)
        problems = [] if done["exit"] == 0 else [f"exit code {done['exit']}: {done['output']}"]
        # One that fails may have said why in its log alone.
        self._row(what, problems, done["output"].strip().rpartition("\n")[2])

    def _sql(self) -> int:
        done = self._pipeline("sql", "--archive", self._archive, "--json", *SPARK, COUNT)
        if done["exit"]:
            raise StoryError(f"SQL ended with exit code {done['exit']}: {done['output']}")
        counted: int = json.loads(done["output"])["rows"][0]["records"]
        return counted

    def _pipeline(self, command: str, *arguments: str) -> dict[str, Any]:
        words = [command, "--bootstrap", self._bootstrap, *arguments]
        return self._spark_ask("run", arguments=words)

    def _spark_ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        if self._spark is None:
            raise RuntimeError("this story has no Spark")
        return self._spark.ask(operation, **fields)

    # --- the end ---

    def _end(self) -> None:
        """End what the story has begun, also where it has not come to its end."""
        for one in self._workers():
            one.stop()
        for one in self._workers():
            if one.is_alive():
                one.join(self._plan.step_s)
        self._beside.shutdown()
        if self._spark is not None:
            self._end_follow()
            self._spark.close()

    def _judge(self) -> None:
        noted = self.evidence
        self._ends = self._ends or self._log_ends()
        whole = dict.fromkeys(range(PARTITIONS), 0)
        noted.stored = read_topic(self._bootstrap, TOPIC, whole)
        for one in self._copiers:
            noted.copies[one.name] = read_topic(self._bootstrap, one.name, whole)
        self._row(
            "acknowledged records are there, once, at their offsets, with their bytes",
            checks.wrong_records(noted.acknowledged, noted.sent, noted.stored),
            f"{len(noted.acknowledged)} acknowledged, {len(noted.stored)} there",
        )
        self._row("offsets have no gaps", checks.wrong_offsets(noted.stored, self._ends))
        self._row("each key is in order", checks.wrong_order(noted.acknowledged))
        given = " ".join(f"{one}:{len(noted.seen[one])}" for one in self._plan.languages)
        self._row("consumers have seen all", checks.not_seen(noted.seen, noted.stored), given)
        changes = sum(len(one) for one in noted.assignments.values())
        self._row(
            "the group has rebalanced",
            checks.too_few_rebalances(noted.assignments),
            f"{changes} assignments",
        )
        self._row(
            "committed offsets never went back",
            checks.wrong_commits(noted.commits, self._ends),
            f"{len(noted.commits)} looks",
        )
        for one in self._copiers:
            copies = noted.copies[one.name]
            problems = checks.wrong_copies(copies, noted.stored)
            if not noted.aborts[one.name]:
                problems.append("it has aborted no transaction")
            figures = f"{len(copies)} copies, {noted.transactions[one.name]} transactions"
            self._row(f"{one.name}: exactly once", problems, figures)

    def _row(self, what: str, problems: list[str], figures: str = "") -> None:
        self._rows.append(Row(self.gateway, what, problems, figures))

    # --- helpers ---

    def _share(self, languages: Collection[str]) -> bool:
        """Whether these have all partitions among them, and each of them some."""
        had = [self.evidence.assignments[one][-1:] for one in languages]
        last = [one for some in had for one in some]
        return (
            len(last) == len(languages)
            and all(last)
            and sorted(one for some in last for one in some) == list(range(PARTITIONS))
        )

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not is_so():
            for one in self._workers():
                if one.failure is not None:
                    raise StoryError(f"{one.name} failed: {one.failure!r}")
            if time.monotonic() > began + self._plan.step_s:
                raise StoryError(f"not within {self._plan.step_s:g} s: {what}; {self._state()}")
            time.sleep(0.2)
        self._say(f"{what} ({time.monotonic() - began:.1f} s)")

    def _state(self) -> str:
        """What a reader of a failure wants to know."""
        had = {who: some[-1:] for who, some in self.evidence.assignments.items()}
        return f"assigned: {had}; the last errors: {self.evidence.errors[-5:]}"

    def _log_ends(self) -> dict[int, int]:
        async def ask() -> dict[int, int]:
            async with AsyncClient([bootstrap_address(self._bootstrap)]) as client:
                ends = await client.list_offsets(TOPIC, dict.fromkeys(range(PARTITIONS), LATEST))
            return {partition: one.offset for partition, one in ends.items()}

        return asyncio.run(ask())

    def _workers(self) -> list[Worker]:
        return [*self._producers, *self._consumers.values(), *self._copiers, self._watcher]

    def _stop(self, workers: Sequence[Worker]) -> None:
        for one in workers:
            one.stop()
        for one in workers:
            one.join(self._plan.step_s)
            if one.is_alive():
                raise StoryError(f"{one.name} does not end")
            if one.failure is not None:
                raise StoryError(f"{one.name} failed: {one.failure!r}")

    def _journal(self, language: str) -> str:
        return f"{self.gateway}-{language}.acknowledged"
