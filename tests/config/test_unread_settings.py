"""scripts/unread_settings.py finds the settings that are accepted and act on nothing."""

from __future__ import annotations

import pytest

from kgw.config import Setting
from scripts.unread_settings import unread_settings

FIELDS = "class Limits(NamedTuple):\n    frame_bytes: int = 0\n\n\n"
TAKEN = FIELDS + "def limits_from(config):\n    return Limits(frame_bytes=config.frame_bytes_max)\n"
PROPERTY = """
class Config:
    @property
    def size(self):
        return config.frame_bytes_max
"""


def setting(name: str, *, server_setting: str = "", allowed: tuple[int, ...] = ()) -> Setting:
    """Return a setting of a name."""
    return Setting(name, 1, "What for.", server_setting=server_setting, allowed=allowed)


def unread(source: str, *others: str) -> list[str]:
    """Return whether `frame.bytes.max` of the server is unread, as a list with it or without."""
    sources = {f"kgw/{number}.py": text for number, text in enumerate((source, *others))}
    return unread_settings(sources, [setting("frame.bytes.max")], [])


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("", id="nowhere"),
        pytest.param("def f(limits):\n    g(limits.frame_bytes_max)\n", id="of something else"),
        pytest.param(TAKEN, id="field that nobody reads"),
        pytest.param(
            TAKEN + "def f(limits):\n    size = limits.frame_bytes\n", id="variable of no use"
        ),
        pytest.param(
            TAKEN + "def f(limits):\n    return Limits(frame_bytes=limits.frame_bytes)\n",
            id="field that only fills itself",
        ),
        pytest.param(
            PROPERTY,
            id="property that nobody reads",
        ),
        pytest.param(
            "def f(self):\n    self._frame_bytes = min(self.config.frame_bytes_max, 5)\n",
            id="attribute that nobody reads",
        ),
    ],
)
def test_an_unread_setting_is_found(source: str) -> None:
    """A setting whose value ends in something that nobody reads is found."""
    assert ["frame.bytes.max"] == unread(source)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def f(config):\n    return config.frame_bytes_max\n", id="at once"),
        pytest.param(
            "def f(self):\n    if self._config().frame_bytes_max:\n        g()\n", id="if"
        ),
        pytest.param(
            TAKEN + "def f(limits, n):\n    if n > limits.frame_bytes:\n        raise E\n",
            id="field",
        ),
        pytest.param(
            TAKEN + "def f(limits):\n    size = limits.frame_bytes\n    g(size)\n", id="variable"
        ),
        pytest.param(
            PROPERTY + "def f(config):\n    g(config.size)\n",
            id="property",
        ),
        pytest.param(
            "def f(config):\n    loop.create_server(backlog=config.frame_bytes_max)\n",
            id="argument of a library",
        ),
    ],
)
def test_a_setting_that_is_read_is_not_found(source: str) -> None:
    """A setting whose value gets to where something is done with it is in order."""
    assert [] == unread(source)


def test_a_variable_is_its_files_own() -> None:
    """A variable of the same name that another file reads does not make up for it."""
    unused = "def f(config):\n    size = config.frame_bytes_max\n"
    used = "def f(size):\n    return size + 1\n"
    assert ["frame.bytes.max"] == unread(unused, used)
    assert [] == unread(unused + "    return size\n", used)


def test_topic_settings_are_read_for_the_server() -> None:
    """A default of topics is read where the topic's setting is, and unread where that is not."""
    server = [setting("log.age.ms")]
    topic = [setting("age.ms", server_setting="log.age.ms")]
    read = "def f(values):\n    return values['age.ms']\n"
    assert [] == unread_settings({"kgw/a.py": read}, server, topic)
    assert ["age.ms", "log.age.ms"] == unread_settings({"kgw/a.py": ""}, server, topic)


def test_a_setting_with_one_value_needs_no_reader() -> None:
    """What can be set to one value alone is not asked for; what has a choice is."""
    one, two = setting("one", allowed=(1,)), setting("two", allowed=(1, 2))
    assert ["two", "two"] == unread_settings({"kgw/a.py": ""}, [one, two], [one, two])
