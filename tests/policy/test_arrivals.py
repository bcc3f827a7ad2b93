"""The rate of arrivals over a sliding window."""

from fairlead.policy.kit.arrivals import Arrivals


def test_there_is_no_rate_before_the_second_measurement():
    arrivals = Arrivals()
    arrivals.count = 7
    assert arrivals.measure(0.0, 10.0) == 0.0


def test_the_rate_is_over_the_window_or_since_the_first_measurement():
    arrivals = Arrivals()
    found = []
    for instant in range(0, 25, 4):  # ten come in the first four seconds, two in each four after that
        found.append(arrivals.measure(instant, 10.0))
        arrivals.count += 10 if instant == 0 else 2
    # At 16 s the last measurement that is ten seconds old is that of 4 s.
    assert found == [0.0, 2.5, 1.5, 14 / 12, 0.5, 0.5, 0.5]
