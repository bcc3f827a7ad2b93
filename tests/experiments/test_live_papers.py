"""esg-live and admission-live: apps are found or missed in words, and claims follow from made-up cells."""

import pytest

from fairlead.errors import FairleadError
from fairlead.experiments import admission_live, esg_live
from fairlead.experiments.admission_live import run as admission
from fairlead.experiments.cases import read_settings
from fairlead.experiments.esg_live import run as esg
from fairlead.experiments.live_apps import Setting, busy_note, compare
from fairlead.experiments.rows import from_csv, to_csv
from fairlead.league.live import Decisions, Figures, LiveCell

SETTING = Setting(name="relaxed-normal", app=None, rate_rps=10.0, labels={"objective": "relaxed", "load": "normal"})


def cell(policy="esg", in_time=80, *, cost_usd=0.01, p99_s=0.002, refused=None, unsent=0, others=0.0):
    """100 requests in 10 s."""
    live = Figures(
        requests=100, answers=90, in_time=in_time, goodput_rps=in_time / 10, p50_s=0.05, p99_s=0.1, cost_usd=cost_usd
    )
    return LiveCell(
        app="made-up",
        policy=policy,
        rate_rps=10.0,
        seconds=10.0,
        seed=1,
        warm_up_s=1.0,
        live=live,
        decisions=Decisions(count=100, mean_s=p99_s / 4, p99_s=p99_s),
        gateway_cpu_s=1.0,
        instances_cpu_s=5.0,
        generator_cpu=0.1,
        others=others,
        lag_p99_s=0.001,
        refused=refused or {},
        unsent=unsent,
    )


# --- apps and order -------------------------------------------------------------------------------------------------


def test_policies_go_round_from_repeat_to_repeat_and_cells_stay_in_the_order_of_the_seeds():
    asked = []

    def run(setting, policy, seed):
        asked.append((policy, seed))
        return cell(policy, in_time=seed)

    found = list(compare([SETTING], ["a", "b"], [1, 2], run, lambda done, what: None))
    assert asked == [("a", 1), ("b", 1), ("b", 2), ("a", 2)]
    assert [(policy, [one.live.in_time for one in cells]) for _, policy, cells in found] == [
        ("a", [1, 2]),
        ("b", [1, 2]),
    ]


def test_claims_say_when_others_used_the_machine():
    assert busy_note([{"others": 0.1}]) is None
    assert "40%" in busy_note([{"others": 0.1}, {"others": 0.4}])


# --- esg-live -------------------------------------------------------------------------------------------------------


def esg_rows(shares, **figures):
    """Three repeats of every policy: `shares` has the answers in time of the first; the others differ by one."""
    rows = [
        esg.row(SETTING, policy, [cell(policy, share + more, **figures.get(policy, {})) for more in (-1, 0, 1)])
        for policy, share in shares.items()
    ]
    return from_csv(to_csv(rows))


RIVALS = ("infless", "fast-gshare", "orion", "aquatope")
LEADS = {"esg": 80, **dict.fromkeys(RIVALS, 50), "fairlead": 90}  # 80 is 1.6 times 50


def verdicts(rows):
    return [claim.verdict for claim in esg.judge(rows)]


def test_a_clear_lead_at_equal_cost_meets_every_claim():
    assert verdicts(esg_rows(LEADS)) == ["met"] * 5


def test_a_lead_below_that_of_the_slides_is_not_enough():
    assert verdicts(esg_rows({**LEADS, "orion": 70}))[0] == "not met"  # 80 is 1.14 times 70


def test_a_rival_that_answers_nothing_in_time_does_not_stop_the_judging():
    rows = esg_rows({**LEADS, "orion": 1})
    assert verdicts(rows)[0] == "met"


def test_a_dearer_esg_and_a_slow_search_are_not_met():
    rows = esg_rows(LEADS, esg={"cost_usd": 0.02, "p99_s": 0.02})
    assert verdicts(rows)[1] == "not met"
    assert verdicts(rows)[3] == "not met"


def test_costs_are_per_thousand_requests_and_per_thousand_in_time():
    found = esg.row(SETTING, "esg", [cell(in_time=50, cost_usd=0.01)])
    assert found["cost_usd"] == pytest.approx(0.1)
    assert found["cost_in_time_usd"] == pytest.approx(0.2)


def test_one_repeat_decides_nothing():
    rows = from_csv(to_csv([esg.row(SETTING, policy, [cell(policy, share)]) for policy, share in LEADS.items()]))
    assert set(verdicts(rows)) == {"not decided"}


def test_loads_are_chosen_by_name():
    settings = read_settings(esg_live.__name__)
    assert esg.chosen_loads(settings, None) == {"normal": 0.43}
    assert list(esg.chosen_loads(settings, "light, heavy")) == ["light", "heavy"]
    with pytest.raises(FairleadError, match="no load is named 'peak'"):
        esg.chosen_loads(settings, "peak")


# --- admission-live -------------------------------------------------------------------------------------------------


def test_what_is_refused_at_once_or_not_sent_was_not_admitted():
    one = cell(in_time=60, refused={"429 full": 20, "503 busy": 5, "504 fell behind": 3}, unsent=5)
    assert admission.admitted(one) == 70
    assert admission.late_share(one) == pytest.approx(10 / 70)


def test_nothing_admitted_is_nothing_late():
    assert admission.late_share(cell(in_time=0, refused={"429 full": 100})) == 0.0


def admission_rows(goodputs, refusing=()):
    """Two loads of three repeats; those in `refusing` refuse at once all that they do not answer in time."""
    rows = []
    for load in ("100 %", "400 %"):
        setting = Setting(name=load, app=None, rate_rps=10.0, labels={"load": load})
        for policy, in_time in goodputs.items():
            counts = [in_time + more for more in (-1, 0, 1)]
            cells = [
                cell(policy, count, refused={"429 full": 100 - count if policy in refusing else 0}) for count in counts
            ]
            rows.append(admission.row(setting, policy, cells))
    return from_csv(to_csv(rows))


GOODPUTS = {"dag-admission": 60, "clockwork": 10, "fifo": 30, "earliest-deadline": 40, "fairlead": 70}


def test_admission_control_that_keeps_its_word_meets_every_claim():
    rows = admission_rows(GOODPUTS, refusing=["dag-admission"])
    assert [claim.verdict for claim in admission.judge(rows)] == ["met", "met", "met", "met", "met"]


def test_admitting_what_is_late_and_losing_to_fifo_are_not_met():
    rows = admission_rows({**GOODPUTS, "fifo": 80})  # 40 of 100 admitted are late
    assert [claim.verdict for claim in admission.judge(rows)][:2] == ["not met", "not met"]


def test_settings_name_loads_that_rise():
    loads = list(read_settings(admission_live.__name__)["loads"].values())
    assert loads == sorted(loads) == [1.0, 2.0, 4.0]
