"""The table of threats names modules and tests that are there, and stands in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.docs import threats
from tests.security.threats import (
    ROOT,
    THREATS,
    Boundary,
    Threat,
    missing_modules,
    missing_proofs,
    names_of_tests,
)

ROW = Threat(Boundary.STORAGE, "a", "b", ("kgw/app.py",), ("tests/security/test_threats.py",))


def test_each_module_and_each_test_is_there() -> None:
    """Whoever renames one changes the table; each threat has at least one of both."""
    assert [] == missing_modules()
    assert [] == missing_proofs()
    assert [] == [one.threat for one in THREATS if not (one.modules and one.proofs)]


@pytest.mark.parametrize(
    "proof",
    [
        "tests/security/no_such_file.py",
        "tests/security/test_threats.py::test_no_such_test",
        "tests/server/test_listener_security.py::test_under_load",
        "tests/clocks.py",
    ],
)
def test_a_test_that_is_not_there_fails_the_page(
    proof: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, a function, a method without its class, a file without a test."""
    rows = (ROW, ROW._replace(proofs=(proof,)))
    assert [proof] == missing_proofs(rows)
    monkeypatch.setattr("tests.security.threats.THREATS", rows)
    with pytest.raises(SystemExit, match=re.escape(proof)):
        threats()


def test_a_module_that_is_not_there_fails_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row says where it is decided."""
    rows = (ROW._replace(modules=("kgw/no_such.py",)),)
    assert ["kgw/no_such.py"] == missing_modules(rows)
    monkeypatch.setattr("tests.security.threats.THREATS", rows)
    with pytest.raises(SystemExit, match=r"kgw/no_such\.py"):
        threats()


def test_every_threat_has_its_own_words() -> None:
    """None is there twice, and each boundary has some."""
    told = [one.threat for one in THREATS]
    assert sorted(set(told)) == sorted(told)
    assert {*Boundary} == {one.boundary for one in THREATS}


def test_every_test_of_security_is_named_or_near_one() -> None:
    """A new file of tests in tests/security is looked at by somebody who knows this table."""
    named = {proof.partition("::")[0] for one in THREATS for proof in one.proofs}
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests" / "security").rglob("test_*.py")
        if path.name != Path(__file__).name
    }
    assert {
        # They are about the form of texts and values.
        "tests/security/test_principal.py",
        "tests/security/acls/test_binding.py",
        "tests/security/acls/test_terms.py",
        "tests/security/sasl/test_scram_libraries.py",
        "tests/security/sasl/test_tokens.py",
        "tests/security/tls/test_expiry.py",
        "tests/security/tls/test_peeking.py",
        "tests/security/tls/test_x509.py",
    } == files - named


def test_names_are_those_of_pytest() -> None:
    """With the class in front of a method."""
    found = names_of_tests(ROOT / "tests" / "server" / "test_listener_security.py")
    assert "TestTls::test_requests" in found
    assert "test_names_are_those_of_pytest" in names_of_tests(Path(__file__))
