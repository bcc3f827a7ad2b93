"""That what a policy is shown cannot be changed: a walk over everything it can reach by public names."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from types import MappingProxyType

import msgspec

from fairlead.policy import View
from fairlead.profile import Estimate
from fairlead.workload import Scenario

_PROPERTIES = ("now", "nodes", "fresh", "freed", "lost", "changes")
_PLAIN = (type(None), bool, int, float, complex, str, bytes, Enum)


def look(view: View, scenario: Scenario) -> dict[str, object]:
    """The answer to every question a view can be asked in a scenario, by the question; iterators become tuples."""
    answers: dict[str, object] = {
        name: getattr(view, name) for name in ("now", "nodes", "fresh", "freed", "lost", "changes")
    }
    answers["oldest()"] = view.oldest()
    answers["by_ready()"] = waiting = tuple(view.by_ready())
    answers["by_deadline()"] = tuple(view.by_deadline())
    answers["queues()"] = view.queues()
    answers["waiting()"] = view.waiting()
    for workflow, function in view.queues():
        answers[f"by_ready({workflow}, {function})"] = tuple(view.by_ready(workflow, function))
        answers[f"waiting({workflow}, {function})"] = view.waiting(workflow, function)
        answers[f"oldest({workflow}, {function})"] = view.oldest(workflow, function)
        answers[f"by_deadline({workflow}, {function})"] = tuple(view.by_deadline(workflow, function))
        answers[f"most_urgent({function})"] = view.most_urgent(function=function)
    for invocation in waiting:
        answers[f"is_waiting({invocation.id})"] = view.is_waiting(invocation)
        answers[f"slack_s({invocation.id})"] = view.slack_s(invocation)
        answers[f"inputs({invocation.id})"] = view.inputs(invocation)
        answers[f"holder({invocation.id})"] = view.holder(invocation)
        answers[f"waiting_of({invocation.request})"] = view.waiting_of(invocation.request)
        answers[f"spent_usd({invocation.request})"] = view.spent_usd(invocation.request)
        answers[f"request({invocation.request})"] = view.request(invocation.request)
        answers[f"is_open({invocation.request})"] = view.is_open(invocation.request)
    for node in view.nodes:
        answers[f"load({node.name})"] = view.load(node.name)
        answers[f"finishes({node.name})"] = view.finishes(node.name)
        answers[f"pressure({node.name})"] = view.pressure(node.name)
        answers[f"idle({node.name})"] = view.idle(node.name)
    answers["devices()"] = view.devices()
    for function, profile in scenario.profiles.items():
        answers[f"instances({function})"] = view.instances(function)
        answers[f"counts({function})"] = view.counts(function)
        answers[f"running({function})"] = view.running(function=function)
        answers[f"scaled({function})"] = view.scaled(function)
        estimate = view.profile(function)
        for configuration in profile.configurations:
            case = f"{function}, {configuration}"
            answers[f"profile({function}).latency_s({configuration})"] = estimate.latency_s(configuration)
            answers[f"profile({function}).cost_usd({configuration})"] = estimate.cost_usd(configuration)
            answers[f"resizes({case})"] = view.resizes(function, configuration.vcpus)
            answers[f"place({case})"] = view.place(function, configuration)
            answers[f"place({case}, emptiest)"] = view.place(function, configuration, "emptiest")
            answers[f"place({case}, beside)"] = view.place(function, configuration, evicts=False)
            for node in view.nodes:
                answers[f"fits({case}, {node.name})"] = view.fits(function, configuration, node.name)
                answers[f"is_warm({case}, {node.name})"] = view.is_warm(function, configuration, node.name)
    return answers


def check_frozen(view: View, scenario: Scenario, seen: dict[int, object] | None = None) -> Mapping[str, object]:
    """Nothing that a policy reaches from a view by public names can be changed. Returns the view's answers, as `look`.

    `seen` holds the values that were checked before, by id, and is added to; pass the same one to every call of a run,
    and what stays, such as nodes and profiles, is checked once.
    """
    _check_cannot_set(view, "view")
    seen = {} if seen is None else seen
    answers = look(view, scenario)
    for question, answer in answers.items():
        _walk(answer, f"view.{question}", seen)
    for function in scenario.profiles:
        _walk(view.profile(function), f"view.profile({function})", seen)
    return answers


def check_immutable(value: object, path: str) -> None:
    """A value, and all that its public attributes and items lead to, cannot be changed. Methods are not called."""
    _walk(value, path, {})


def _walk(value: object, path: str, seen: dict[int, object]) -> None:
    if isinstance(value, _PLAIN) or id(value) in seen:
        return
    seen[id(value)] = value  # kept alive, so that no other gets its id
    if isinstance(value, tuple | frozenset):
        for i, item in enumerate(value):
            _walk(item, f"{path}[{i}]", seen)
    elif isinstance(value, MappingProxyType):
        for key, item in value.items():
            _walk(item, f"{path}[{key!r}]", seen)
    elif isinstance(value, msgspec.Struct | Estimate) or _is_frozen_dataclass(value):
        _check_cannot_set(value, path)
        for name, attribute in _public(value):
            _walk(attribute, f"{path}.{name}", seen)
    else:
        raise AssertionError(f"{path} is a {type(value).__name__}, which can be changed.")


def _is_frozen_dataclass(value: object) -> bool:
    parameters = getattr(type(value), "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _public(value: object) -> Iterator[tuple[str, object]]:
    for name in dir(value):
        if not name.startswith("_"):
            attribute = getattr(value, name)
            if not callable(attribute):
                yield name, attribute


def _check_cannot_set(value: object, path: str) -> None:
    """Neither old nor new public attributes can be set or deleted."""
    for name in [*(name for name in dir(value) if not name.startswith("_")), "something_new"]:
        with suppress(AttributeError, TypeError):
            setattr(value, name, None)
            raise AssertionError(f"{path}.{name} can be set.")
        with suppress(AttributeError, TypeError):
            delattr(value, name)
            raise AssertionError(f"{path}.{name} can be deleted.")


def same(before: Mapping[str, object], after: Mapping[str, object]) -> str | None:
    """The first question of `look` whose answer is another; None if there is none."""
    for question in (*before, *(q for q in after if q not in before)):
        if before.get(question) != after.get(question):
            return question
    return None
