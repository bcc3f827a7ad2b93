"""Parameters bound to earlier outputs: what they get, which stages can be taken, documents, fusion, wrong use."""

import re

import pytest

from fairlead import INPUT
from fairlead.app import App, each, fork, switch
from fairlead.app.dsl import write_workflow
from fairlead.app.manifest import Input, Output


@pytest.fixture
def app():
    app = App("bound")

    @app.function
    def decode(name):
        return {"name": name, "pixels": [1, 2, 3]}

    @app.function
    def detect(image):
        return [pixel * 10 for pixel in image["pixels"]]

    @app.function
    def crop(box, image, question="none"):
        return f"{image['name']} {box} {question}"

    @app.function
    def gather(crops, image):
        return {"of": image["name"], "crops": crops}

    @app.function(batch=4)
    def label(boxes, images):
        return [f"{image['name']}:{box}" for box, image in zip(boxes, images, strict=True)]

    return app


def parts(app):
    return [app.functions[name] for name in ("decode", "detect", "crop", "gather", "label")]


def test_a_parameter_gets_what_an_earlier_stage_gave(app):
    decode, detect, crop, _, _ = parts(app)
    workflow = app.workflow("main", decode >> detect >> crop.using(image=decode, question=INPUT))
    assert workflow("cat") == "cat [10, 20, 30] cat"
    (spec,) = [stage for stage in workflow.spec.stages if stage.name == "crop"]
    assert spec.after == ("detect",)
    assert spec.source == Output("detect")
    assert spec.using == {"image": Output("decode"), "question": Input()}


def test_items_of_a_map_take_what_came_before_it_and_what_follows_does_too(app):
    decode, detect, crop, gather, _ = parts(app)
    workflow = app.workflow("main", decode >> detect >> each(crop.using(image=decode)) >> gather.using(image="decode"))
    assert workflow("cat") == {"of": "cat", "crops": ["cat 10 none", "cat 20 none", "cat 30 none"]}


def test_a_batched_function_gets_a_list_for_each_parameter(app):
    decode, detect, _, _, label = parts(app)
    workflow = app.workflow("main", decode >> detect >> label.using(images=decode))
    assert workflow("cat") == "cat:[10, 20, 30]"


def test_what_a_branch_of_a_fork_gave_can_be_taken_after_the_fork(app):
    decode, detect, crop, _, _ = parts(app)
    name = app.function(name="name")(lambda image: image["name"])
    workflow = app.workflow("main", decode >> fork(detect, name) >> crop.using(image=decode, question=name))
    assert workflow("cat") == "cat [[10, 20, 30], 'cat'] cat"


def test_a_stage_of_a_function_that_is_used_twice_is_taken_by_its_name(app):
    decode, detect, crop, _, _ = parts(app)
    again = app.function(name="again")(lambda boxes: {"name": "again", "pixels": boxes})
    twice = decode >> detect >> again >> detect
    with pytest.raises(ValueError, match=re.escape("several stages before it call 'detect'; name one of them: ")):
        app.workflow("either", twice >> crop.using(image=detect))
    workflow = app.workflow("main", twice >> crop.using(image="again", question="detect-2"))
    assert workflow("cat") == "again [100, 200, 300] [100, 200, 300]"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda a, b, c: b >> c.using(image="decod") >> a, "'decod' is not among the stages that have always run"),
        (lambda a, b, c: c.using(image=a) >> a, "crop.using(image=...): 'decode' is not among the stages"),
        (lambda a, b, c: c.using(image=c), "'crop' is not among the stages that have always run before it (none)"),
        (lambda a, b, c: fork(a, c.using(image=a)), "A stage of another branch"),
        (lambda a, b, c: a >> switch(len, {1: b, 2: None}) >> c.using(image=b), "run before it (decode)"),
        (lambda a, b, c: b >> each(a) >> c.using(image=a), "an each that has ended cannot be taken."),
        (lambda a, b, c: a >> b >> c, "is crop(box, image, question='none'), and nothing gives it 'image'."),
        (lambda a, b, c: a >> b >> c.using(question=a), "nothing gives it 'image'"),
        (lambda a, b, c: a >> b >> c.using(img=a), "has no parameter 'img' to bind; it is crop(box, image,"),
        (lambda a, b, c: a >> b >> c.using(box=a), "has no parameter 'box' to bind"),
        (lambda a, b, c: a >> b >> c.using(image=7), "must be a function of the app, the name of a stage, or INPUT"),
        (lambda a, b, c: a >> b >> c.using(image=a >> b), "must be a function of the app"),
        (lambda a, b, c: a >> b.using() >> c, "detect.using() binds nothing"),
    ],
    ids=[
        "a-name-that-there-is-not",
        "a-later-stage",
        "itself",
        "beside",
        "an-arm",
        "inside-a-map",
        "left-open",
        "one-left-open",
        "no-such-parameter",
        "the-argument-itself",
        "a-number",
        "a-chain",
        "nothing",
    ],
)
def test_what_cannot_be_taken_is_refused_with_the_reason(app, body, message):
    decode, detect, crop, _, _ = parts(app)
    with pytest.raises(ValueError, match=re.escape(message)):
        app.workflow("main", body(decode, detect, crop))


def test_an_arm_may_take_what_came_before_the_switch(app):
    decode, detect, crop, _, _ = parts(app)
    body = decode >> detect >> switch(lambda boxes: len(boxes) > 2, {True: crop.using(image=decode), False: None})
    assert app.workflow("main", body)("cat") == "cat [10, 20, 30] none"


def test_a_document_says_it_and_reads_back_the_same(app):
    decode, detect, crop, gather, _ = parts(app)
    body = (
        decode
        >> detect
        >> each(crop.using(image=decode, question=INPUT) >> app.function(name="tidy")(str.strip))
        >> gather.using(image="decode")
    )
    workflow = app.workflow("main", body, slo="1s")
    text = write_workflow(workflow)
    assert "export:\n      as: '${ $context + {\"decode\": .} }'" in text
    assert "question: ${ $workflow.input }" in text
    other = App("other")
    for function in app.functions.values():
        other.function(name=function.name)(function.__wrapped__)
    again = other.workflow_from(text)
    assert again.spec.stages == workflow.spec.stages
    assert write_workflow(again) == text


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (
            "[{decode: {call: decode}}, {crop: {call: crop, with: {a: '${ . }', image: '${ $context[\"decode\"] }'}}}]",
            "takes the output of 'decode', which must export it: as",
        ),
        ("[{decode: {call: decode, export: {as: '${ . }'}}}]", "may only keep the output by the name of the task"),
        (
            "[{decode: {call: decode, export: {as: '${ $context + {other: .} }'}}}]",
            "may only keep the output by the name of the task",
        ),
        ("[{crop: {call: crop, with: {a: '${ . }', img: '${ $workflow.input }'}}}]", "no parameter 'img' to bind"),
        ("[{crop: {call: crop, with: {image: '${ $workflow.input }'}}}]", "may only hold the one argument"),
    ],
)
def test_a_wrong_document_is_refused_with_the_place(app, tasks, message):
    head = "document: {dsl: '1.0.0', namespace: n, name: w, version: '1.0.0'}\n"
    with pytest.raises(Exception, match=re.escape(message)):
        app.workflow_from(f"{head}do: {tasks}\n")


def test_stages_around_a_taken_output_are_not_fused(app):
    decode, detect, crop, _, _ = parts(app)
    body = decode >> detect >> crop.using(image=decode)
    with pytest.raises(ValueError, match="decode and detect cannot be fused: crop takes what decode gives too"):
        app.workflow("one", body, fuse=(decode, detect))
    with pytest.raises(ValueError, match=re.escape("crop takes more than what comes before it (image)")):
        app.workflow("two", body, fuse=(detect, crop))
    assert app.workflow("three", body, fuse=True).spec.unfused is None


def test_fused_stages_keep_what_is_taken_of_their_last(app):
    decode, detect, crop, _, _ = parts(app)
    trim = app.function(name="trim")(lambda image: {**image, "name": image["name"].strip()})
    workflow = app.workflow("main", decode >> trim >> detect >> crop.using(image=trim), fuse=True)
    assert [stage.name for stage in workflow.spec.stages] == ["decode+trim", "detect", "crop"]
    assert workflow.spec.stages[-1].using == {"image": Output("decode+trim")}
    assert workflow(" cat ") == "cat [10, 20, 30] none"
