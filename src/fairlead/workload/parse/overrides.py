"""Settings given from outside a file: `cluster.nodes.0.count=8`, `arrivals.*.rate_rps=3`."""

from collections.abc import Iterator, Mapping

from fairlead.errors import Fault
from fairlead.workload.parse.document import describe, parse_value

_Place = tuple[dict[object, object] | list[object], str | int]  # a container, and the key in it


def read_overrides(overrides: Mapping[str, object], faults: list[Fault]) -> dict[str, object]:
    """The overrides with text read as it would be in a file."""
    values: dict[str, object] = {}
    for path, value in overrides.items():
        try:
            values[path] = parse_value(value) if isinstance(value, str) else value
        except ValueError as error:
            faults.append(Fault(path, f"{error} As text it takes quotes of its own: --set '{path}=\"{value}\"'."))
    return values


def apply_override(data: dict[object, object], path: str, value: object) -> list[Fault]:
    """Set one path, `*` standing for every item, in place; what is wrong with the path, if anything.

    Keys that are not there yet are made: whether they mean anything is found out when the data is read.
    """
    keys = path.split(".")
    if not all(keys):
        return [Fault(path, "is not a dotted path, such as cluster.nodes.0.count.")]
    places: list[_Place] = list(_steps(data, keys[0]))
    try:
        for i, key in enumerate(keys[1:], start=1):
            places = [step for place in places for step in _steps(_container(place, ".".join(keys[:i])), key)]
        if not places:
            raise ValueError("matches nothing.")
    except ValueError as error:
        return [Fault(path, str(error))]
    for container, key_or_index in places:
        container[key_or_index] = value  # type: ignore[index]
    return []


def _container(place: _Place, path: str) -> dict[object, object] | list[object]:
    container, key = place
    found = container.get(key) if isinstance(container, dict) else container[int(key)]
    if found is None:
        found = container[key] = {}  # type: ignore[index]
    if not isinstance(found, dict | list):
        raise ValueError(f"cannot be set: {path} is {describe(found)}, not a mapping or a list.")
    return found


def _steps(container: dict[object, object] | list[object], key: str) -> Iterator[_Place]:
    if isinstance(container, dict):
        for name in [str(k) for k in container] if key == "*" else [key]:
            yield container, name
    elif key == "*":
        for i in range(len(container)):
            yield container, i
    elif key.isascii() and key.isdigit():
        if int(key) >= len(container):
            raise ValueError(f"there is no item {key}; the list has {len(container)}, and the first is 0.")
        yield container, int(key)
    else:
        raise ValueError(f"{key!r} is not the number of an item of this list, nor '*'.")
