"""Which commit a build says that it is of, and what it makes of the README."""

from __future__ import annotations

import subprocess
import sys
from shlex import quote
from typing import TYPE_CHECKING

import pytest

from kgw import version
from tests.packages.building import hooks

if TYPE_CHECKING:
    from pathlib import Path

HOOKS = hooks()


def git(folder: Path, *arguments: str) -> str:
    """Run git there, as somebody."""
    somebody = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.com"]
    return subprocess.check_output(["git", "-C", str(folder), *somebody, *arguments], text=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    (tmp_path / "file").write_text("1")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message", "One")
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says nothing of a commit."""
    monkeypatch.delenv("KGW_COMMIT", raising=False)


def test_a_checkout_says_its_commit(repository: Path) -> None:
    """Twelve digits, and `+changes` once a file is changed or new."""
    head = git(repository, "rev-parse", "HEAD")[:12]

    assert head == HOOKS.commit(str(repository))
    (repository / "new").write_text("")
    assert f"{head}+changes" == HOOKS.commit(str(repository))
    (repository / "new").unlink()
    (repository / "file").write_text("2")
    assert f"{head}+changes" == HOOKS.commit(str(repository))


def test_no_commit_is_made_up(repository: Path) -> None:
    """Sources that only lie in a repository are not of its commit."""
    (repository / "unpacked").mkdir()

    assert "unknown" == HOOKS.commit(str(repository / "unpacked"))


def test_sources_without_git_say_so(tmp_path: Path) -> None:
    """Nothing is known of a folder."""
    assert "unknown" == HOOKS.commit(str(tmp_path))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("0123456789abcdef0123456789abcdef01234567", "0123456789ab"),
        ("0123456789abcdef+changes", "0123456789ab+changes"),
        ("0123456", "0123456"),
    ],
)
def test_a_build_can_be_told(
    repository: Path, monkeypatch: pytest.MonkeyPatch, told: str, expected: str
) -> None:
    """KGW_COMMIT goes before git: an image is built without its folder."""
    monkeypatch.setenv("KGW_COMMIT", told)

    assert expected == HOOKS.commit(str(repository))


def test_a_checkout_is_called_so() -> None:
    """What runs from its sources has no commit: they may change at any time."""
    assert version.CHECKOUT == version.commit()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See [how](docs/how.md).", "See how."),
        (
            "See [how](docs/how.md#why) and [that](https://example.com).",
            "See how and [that](https://example.com).",
        ),
        ("![A picture](docs/picture.svg)\nText", "Text"),
        ("[Here](#below)", "Here"),
        ("`[x]`(y)", "`[x]`(y)"),
    ],
)
def test_links_of_the_readme(text: str, expected: str) -> None:
    """On an index there is nothing beside the README; links elsewhere stay."""
    assert expected == HOOKS.without_local_links(text)


def test_the_command_for_an_extra_names_this_python() -> None:
    """Another environment's pip would install the package that has the name on the index."""
    expected = f"{quote(sys.executable)} -m pip install 'kgw-broker[spark]'"
    assert expected == version.install_command("spark")
