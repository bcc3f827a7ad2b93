"""pipelines-live: variants say the same as the shipped app, and claims follow from the rows."""

import pytest

from fairlead.experiments import shipped_apps
from fairlead.experiments.cases import read_settings
from fairlead.experiments.pipelines_live.asking import in_turn
from fairlead.experiments.pipelines_live.judging import judge, rows_of
from fairlead.experiments.pipelines_live.serving import PIPELINES, Asked, Loaded, drawn, loaded_variants, variants_of
from fairlead.experiments.pipelines_live.variants import app, load_shipped
from fairlead.experiments.rows import from_csv, to_csv

SETTINGS = read_settings("fairlead.experiments.pipelines_live")


class Direct:
    """A client that calls the workflows in this process."""

    def call(self, workflow, value):
        return app.workflows[workflow](value)


def test_every_variant_reads_the_same_digit():
    shipped = load_shipped()
    names = [
        f"{pipeline}-{variant}"
        for part in ("busy", "throughput")
        for pipeline, variant in loaded_variants(SETTINGS, part)
    ]
    assert len(names) == 2 + 3 + 2 * 4
    assert {app.workflows[name](shipped.EXAMPLE)["digit"] for name in names} == {0}
    for pipeline in PIPELINES:
        assert in_turn(Direct(), shipped, pipeline, shipped.EXAMPLE) == app.workflows[pipeline](shipped.EXAMPLE)


def test_variants_differ_in_their_stages():
    stages = {name: [stage.name for stage in flow.spec.stages] for name, flow in app.workflows.items()}
    assert "prepare+small" in stages["cascade-fused"]
    assert len(stages["cascade-fused"]) == len(stages["cascade-graph"]) - 1
    copies = {stage.name: stage.compete for stage in app.workflows["ensemble-compete"].spec.stages}
    assert copies["large-racing"] == 2
    assert sum(copies.values()) == len(copies) + 1


def test_the_same_digits_are_drawn_for_every_variant_and_others_in_the_next_repeat():
    digits = [[float(i)] for i in range(50)]
    assert drawn(digits, 10, 3) == drawn(digits, 10, 3) != drawn(digits, 10, 4)
    assert len({tuple(digit) for digit in drawn(digits, 60, 3)}) == 50


def test_apps_that_are_not_there_are_told_with_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.setenv("FAIRLEAD_APPS", str(tmp_path))
    with pytest.raises(
        shipped_apps.MissingAppError, match=r"'pipelines' was not found in .*export FAIRLEAD_APPS=CLONE/examples/apps"
    ):
        shipped_apps.app_folder("pipelines")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "app.py").write_text("")
    assert shipped_apps.app_folder("pipelines") == (tmp_path / "pipelines").resolve()


# --- rows and claims

LIGHT_MS = {"graph": 6.5, "in-turn": 10.0, "compete": 5.0, "fused": 5.5}
BUSY_RPS = {"graph": 100.0, "compete": 50.0, "fused": 120.0}
BATCHED_RPS = {"batch-1": 100.0, "batch-2": 110.0, "batch-4": 120.0, "batch-8": 130.0}


def verdicts(light=LIGHT_MS, busy=BUSY_RPS, batched=BATCHED_RPS, **others):
    asked = [
        Asked(
            pipeline=name,
            variant=variant,
            repeat=repeat,
            latency_s=[light[variant] / 1e3 + 1e-6 * repeat],
            read=[repeat],
        )
        for name in PIPELINES
        for variant in variants_of(name)
        for repeat in (0, 1)
    ]

    def loaded(rates):
        return [
            Loaded(
                pipeline=name,
                variant=variant,
                repeat=repeat,
                answers_rps=rate + 0.1 * repeat,
                mean_s=1 / rate,
                p99_s=1 / rate + 1e-6 * repeat,
                failed=others.get("failed", 0),
                batch=1.5,
            )
            for name in PIPELINES
            for variant, rate in rates.items()
            if (name, variant) != ("ensemble", "fused")
            for repeat in (0, 1)
        ]

    rows = rows_of(asked, loaded(busy), loaded(batched))
    return [claim.verdict for claim in judge(from_csv(to_csv(rows)))]


def test_claims_follow_from_the_rows():
    # 35 % less time is near both printed figures; a cascade as quick as the ensemble is not near ten times as slow
    light = ["met", "met", "met"]
    assert verdicts() == ["met", "met", "met", "not met", *light, "met", "not met", "not met", "met", "met"]
    assert verdicts({**LIGHT_MS, "graph": 9.5})[1:3] == ["not met", "not met"]
    assert verdicts({**LIGHT_MS, "fused": 7.0})[4] == "not met"
    assert verdicts({**LIGHT_MS, "compete": 7.0})[5:7] == ["not met", "not met"]
    assert verdicts(busy={**BUSY_RPS, "compete": 150.0})[8:10] == ["met", "met"]
    assert verdicts(batched={**BATCHED_RPS, "batch-8": 90.0})[-2:] == ["not met", "not met"]
    assert verdicts(failed=1)[0] == "not met"


def test_an_answer_that_differs_from_the_graph_is_counted():
    one = {"pipeline": "cascade", "repeat": 0, "latency_s": [0.1, 0.1]}
    rows = rows_of([Asked(variant="graph", read=[3, 8], **one), Asked(variant="fused", read=[3, 5], **one)], [], [])
    assert [row["different"] for row in rows] == [0, 1]
