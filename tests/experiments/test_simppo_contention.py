"""Functions beside a CPU hog: the queue by hand, and that the table is the committed one."""

import csv
import io
from importlib.resources import files

import pytest

from fairlead.experiments import run_experiment
from fairlead.experiments.cases import read_settings
from fairlead.experiments.simppo_contention.run import Point, hogged, latencies_s

PACKAGE = "fairlead.experiments.simppo_contention"


@pytest.fixture(scope="module")
def settings():
    return read_settings(PACKAGE)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def committed():
    return rows_of((files(PACKAGE) / "expected.csv").read_text(encoding="utf-8"))


def test_the_hog_holds_so_many_times_the_shares_of_all_containers(settings):
    where = hogged(settings, Point(load=0.5, requests=30), 2)
    (change,) = where.pressures
    assert change.pressure * settings["vcpus"] == 2 * settings["containers"]
    assert where.duration_s == pytest.approx(30 / (0.5 * 3))


def test_a_request_alone_with_the_hog_takes_what_sharing_makes_of_it(settings):
    # One container of 1 and a hog of 4 x 3 shares on 4 vCPUs: 13 / 4 of a second, when hardly anybody comes.
    mean_s, _ = latencies_s(hogged(settings | {"noise": 0.0}, Point(load=0.001, requests=20), 4), seed=0)
    assert mean_s == pytest.approx(13 / 4, rel=0.01)


def test_latencies_of_an_overloaded_queue_grow_with_the_run_and_end_with_it(settings):
    # Offered 0.8 x 3 vCPU, and a fifth of 4 to be had: the last ones have waited most of the run.
    short, long = (hogged(settings, Point(load=0.8, requests=count), 4) for count in (60, 240))
    assert 3 < latencies_s(long, seed=0)[0] / latencies_s(short, seed=0)[0] < 5
    assert latencies_s(long, seed=0)[1] < long.duration_s


def test_one_function_is_as_committed(settings):
    point = Point(**settings["found"]["Primes"])
    seeds = range(settings["seeds"])
    isolated, beside = (sum(latencies_s(hogged(settings, point, ratio), seed)[0] for seed in seeds) for ratio in (0, 2))
    (row,) = [row for row in committed() if row["function"] == "Primes" and row["shares"] == "1:2"]
    assert (float(row["load"]), int(row["requests"])) == point
    assert round(100 * beside / isolated) == int(row["mean"])


@pytest.mark.slow
def test_the_table_is_the_committed_one_and_the_search_finds_what_the_quick_run_uses(settings):
    result = run_experiment("simppo-contention")
    assert rows_of(result.to_csv()) == committed()
    found = {row["function"]: {"load": row["load"], "requests": row["requests"]} for row in result.rows}
    assert found == settings["found"]
