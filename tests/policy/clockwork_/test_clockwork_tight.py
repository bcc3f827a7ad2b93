"""Clockwork where objectives leave little beside the run itself: carefulness must not refuse every request."""

from clockwork_runs import batches, model, outcomes, run, world


def test_the_margin_is_at_most_half_of_what_the_objective_of_one_model_spares():
    # 12 ms spare 2 ms: a margin of 1 ms, not of 5.
    where = world({"m": model(10)}, {"m": [0, 100]}, slo_ms=12.0)
    assert batches(run(where)) == [("m", 0, 10, 1), ("m", 100, 110, 1)]


def test_the_margin_stays_where_the_objective_spares_enough():
    # The second can be done at 20: 1 ms before its deadline of 21 ms, within the margin of 5 ms.
    assert outcomes(run(world({"m": model(10)}, {"m": [0, 0]}, slo_ms=21.0))) == ["completed", "dropped"]
