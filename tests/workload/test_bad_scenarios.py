"""Bad scenario files: each is refused at once, with the path of every fault and a message that helps."""

from pathlib import Path

import pytest

from fairlead.errors import ConfigError, Fault
from fairlead.workload import PolicyChoice, load_scenario

BAD = Path(__file__).parent / "bad"

EXPECTED: dict[str, list[tuple[str, str]]] = {
    # not a scenario at all
    "empty": [("", "the file is empty")],
    "only-comments": [("", "nothing but comments")],
    "a-list": [("", "must hold a mapping of settings; got a list")],
    "binary": [("", "not text in UTF-8")],
    "nul": [("", "not text in UTF-8")],
    "not-yaml": [("", "line 2: not valid YAML")],
    "two-documents": [("", "line 11: not valid YAML: expected a single document")],
    "python-object": [("", "could not determine a constructor")],
    # YAML that is refused
    "billion-laughs": [("", "line 6: aliases expand to more than 200,000 values")],
    "many-aliases": [("", "line 2: there are more than 256 aliases")],
    "self-reference": [("", "line 1: a value contains itself")],
    "deep-nesting": [("", "line 1: values are nested deeper than 32 levels")],
    "duplicate-key": [("", "line 11: the key 'duration_s' is given twice")],
    "mapping-as-key": [("", "line 1: a key must be plain text")],
    # types and numbers
    "wrong-type-number": [("duration_s", "must be a number; got the text 'long'")],
    "wrong-type-mapping": [("functions.detect", "must be a mapping; got a list")],
    "wrong-type-list": [("arrivals", "must be a list; got a mapping")],
    "wrong-type-truth": [("cluster.price.bill_idle", "must be true or false; got the text 'yes'")],
    "not-a-whole-number": [("cluster.nodes.0.count", "must be a whole number; got 2.5")],
    "negative-number": [("functions.detect.memory_gb", "must be finite and not negative; got -1.0")],
    "negative-seconds": [("functions.classify.latency.table.1.seconds", "must be finite and not negative; got -0.1")],
    "nan-number": [("arrivals.0.rate_rps", "must be a number; got NaN")],
    "infinite-duration": [("duration_s", "must be finite; got infinity")],
    "infinite-count": [("cluster.nodes.0.count", "must be finite; got infinity")],
    "huge-integer": [("cluster.nodes.0.count", "is too large a number")],
    "warmup-too-long": [("warmup_s", "must be below duration_s")],
    "bad-decision": [("decision", "must be none, or a mapping with fixed_s or per_step_s")],
    # keys and names
    "unknown-key-top": [("warm_up_s", "unknown key. Did you mean 'warmup_s'?")],
    "unknown-key-deep": [("functions.classify.latency.table.1.vcpu", "unknown key. Did you mean 'vcpus'?")],
    "missing-section": [("functions", "is missing")],
    "missing-seconds": [("functions.classify.latency.table.1.seconds", "is missing")],
    "dotted-name": [("workflows.main.one", "a name holds no dots"), ("arrivals.0.workflow", "no workflow 'main'")],
    "unknown-workflow": [("arrivals.0.workflow", "there is no workflow 'man'. Did you mean 'main'?")],
    "unknown-function": [("workflows.main.stages.sort.function", "Did you mean 'classify'?")],
    "unknown-node-in-faults": [("faults.0.node", "there is no node 'a-3'")],
    "unknown-node-in-pressure": [("pressure.0.node", "there is no node 'b'")],
    "unknown-kind-in-table": [("functions.classify.latency.table.1.kind", "there is no node kind 'aa'")],
    "cold-start-kind": [("functions.detect.cold_start_s.b", "there is no node kind 'b'")],
    # the cluster
    "too-many-nodes": [("cluster.nodes.0.count", "must be from 1 to 100,000; got 200000")],
    "two-nodes-one-name": [("cluster.nodes.1.name", "two nodes are named 'a-1'")],
    "two-speeds-one-kind": [("cluster.nodes.1.speed", "nodes of kind 'a' have different speeds")],
    "empty-node": [("cluster.nodes.1", "a node needs vcpus or vgpus")],
    "mig-device-of-four": [("cluster.nodes.0", "a MIG device has 7 vGPUs; got 4")],
    "device-without-vgpus": [("cluster.nodes.0.device_memory_gb", "means nothing without vgpus")],
    # functions
    "two-laws": [
        (
            "functions.detect.latency",
            "exactly one of constant_s, exponential_s, lognormal, table, law, profile; got constant_s and",
        )
    ],
    "lognormal-mean": [
        ("functions.detect.latency.lognormal.median_s", "is missing"),
        ("functions.detect.latency.lognormal.sigma", "must be in [0, 5]; got 6.0"),
        ("functions.detect.latency.lognormal.mean_s", "unknown key"),
    ],
    "no-law": [("functions.detect.latency", "got none")],
    "measured-profile": [("functions.detect.latency.profile", "detect.parquet: cannot be read: No such file")],
    "configurations-and-space": [("functions.detect.space", "either configurations or space, not both")],
    "configuration-without-latency": [("functions.classify.configurations.1", "no latency is given for 1x 3 vCPU")],
    "configuration-too-large": [("functions.detect.space", "needs 16 vCPU, and the largest node has 4")],
    "function-too-large": [("functions.detect", "needs 64 GB of memory, and the largest node has 8")],
    "function-wants-gpu": [("functions.detect", "needs 1 vGPU, and no node has a device")],
    "function-wants-mig-size": [("functions.detect", "needs 5 vGPU, and a MIG slice has 1, 2, 3, 4, 7")],
    # workflows
    "cycle": [("workflows.main.stages.detect", "stages form a cycle: detect -> classify -> detect")],
    "missing-predecessor": [("workflows.main.stages.classify", "no stage 'detekt'. Did you mean 'detect'?")],
    "branch-above-one": [("workflows.main.stages.detect", "sum to 1.3, above 1")],
    "map-in-map": [("workflows.main.stages.classify.map", "a map inside the map of 'detect'")],
    "map-of-three-numbers": [("workflows.main.stages.detect.map", "got 3 values")],
    "no-stages": [("workflows.main.stages", "at least one stage")],
    # arrivals
    "no-arrivals": [("arrivals", "at least one")],
    "unknown-process": [("arrivals.0.process", "Did you mean 'poisson'?")],
    "rate-and-load": [("arrivals.0", "exactly one of rate_rps, load; got rate_rps and load")],
    "too-many-arrivals": [("arrivals.0", "about 1e+13 requests would arrive")],
    "closed-loop-scaled": [("arrivals.0.process", "closed-loop has no rate, so rate_scale must be 1; got 2")],
    "window-backwards": [("arrivals.0.until_s", "must be above from_s; got 2.0 and 5.0")],
    "azure-without-file": [("arrivals.0.file", "nowhere.csv: there is no such file")],
    # who decides, and sweeps
    "policy-parameter": [("policy.headroom", "must be in [0, 1); got 1.5")],
    "policy-without-name": [("policy.dispatch", "is missing")],
    "sweep-unknown-key": [
        ("sweep.values.0", "with 1, rate_scal: unknown key. Did you mean 'rate_scale'?"),
        ("sweep.values.1", "with 2, rate_scal: unknown key. Did you mean 'rate_scale'?"),
    ],
    "sweep-bad-value": [("sweep.values.1", "with 0, cluster.nodes.0.count: must be from 1")],
    "sweep-missing-item": [("sweep.values.0", "there is no item 1; the list has 1")],
    # several at once
    "two-faults": [
        ("on_loss", "must be one of retry, fail"),
        ("arrivals.0", "exactly one of rate_rps, load; got none"),
        ("arrivals.0.rate", "unknown key. Did you mean 'rate_rps'?"),
        ("duration_s", "must be positive and finite; got -10.0"),
    ],
}


def headroom_below_one(choice: PolicyChoice, path: str) -> list[Fault]:
    headroom = choice.parameters.get("headroom", 0)
    return [] if headroom < 1 else [Fault(f"{path}.headroom", f"must be in [0, 1); got {headroom}.")]


@pytest.mark.parametrize("name", EXPECTED)
def test_bad_file_is_refused_with_path_and_reason(name):
    with pytest.raises(ConfigError) as caught:
        load_scenario(BAD / f"{name}.yaml", check_policy=headroom_below_one)
    faults = caught.value.faults
    assert [fault.path for fault in faults] == [path for path, _ in EXPECTED[name]]
    for fault, (_, phrase) in zip(faults, EXPECTED[name], strict=True):
        assert phrase in fault.message


def test_every_bad_file_is_in_the_table():
    assert {file.stem for file in BAD.glob("*.yaml")} == set(EXPECTED)


def test_error_names_the_file_and_counts_the_faults():
    with pytest.raises(ConfigError, match=r"two-faults\.yaml: 4 faults:\n  - on_loss: must"):
        load_scenario(BAD / "two-faults.yaml")
