"""The terminal of `kgw top`: draws with curses, while a thread asks the server."""

from __future__ import annotations

import curses
import locale
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from kgw.cli.shared.errors import CommandError
from kgw.cli.top.figures import Watch
from kgw.cli.top.screen import ALARM, BOLD, HEADING, PLAIN, lines_of, press
from kgw.terminals import has_colours

if TYPE_CHECKING:
    from kgw.cli.top.asking import Asker
    from kgw.cli.top.figures import Figures, Sample
    from kgw.cli.top.screen import Line, Screen

_LOOK_MS = 100
"""How often to check for new figures to draw."""
_FIRST_RATES_S = 0.5
"""Take the second sample early, as rates need two samples."""
_ESCAPE_MS = 50
_KEYS = {
    curses.KEY_LEFT: "left",
    curses.KEY_RIGHT: "right",
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_PPAGE: "page up",
    curses.KEY_NPAGE: "page down",
    curses.KEY_HOME: "home",
    9: "tab",
}


class Poller:
    """Asks the server in a thread, so that keys are handled while it waits."""

    def __init__(self, asker: Asker, first: Sample, interval_s: float) -> None:
        self.interval_s = interval_s
        self.is_paused = False
        self.lost = ""
        """Since when and why the server has not answered; "" if it answers."""
        self.version = 0
        """A number that grows whenever the screen must be drawn again."""
        self._asker = asker
        self._watch = Watch()
        self.figures: Figures = self._watch.take(first)
        self._lost_at = ""
        self._wake = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="kgw-top", daemon=True).start()

    def choose(self, interval_s: float, is_paused: bool) -> None:
        """Set the interval between samples, or pause."""
        if (interval_s, is_paused) != (self.interval_s, self.is_paused):
            self.interval_s, self.is_paused = interval_s, is_paused
            self._wake.set()

    def _run(self) -> None:
        began_s = time.monotonic()
        due_s = began_s + min(self.interval_s, _FIRST_RATES_S)
        while True:
            wait_s = None if self.is_paused else max(0.0, due_s - time.monotonic())
            if self._wake.wait(wait_s):
                self._wake.clear()
                due_s = min(due_s, began_s + self.interval_s)
                continue
            began_s = time.monotonic()
            self.ask()
            due_s = began_s + self.interval_s

    def ask(self) -> None:
        """Take one sample; if the server does not answer, record that."""
        try:
            self.figures = self._watch.take(self._asker.sample())
            self.lost = ""
        except CommandError as error:
            if not self.lost:
                self._lost_at = time.strftime("%H:%M:%S")
            self.lost = f"no answer since {self._lost_at}: {error.message}"
        except Exception as error:  # noqa: BLE001 - a thread's end would be a frozen screen
            self.lost = f"a bug of kgw top: {error!r}"
        self.version += 1


def show(asker: Asker, first: Sample, screen: Screen) -> None:
    """Show a server until the user quits. Raises CommandError if the terminal is not suitable."""
    with suppress(locale.Error):  # the locale is not installed: names are shown in ASCII
        locale.setlocale(locale.LC_ALL, "")
    for name in ("SIGTERM", "SIGHUP"):
        # A signal must also restore the terminal before the process ends.
        signal.signal(getattr(signal, name), _end)
    curses.set_escdelay(_ESCAPE_MS)
    try:
        curses.setupterm()
    except curses.error as error:
        raise CommandError(f"{error}: use --once or --json") from None
    poller = Poller(asker, first, screen.interval_s)
    poller.start()
    curses.wrapper(_Terminal(poller, screen).run)


def _end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


class _Terminal:
    def __init__(self, poller: Poller, screen: Screen) -> None:
        self._poller = poller
        self._screen = screen
        self._styles: dict[str, int] = {}

    def run(self, window: curses.window) -> None:
        """Draw the screen and handle keys until the user quits."""
        self._styles = _styles()
        window.timeout(_LOOK_MS)
        drawn = -1
        while not self._screen.is_over:
            version = self._poller.version
            if version != drawn:
                self._draw(window)
                drawn = version
            code = window.getch()
            if code == curses.ERR:
                continue
            drawn = -1
            if code == curses.KEY_RESIZE:
                # The terminal may have lost its content: draw everything again.
                window.clear()
            else:
                key = _KEYS.get(code, chr(code) if 32 <= code < 127 else "")
                self._screen = press(self._screen, key, max(1, window.getmaxyx()[0] - 6))
                self._poller.choose(self._screen.interval_s, self._screen.is_paused)

    def _draw(self, window: curses.window) -> None:
        height, width = window.getmaxyx()
        poller = self._poller
        # Leave the last column empty: curses fails when it writes to the bottom right corner.
        lines = lines_of(self._screen, poller.figures, width - 1, height, poller.lost)
        window.erase()
        for row, line in enumerate(lines):
            self._draw_line(window, row, line, width)
        # curses sends only characters that have changed, so there is no flicker.
        window.refresh()

    def _draw_line(self, window: curses.window, row: int, line: Line, width: int) -> None:
        text = line.text.ljust(width - 1) if line.style == HEADING else line.text
        # Replace characters of names that this terminal cannot show.
        shown = text.encode(window.encoding, "replace").decode(window.encoding)
        with suppress(curses.error):  # the terminal has become smaller; the next drawing will fit
            window.addstr(row, 0, shown, self._styles[line.style])


def _styles() -> dict[str, int]:
    alarm = curses.A_BOLD
    with suppress(curses.error):  # some terminals cannot hide their cursor
        curses.curs_set(0)
    if has_colours():
        with suppress(curses.error):  # some terminals have no colours
            curses.use_default_colors()
            curses.init_pair(1, curses.COLOR_RED, -1)
            alarm |= curses.color_pair(1)
    return {
        PLAIN: curses.A_NORMAL,
        BOLD: curses.A_BOLD,
        HEADING: curses.A_REVERSE,
        ALARM: alarm,
    }
