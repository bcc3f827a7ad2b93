"""One page that shows and compares runs: no network, no clock, light and dark, and complete without scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from shlex import quote

from fairlead.errors import ConfigError, Fault
from fairlead.model import Cluster, Recording
from fairlead.report.charts import draw_attainment, draw_cost, draw_latency, draw_sweep, draw_trade
from fairlead.report.labels import RUN, shared_key
from fairlead.report.metrics import json_values
from fairlead.report.numbers import Column, find_column, show, show_estimate, shown_columns
from fairlead.report.page import page_table, whole_page
from fairlead.report.series import Bench, Series, group
from fairlead.report.stages import stage_times
from fairlead.report.svg import Drawing
from fairlead.report.timeline import LEVELS, draw_gantt, draw_utilisation

MOST_DETAILED = 6
MOST_STAGES = 40
SWEPT = ("slo_attainment", "goodput_rps", "latency_s.p95", "cost_usd")
LOWER_IS_BETTER = ("latency_s.p50", "latency_s.p95", "latency_s.p99", "wait_s.mean", "cost_usd")


def write_html(
    recordings: Sequence[Recording], path: Path | str, title: str | None = None, *, command: str | None = None
) -> Path:
    """Write the page of these runs, and return where.

    `command` is how to run them again. By default it is made up from names and seeds, or left out where these do not
    tell the runs apart.
    """
    path = Path(path)
    page = render_html(recordings, title, command=command)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(str(path), [Fault("", f"cannot write the page: {error.strerror or error}.")]) from error
    return path


def render_html(recordings: Sequence[Recording], title: str | None = None, *, command: str | None = None) -> str:
    """The page as text; the same recordings give the same text."""
    if not recordings:
        raise ValueError("a page needs at least one recording; got none.")
    bench = group(recordings)
    series = bench.last
    name = title or recordings[0].scenario
    body = [
        _header(recordings, bench, name, command or _command(recordings, bench)),
        _results(bench),
        *_sweep(bench),
        '<div class="pair">',
        _chart(
            "Latency", draw_latency(series), series, "A curve ends where the answers do: the rest was never answered."
        ),
        _chart("In time, over time", draw_attainment(series), series),
        "</div>",
        *_money(series, recordings[0].cluster),
        *_workflows(series),
        *_stages(series),
        _utilisation(series),
        _gantt(series),
        _settings(bench),
    ]
    return whole_page(name, f"{_hatches()}<main>\n" + "\n".join(body) + "\n</main>\n")


def _header(recordings: Sequence[Recording], bench: Bench, name: str, command: str) -> str:
    first = recordings[0]
    seeds = sorted({recording.seed for recording in recordings})
    is_live = first.engine == "live"
    span = f"arrivals for {first.duration_s - (first.warmup_s if is_live else 0.0):.4g} s"
    if first.warmup_s and not is_live:
        span += f", the first {first.warmup_s:g} s not counted"
    facts = [
        *([f"scenario {first.scenario}"] if name != first.scenario else []),
        span,
        *([_cluster_text(first.cluster)] if all(run.cluster == first.cluster for run in recordings) else []),
        "live" if is_live else f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}",
    ]
    if any(RUN in recording.point for recording in recordings):
        facts.append(f"{len(recordings)} runs")
    if len(bench.points) > 1:
        facts.append(f"{len(bench.points)} sweep points")
    return (
        f'<header><h1>{escape(name)}</h1><p class="facts">{escape(" · ".join(facts))}</p>'
        f'<p class="finding">{_finding(bench)}</p>'
        + (f'<p class="command">Run it again: <code>{escape(command)}</code></p>' if command else "")
        + "</header>"
    )


def _finding(bench: Bench) -> str:
    """The result in a sentence; HTML. The best is the one with the most answers in time, then the cheapest.

    Policies that look the same are said to be. One that answered nothing in time is cheap for no merit of its own, so
    it is never named as the cheapest.
    """
    ranked = sorted(bench.last, key=lambda one: (-(one.mean("slo_attainment") or 0.0), one.mean("cost_usd") or 0.0))
    if ranked[0].mean("slo_attainment") is None:
        return "No request was counted."
    point = f" at {escape(list(bench.points)[-1])}" if len(bench.points) > 1 else ""
    answering = [one for one in ranked if one.mean("slo_attainment")]
    if not answering:
        who = f"<b>{escape(ranked[0].label)}</b>" if len(ranked) == 1 else f"Each of the {_count(ranked)}"
        return f"{who} missed the deadline of every request{point}."
    shares = [show(one.mean("slo_attainment"), "share") for one in ranked]
    costs = [show(one.mean("cost_usd"), "usd") for one in ranked]
    # Of those that look equally cheap, the one that does best.
    cheapest = costs.index(show(min(one.mean("cost_usd") or 0.0 for one in answering), "usd"))
    names = [f"<b>{escape(one.label)}</b>" for one in ranked]
    if len(ranked) > 1 and len(set(shares)) == 1:
        text = f"All {_count(ranked)} answer {shares[0]} of the requests in time{point}"
        if len(set(costs)) == 1:
            return f"{text}, for {costs[0]}{_quickest(ranked)}."
        return f"{text}; {names[cheapest]} is the cheapest, at {costs[cheapest]}."
    text = f"{names[0]} answers {shares[0]} of the requests in time{point}, for {costs[0]}"
    if costs[cheapest] != costs[0]:
        text += f"; the cheapest, {names[cheapest]}, {shares[cheapest]} for {costs[cheapest]}"
    if shares[-1] not in (shares[0], shares[cheapest]):
        text += f"; the last, {names[-1]}, {shares[-1]} for {costs[-1]}"
    return text + "."


def _count(series: Sequence[Series]) -> str:
    """How many series there are: policies, or runs where one policy has several."""
    is_runs = any(RUN in one.aggregate.point for one in series)
    return f"{len(series)} {'runs' if is_runs else 'policies'}"


def _quickest(series: Sequence[Series]) -> str:
    """Names the series with the lowest mean latency, where they differ; HTML."""
    means = [(mean, one.label) for one in series if (mean := one.mean("latency_s.mean")) is not None]
    if len({show(mean, "seconds") for mean, _ in means}) < 2:
        return ""
    mean, label = min(means)
    return f"; <b>{escape(label)}</b> is the quickest, with a mean latency of {show(mean, 'seconds')}"


def _results(bench: Bench) -> str:
    rows = [(point, one) for point, found in bench.points.items() for one in found]
    columns = shown_columns([one.aggregate for _, one in rows])
    has_points = len(bench.points) > 1 or "" not in bench.points
    key = shared_key([one.aggregate for _, one in rows]) if has_points else ""
    named = escape(key or "point").replace(".", ".<wbr>")
    heads = ["<th>policy</th>", *([f'<th class="left">{named}</th>'] if has_points else [])]
    heads += [f'<th title="{escape(column.note)}">{escape(column.heading)}</th>' for column in columns]
    body = []
    for point, one in rows:
        cells = [f'<th scope="row">{_name(one)}</th>']
        value = point.partition("=")[2] if key else point
        cells += [f'<td class="left">{escape(value)}</td>'] if has_points else []
        cells += [_cell(one, column, bench.points[point]) for column in columns]
        body.append(f"<tr>{''.join(cells)}</tr>")
    seeds = max(len(one.recordings) for _, one in rows)
    note = "In time: the share of all requests, rejected and unfinished ones counted as missed."
    if seeds > 1:
        note += f" Mean ± 95 % confidence half-width over {seeds} seeds."
    return f'<section><h2>Results</h2><p class="note">{note}</p>{page_table(heads, body)}</section>'


def _cell(one: Series, column: Column, rivals: Sequence[Series]) -> str:
    estimate = one.aggregate.estimates.get(column.key)
    text, _, half = show_estimate(estimate, column.kind).partition(" ± ")
    if half:
        number, _, unit = half.partition(" ")
        text += f" {unit}<small>± {number}</small>" if unit else f"<small>± {number}</small>"
    if column.key == "slo_attainment" and estimate is not None:
        level = "good" if estimate.mean >= 0.95 else "fair" if estimate.mean >= 0.8 else "poor"
        width = f"{100 * min(1.0, max(0.0, estimate.mean)):.1f}%"
        return f'<td><span class="{level}"><span class="meter"><i style="width:{width}"></i></span>{text}</span></td>'
    if estimate is not None and _is_best(one, column, rivals):
        return f'<td class="best">{text}</td>'
    return f"<td>{text}</td>"


def _is_best(one: Series, column: Column, rivals: Sequence[Series]) -> bool:
    """Whether no rival looks better; False where all look the same, or where the column has no better.

    What a policy costs that answers nothing in time is not compared.
    """
    if column.key == "cost_usd":
        rivals = [rival for rival in rivals if rival.mean("slo_attainment")]
        if not one.mean("slo_attainment"):
            return False
    values = [value for rival in rivals if (value := rival.mean(column.key)) is not None]
    looks = {show(value, column.kind) for value in values}
    if len(looks) < 2 or column.key not in (*LOWER_IS_BETTER, "goodput_rps"):
        return False
    best = max(values) if column.key == "goodput_rps" else min(values)
    return show(one.mean(column.key), column.kind) == show(best, column.kind)


def _sweep(bench: Bench) -> Iterable[str]:
    if len(bench.points) < 2:
        return
    drawings = [draw_sweep(bench.points, find_column(key)) for key in SWEPT]
    charts = "".join(f"<div>{drawing}</div>" for drawing in drawings)
    legend = _legend(bench.last)
    yield f'<section><h2>Over the sweep</h2>{legend}<div class="grid">{charts}</div></section>'
    yield f'<p class="note below">Below: the runs at {escape(list(bench.points)[-1])}, the last point of the sweep.</p>'


def _money(series: Sequence[Series], cluster: Cluster) -> Iterable[str]:
    billed = [
        ("cold_start", "cold starts and waits for them", cluster.price.bill_cold_start),
        ("idle", "idle", cluster.price.bill_idle),
    ]
    parts = _keys(("run", "running"), *((part, words) for part, words, is_billed in billed if is_billed))
    note = f"{_billed(cluster)} At the right: the cost, and the cost of a thousand answers in time."
    cost = (
        f'<section><h2>Cost</h2><p class="note">{note}</p><ul class="legend">{parts}</ul>{draw_cost(series)}</section>'
    )
    if len(series) < 2:
        yield cost
        return
    trade = _chart("Cost against answers in time", draw_trade(series), series, "Up and to the left is better.")
    yield f'<div class="pair">{cost}{trade}</div>'


def _workflows(series: Sequence[Series]) -> Iterable[str]:
    names = sorted({name for one in series for run in one.recordings for name in run.requests["workflow"].unique()})
    if len(names) < 2:
        return
    columns = [("requests", "count"), ("slo_attainment", "share"), ("latency_s.p50", "seconds")]
    columns += [("latency_s.p95", "seconds"), ("wait_s.mean", "seconds"), ("wait_s.p95", "seconds")]
    columns += [("slowdown", "ratio")]
    heads = ["<th>workflow</th>", '<th class="left">policy</th>']
    texts = ("requests", "in time", "latency p50", "p95", "mean wait", "wait p95", "slowdown")
    heads += [f"<th>{text}</th>" for text in texts]
    body = []
    for name in names[:40]:
        for one in series:
            cells = "".join(
                f"<td>{escape(show(one.mean(f'by_workflow.{name}.{key}'), kind))}</td>"  # type: ignore[arg-type]
                for key, kind in columns
            )
            first = f'<th scope="row">{escape(name)}</th><td class="left">{_name(one)}</td>'
            body.append(f"<tr>{first}{cells}</tr>")
    note = f'<p class="note">The first 40 of {len(names)} workflows.</p>' if len(names) > 40 else ""
    yield f"<section><h2>By workflow</h2>{note}{page_table(heads, body)}</section>"


def _stages(series: Sequence[Series]) -> Iterable[str]:
    times = {one.index: stage_times(one.recordings) for one in series}
    # Workflow by workflow, the stages in the order in which they first started.
    found_stages = dict.fromkeys(stage for found in times.values() for stage in found)
    stages = sorted(found_stages, key=lambda stage: stage[0])
    if not stages:
        return
    has_workflows = len({workflow for workflow, _ in stages}) > 1
    texts = ("runs", "mean wait", "wait p95", "mean cold start", "mean transfer", "mean run", "run p95")
    heads = ["<th>stage</th>", '<th class="left">policy</th>', *(f"<th>{text}</th>" for text in texts)]
    heads.append('<th class="left">wait, cold start, transfer, run</th>')
    longest_s = max(found.total_s for one in times.values() for found in one.values())
    body = []
    for workflow, stage in stages[:MOST_STAGES]:
        name = f"{workflow}: {stage}" if has_workflows else stage
        for one in series:
            found = times[one.index].get((workflow, stage))
            if found is not None:
                cells = "".join(f"<td>{show(value, 'seconds')}</td>" for value in found[1:])
                first = f'<th scope="row">{escape(name)}</th><td class="left">{_name(one)}</td>'
                cells += f'<td class="left">{found.bar(longest_s)}</td>'
                body.append(f"<tr>{first}<td>{found.runs:,}</td>{cells}</tr>")
    note = "Wait: from ready to start. A batch counts once for each of its invocations."
    if len(stages) > MOST_STAGES:
        note += f" The first {MOST_STAGES} of {len(stages)} stages."
    yield f"<section><h2>By stage</h2>{_note(note)}{page_table(heads, body)}</section>"


def _utilisation(series: Sequence[Series]) -> str:
    detailed = series[:MOST_DETAILED]
    end_s = max(one.end_s for one in detailed)
    ramp = "".join(f'<i style="opacity:{0.16 + 0.12 * level:.2f}"></i>' for level in range(LEVELS))
    note = f'Share of a node that runs batches: 0 %<span class="ramp">{ramp}</span>100 %. At the right: the mean.'
    parts = []
    for one in detailed:
        drawing, left_out = draw_utilisation(one, end_s)
        parts.append(f"<div><h3>{_swatch(one)}{escape(one.label)}</h3>{drawing}{_note(left_out)}</div>")
    return (
        f'<section><h2>Utilisation</h2><p class="note">{note}{_only(series)}</p>'
        f'<div class="grid">{"".join(parts)}</div></section>'
    )


def _gantt(series: Sequence[Series]) -> str:
    detailed = series[:MOST_DETAILED]
    functions = sorted({name for one in detailed for name in one.batches["function"].unique()})
    entries = "".join(
        f'<li><span class="swatch c{index % 8}"></span>{escape(name)}</li>' for index, name in enumerate(functions[:24])
    )
    keys = _keys(("cold_start", "cold start"), ("moved", "transfer"))
    parts = []
    for position, one in enumerate(detailed):
        drawing, text = draw_gantt(one, functions)
        state = " open" if position == 0 else ""
        parts.append(
            f"<details{state}><summary>{_swatch(one)}{escape(one.label)}</summary>{_note(text)}{drawing}</details>"
        )
    return (
        f'<section><h2>Batches on instances</h2><p class="note">One lane per instance, by node.{_only(series)}</p>'
        f'<ul class="legend">{entries}{keys}</ul>{"".join(parts)}</section>'
    )


def _settings(bench: Bench) -> str:
    rows = []
    for one in bench.last:
        values = json_values(dict(one.recordings[0].parameters))
        assert isinstance(values, dict)
        text = ", ".join(f"{key} = {value}" for key, value in values.items()) or "no parameters"
        rows.append(f'<p><b>{escape(one.label)}</b> <span class="note">{escape(text)}</span></p>')
    return f"<section><details><summary>Parameters</summary>{''.join(rows)}</details></section>"


def _chart(heading: str, drawing: Drawing, series: Sequence[Series], note: str = "") -> str:
    return f"<section><h2>{escape(heading)}</h2>{_note(note)}{_legend(series)}{drawing}</section>"


def _legend(series: Sequence[Series]) -> str:
    entries = "".join(f'<li data-toggle="{one.index}">{_swatch(one)}{escape(one.label)}</li>' for one in series)
    return f'<ul class="legend">{entries}</ul>'


def _keys(*parts: tuple[str, str]) -> str:
    box = '<svg class="key" viewBox="0 0 18 11" aria-hidden="true"><rect class="part {}" width="18" height="11"/></svg>'
    return "".join(f"<li>{box.format(part)}{words}</li>" for part, words in parts)


def _swatch(one: Series) -> str:
    return f'<span class="swatch c{one.index % 8}"></span>'


def _name(one: Series) -> str:
    """A series in a table: its parameters, where they tell it from others, are below its name."""
    name, sign, told = one.label.partition(" (")
    return f"{_swatch(one)}{escape(name)}" + (
        f'<small class="told">{escape(sign.strip() + told)}</small>' if sign else ""
    )


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>' if text else ""


def _only(series: Sequence[Series]) -> str:
    return f" The first {MOST_DETAILED} of {len(series)} policies." if len(series) > MOST_DETAILED else ""


def _hatches() -> str:
    """A striped fill per colour, shared by all drawings of the page."""
    patterns = "".join(
        f'<pattern id="hatch-{index}" class="{style}" width="5" height="5" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="5" height="5" fill="var(--c)" fill-opacity=".22"/>'
        f'<rect width="2" height="5" fill="var(--c)"/></pattern>'
        for index, style in enumerate([*(f"c{index}" for index in range(8)), "soft"])
    )
    return f'<svg id="defs" aria-hidden="true"><defs>{patterns}</defs></svg>\n'


def _command(recordings: Sequence[Recording], bench: Bench) -> str:
    who = {(recording.policy, recording.scaler) for recording in recordings}
    if len({one.label for found in bench.points.values() for one in found}) > len(who):
        return ""  # one command gives a policy one set of parameters
    if any(recording.engine == "live" for recording in recordings):
        return ""  # what happened once, for real, cannot be run again
    words = ["fairlead", "simulate", quote(recordings[0].scenario)]
    for policy in dict.fromkeys(recording.policy for recording in recordings):
        words += ["--policy", quote(policy)]
    for scaler in dict.fromkeys(recording.scaler for recording in recordings if recording.scaler):
        words += ["--scaler", quote(scaler)]
    seeds = max(recording.seed for recording in recordings) + 1
    return " ".join(words + (["--seeds", str(seeds)] if seeds > 1 else []))


def _cluster_text(cluster: Cluster) -> str:
    counts = Counter(node.kind for node in cluster.nodes)
    kinds = []
    for kind, node in cluster.kinds.items():
        vgpus = sum(device.vgpus for device in node.devices)
        sizes = [f"{size:g} {unit}" for size, unit in ((node.vcpus, "vCPU"), (vgpus, "vGPU")) if size]
        kinds.append(f"{counts[kind]} × {kind} ({', '.join(sizes)})")
    return "; ".join(kinds[:4]) + ("; …" if len(kinds) > 4 else "")


def _billed(cluster: Cluster) -> str:
    price = cluster.price
    parts = {"running": True, "cold starts": price.bill_cold_start, "idle instances": price.bill_idle}
    yes, no = ([name for name, is_billed in parts.items() if is_billed is wanted] for wanted in (True, False))
    return f"Billed: {', '.join(yes)}." + (f" Not billed: {', '.join(no)}." if no else "")
