"""Documents of the Serverless Workflow DSL: what they mean here, what is refused, and that writing loses nothing."""

import re
from textwrap import dedent, indent

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.app import App, each, fork, switch
from fairlead.app.dsl import read_workflow, write_workflow
from fairlead.app.expression import cases
from fairlead.app.manifest import Collected, FirstOf, Item, Listed, Output
from fairlead.errors import ConfigError

HEAD = "document: {dsl: '1.0.0', namespace: test, name: orders, version: 0.1.0}\n"


@pytest.fixture
def app():
    app = App("shop")
    for name in ("parse", "detect", "blur", "store", "fetch"):
        app.function(name=name)(lambda x: [x])
    return app


def _tasks(text):
    return HEAD + "do:\n" + indent(dedent(text), "  ")


def _graph(workflow):
    return {stage.name: stage.after for stage in workflow.spec.stages}


def _faults(app, text):
    with pytest.raises(ConfigError) as caught:
        read_workflow(text, app)
    return {fault.path: fault.message for fault in caught.value.faults}


def test_a_sequence_with_a_timeout(app):
    workflow = app.workflow_from(
        HEAD + "timeout: {after: PT0.8S}\ndo:\n  - parse: {call: parse}\n  - find: {call: detect}\n"
    )
    assert workflow.name == "orders"
    assert workflow.spec.slo_s == 0.8
    assert _graph(workflow) == {"parse": (), "find": ("parse",)}
    assert [stage.function for stage in workflow.spec.stages] == ["parse", "detect"]


@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        ("PT0.8S", 0.8),
        ("PT1M30S", 90),
        ("P1DT2H", 93_600),
        ("{milliseconds: 800}", 0.8),
        ("{minutes: 1, seconds: 2, milliseconds: 500}", 62.5),
    ],
)
def test_durations(app, after, seconds):
    assert read_workflow(HEAD + f"timeout: {{after: {after}}}\ndo: [{{a: {{call: parse}}}}]\n", app).slo_s == seconds


@pytest.mark.parametrize("after", ["P", "PT", "800ms", "PT-1S", "{weeks: 1}", "{seconds: 0}", "{seconds: 1.5}", "[]"])
def test_a_wrong_duration_is_refused(app, after):
    faults = _faults(app, HEAD + f"timeout: {{after: {after}}}\ndo: [{{a: {{call: parse}}}}]\n")
    assert faults["timeout.after"].startswith("must be a positive duration, a text such as PT0.8S or a mapping")


def test_a_fork_is_a_fork(app):
    workflow = app.workflow_from(
        _tasks("""
        - both:
            fork:
              compete: false
              branches:
                - faces: {call: detect}
                - rest:
                    do:
                      - get: {call: fetch}
                      - hide: {call: blur}
        - store: {call: store}
        """)
    )
    assert _graph(workflow) == {"faces": (), "get": (), "hide": ("get",), "store": ("faces", "hide")}
    assert workflow.spec.stages[-1].source == Listed((Output("faces"), Output("hide")))


def test_for_is_each(app):
    workflow = app.workflow_from(
        _tasks("""
        - parse: {call: parse}
        - frames:
            for: {each: frame, in: '${ . }'}
            do:
              - detect: {call: detect, with: {image: '${ $frame }'}}
              - blur: {call: blur, with: {image: '${ . }'}}
            metadata: {fairlead: {items: [4, 12]}, owner: somebody}
        - store: {call: store}
        """)
    )
    stages = {stage.name: stage for stage in workflow.spec.stages}
    assert (stages["detect"].map, stages["detect"].source) == ((4, 12), Item(Output("parse")))
    assert (stages["store"].join, stages["store"].source) == (True, Collected(Output("blur")))


SWITCH = """
    - parse: {call: parse}
    - route:
        switch:
          - large: {when: .size > 10, then: shrink}
          - small: {when: '${ .size < 3 }', then: exit}
          - default: {then: keep}
    - shrink:
        do:
          - fetch: {call: fetch}
          - blur: {call: blur}
        then: exit
    - keep: {call: store}
"""


def test_a_switch_whose_arms_leave_the_list(app):
    workflow = app.workflow_from(_tasks(SWITCH))
    assert _graph(workflow) == {"parse": (), "fetch": ("parse",), "blur": ("fetch",), "keep": ("parse",)}
    assert dict(workflow.spec.stages[0].arms) == {"large": "fetch", "default": "keep", "small": None}
    assert workflow.spec.answer == FirstOf((Output("blur"), Output("keep"), Output("parse")))
    choose = app.stage("orders/parse").choose
    assert [choose({"size": size}) for size in (11, 2, 5)] == ["large", "small", "default"]


def test_a_switch_whose_arms_meet_at_a_task(app):
    workflow = app.workflow_from(
        _tasks("""
        - parse: {call: parse}
        - route:
            switch:
              - large: {when: .size > 10, then: shrink}
              - default: {then: keep}
        - shrink: {call: blur, then: store}
        - keep: {call: fetch}
        - store: {call: store, then: end}
        """)
    )
    assert _graph(workflow)["store"] == ("shrink", "keep")


def test_an_arm_may_be_left_out(app):
    """The first case goes to the next task, which goes on to where the others jump: an `if` without `else`."""
    workflow = app.workflow_from(
        _tasks("""
        - parse: {call: parse}
        - route:
            switch: [{large: {when: .size > 10, then: continue}}]
            then: store
        - shrink: {call: blur}
        - store: {call: store}
        """)
    )
    assert dict(workflow.spec.stages[0].arms) == {"large": "shrink", "default": None}
    assert _graph(workflow)["store"] == ("shrink", "parse")


def test_cases_that_lead_to_one_task_are_one_arm(app):
    workflow = app.workflow_from(
        _tasks("""
        - parse: {call: parse}
        - route:
            switch:
              - large: {when: .size > 10, then: shrink}
              - dark: {when: .dark, then: shrink}
              - default: {then: exit}
            metadata: {fairlead: {weights: {large: 1, dark: 2, default: 1}}}
        - shrink: {call: blur}
        """)
    )
    assert dict(workflow.spec.stages[0].arms) == {"large": "shrink", "default": None}
    assert workflow.spec.stages[1].when == 0.75
    assert app.stage("orders/parse").choose({"size": 1, "dark": True}) == "large"


def test_a_switch_inside_an_arm(app):
    workflow = app.workflow_from(
        _tasks("""
        - parse: {call: parse}
        - first:
            switch: [{large: {when: .size > 10, then: fetch}}, {default: {then: store}}]
        - fetch: {call: fetch}
        - second:
            switch: [{dark: {when: .dark, then: blur}}, {default: {then: store}}]
        - blur: {call: blur}
        - store: {call: store}
        """)
    )
    assert _graph(workflow)["store"] == ("blur", "fetch", "parse")


@pytest.mark.parametrize(
    ("tasks", "path", "message"),
    [
        ("- a: {set: {x: 1}}", "do.a.set", "tasks are not supported: do this in a function."),
        ("- a: {wait: {seconds: 1}}", "do.a.wait", "tasks are not supported"),
        ("- a: {try: [], catch: {}}", "do.a.try", "tasks are not supported: see retries of a function."),
        ("- a: {run: {shell: {command: ls}}}", "do.a.run", "tasks are not supported"),
        ("- a: {emit: {event: {}}}", "do.a.emit", "tasks are not supported"),
        ("- a: {listen: {to: {}}}", "do.a.listen", "tasks are not supported"),
        ("- a: {raise: {error: {}}}", "do.a.raise", "tasks are not supported: let a function raise."),
        ("- a: {call: parse, if: .x}", "do.a.if", "is not supported; use a switch"),
        ("- a: {call: parse, input: {from: .x}}", "do.a.input", "is not supported"),
        ("- a: {call: parse, output: {as: .x}}", "do.a.output", "is not supported"),
        ("- a: {call: parse, export: {as: .x}}", "do.a.export.as", "may only keep the output by the name of the task"),
        ("- a: {do: [{b: {call: parse}}], export: {as: .x}}", "do.a.export", "is supported for a call only"),
        ("- a: {call: parse, timeout: {after: PT1S}}", "do.a.timeout", "is not supported for a task"),
        ("- a: {call: http, with: {method: get}}", "do.a.call", "http is not supported: call a function of the app"),
        ("- a: {call: pares}", "do.a.call", "the app has no function 'pares'. Did you mean 'parse'?"),
        ("- a: {call: parse, with: {x: '${ .x }'}}", "do.a.with", "may only hold the one argument"),
        ("- a: {call: parse, with: {x: '${ . }', y: 1}}", "do.a.with", "may only hold the one argument"),
        ("- a: {call: parse, then: b}", "do.a.then", "there is no task 'b' in this list."),
        ("- a: {call: parse}\n- b: {call: parse, then: a}", "do.b.then", "a jump back, to 'a', is not supported"),
        ("- a: {call: parse, then: c}\n- b: {call: parse}\n- c: {call: parse}", "do.b", "is never reached."),
        ("- a: {do: [{b: {call: parse, then: end}}]}", "do.a.do.b.then", "end is supported in the outermost list only"),
        ("- a: {fork: {compete: true, branches: []}}", "do.a.fork.compete", "is not supported: all branches run"),
        ("- a: {fork: {branches: [{b: {call: parse}}]}}", "do.a.fork.branches", "fork needs at least two branches"),
        ("- a: {for: {in: .x}, do: [{b: {call: parse}}]}", "do.a.for.in", "must be '${ . }', the whole output"),
        ("- a: {for: {in: ., at: i}, do: [{b: {call: parse}}]}", "do.a.for.at", "is not supported"),
        ("- a: {for: {in: .}, while: .x, do: [{b: {call: parse}}]}", "do.a.while", "is not supported: every item"),
        ("- a: {}", "do.a", "must have one of call, do, fork, for and switch."),
        ("- a: {call: parse, do: []}", "do.a", "got call and do."),
        ("- a: {call: parse}\n- a: {call: parse}", "do.a", "two entries of this list have this name."),
        ("- a: {call: parse}\n  b: {call: parse}", "do.0", "must be a mapping with one key, its name."),
        ("- a b: {call: parse}", "do.a b", "the name of a task that calls must be"),
        ("- 3: {call: parse}", "do.0", "its name must be a text; got 3. Put it in quotes."),
        ("- a: {call: parse, thne: end}", "do.a.thne", "is not supported here. Did you mean 'then'?"),
        (
            "- a: {switch: [{x: {when: .x, then: b}}, {y: {then: exit}}]}\n- b: {call: parse}",
            "do",
            "a workflow cannot begin with a switch",
        ),
        (
            "- a: {call: parse}\n- s: {switch: [{x: {when: .x, then: b}}]}\n- b: {call: parse}",
            "do",
            "every arm of this switch is None",
        ),
        (
            "- a: {call: parse}\n- s: {switch: [{x: {when: .x + 1, then: exit}}]}\n- b: {call: parse}",
            "do.s.switch.x.when",
            "'.x + 1' cannot be read",
        ),
        (
            "- a: {call: parse}\n- s: {switch: [{x: {then: exit}}, {y: {then: b}}]}\n- b: {call: parse}",
            "do.s.switch",
            "only one case may be without when; got x and y.",
        ),
        (
            "- a: {call: parse}\n- s: {switch: [{x: {when: .x}}]}\n- b: {call: parse}",
            "do.s.switch.x.then",
            "must be given, as a text.",
        ),
        (
            "- a: {call: parse}\n- s: {switch: [{x: {when: .x, then: b}}, {y: {when: .y, then: c}}, "
            "{z: {then: d}}]}\n- b: {call: parse, then: d}\n- c: {call: parse}\n- d: {call: parse, then: exit}\n"
            "- e: {call: store}",
            "do.e",
            "is never reached.",
        ),
        (
            "- a: {call: parse}\n- s: {switch: [{x: {when: .x, then: b}}, {y: {when: .y, then: c}}, "
            "{z: {then: d}}]}\n- b: {call: parse, then: d}\n- c: {call: parse, then: e}\n- d: {call: parse}\n"
            "- e: {call: store}",
            "do.d",
            "is reached in two ways",
        ),
    ],
)
def test_what_is_outside_the_subset_is_refused_by_name(app, tasks, path, message):
    faults = _faults(app, _tasks(tasks))
    assert path in faults, faults
    assert message in faults[path]


def test_every_fault_of_a_document_is_reported_at_once(app):
    faults = _faults(
        app,
        "document: {dsl: 2.0.0, name: a.b, version: one}\nschedule: {cron: '* * * * *'}\nuse: {}\ntimeout: soon\n"
        "input: {}\nodd: 1\ndo:\n  - a: {call: nothing}\n  - b: {set: {}}\n",
    )
    assert set(faults) == {
        "document.dsl",
        "document.namespace",
        "document.name",
        "document.version",
        "schedule",
        "use",
        "timeout",
        "input",
        "odd",
        "do.a.call",
        "do.b.set",
    }
    assert faults["document.dsl"] == "must be 1.0.x; got '2.0.0'."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "line 2: 'a' is given twice"),
        ("a: &x [1]\nb: *x\n", "aliases (*) are not supported"),
        ("a: [1\n", "line 2:"),
        ("- 1\n- 2\n", "must be a mapping with document and do."),
        ("x: " + "a" * (1 << 20) + "\n", "is larger than 1 MiB."),
        ("a: !!python/object/apply:os.system [ls]\nb: 1\n", "could not determine a constructor"),
    ],
)
def test_a_text_that_is_no_document(app, text, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_workflow(text, app)


def test_a_document_is_read_from_its_path(app, tmp_path):
    path = tmp_path / "orders.yaml"
    path.write_text(_tasks("- parse: {call: parse}"))
    assert app.workflow_from(path, example={"size": 1}).spec.example is not None
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        read_workflow(tmp_path / "none.yaml", app)


def test_what_is_written(app):
    parse, blur, store = (app.functions[name] for name in ("parse", "blur", "store"))
    body = parse >> each(blur, items=(2, 5)) >> store
    workflow = app.workflow("hide_faces", body, slo="800ms", cost_usd=0.01, description="Hides faces.")
    assert yaml.safe_load(write_workflow(workflow, namespace="shop")) == {
        "document": {
            "dsl": "1.0.0",
            "namespace": "shop",
            "name": "hide-faces",
            "version": "1.0.0",
            "summary": "Hides faces.",
            "metadata": {"fairlead": {"name": "hide_faces", "cost_usd": 0.01}},
        },
        "timeout": {"after": {"milliseconds": 800}},
        "do": [
            {"parse": {"call": "parse"}},
            {
                "each": {
                    "for": {"each": "item", "in": "${ . }"},
                    "do": [{"blur": {"call": "blur", "with": {"input": "${ $item }"}}}],
                    "metadata": {"fairlead": {"items": [2, 5]}},
                }
            },
            {"store": {"call": "store"}},
        ],
    }


def test_code_cannot_be_written(app):
    parse, blur = app.functions["parse"], app.functions["blur"]
    workflow = app.workflow("w", parse >> switch(lambda x: "a", {"a": blur, "b": None}))
    with pytest.raises(ValueError, match=re.escape("is Python code, which a document cannot hold; write it as cases(")):
        write_workflow(workflow)
    http = app.function(name="http")(lambda x: x)
    with pytest.raises(ValueError, match="workflow 'v': call http means something else in a document; rename it"):
        write_workflow(app.workflow("v", http))


def test_a_chooser_and_its_arms_must_agree(app):
    parse = app.functions["parse"]
    with pytest.raises(ValueError, match="the chooser gives big, small, and the arms are big, other"):
        switch(cases({"big": ".size > 3"}, default="small"), {"big": parse, "other": None})


NAMES = ("wrap", "end", "choose", "fork", "a")


@st.composite
def bodies(draw, functions, before="nothing", in_map=False, depth=2, must_begin=False):
    """Like those of any workflow, with choosers that a document can hold."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        kinds = ["function"]
        if depth and not (must_begin and not parts):
            kinds.append("fork")
            if before in ("nothing", "function") and not in_map:
                kinds.append("each")
            if before == "function":
                kinds.append("switch")
        before = draw(st.sampled_from(kinds))
        inner = {"in_map": in_map, "depth": depth - 1, "must_begin": True}
        match before:
            case "function":
                parts.append(draw(st.sampled_from(functions)))
            case "fork":
                branch = bodies(functions, before="fork", **inner)
                parts.append(fork(*draw(st.lists(branch, min_size=2, max_size=3))))
            case "each":
                low = draw(st.integers(1, 3))
                items = (low, low + draw(st.integers(0, 3)))
                parts.append(each(draw(bodies(functions, before="each", **{**inner, "in_map": True})), items=items))
            case "switch":
                arm = st.none() | bodies(functions, before="switch", **inner)
                arms = draw(st.lists(arm, min_size=2, max_size=3).filter(any))
                labels = draw(st.permutations(["true", "a", "exit", "odd label"]))[: len(arms)]
                weights = draw(st.none() | st.lists(st.integers(1, 9), min_size=len(arms), max_size=len(arms)))
                last = draw(st.sampled_from(labels))
                tests = {label: f".x == {i}" for i, label in enumerate(labels) if label != last}
                weighted = None if weights is None else dict(zip(labels, weights, strict=True))
                chosen = dict(zip(labels, arms, strict=True))
                parts.append(switch(cases(tests, default=last), chosen, weights=weighted))
    body = parts[0]
    for part in parts[1:]:
        body = body >> part
    return body


@settings(max_examples=60, deadline=None)
@given(data=st.data(), slo_s=st.none() | st.floats(1e-6, 1e6), name=st.sampled_from(["w", "two_words", "_x"]))
def test_what_is_written_reads_the_same(data, slo_s, name):
    app, again = App("shop"), App("shop")
    for each_app in (app, again):
        for function in NAMES:
            each_app.function(name=function)(lambda x: x)
    written = app.workflow(name, data.draw(bodies(list(app.functions.values()))), slo=slo_s, description="A thing.")
    read = again.workflow_from(write_workflow(written))
    assert read.spec == written.spec
    choosers = {stage: switch.chooser for stage, switch in written.compiled.switches.items()}
    assert {stage: switch.chooser for stage, switch in read.compiled.switches.items()} == choosers
