"""Reading traces: the three files of 2019, the one of 2021, and what is said of what is wrong with them."""

from math import exp, log
from pathlib import Path

import numpy as np
import pytest

from fairlead.errors import ConfigError
from fairlead.workload.traces import read, read_azure_2019, read_azure_2021, summarise, write
from fairlead.workload.traces.trace import DURATION_COLUMNS, MEMORY_COLUMNS

REAL = Path(__file__).parents[2] / ".." / "shared" / "data" / "azure2019_500"

CALLS = """HashOwner,HashApp,HashFunction,Trigger,480,481,482
o,a,f,http,1,0,3
o,a,g,timer,0,0,1
p,b,h,queue,5,0,0
"""
TIMES = f"HashOwner,HashApp,HashFunction,{','.join(DURATION_COLUMNS)}\n"
APP_MEMORY = f"HashOwner,HashApp,{','.join(MEMORY_COLUMNS)}\n"
OWN_MEMORY = f"HashFunction,HashOwner,HashApp,{','.join(MEMORY_COLUMNS)}\n"


def times(key, average, *percentiles, least="1", most="9"):
    """A row of times; five percentiles stand between the 0th and the 100th, which no law looks at."""
    return f"{key},{average},10,{least},{most},0,{','.join(map(str, percentiles))},99999\n"


def memory(key, average):
    return f"{key},7,{','.join([str(average)] * 9)}\n"


GOOD = {
    "invocations.csv": CALLS,
    "durations.csv": TIMES
    + times("o,a,f", 100, 100, 100, 100, 100, 100)
    + times("p,b,h", 250, 1, 10, 100, 1000, 10000),
    "memory.csv": APP_MEMORY + memory("o,a", 100) + memory("p,b", 40),
}


def folder_of(tmp_path, **changed):
    files = GOOD | {name.replace("_", "."): text for name, text in changed.items()}
    for name, text in files.items():
        if text is not None:
            (tmp_path / name).write_text(text)
    return tmp_path


def faults(call):
    with pytest.raises(ConfigError) as caught:
        call()
    return [str(fault) for fault in caught.value.faults]


def test_calls_are_kept_by_minute_and_function(tmp_path):
    trace = read(folder_of(tmp_path))
    assert (len(trace), trace.minutes, trace.first_minute, trace.invocations) == (3, 3, 480, 10)
    assert [tuple(map(list, trace.minute(minute))) for minute in range(3)] == [
        ([0, 2], [1, 5]),
        ([], []),
        ([0, 1], [3, 1]),
    ]
    assert trace.calls.tolist() == [4, 1, 5]
    assert trace.rows(0, 3).tolist() == [[1, 0, 3], [0, 0, 1], [5, 0, 0]]
    assert trace.functions["trigger"].to_list() == ["http", "timer", "queue"]


def test_a_log_normal_law_goes_through_the_percentiles(tmp_path):
    trace = read(folder_of(tmp_path))
    median_s, sigma = trace.column("median_s"), trace.column("sigma")
    assert (median_s[0], sigma[0]) == (pytest.approx(0.1), 0.0)  # five times 100 ms
    assert median_s[2] == pytest.approx(0.1)
    # The least-squares line: a decade at a quantile of 0.6745, two decades at 2.3263.
    assert sigma[2] == pytest.approx(log(10) * (0.67449 + 2 * 2.32635) / (0.67449**2 + 2.32635**2), rel=1e-5)
    assert trace.column("mean_s")[[0, 2]].tolist() == [0.1, 0.25]


def test_who_has_no_times_takes_the_median_of_the_others_and_is_counted(tmp_path):
    trace = read(folder_of(tmp_path))
    sigma = trace.column("sigma")
    assert trace.notes == {"functions without times": 1}
    assert trace.column("mean_s")[1] == pytest.approx((0.1 + 0.25) / 2)
    assert sigma[1] == pytest.approx(sigma[2] / 2)
    assert trace.column("median_s")[1] * exp(sigma[1] ** 2 / 2) == pytest.approx(0.175)


def test_the_memory_of_an_app_is_divided_among_its_functions(tmp_path):
    assert read(folder_of(tmp_path)).column("memory_mb").tolist() == [50, 50, 40]


def test_memory_by_function_is_taken_as_it_is_and_gaps_are_filled(tmp_path):
    trace = read(folder_of(tmp_path, memory_csv=OWN_MEMORY + memory("f,o,a", 12) + memory("h,p,b", 24)))
    assert trace.column("memory_mb").tolist() == [12, 18, 24]
    assert trace.notes["functions without memory"] == 1


def test_without_a_file_of_memory_every_function_takes_the_same(tmp_path):
    trace = read(folder_of(tmp_path, memory_csv=None))
    assert set(trace.column("memory_mb")) == {140.0}
    assert trace.notes["functions without memory"] == 3


def test_rows_of_one_function_are_added_up_and_later_times_left_aside(tmp_path):
    more = GOOD["durations.csv"] + times("o,a,f", 900, 900, 900, 900, 900, 900)
    trace = read(folder_of(tmp_path, invocations_csv=CALLS + "o,a,f,queue,2,2,0\n", durations_csv=more))
    assert trace.rows(0, 1).tolist() == [[3, 2, 3]]
    assert trace.functions["trigger"][0] == "http"
    assert trace.column("mean_s")[0] == 0.1
    assert trace.notes["rows of calls merged"] == 1
    assert trace.notes["rows of times beyond the first"] == 1


def test_a_mean_of_nothing_is_taken_from_the_law(tmp_path):
    rows = times("o,a,f", 0, 1, 10, 100, 1000, 10000) + times("p,b,h", 0, 0, 0, 0, 0, 0, least="", most="")
    trace = read(folder_of(tmp_path, durations_csv=TIMES + rows))
    assert trace.column("mean_s")[0] == pytest.approx(0.1 * exp(trace.column("sigma")[0] ** 2 / 2))
    assert trace.column("mean_s")[2] == pytest.approx(0.0005)  # below what the files can say


def test_microsofts_names_are_known_and_a_day_is_chosen_where_there_are_several(tmp_path):
    names = ("invocations_per_function_md", "function_durations_percentiles", "app_memory_percentiles")
    for day in ("d01", "d02"):
        for name, text in zip(names, GOOD.values(), strict=True):
            (tmp_path / f"{name}.anon.{day}.csv").write_text(text.replace("o,a,f,http,1", f"o,a,f,http,{day[-1]}"))
    assert read_azure_2019(tmp_path, day=2).rows(0, 1).tolist() == [[2, 0, 3]]
    assert faults(lambda: read(tmp_path)) == ["holds several days (1, 2); choose one, as in --day 1."]
    assert faults(lambda: read(tmp_path, day=3)) == [
        "holds no trace: invocations_per_function_md.anon.d03.csv is wanted."
    ]
    for name in names:
        (tmp_path / f"{name}.anon.d02.csv").unlink()
    assert read(tmp_path).invocations == 10


def test_columns_may_stand_in_any_order(tmp_path):
    text = "482,Trigger,480,HashApp,481,HashOwner,HashFunction\n3,http,1,a,0,o,f\n"
    assert read(folder_of(tmp_path, invocations_csv=text)).rows(0, 1).tolist() == [[1, 0, 3]]


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("invocations.csv", "o,a,g,timer,0,0,1", "o,a,g,timer,0,x,1", ["line 3, column 481: must be a whole number"]),
        ("invocations.csv", "o,a,g,timer,0,0,1", "o,a,g,timer,0,-1,2.5", ["got '-1'", "line 3, column 482: must be"]),
        ("invocations.csv", "o,a,g,timer", "o,a,,timer", ["line 3, column HashFunction: must be a name; got ''."]),
        ("invocations.csv", "p,b,h,queue,5,0,0", "p,b,h,queue,5,0", ["line 4: has 6 cells; the header has 7."]),
        ("invocations.csv", "p,b,h,queue,5,0,0", "p,b,h,queue,5,0,0,0", ["line 4: has 8 cells; the header has 7."]),
        ("invocations.csv", ",5,", ",3000000000,", ["line 4, column 480: must be a whole number from 0 to 2147483647"]),
        ("invocations.csv", "481,", "483,", ["column '481' is missing", "column '483' is not known"]),
        ("invocations.csv", "HashApp", "HashAp", ["column 'HashApp' is missing", "Did you mean 'HashApp'?"]),
        ("durations.csv", "p,b,h,250", "p,b,h,-250", ["line 3, column Average: must be a number that is not negative"]),
        ("durations.csv", "p,b,h,250", "p,b,h,nan", ["line 3, column Average: must be a number"]),
        ("durations.csv", "Count", "Counts", ["column 'Count' is missing", "Did you mean 'Count'?"]),
        ("memory.csv", "p,b,7", "p,b,", ["line 3, column SampleCount: must be a whole number"]),
    ],
)
def test_a_bad_file_says_where_what_was_found_and_what_is_wanted(tmp_path, file, old, new, expected):
    assert old in GOOD[file]
    folder = folder_of(tmp_path, **{file.replace(".", "_"): GOOD[file].replace(old, new)})
    with pytest.raises(ConfigError) as caught:
        read(folder)
    assert caught.value.source == str(folder / file)
    found = [str(fault) for fault in caught.value.faults]
    assert len(found) == len(expected)
    assert all(phrase in text for phrase, text in zip(expected, found, strict=True))


def test_all_faults_are_told_at_once_up_to_twenty(tmp_path):
    bad = "".join(f"o,a,f{i},http,1,?,1\n" for i in range(30))
    found = faults(lambda: read(folder_of(tmp_path, invocations_csv=CALLS + bad)))
    assert found[0].startswith("line 5, column 481: ")
    assert found[19].startswith("line 24, column 481: ")
    assert found[20:] == ["and more; the first 20 are listed."]


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("", "line 1: is empty"),
        ("HashOwner,HashApp,HashFunction,Trigger\no,a,f,http\n", "there is no minute"),
        ("HashOwner,HashApp,HashFunction,Trigger,1\n", "holds no rows"),
        ("HashOwner,HashApp,HashFunction,Trigger,1,1\no,a,f,http,1,1\n", "column '1' is there 2 times"),
    ],
)
def test_a_file_of_calls_without_calls_is_refused(tmp_path, text, phrase):
    assert any(phrase in fault for fault in faults(lambda: read(folder_of(tmp_path, invocations_csv=text))))


def test_what_is_not_there_is_said_to_be_missing(tmp_path):
    assert faults(lambda: read(tmp_path / "none")) == ["there is no such folder."]
    assert "holds no trace: invocations.csv or invocations_per" in faults(lambda: read(tmp_path))[0]
    folder = folder_of(tmp_path, durations_csv=None)
    assert faults(lambda: read(folder)) == ["durations.csv: is missing; it must be beside the calls."]
    assert "give their folder" in faults(lambda: read(folder / "invocations.csv"))[0]


# The trace of 2021: starts at 60, 9.5, 0 (it ended 2 s after -1.5) and 69.
CALLS_2021 = "app,func,end_timestamp,duration\na,f,61,1.0\na,f,10,0.5\nb,f,0.5,2.0\nb,f,70,1.0\n"


def test_the_trace_of_2021_gives_starts_and_durations(tmp_path):
    file = tmp_path / "calls.txt"
    file.write_text(CALLS_2021)
    calls = read_azure_2021(file)
    assert calls.starts_s.tolist() == [0.0, 9.5, 60.0, 69.0]
    assert calls.called.tolist() == [1, 0, 0, 1]
    assert calls.durations_s.tolist() == [2.0, 0.5, 1.0, 1.0]
    assert calls.trace.names == ["a/a/f", "b/b/f"]  # a name is unique in its app only
    assert calls.trace.rows(0, 2).tolist() == [[1, 1], [1, 1]]
    assert calls.trace.notes == {"calls begun before the clock": 1, "functions without memory": 2}


def test_the_stream_of_2021_is_what_was_recorded(tmp_path):
    file = tmp_path / "calls.txt"
    file.write_text(CALLS_2021 + "c,g,100,3\nc,g,120,3\n")
    calls = read_azure_2021(file)
    pieces = list(calls.chunks(4))
    assert [len(piece) for piece in pieces] == [4, 2]
    means_s = calls.trace.column("median_s") * np.exp(calls.trace.column("sigma") ** 2 / 2)
    first = pieces[0]
    assert (first.draws * means_s[first.workflows]).tolist() == pytest.approx([2.0, 0.5, 1.0, 1.0])
    assert pieces[1].draws.size == 0  # both took 3 s: there is no spread to draw from


def test_faults_of_2021_name_line_and_column(tmp_path):
    file = tmp_path / "calls.txt"
    file.write_text(CALLS_2021 + "c,g,x,-1\n")
    assert faults(lambda: read(file)) == [
        "line 6, column end_timestamp: must be a number that is not negative; got 'x'.",
        "line 6, column duration: must be a number that is not negative; got '-1'.",
    ]
    file.write_text("app,function,end_timestamp,duration\na,f,1,1\n")
    assert "column 'func' is missing; it must be there." in faults(lambda: read(file))[0]


@pytest.mark.skipif(not REAL.exists(), reason="the excerpt of the Azure data set is not here")
def test_the_real_excerpt(tmp_path):
    trace = read(REAL)
    found = summarise(trace)
    assert (found.functions, found.apps, found.owners, found.minutes, found.first_minute) == (500, 476, 428, 480, 480)
    assert found.invocations == 3_037_902
    assert found.below_one_a_minute == 0.818
    assert found.notes == {}
    calls, sigma = trace.calls, trace.column("sigma")
    law_s = calls @ (trace.column("median_s") * np.exp(sigma**2 / 2))
    assert law_s == pytest.approx(calls @ trace.column("mean_s"), rel=0.03)  # the fitted laws bring the recorded load
    write(trace, tmp_path)
    again = summarise(read(tmp_path)).as_json() | {"source": found.source}
    assert again == found.as_json()
