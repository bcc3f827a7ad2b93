"""Azure Functions traces: what is taken from a file, and what is wrong with one."""

from pathlib import Path

import pytest

from fairlead.errors import ConfigError
from fairlead.workload import read_trace

HEADER = "HashOwner,HashApp,HashFunction,Trigger,480,481,482\n"
REAL = Path(__file__).parents[2] / ".." / "shared" / "data" / "azure2019_500" / "invocations.csv"


def trace(tmp_path, text):
    file = tmp_path / "trace.csv"
    file.write_text(text)
    return read_trace(file)


@pytest.fixture
def two_rows(tmp_path):
    return trace(tmp_path, HEADER + "o,a,f1,http,1,2,3\no,a,f2,timer,10,0,30\n")


@pytest.mark.parametrize(
    ("function", "minutes", "expected"),
    [
        ("f1", None, (1, 2, 3)),
        (2, None, (10, 0, 30)),
        ("total", None, (11, 2, 33)),
        ("total", (481, 482), (2, 33)),
        ("f2", (480, 480), (10,)),
    ],
    ids=["by-hash", "by-row", "sum-of-all", "sum-of-some-minutes", "one-minute"],
)
def test_counts(two_rows, function, minutes, expected):
    assert two_rows.counts(function, minutes) == expected


def test_minutes_keep_the_numbers_of_the_day(two_rows):
    assert (two_rows.first_minute, two_rows.last_minute) == (480, 482)


@pytest.mark.parametrize(
    ("function", "minutes", "message"),
    [
        ("f3", None, "function 'f3' is not in the trace"),
        (3, None, "function must be a row from 1 to 2; got 3"),
        (0, None, "function must be a row from 1 to 2; got 0"),
        ("f1", (479, 480), "minutes must be in order and from 480 to 482; got 479 to 480"),
        ("f1", (482, 480), "minutes must be in order"),
    ],
)
def test_what_is_not_in_the_trace_is_refused(two_rows, function, minutes, message):
    with pytest.raises(ValueError, match=message):
        two_rows.counts(function, minutes)


def test_a_hash_of_two_rows_must_be_named_by_row(tmp_path):
    both = trace(tmp_path, HEADER + "o,a,f,http,1,2,3\no,b,f,http,4,5,6\n")
    with pytest.raises(ValueError, match="has 2 rows"):
        both.counts("f")


@pytest.mark.parametrize(
    ("text", "path", "phrase"),
    [
        ("", "", "is not a CSV file"),
        (HEADER, "", "holds no functions"),
        ("Owner,App,Function,Trigger,1\no,a,f,http,1\n", "header", "must begin with HashOwner"),
        ("HashOwner,HashApp,HashFunction,Trigger\no,a,f,http\n", "header", "no minute column"),
        ("HashOwner,HashApp,HashFunction,Trigger,first\no,a,f,http,1\n", "header", "named by its number; got 'first'"),
        ("HashOwner,HashApp,HashFunction,Trigger,1,3\no,a,f,http,1,1\n", "header", "got '3' for 2"),
        (HEADER + "o,a,f,http,1,2,3\no,a,g,http,1,x,3\n", "row 2, minute 481", "got 'x'"),
        (HEADER + "o,a,f,http,1,-2,3\n", "row 1, minute 481", "got '-2'"),
        (HEADER + "o,a,f,http,1,2.5,3\n", "row 1, minute 481", "got '2.5'"),
        (HEADER + "o,a,f,http,1,2\n", "row 1, minute 482", "got None"),
        (HEADER + "o,a,f,http,1,2,3,4\n", "", "is not a CSV file"),
        (HEADER + "o,a,,http,1,2,3\n", "row 1", "has no HashFunction"),
    ],
)
def test_a_bad_file_says_where(tmp_path, text, path, phrase):
    with pytest.raises(ConfigError) as caught:
        trace(tmp_path, text)
    (fault,) = caught.value.faults
    assert fault.path == path
    assert phrase in fault.message


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(ConfigError, match="there is no such file"):
        read_trace(tmp_path / "none.csv")


@pytest.mark.skipif(not REAL.exists(), reason="the excerpt of the Azure data set is not here")
def test_the_real_excerpt():
    real = read_trace(REAL)
    assert (len(real.functions), real.first_minute, real.last_minute) == (500, 480, 959)
    assert sum(real.counts("total")) == 3_037_902
    assert real.counts(real.functions[0]) == real.counts(1)
    assert sum(real.counts(1)) == 1
