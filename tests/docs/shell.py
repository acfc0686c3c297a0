"""A shell in which the steps of a page are done as a reader would do them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from typing import TYPE_CHECKING, Self

from tests import patience
from tests.docs.pages import prints
from tests.signals import send_to_group

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.docs.pages import Step

_END = b"--the-end-of-this-block--"


class PageFailedError(Exception):
    """A step failed, printed something else than the page shows, or did not end."""


class Shell:
    """One bash for a whole page, which stops at the first command that fails.

    `texts` are replaced in what is run and put back in what is printed: the page's ports by free
    ones. Its processes end with it.
    """

    def __init__(
        self,
        folder: Path,
        notes: Path,
        *,
        env: Mapping[str, str],
        texts: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        self._folder = folder
        self._notes = notes
        self._env = env
        self._texts = texts
        self._timeout_s = timeout_s
        self._printed = b""

    def __enter__(self) -> Self:
        self._errors = (self._notes / "errors").open("wb")
        self._bash = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=self._folder,
            env={**os.environ, **self._env},
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        # What the page has started is in the group of its shell; servers are given time to stop.
        group = self._bash.pid
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not send_to_group(group, number):
                break
            limit = patience.Limit(5)
            while self._read(limit.left_s):
                pass
        self._bash.communicate()
        self._errors.close()

    def do(self, step: Step) -> None:
        """Do one step. Raises PageFailedError."""
        block, expected = step
        text = self._replaced(block.text)
        if block.file:
            folder = self._run("pwd\n", block.line).strip()
            (self._folder / folder / block.file).write_text(text, encoding="utf-8")
            return
        if "terminal" in block.words:
            text = f"{{\n{text}}} &\n"
        elif "repeat" in block.words:  # it may fail until it succeeds
            text = f"{{\n{text}}} || :\n"
        limit = patience.Limit(self._timeout_s)
        printed = self._run(text, block.line)
        while expected is not None and not prints(expected, printed):
            if limit.is_over:
                raise PageFailedError(f"line {block.line} prints:\n{printed}\nnot:\n{expected}")
            if "repeat" in block.words:
                printed = self._run(text, block.line)
            else:  # what runs in the background may still print it
                self._read(limit.left_s)
                printed = self._text()

    def _run(self, text: str, line: int) -> str:
        """Run commands and return what they print. Raises PageFailedError."""
        assert self._bash.stdin is not None
        self._printed = b""
        source = self._notes / f"line-{line}.sh"
        source.write_text(text, encoding="utf-8")
        self._bash.stdin.write(f"source {source} </dev/null\nprintf %s {_END.decode()}\n".encode())
        self._bash.stdin.flush()
        limit = patience.Limit(self._timeout_s)
        while _END not in self._printed:
            has_ended = self._bash.poll() is not None
            if not self._read(min(limit.left_s, 0.5)) and (has_ended or limit.is_over):
                errors = (self._notes / "errors").read_text(encoding="utf-8", errors="replace")
                raise PageFailedError(
                    f"line {line} {'failed' if has_ended else 'does not end'}:\n{text}\n"
                    f"it printed:\n{self._text()}\nand on standard error:\n{errors[-4000:]}"
                )
        return self._text()

    def _read(self, within_s: float) -> bool:
        """Take what is printed next; False at the end, or when the time is over."""
        assert self._bash.stdout is not None
        if not select.select([self._bash.stdout], [], [], within_s)[0]:
            return False
        data = os.read(self._bash.stdout.fileno(), 1 << 16)
        self._printed += data
        return bool(data)

    def _text(self) -> str:
        text = self._printed.replace(_END, b"").decode(errors="replace")
        for shown, used in self._texts.items():
            text = text.replace(used, shown)
        return text

    def _replaced(self, text: str) -> str:
        for shown, used in self._texts.items():
            text = text.replace(shown, used)
        return text
