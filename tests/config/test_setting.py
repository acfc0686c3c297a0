from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.config import SERVER_SETTINGS, TOPIC_SETTINGS, ConfigError, Setting, SettingType
from kgw.config.server_settings import ServerSettings
from kgw.config.setting import LONG_MAX, TypedSetting, suggest, table

SIZE = Setting("kgw.some.bytes", 1, "A size.", minimum=0)
TIME = Setting("kgw.some.ms", 1, "A time.", type_=SettingType.LONG, minimum=-1)
ALL_SETTINGS = [*SERVER_SETTINGS.values(), *TOPIC_SETTINGS.values()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("64MB", 64 << 20),
        ("64MiB", 64 << 20),
        ("1 GB", 1 << 30),
        ("3kb", 3072),
        ("7B", 7),
    ],
)
def test_sizes_may_carry_a_unit(text: str, expected: int) -> None:
    """A size with a unit counts in powers of 1024, whichever way it is spelled."""
    assert expected == SIZE.parse(text, suffixes=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("-1", -1), ("250ms", 250), ("10s", 10_000), ("5min", 300_000), ("2h", 7_200_000)],
)
def test_times_may_carry_a_unit(text: str, expected: int) -> None:
    """A time with a unit is milliseconds afterwards."""
    assert expected == TIME.parse(text, suffixes=True)


@pytest.mark.parametrize("text", ["", "-", "1.5", "ten", "1e3", "0x10", "²", "٣", "9" * 30, "1 2"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    """Only decimal digits with an optional minus are a whole number."""
    with pytest.raises(ConfigError, match=r"kgw\.some\.ms"):
        TIME.parse(text)


@pytest.mark.parametrize("text", ["64XB", "MB", "1.5MB", "-1MB", "10s"])
def test_wrong_units_are_refused_with_an_example(text: str) -> None:
    """A unit that a size does not have is refused, and the message shows one that it has."""
    with pytest.raises(ConfigError, match="like 64MB"):
        SIZE.parse(text, suffixes=True)


def test_clients_send_plain_numbers() -> None:
    """Units are a convenience of files and flags; on the wire they are refused, as Kafka does."""
    with pytest.raises(ConfigError, match="not a whole number"):
        SIZE.parse("64MB")


@pytest.mark.parametrize("type_", [SettingType.INT, SettingType.LONG, SettingType.DOUBLE])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_too_large_for_a_float_is_refused(type_: SettingType, sign: int) -> None:
    """TOML may hold it; it is out of range like any other."""
    with pytest.raises(ConfigError, match=r"kgw\.some"):
        Setting("kgw.some", 1, "A number.", type_=type_, minimum=0).convert(sign * 10**400)


def test_limits_hold_for_text_and_for_toml() -> None:
    """Minimum and maximum are checked whatever the value came from."""
    with pytest.raises(ConfigError, match="below the minimum of 0"):
        SIZE.parse("-1")
    with pytest.raises(ConfigError, match="above the maximum"):
        SIZE.convert(1 << 40)


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("False", False), (" TRUE ", True)])
def test_booleans_are_true_or_false(text: str, expected: bool) -> None:
    """Case and blanks do not matter, other words are refused."""
    boolean = Setting("some.enable", False, "A switch.")
    assert expected is boolean.parse(text)
    with pytest.raises(ConfigError, match="neither true nor false"):
        boolean.parse("yes")


def test_toml_values_must_have_the_settings_type() -> None:
    """A boolean is no number and a list is no string, though Python would let them pass."""
    for raw in (True, 1.0, ["1"], None):
        with pytest.raises(ConfigError, match="is not a whole number"):
            SIZE.convert(raw)
    boolean = Setting("some.enable", False, "A switch.")
    with pytest.raises(ConfigError, match="is not true or false"):
        boolean.convert(1)


def test_lists_lose_blanks_and_empty_items() -> None:
    """A list is what lies between the commas."""
    listing = Setting("some.list", (), "A list.")
    assert ("a", "b") == listing.parse(" a, ,b,")
    assert ("a", "b") == listing.convert(["a", "b"])
    assert "a,b" == listing.format(("a", "b"))


def test_a_closed_set_names_what_is_served_and_why() -> None:
    """The message for a value that is not served says what is, and the reason."""
    setting = TOPIC_SETTINGS["preallocate"]
    with pytest.raises(ConfigError) as caught:
        setting.parse("true")
    expected = (
        "preallocate: 'true' is refused, only false is served (segments grow as they are written)"
    )
    assert expected == str(caught.value)


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=lambda setting: setting.name)
def test_every_default_survives_its_text_form(setting: Setting) -> None:
    """What DescribeConfigs sends for a default can be set again and means the same."""
    assert setting.default == setting.parse(setting.format(setting.default))


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_is_documented(setting: Setting) -> None:
    """Each setting has a sentence that ends like one."""
    assert setting.doc.endswith(".")


def test_every_setting_of_the_server_is_an_attribute_by_its_name() -> None:
    """An attribute of the class of settings, by which the type checker goes, has the right name."""
    declared = {
        name: one.attribute
        for section in ServerSettings.__mro__
        for name, one in vars(section).items()
        if isinstance(one, TypedSetting)
    }
    assert declared
    assert {name: name for name in declared} == declared


@given(st.text(max_size=40), st.sampled_from(ALL_SETTINGS), st.booleans())
def test_any_text_is_a_value_or_a_config_error(
    text: str, setting: Setting, has_suffixes: bool
) -> None:
    """Parsing never fails in another way than ConfigError, and never leaves the limits."""
    try:
        value = setting.parse(text, suffixes=has_suffixes)
    except ConfigError:
        return
    assert value == setting.validate(value)


@given(st.integers(min_value=-1, max_value=LONG_MAX))
def test_whole_numbers_keep_their_value(number: int) -> None:
    """Every number within the limits is read as itself."""
    assert number == TIME.parse(str(number))


def test_a_setting_declared_twice_is_noticed() -> None:
    """A table refuses two settings of one name."""
    with pytest.raises(ValueError, match="declared twice"):
        table(SIZE, SIZE)


def test_suggestions_are_near() -> None:
    """A near name is suggested, a far one is not."""
    assert "; did you mean num.partitions?" == suggest("num.partition", SERVER_SETTINGS)
    assert not suggest("zzz", SERVER_SETTINGS)
