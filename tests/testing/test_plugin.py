"""The plugin in runs of pytest of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kgw.testing.plugin import MARKERS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

QUIET = ("-p", "no:randomly", "-p", "no:xdist", "-p", "no:timeout", "-W", "error")

ASYNC_TESTS = """
    import asyncio
    import pytest
    from kgw.client import AsyncClient

    pytestmark = pytest.mark.kgw_topics("orders")

    {mark}
    async def test_a_client_in_the_tests_own_loop(kgw_broker):
        async with AsyncClient([("127.0.0.1", kgw_broker.port)]) as client:
            assert ["orders"] == [topic.name for topic in await client.topics()]
            kgw_broker.clock.advance(1)

    {mark}
    async def test_another(kgw_broker):
        assert [] == kgw_broker.values("orders")
"""


def run(pytester: pytest.Pytester, *arguments: str, mode: str = "strict") -> pytest.RunResult:
    """Run the tests that were made, in this process."""
    pytester.makeini(
        f"[pytest]\nasyncio_mode = {mode}\nasyncio_default_fixture_loop_scope = function\n"
        "addopts = --strict-markers\n"
    )
    return pytester.runpytest_inprocess(*QUIET, *arguments)


def test_pytest_imports_nothing_else_at_its_start() -> None:
    """The server waits until a test asks for a fixture."""
    code = (
        "import json, sys, pytest; before = set(sys.modules); import kgw.testing.plugin; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert ["kgw", "kgw.testing", "kgw.testing.plugin"] == json.loads(said.stdout)


def test_markers_make_topics_and_settings(pytester: pytest.Pytester) -> None:
    """Of the test, of its class and of its module; the closest one wins."""
    pytester.makepyfile(
        """
        import pytest

        pytestmark = [
            pytest.mark.kgw_topics("a", b=2),
            pytest.mark.kgw_settings({"num.partitions": 5, "auto.create.topics.enable": False}),
        ]

        @pytest.fixture
        def kgw_settings():
            return {"num.partitions": 4}

        def test_of_the_module(kgw_broker):
            assert {"a": 1, "b": 2} == kgw_broker.topics()

        @pytest.mark.kgw_topics({"b.c": 4}, b={"partitions": 3, "retention.ms": 1000})
        class TestClass:
            def test_of_the_class(self, kgw_broker):
                assert {"a": 1, "b": 3, "b.c": 4} == kgw_broker.topics()

            @pytest.mark.kgw_topics("b")
            @pytest.mark.kgw_backend("embedded")
            @pytest.mark.kgw_costume("2.8")
            def test_of_its_own(self, kgw_broker, tmp_path):
                assert {"a": 1, "b": 1, "b.c": 4} == kgw_broker.topics()
                assert ["kgw-data"] == [one.name for one in tmp_path.iterdir()]
        """
    )
    run(pytester).assert_outcomes(passed=3)


def test_the_session_has_one_server_and_each_test_a_broker(pytester: pytest.Pytester) -> None:
    """What is left in the one is there for the next test, in the other it is not."""
    pytester.makepyfile(
        """
        def test_one(kgw_server, kgw_broker):
            kgw_server.create_topics("kept")
            kgw_broker.create_topics("gone")
            assert kgw_server.bootstrap != kgw_broker.bootstrap

        def test_two(kgw_server, kgw_broker):
            assert ({"kept": 1}, {}) == (kgw_server.topics(), kgw_broker.topics())
        """
    )
    run(pytester).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("markers", "text"),
    [
        ('kgw_topics("a")\ndef test(): ...', "has kgw_topics and does not use kgw_broker"),
        ("kgw_topics()", "kgw_topics names no topic"),
        ("kgw_topics(3)", "kgw_topics: 3 is no name of a topic"),
        ("kgw_topics(a=0)", "a topic has one partition or more, not 0"),
        ('kgw_topics("no name")', "INVALID_TOPIC_EXCEPTION"),
        ('kgw_settings({"no.such.setting": 3})', "unknown setting no.such.setting"),
        ("kgw_settings(a=3)", "kgw_settings has one argument, a dict, and no other"),
        ('kgw_backend("disk")', "kgw_backend is memory or embedded, not 'disk'"),
        ('kgw_costume("1.9")', "no costume for Kafka '1.9'"),
        ("kgw_costume(2.8)", "kgw_costume has one argument, a str, and no other"),
    ],
)
def test_nonsense_is_a_usage_error(pytester: pytest.Pytester, markers: str, text: str) -> None:
    """Of that test alone, and in one line."""
    body = markers if "def test" in markers else f"{markers}\ndef test(kgw_broker): ..."
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.{body}\n\ndef test_other(): ...\n")
    result = run(pytester)
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines([f"E*UsageError: *{text.replace('[', '[[]')}*"])


def test_a_fault_that_never_struck_is_an_error_of_the_test(pytester: pytest.Pytester) -> None:
    """Told at its end; the broker is closed all the same."""
    pytester.makepyfile(
        """
        def test(kgw_broker):
            kgw_broker.faults.not_leader(must_strike=True)
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["E*the fault never struck: refuse Fetch/Produce with NOT_LEADER*"])


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_it_works_with_pytest_asyncio(pytester: pytest.Pytester, mode: str) -> None:
    """In both of its modes."""
    mark = "" if mode == "auto" else "@pytest.mark.asyncio"
    pytester.makepyfile(ASYNC_TESTS.format(mark=mark))
    run(pytester, mode=mode).assert_outcomes(passed=2)


def test_it_works_with_one_loop_for_the_session(pytester: pytest.Pytester) -> None:
    """The broker's loop is another one in any case."""
    pytester.makepyfile(
        ASYNC_TESTS.format(mark='@pytest.mark.asyncio(loop_scope="session")'),
    )
    run(pytester).assert_outcomes(passed=2)


def test_it_works_with_unittest(pytester: pytest.Pytester) -> None:
    """By a fixture of the class, or by the test case that needs no pytest."""
    pytester.makepyfile(
        """
        import unittest
        import pytest
        from kgw.testing.testcase import BrokerTestCase

        @pytest.mark.kgw_topics("orders")
        class FixtureTest(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def take_broker(self, kgw_broker):
                self.broker = kgw_broker

            def test_topics(self):
                self.assertEqual({"orders": 1}, self.broker.topics())

        class CaseTest(BrokerTestCase):
            kgw_topics = {"orders": 2}
            kgw_settings = {"num.partitions": 3}
            kgw_costume = "3.9"

            def test_topics(self):
                self.assertEqual({"orders": 2}, self.kgw_broker.topics())
                self.kgw_broker.create_topics("other")

            def test_clean(self):
                self.assertEqual({"orders": 2}, self.kgw_broker.topics())

            def test_unstruck(self):
                self.kgw_broker.faults.not_leader(must_strike=True)
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["E*the fault never struck*"])


def test_it_works_with_xdist(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """Each worker has brokers of its own, also those for the session."""
    pytester.makepyfile(
        f"""
        import os, pathlib, pytest

        @pytest.mark.parametrize("number", range(6))
        def test(kgw_server, kgw_broker, number):
            names = kgw_server.topics()
            assert all(name.startswith(f"of-{{os.getpid()}}-") for name in names)
            kgw_server.create_topics(f"of-{{os.getpid()}}-{{number}}")
            pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()
        """
    )
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-n2", "--dist=load")
    result.assert_outcomes(passed=6)
    assert 2 == len(list(tmp_path.iterdir()))


def test_markers_are_listed(pytester: pytest.Pytester) -> None:
    """By `pytest --markers`, each with what it does."""
    result = run(pytester, "--markers")
    for form in MARKERS:
        result.stdout.fnmatch_lines([f"@pytest.mark.{form}: *"])
