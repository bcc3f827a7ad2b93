"""Events as they are on disk, and back: [kind, fields...], with the numbers of `runlog.segments.EVENTS`."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from fairlead.engine.core import events as ev
from fairlead.model import Request
from fairlead.policy.base import Move, Resize, Retire, Scale, Warm
from fairlead.runlog.segments import EVENTS

Entry = tuple[object, ...]

_ACTIONS: Mapping[str, type] = {action.__name__: action for action in (Warm, Retire, Scale, Resize, Move)}
_CLASSES: tuple[type[ev.Event], ...] = tuple(getattr(ev, name) for name in EVENTS)
_NUMBERS: Mapping[type, int] = {kind: number for number, kind in enumerate(_CLASSES)}
_ARRIVED, _FINISHED, _ORDERED = (_NUMBERS[kind] for kind in (ev.Arrived, ev.Finished, ev.Ordered))


def encode_instant(now: float, events: Sequence[ev.Event]) -> Entry:
    """One call of the controller, ready to be packed."""
    return (now, [_ENCODE[type(event)](event) for event in events])


def decode_instant(entry: Sequence[object]) -> tuple[float, list[ev.Event]]:
    """The instant and the events that `encode_instant` was given; ValueError (of msgspec) on what is none."""
    now, events = entry
    return msgspec.convert(now, float), [_decode(event) for event in msgspec.convert(events, list[list[object]])]


def _arrived(event: ev.Arrived) -> Entry:
    r = event.request
    return (_ARRIVED, r.id, r.workflow, r.arrival, r.deadline, r.budget_usd, event.items)


def _finished(event: ev.Finished) -> Entry:
    outcomes = event.outcomes
    if outcomes is not None:
        return (_FINISHED, event.batch, event.work_s, event.transfer_s, [msgspec.structs.astuple(o) for o in outcomes])
    return (_FINISHED, event.batch, event.work_s, event.transfer_s, None)


def _ordered(event: ev.Ordered) -> Entry:
    return (_ORDERED, type(event.action).__name__, event.action, event.holds)


def _any(event: ev.Event) -> Entry:
    return (_NUMBERS[type(event)], *msgspec.structs.astuple(event))


_ENCODE: Mapping[type, Callable[..., Entry]] = {
    **dict.fromkeys(_CLASSES, _any),
    ev.Arrived: _arrived,
    ev.Finished: _finished,
    ev.Ordered: _ordered,
}


def _decode(entry: Sequence[object]) -> ev.Event:
    number = entry[0]
    if not isinstance(number, int) or not 0 <= number < len(_CLASSES):
        raise msgspec.ValidationError(f"there is no event number {number!r}")
    if number == _ARRIVED:
        *fields, items = entry[1:]
        request = msgspec.convert(dict(zip(Request.__struct_fields__, fields, strict=True)), Request)
        return ev.Arrived(request, msgspec.convert(items, int))
    if number == _FINISHED:
        batch, work_s, transfer_s, outcomes = entry[1:]
        found = None
        if outcomes is not None:
            found = tuple(_outcome(o) for o in msgspec.convert(outcomes, list[list[object]]))
        times = msgspec.convert([work_s, transfer_s], tuple[float, float])
        return ev.Finished(msgspec.convert(batch, int), *times, found)
    if number == _ORDERED:
        name, action, *holds = entry[1:]  # older logs do not say whether it holds
        if name not in _ACTIONS:
            raise msgspec.ValidationError(f"there is no action {name!r} to order")
        return ev.Ordered(msgspec.convert(action, _ACTIONS[str(name)]), *msgspec.convert(holds, list[bool]))
    kind = _CLASSES[number]
    names = kind.__struct_fields__[: len(entry) - 1]  # older logs lack what was added since
    return msgspec.convert(dict(zip(names, entry[1:], strict=True)), kind)


def _outcome(fields: Sequence[object]) -> ev.Outcome:
    names = ev.Outcome.__struct_fields__[: len(fields)]  # older logs lack what was added since
    return msgspec.convert(dict(zip(names, fields, strict=True)), ev.Outcome)
