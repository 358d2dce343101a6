"""Doors: what an extension adds is there by name, is taken back, and what was there before it goes on."""

from contextlib import contextmanager

import pytest

from pipelines.base.errors import ConfigError
from pipelines.config import doors, variants
from pipelines.config.doors import Origin, forget, remember
from pipelines.config.load import from_dict
from pipelines.config.registry import experiment_class
from pipelines.config.schema import Monitor
from pipelines.config.section import Section, setting
from pipelines.runs.launcher import Launcher, chosen

DIGITS = {"task": "vision.classification", "data": {"source": "digits"}, "model": {"name": "cnn"}}


class Bell(Section):
    """Rings."""

    bell: int = setting(1, "times it rings", ge=0)

    def problems(self):
        return [*super().problems(), *([("bell", "thirteen is too many")] if self.bell == 13 else [])]


@pytest.fixture
def added():
    """The settings above in `monitor`, as an extension has put them there."""
    before = Monitor()
    remember(Origin("bells.py", None, "0" * 64, __name__))
    variants.add_settings(Monitor, Bell)
    yield before
    variants.forget("bells.py")
    forget("bells.py")


def test_settings_of_an_extension_are_checked_and_read_in_their_section(added):
    set_ = from_dict({**DIGITS, "monitor": {"bell": 3, "samples": 4}})
    assert set_.monitor.added(Bell).bell == 3 and set_.model_dump()["monitor"]["bell"] == 3
    plain = from_dict({**DIGITS, "monitor": {"samples": 4}})
    assert plain.monitor.added(Bell) == Bell() and "bell" not in plain.model_dump()["monitor"]
    for wrong, says in (({"bell": -1}, "bell"), ({"bel": 1}, "did you mean"), ({"bell": 13}, "thirteen is too many")):
        with pytest.raises(ConfigError, match=says):
            from_dict({**DIGITS, "monitor": wrong})


def test_what_was_validated_before_has_the_defaults(added):
    assert added.added(Bell).bell == 1 and added.problems() == [] and "bell" not in added.model_dump()


def test_what_is_taken_back_is_gone():
    experiment_class("vision.classification")
    known = set(Monitor.model_fields)
    remember(Origin("bells.py", None, "0" * 64, __name__))
    variants.add_settings(Monitor, Bell)
    doors.HOOKS.add("bell", Bell)
    with pytest.raises(ConfigError, match="has a setting 'samples' already"):
        variants.add_settings(Monitor, type("Other", (Section,), {"__annotations__": {"samples": int}, "samples": 1}))
    variants.forget("bells.py")
    doors.HOOKS.forget("bells.py")
    forget("bells.py")
    assert set(Monitor.model_fields) == known and not hasattr(Monitor, "bell") and all(one.name != "bell" for one in doors.HOOKS.entries())
    with pytest.raises(ConfigError, match="bell"):
        from_dict({**DIGITS, "monitor": {"bell": 3}})


def test_a_name_of_another_extension_is_refused():
    name = doors.HOOKS.entries()[0].name if doors.HOOKS.entries() else "tracking"
    door = doors.Door("hook")
    door.add(name, "pipelines.runs.run_hook:RunHook")
    with pytest.raises(ConfigError, match="there is a hook"):
        door.add(name, Bell)
    with door.without(name):
        assert door.entries() == ()
    assert [one.name for one in door.entries()] == [name]


def test_options_surround_a_command_and_one_that_nobody_adds_is_refused():
    events = []

    @contextmanager
    def loudness(loud: int = 1):
        events.append(f"begun {loud}")
        yield
        events.append("ended")

    options = doors.Options("set of options")
    options.add("loudness", loudness, commands=("train", "runs compare"))
    for command, given in (("train", {"loud": 3}), ("runs compare", {}), ("tune", {})):
        with options.surround(command, given):
            events.append(command)
    assert events == ["begun 3", "train", "ended", "begun 1", "runs compare", "ended", "tune"]
    with pytest.raises(ConfigError, match="tune: there is no option loud"), options.surround("tune", {"loud": 1}):
        pass


def test_the_launcher_is_the_one_that_is_asked_for():
    class Other(Launcher):
        elsewhere = True

    with doors.LAUNCHERS.without("hosts"), doors.LAUNCHERS.without("ray"):
        assert type(chosen("train")) is Launcher and chosen("train").chief
        doors.LAUNCHERS.add("other", lambda command: Other() if command == "tune" else None)
        assert type(chosen("train")) is Launcher and chosen("tune").elsewhere
        doors.LAUNCHERS.add("another", lambda command: Other())
        with pytest.raises(ConfigError, match="tune: other and another are both asked for"):
            chosen("tune")
