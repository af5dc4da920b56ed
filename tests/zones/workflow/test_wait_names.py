"""A waiting item's record names what it waits for, and the names can be read again."""

import pytest

from fairlead.zones.workflow.suspension import Awaited, AwaitedChild, AwaitedSignal, awaited_of


@pytest.mark.parametrize(
    "awaited",
    [AwaitedSignal("approved"), AwaitedSignal("child 1 of many"), AwaitedChild("call mail@2", 3), AwaitedChild("7", 0)],
)
def test_what_is_waited_for_is_read_from_its_name(awaited: Awaited) -> None:
    assert awaited_of(awaited.wait_name) == awaited


@pytest.mark.parametrize("name", ["", "child", "child x mail", "bell 1"])
def test_a_name_of_a_newer_version_is_nothing(name: str) -> None:
    assert awaited_of(name) is None
