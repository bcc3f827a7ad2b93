"""Few sizes per function, so that instances are warm when they are needed and fit beside each other.

Where an idle instance keeps its slice, each function gets one size: it starts at the smallest and grows where a
share-second saves most time, until every workflow has time to spare. Elsewhere only sizes beyond what any workflow
needs are left out.
"""

from collections.abc import Mapping
from math import inf

from fairlead.model import Stage, Workflow
from fairlead.policy.base import Site
from fairlead.policy.fairlead.menu import Menu, Supply

_SPARE_SLICE = 0.85  # of the objective that the longest path may take where idle instances keep their slices
_SPARE = 0.7  # the same where they give them back


def holds_slices(site: Site) -> bool:
    """Whether idle instances of any function keep vCPUs or vGPUs from others."""
    return any(
        function.idle_holds == "slice" and function.keep_alive_s > 0 and site.profiles[name].cold_start_s() > 0
        for name, function in site.functions.items()
    )


def followers(workflow: Workflow) -> dict[str, list[Stage]]:
    """For each stage those that come right after it."""
    found: dict[str, list[Stage]] = {stage.name: [] for stage in workflow.stages}
    for stage in workflow.stages:
        for name in stage.after:
            found[name].append(stage)
    return found


def choose_sizes(site: Site, menus: Mapping[str, Menu], supply: Supply) -> None:
    """Leave the sizes out of the menus that are not to be used."""
    if holds_slices(site):
        _one_each(site, menus, supply)
    else:
        _no_larger_than_needed(site, menus)


def _no_larger_than_needed(site: Site, menus: Mapping[str, Menu]) -> None:
    needed: dict[str, float] = {}
    for workflow in site.workflows.values():
        if workflow.slo.latency_s == inf:  # what its requests are given, clients say
            needed |= dict.fromkeys(workflow.functions, inf)
            continue
        shares = sorted({float(g) for stage in workflow.stages for g in menus[stage.function].vgpus if g > 0})
        enough = 0.0
        for enough in shares:
            times = {f: _quickest_s(menus[f], enough) for f in workflow.functions}
            if _longest_s(workflow, menus, times) <= _SPARE * workflow.slo.latency_s:
                break
        for function in workflow.functions if shares else ():
            needed[function] = max(needed.get(function, 0.0), enough)
    for function, share in needed.items():
        menus[function].keep(menus[function].vgpus <= share)


def _quickest_s(menu: Menu, share: float) -> float:
    within = menu.vgpus <= share
    return float((menu.upper_s[within] if within.any() else menu.upper_s).min())


def _longest_s(workflow: Workflow, menus: Mapping[str, Menu], times: Mapping[str, float]) -> float:
    after = followers(workflow)
    rest: dict[str, float] = {}
    for stage in reversed(workflow.stages):
        own_s = times[stage.function] + menus[stage.function].transfer_s
        rest[stage.name] = own_s + max([rest[one.name] for one in after[stage.name]], default=0.0)
    return max(rest.values())


def _one_each(site: Site, menus: Mapping[str, Menu], supply: Supply) -> None:
    times = {
        name: {float(g): float(menu.upper_s[menu.size == g].min()) for g in set(menu.size)}
        for name, menu in menus.items()
        if len(menu)
    }
    size = {name: min(by_size) for name, by_size in times.items()}
    while (function := _most_worth_growing(site, menus, supply, times, size)) is not None:
        size[function] = min(g for g in times[function] if g > size[function])
    for function, share in size.items():
        menu = menus[function]
        menu.keep(menu.size == share)
        if menu.vgpus.any():  # an idle instance keeps its vCPUs too: no more than its part of the node
            part = min(
                node.vcpus * supply.part(node.kind, share) / sum(device.vgpus for device in node.devices)
                for node in site.cluster.nodes
                if node.devices
            )
            menu.keep(menu.vcpus == max([v for v in menu.vcpus if v <= part], default=menu.vcpus.min()))


def _most_worth_growing(
    site: Site,
    menus: Mapping[str, Menu],
    supply: Supply,
    times: Mapping[str, Mapping[float, float]],
    size: Mapping[str, float],
) -> str | None:
    """The function whose next size saves most time per share-second, on paths without time to spare."""
    gains: dict[str, float] = {}
    for workflow in site.workflows.values():
        if not all(function in size for function in workflow.functions):
            continue
        now_s = {f: times[f][size[f]] for f in workflow.functions}
        if _longest_s(workflow, menus, now_s) <= _SPARE_SLICE * workflow.slo.latency_s:
            continue
        for stage in _longest_path(workflow, menus, now_s):
            f = stage.function
            larger = [g for g in times[f] if g > size[f]]
            if larger:
                up, kind = min(larger), menus[f].options[0][1]
                saved_s = times[f][size[f]] - times[f][up]
                more = supply.part(kind, up) * times[f][up] - supply.part(kind, size[f]) * times[f][size[f]]
                gains[f] = gains.get(f, 0.0) + saved_s / max(more, 1e-9)
    return max(gains, key=lambda f: (gains[f], f)) if gains else None


def _longest_path(workflow: Workflow, menus: Mapping[str, Menu], times: Mapping[str, float]) -> list[Stage]:
    after = followers(workflow)
    rest: dict[str, float] = {}
    for stage in reversed(workflow.stages):
        rest[stage.name] = times[stage.function] + menus[stage.function].transfer_s
        rest[stage.name] += max([rest[one.name] for one in after[stage.name]], default=0.0)
    path = [max((s for s in workflow.stages if not s.after), key=lambda s: rest[s.name])]
    while after[path[-1].name]:
        path.append(max(after[path[-1].name], key=lambda s: rest[s.name]))
    return path
