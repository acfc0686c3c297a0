"""The rules by which pages are read, on pages of a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import blocks, prints, steps
from tests.docs.shell import PageFailedError, Shell

if TYPE_CHECKING:
    from pathlib import Path

PAGE = """# Title

```sh repeat
kgw topics list
```

```console
orders
```

Put this into `a.py`:

```python
x = 1
```

## More

```text
kgw is not run here
```

```sh
true
```
"""


def test_blocks_know_where_they_stand() -> None:
    """Language, words, line and heading of each block; a file only where the text names it."""
    assert [
        ("sh", {"repeat"}, 3, "Title", ""),
        ("console", set(), 7, "Title", ""),
        ("python", set(), 13, "Title", "a.py"),
        ("text", set(), 19, "More", ""),
        ("sh", set(), 23, "More", ""),
    ] == [(one.language, set(one.words), one.line, one.heading, one.file) for one in blocks(PAGE)]


def test_steps_are_what_a_reader_does() -> None:
    """Commands with their output, files; what is only shown is no step."""
    assert [
        ("kgw topics list\n", "orders\n"),
        ("x = 1\n", None),
        ("true\n", None),
    ] == [(one.block.text, one.printed) for one in steps(PAGE)]


@pytest.mark.parametrize("page", ["```sh\ntrue\n", "```console\nhello\n```\n"])
def test_what_cannot_be_meant_is_an_error(page: str) -> None:
    """A block without an end, and output of nothing."""
    with pytest.raises(ValueError, match="line 1"):
        steps(page)


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a\n", "", False),
        ("", "", True),
        ("pid=… x\n", "pid=17 x\n", True),
        ("pid=…\n", "pid=17\nmore\n", False),
        ("a\n…\nc\n", "a\nc\n", True),
        ("a\n…\nc\n", "a\nb\nb\nc\n", True),
        ("a.c\n", "abc\n", False),
        ("a\n", "a  \n", True),
    ],
)
def test_output_is_compared_by_a_rule(expected: str, printed: str, *, same: bool) -> None:
    """`…` is any text of a line, alone any lines; spaces at the end do not count."""
    assert same == prints(expected, printed)


def shell(folder: Path) -> Shell:
    """A shell that is given a second for each step."""
    return Shell(folder, folder, env={"NAME": "kgw"}, texts={"port": "17"}, timeout_s=1)


@pytest.mark.slow
def test_a_shell_does_the_steps_of_a_page(tmp_path: Path) -> None:
    """Variables, folders and background jobs last; replaced texts are put back in the output."""
    page = (
        "```sh\nmkdir in\ncd in\necho $NAME port\n```\n```console\nkgw port\n```\n"
        "Put this into `a.txt`:\n```text\nport\n```\n"
        "```sh\ncat a.txt\n```\n```console\nport\n```\n"
        "```sh terminal\necho ready\nsleep 60\n```\n```console\nready\n```\n"
        "```sh repeat\necho . >>again\ntest $(wc -l <again) = 3\necho now\n```\n"
        "```console\nnow\n```\n"
    )
    with shell(tmp_path) as one:
        for step in steps(page):
            one.do(step)
    assert "17\n" == (tmp_path / "in" / "a.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```sh\ntrue\nfalse\ntrue\n```\n", "line 1 failed"),
        ("```sh\necho a\n```\n```console\nb\n```\n", "line 1 prints"),
        ("```sh\nread -r line </dev/zero\n```\n", "line 1 does not end"),
    ],
)
def test_a_shell_says_what_was_not_as_shown(tmp_path: Path, page: str, message: str) -> None:
    """A command that fails, other output, a command without an end."""
    (step,) = steps(page)
    with shell(tmp_path) as one, pytest.raises(PageFailedError, match=message):
        one.do(step)
