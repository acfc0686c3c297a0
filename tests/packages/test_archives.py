"""Wheel and sdist: built once, as scripts/package builds them, and looked into."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from kgw import __version__
from tests.packages import archives, building, checks, extras, linked, local_index
from tests.packages.environments import run_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.packages.building import Built


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Wheel and sdist of this checkout, with what is not committed yet."""
    folder = tmp_path_factory.mktemp("packages")
    sources = building.copy_sources(folder / "sources")
    return building.built_in(building.build(sources, folder / "dist"))


@pytest.mark.slow
def test_both_hold_what_they_should(built: Built) -> None:
    """Types, messages, licence, SBOM and manual page; no tests in the wheel, no left-overs."""
    assert [] == archives.faults_of_wheel(built.wheel)
    assert [] == archives.faults_of_sdist(built.sdist)


@pytest.mark.slow
def test_an_index_can_show_it(built: Built) -> None:
    """The metadata is complete, and the README has no link that leads nowhere there."""
    said = archives.metadata(built.wheel)

    assert [] == archives.faults_of_metadata(said)
    assert __version__ == said["Version"]
    assert {*extras.declared()} == {*said.get_all("Provides-Extra", [])}


@pytest.mark.slow
def test_the_sdist_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    """Whoever gets the sources as an sdist gets the same bytes, commit and all, in other places."""
    assert "the same bytes" == checks.sdist_builds_the_wheel(built, tmp_path)


@pytest.mark.slow
def test_what_is_unpacked_says_its_commit(built: Built, tmp_path: Path) -> None:
    """An installed kgw tells the commit that it was built from; reading it imports nothing else."""
    shutil.unpack_archive(built.wheel, tmp_path, "zip")
    program = (
        "import sys; from kgw.version import full_version; print(full_version());"
        "print(sorted(name for name in sys.modules if name.startswith('kgw')))"
    )
    said = subprocess.check_output([sys.executable, "-c", program], cwd=tmp_path, text=True)

    commit = building.environment_of_a_build({})["KGW_COMMIT"]
    assert [f"kgw {__version__} ({commit})", "['kgw', 'kgw.version']"] == (
        f"kgw {said}".splitlines()
    )


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_an_index_can_serve_it(built: Built, tmp_path: Path) -> None:
    """`pip install kgw-broker` takes it from there; it serves, and its plugin of pytest works."""
    installed = {
        one.name: one
        for name in (linked.KGW, "pytest", "kafka-python")
        for one in linked.needed(name)
        if one.name != linked.KGW
    }
    environment = linked.LinkedEnvironment(tmp_path / "env", installed.values())
    pip = [sys.executable, "-m", "pip", "--python", str(tmp_path / "env")]
    with local_index.index_of([built.wheel], tmp_path) as address:
        install = [*pip, "install", "--quiet", "--index-url", address, "kgw-broker"]
        run_command(install, environment.variables)

    assert "kgw 0.1.0 (" in environment.run("kgw", "--version")
    local_index.use(environment, tmp_path)


@pytest.mark.slow
def test_requirements_pin_kgw_and_what_runs(built: Built) -> None:
    """The file beside the wheel has hashes for all of it, and nothing that only builds."""
    lock, sbom = building.LOCK.read_text(), json.loads(building.SBOM.read_text())
    pins = checks.requirements_of(built.wheel, lock, sbom)

    assert f"--hash=sha256:{archives.digest(built.wheel)}" in pins
    assert f"\n./{built.wheel.name} " in pins
    for name, is_there in [("uvloop", True), ("grpcio", True), ("hatchling", False)]:
        assert is_there == (f"\n{name}==" in pins)


def wheel_of(path: Path, **files: str) -> Path:
    """Write a wheel with these files; `__` stands for a slash, `_dot_` for a dot."""
    with ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name.replace("__", "/").replace("_dot_", "."), text)
    return path


def test_what_does_not_belong_is_named(tmp_path: Path) -> None:
    """The looks have something to find."""
    wheel = wheel_of(tmp_path / "a.whl", tests__test_x_dot_py="", kgw__x_dot_pyc="")
    sdist = tmp_path / "a.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("kgw_broker-1/.venv-clients/x_pb2.py"), io.BytesIO())

    found = archives.faults_of_wheel(wheel)
    assert "does not belong there: tests/test_x.py" in found
    assert "does not belong there: kgw/x.pyc" in found
    assert r"is not there: kgw/py\.typed" in found
    assert (
        "left behind by something: kgw_broker-1/.venv-clients/x_pb2.py"
        in archives.faults_of_sdist(sdist)
    )


def test_differences_are_named(tmp_path: Path) -> None:
    """Two archives differ by a file, by what it holds, or by how they are packed."""
    one = wheel_of(tmp_path / "1.whl", a="1", b="1")
    other = wheel_of(tmp_path / "2.whl", a="1", b="2")
    turned = wheel_of(tmp_path / "3.whl", b="1", a="1")

    assert [] == archives.differences(one, one)
    assert ["b"] == [line.partition(":")[0] for line in archives.differences(one, other)]
    assert archives.differences(one, turned)


def test_all_has_every_extra_of_users() -> None:
    """Whoever asks for [all] gets all of what runs."""
    (everything,) = extras.declared()["all"]
    named = everything.removeprefix("kgw-broker[").removesuffix("]").split(",")

    assert set(extras.of_users()) - {"all"} == set(named)


def test_every_extra_of_users_is_explained() -> None:
    """The page on installing has a row that names it."""
    rows = re.findall(
        r"^\| (`.*?) \|", (building.ROOT / "docs/install.md").read_text(), re.MULTILINE
    )

    assert [] == [one for one in extras.of_users() if f"`{one}`" not in " ".join(rows)]
