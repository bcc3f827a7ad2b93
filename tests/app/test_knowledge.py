"""What `fairlead serve` says it knows of an app: what was measured, when, where, and of which source."""

import msgspec
import pytest

from fairlead.app import App
from fairlead.app.knowledge import knowledge
from fairlead.app.snapshot import Snapshot, source_digest
from fairlead.profile.measured import Machine, MeasuredFunction, MeasuredProfiles, Point, as_plain

HERE, FILES = "CPU A", {"app.py": "text", "more.py": "other"}


def snapshot(**measured):
    """An app of two functions, `one` with batches of 1 and 2, with what was measured of them."""
    app = App("app")
    app.workflow("w", app.function(batch=(1, 2), name="one")(list) >> app.function(name="two")(abs))
    profile = None
    if measured:
        machine = Machine(cpu="CPU A", cores=2, limits="affinity")
        profiles = MeasuredProfiles(app="app", machine=machine, functions=measured)
        profile = msgspec.json.encode(as_plain(profiles)).decode()
    return Snapshot("/apps/app.py", None, app.manifest(), FILES, profile)


def function(*points, **more):
    return MeasuredFunction(points=points or (Point(mean_s=0.1, count=9),), **more)


NOW = {"measured_at": "2026-11-18T07:00:00+00:00", "source": source_digest(FILES)}
BOTH = (Point(mean_s=0.1, count=9), Point(batch=2, mean_s=0.2, is_predicted=True))


def test_without_a_profile_everything_is_assumed():
    assert knowledge(snapshot(), HERE, {}, has_machine=True) == [
        "one, two: assumed to take 10 ms, until runs show what it takes",
        "to measure: fairlead profile /apps/app.py",
    ]


def test_what_was_tried_out_is_said():
    assert knowledge(snapshot(), HERE, {"one": 12}, has_machine=True) == [
        "one: never measured; tried out on the examples at this start, 12 runs",
        "two: assumed to take 10 ms, until runs show what it takes",
        "to measure: fairlead profile /apps/app.py",
    ]


def test_a_machine_that_was_never_measured_is_measured_with_the_app():
    assert knowledge(snapshot(), HERE, {}, has_machine=False)[-1] == "to measure: fairlead profile /apps/app.py --host"
    known = snapshot(one=function(**NOW), two=function(**NOW))
    assert knowledge(known, HERE, {}, has_machine=False)[-1].endswith(
        "never measured, which predictions need: fairlead profile --host"
    )


def test_what_was_measured_here_of_this_source_takes_one_line():
    known = snapshot(one=function(**NOW), two=function(**NOW))
    assert knowledge(known, HERE, {}, has_machine=True) == ["one, two: measured, 2026-11-18"]


def test_each_function_has_what_is_known_of_it():
    known = snapshot(one=function(*BOTH, **NOW))
    assert knowledge(known, HERE, {}, has_machine=True) == [
        "one: measured in 1 of 2 configurations, the others derived, 2026-11-18",
        "two: assumed to take 10 ms, until runs show what it takes",
        "to measure: fairlead profile /apps/app.py",
    ]


def test_a_source_that_changed_since_is_said():
    old = {**NOW, "source": source_digest(FILES | {"more.py": "changed"})}
    lines = knowledge(snapshot(one=function(**old), two=function(**NOW)), HERE, {}, has_machine=True)
    assert lines[0] == "one: measured, 2026-11-18; the source of the app has changed since"
    assert lines[-1] == "to measure: fairlead profile /apps/app.py"


def test_another_cpu_is_said():
    lines = knowledge(snapshot(one=function(**NOW), two=function(**NOW)), "CPU B", {}, has_machine=True)
    assert lines[1:] == ["measured on another CPU (CPU A), not on this one (CPU B)"]


def test_files_from_before_say_neither_when_nor_of_what():
    assert knowledge(snapshot(one=function(), two=function()), HERE, {}, has_machine=True) == ["one, two: measured"]


@pytest.mark.parametrize(
    "other", [{"app.py": "text"}, FILES | {"more.py": "othe"}, {"app.py": "textmore.py", "": "other"}, {}]
)
def test_digests_tell_sources_apart(other):
    assert source_digest(other) != source_digest(FILES)
    assert source_digest(dict(reversed(FILES.items()))) == source_digest(FILES)
