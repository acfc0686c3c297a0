"""Names by which clients attack: paths, terminals, log lines, memory, matchers (campaign A8)."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

MARKER: Final = "kgw-a8"
"""Is in the name of each file that a path trick would make."""
FORGED: Final = "forged-a8"
"""Is the event of each log line that a name would forge."""

_PATHS: Final = (
    "..",
    ".",
    "...",
    f"../{MARKER}",
    f"../../{MARKER}",
    f"../../../../../../../../tmp/{MARKER}",
    f"/tmp/{MARKER}",
    f"/etc/{MARKER}",
    f"/{MARKER}",
    f"//{MARKER}",
    f"./{MARKER}",
    f"a/../../{MARKER}",
    f"partitions/../../{MARKER}",
    f"..\\{MARKER}",
    f"..\\..\\{MARKER}",
    f"C:\\{MARKER}",
    f"\\\\host\\share\\{MARKER}",
    f"%2e%2e%2f{MARKER}",
    f"..%2f{MARKER}",
    f"..%00/{MARKER}",
    f"..%c0%af{MARKER}",
    f"..;/{MARKER}",
    f"a\0/../{MARKER}",
    f"{MARKER}\0.log",
    f"~/{MARKER}",
    f"~root/{MARKER}",
    f"file:///tmp/{MARKER}",
    f"/proc/self/cwd/{MARKER}",
    f"/dev/fd/3/{MARKER}",
    f"\uff0e\uff0e\uff0f{MARKER}",
    f"\u2024\u2024\u2215{MARKER}",
    "/dev/null",
    "CON",
    "NUL",
    "lost+found",
    "state.sqlite",
    "journal",
    "lock",
    "__consumer_offsets",
    "__cluster_metadata",
    ".hidden",
    "a.",
    "-rf",
    "--help",
    "*",
    "?",
    "[a]",
    f"$(touch {MARKER})",
    f"`touch {MARKER}`",
    f"; touch {MARKER}",
    f"| tee {MARKER}",
    f"> {MARKER}",
    f"&& touch {MARKER}",
)
_TERMINALS: Final = (
    "\x1b[2J",
    "\x1b[31mred",
    "\x1b[1;1Hhome",
    "\x1b]0;title\x07",
    "\x1b]8;;http://example.org\x07link\x1b]8;;\x07",
    "\x1b]52;c;ZWNobyBoaQ==\x07",
    "\x1bPq\x1b\\",
    "\x1b_G\x1b\\",
    "\x1bc",
    "\x9b2J",
    "\x9d0;title\x9c",
    "a\rb",
    "a\bb",
    "a\x7f",
    "\u202eevil",
    "\u2066evil\u2069",
    "\u200bzero",
    "a\u200db",
    "\ufeffa",
    "\u061ca",
    "\U000e0041",
)
_LINES: Final = (
    f'\n{{"time": "x", "level": "info", "logger": "kgw", "event": "{FORGED}"}}\n',
    f'"}}\n{{"event": "{FORGED}"}}',
    f'", "event": "{FORGED}',
    f"\n12:00:00.000 error   kgw.app  {FORGED}",
    f"\r12:00:00.000 error   kgw.app  {FORGED}",
    f"\r\n12:00:00.000 error   kgw.app  {FORGED}",
    f"\u202812:00:00.000 error   kgw.app  {FORGED}",
    f"\u202912:00:00.000 error   kgw.app  {FORGED}",
    f"\x8512:00:00.000 error   kgw.app  {FORGED}",
    f"\x0b12:00:00.000 error   kgw.app  {FORGED}",
    f"\x0c12:00:00.000 error   kgw.app  {FORGED}",
    f"\x1c12:00:00.000 error   kgw.app  {FORGED}",
    f"a  {FORGED}  event={FORGED}",
    f"ready node_id=0 {FORGED}",
    f"\nready node_id=0 {FORGED}",
    f'a"}} 1\n{FORGED.replace("-", "_")}_total 5\n',
    "# HELP x\n# TYPE x counter",
)
_QUOTES: Final = (
    '"',
    "'",
    "\\",
    "\\n",
    "a=b c=d",
    "{}",
    "{0.__class__}",
    "%s%s%n",
    "%(levelname)s",
    "${jndi:ldap://example.org/a}",
    "#{7*7}",
    "{{7*7}}",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "' OR 1=1 --",
    "'); DROP TABLE rows; --",
    "1; ATTACH DATABASE 'x' AS x",
    "=1+1",
    "@SUM(1)",
    "null",
    "None",
    "true",
    "-1",
    "\\u0000",
    "User:admin",
    "User:*",
    "CN=admin,O=kgw",
    "CN=a\\,CN=admin",
    "ANONYMOUS",
)
_UNICODE: Final = (
    "\u00e9",
    "e\u0301",
    "\ufb01",
    "K",
    "\u212a",
    "\u0430dmin",
    "ad\u00admin",
    "\uff21\uff24\uff2d\uff29\uff2e",
    "\u00df",
    "\u1e9e",
    "\u0130",
    "\u0131",
    "\ue000",
    "\ufdd0",
    "\uffff",
    "\ufffd",
    "\U0001f4a3",
    "\U0001f1e9\U0001f1ea",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "Z" + "\u0300" * 60,
    "\U0010ffff",
    "",
    " ",
    " a",
    "a ",
    "\u00a0",
    "\u3000",
)
_MATCHERS: Final = (
    "a" * 30 + "!",
    "a" * 60 + "\n",
    "ab" * 30 + "c",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaX",
    "x" * 59 + "y",
    "1" * 40 + "a",
    "," * 50,
    "CN=" * 20,
)
_SIZES: Final = (249, 250, 255, 256, 1_000, 4_096, 10_000, 32_000)

RULES: Final = (
    "RULE:^CN=(a+)+$/$1/,DEFAULT",
    "RULE:^CN=(a|aa)+$/$1/,DEFAULT",
    "RULE:^CN=(a|a?)+$/$1/,DEFAULT",
    "RULE:^CN=(.*a){12}$/$1/,DEFAULT",
    "RULE:^(.*,)*CN=([^,]*)*$/$2/,DEFAULT",
    "RULE:^CN=([a-zA-Z]+)*[0-9]$/$1/,DEFAULT",
    "RULE:^.*CN=(([a-z])+.)+[A-Z]([a-z])+$/$1/L,DEFAULT",
    "RULE:(x*)*y/$1/,RULE:(.?){40}(.){40}/$1/U,DEFAULT",
)
"""Mapping rules on which a matcher that goes back takes a time that doubles with each character."""


def hostile_names() -> list[str]:
    """Return at least 200 names, each once."""
    controls = [f"a{chr(code)}b" for code in (*range(32), 0x7F, *range(0x80, 0xA0))]
    # A string of Kafka's protocol has 32,767 bytes at most.
    sizes = [
        one * (size // len(one.encode())) for size in _SIZES for one in ("x", "\u00e9", "\x1b")
    ]
    every = [
        *_PATHS,
        *_TERMINALS,
        *_LINES,
        *_QUOTES,
        *_UNICODE,
        *_MATCHERS,
        *controls,
        *sizes,
    ]
    return [*dict.fromkeys(every)]


# --- what they must not have done -----------------------------------------------------------------


def forged_lines(log: bytes, style: str) -> list[str]:
    """Return the lines of a log that the server has not written as such."""
    return [repr(line[:200]) for line in log.split(b"\n")[:-1] if not _is_own(line, style)]


def _is_own(line: bytes, style: str) -> bool:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return False
    if has_control_characters(text):
        return False
    if style == "text":
        begin = re.match(
            r"\d\d:\d\d:\d\d\.\d{3} (debug|info|warning|error) +(kgw[a-z0-9_.]*|asyncio)  ", text
        )
        return begin is not None and not text[begin.end() :].startswith(FORGED)
    try:
        fields = json.loads(text)
    except ValueError:
        return False
    return {"time", "level", "logger", "event"} <= fields.keys() and FORGED not in fields["event"]


def has_control_characters(text: str) -> bool:
    """Return whether a terminal would do something for this text, or show it as several lines."""
    return any(unicodedata.category(one) in {"Cc", "Cf", "Zl", "Zp", "Cs"} for one in text)


def escaped_files(places: Iterable[Path]) -> list[str]:
    """Return the files in some folders that a path trick has made."""
    return [str(one) for place in places for one in _entries(place) if MARKER in one.name]


def _entries(place: Path) -> Iterator[Path]:
    try:
        yield from place.iterdir()
    except OSError:
        return
