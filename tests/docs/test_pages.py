"""The documentation says what the code does, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "changelog.d/*.md", "bench/*.md")
    for page in ROOT.glob(pattern)
)
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def links(page: Path) -> list[str]:
    """The targets of a page's links to files, without those inside code."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    return [target for target, _ in LINK.findall(text) if "://" not in target]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file or folder of the project."""
    missing = [target for target in links(page) if not (page.parent / target).exists()]
    assert [] == missing


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found: set[str] = set()
    for title in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        # The second heading of the same words gets a number.
        again = sum(1 for one in found if re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", one))
        found.add(f"{anchor}-{again}" if anchor in found else anchor)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_headings(page: Path) -> None:
    """What stands behind the # of a link is a heading of that page."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    missing = [
        target + anchor
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]+)\)", text)
        if "://" not in target
        and (place := (page.parent / target if target else page)).suffix == ".md"
        and place.exists()
        and anchor[1:] not in headings(place)
    ]
    assert [] == missing


def test_index_leads_to_every_page() -> None:
    """Each page under docs/ is reached from the index, directly or through a folder's own."""
    reached: set[Path] = set()
    pending = [ROOT / "docs" / "README.md"]
    while pending:
        page = pending.pop().resolve()
        if page in reached:
            continue
        reached.add(page)
        if page.is_dir():
            pending.extend(page.glob("*.md"))
        elif page.suffix == ".md":
            pending.extend(page.parent / target for target in links(page))
    unreached = {page for page in (ROOT / "docs").rglob("*.md") if page.resolve() not in reached}
    assert set() == unreached


def test_readme_commands_exist() -> None:
    """The scripts that README and CONTRIBUTING name are there and can be run."""
    text = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"\bscripts/[a-z0-9_.-]+\b(?!/)", text))
    assert named
    missing = [name for name in sorted(named) if not (ROOT / name).is_file()]
    assert [] == missing
