// Workflows: how many requests are in time, how long they take, what they cost, and why some are refused.
import { html, useEffect, useState } from "./preact.js";
import { ask } from "./api.js";
import { live, recent, remember } from "./live.js";
import { dollars, duration, grade, number, plural, rate, share } from "./format.js";
import { TimeChart } from "./charts.js";
import { Graph, Key, StageTable } from "./graph.js";

const SPANS = [["2m", "2 min", 120], ["15m", "15 min", 900], ["6h", "6 h", 0]];
const OUTCOMES = [["in_time", "In time", "c2"], ["late", "Late", "c1"], ["rejected", "Refused", "c7"], ["dropped", "Dropped", "c3"], ["failed", "Failed", "poor"]];

export const specOf = (name) => {
  const [app, ...rest] = name.split(".");
  return live.manifests[app]?.workflows.find((one) => one.name === rest.join("."));
};

export function Overview({ chosen, choose }) {
  const names = Object.keys(live.picture.workflows);
  if (!names.length) return html`<section class="empty"><h2>No app is served yet</h2><p class="note">Deploy one with <code>fairlead serve app.py</code>, or over HTTP with the token.</p></section>`;
  return html`${names.length > 1 ? html`<${Workflows} names=${names} chosen=${chosen} choose=${choose} />` : ""}<${Detail} key=${chosen} name=${chosen} />`;
}

function Workflows({ names, chosen, choose }) {
  return html`<section><h2>Workflows</h2><div class="scroll tall"><table>
    <thead><tr><th scope="col">Workflow</th><th scope="col">Objective</th><th scope="col">In time</th><th scope="col">Goodput</th><th scope="col">p50</th><th scope="col">p99</th><th scope="col">Refused</th><th scope="col">Open</th><th scope="col">Cost per hour</th></tr></thead>
    <tbody>${names.map((name) => {
      const now = live.picture.workflows[name], last = recent(name), spec = specOf(name);
      return html`<tr class=${name === chosen ? "chosen" : ""}><th scope="row"><button class="link" aria-pressed=${name === chosen} onClick=${() => choose(name)}>${name}</button></th>
        <td>${duration(spec?.slo_s)}</td>
        <td class=${grade(last.attained)}>${last.attained == null ? "–" : html`<${Meter} value=${last.attained} />${share(last.attained)}`}</td>
        <td>${rate(last.in_time)}</td><td>${duration(now.p50_s)}</td><td>${duration(now.p99_s)}</td><td>${rate(last.refused)}</td><td>${number(now.open)}</td><td>${dollars(last.cost_usd * 3600)}</td></tr>`;
    })}</tbody></table></div></section>`;
}

export const Meter = ({ value }) => html`<span class="meter"><i style=${{ width: `${100 * value}%` }}></i></span>`;

function Detail({ name }) {
  const [span, look] = useState("2m");
  const [long, keep] = useState(null);
  useEffect(() => { remember(name); }, [name]);
  useEffect(() => {
    if (span !== "6h") return undefined;
    const load = () => ask(`/v1/dashboard/history/${name}?range=6h`).then((past) => keep(past.columns), () => {});
    load();
    const timer = setInterval(load, 15000);
    return () => clearInterval(timer);
  }, [span, name]);

  const now = live.picture.workflows[name], spec = specOf(name), app = live.picture.apps.find((one) => one.name === name.split(".")[0]);
  if (!now || !spec || !app) return "";
  const last = recent(name), most = SPANS.find(([key]) => key === span)[2];
  const series = span === "6h" ? long ?? { t: [] } : live.series[name];
  const cut = (column) => (series[column] ?? []).slice(-(most || 1e6));
  const times = cut("t");
  const per = last.in_time ? (last.cost_usd / last.in_time) * 1000 : null;
  const judged = cut("in_time").map((value, place) => {
    const all = value + ["late", "rejected", "dropped", "failed"].reduce((sum, column) => sum + (cut(column)[place] ?? 0), 0);
    return all ? value / all : null;
  });
  const stages = app.stages.filter((one) => one.workflow === spec.name);
  return html`
    <div class="head"><div><h1>${name.split(".").slice(1).join(".")}</h1><p class="facts">${spec.slo_s ? html`Answers within <b>${duration(spec.slo_s)}</b>` : "No objective"} · app ${app.name} · policy ${app.policy}${app.scaler ? ` · scaler ${app.scaler}` : ""}${app.draining ? ` · ${plural(app.draining, "former version")} finishing` : ""}</p></div>
      <div class="spans" role="group" aria-label="Time shown">${SPANS.map(([key, text]) => html`<button aria-pressed=${span === key} onClick=${() => look(key)}>${text}</button>`)}</div></div>
    <dl class="figures" aria-label="The last ten seconds">
      <${Figure} label="In time" value=${share(last.attained)} mood=${grade(last.attained)} note=${last.offered ? `of ${rate(last.offered)} asked for` : "nothing is asked for"} />
      <${Figure} label="Goodput" value=${rate(last.in_time)} note=${`answers in time; ${number(now.open)} in progress`} />
      <${Figure} label="Latency p50" value=${duration(now.p50_s)} note=${`p95 ${duration(now.p95_s)}`} />
      <${Figure} label="Latency p99" value=${duration(now.p99_s)} mood=${spec.slo_s && now.p99_s > spec.slo_s ? "poor" : ""} note=${spec.slo_s ? `objective ${duration(spec.slo_s)}` : ""} />
      <${Figure} label="Refused" value=${rate(last.refused)} note=${last.offered ? `${share(last.refused / last.offered)} of what was asked for` : ""} />
      <${Figure} label="Cost per hour" value=${dollars(last.cost_usd * 3600)} note=${per == null ? "" : `${dollars(per)} per 1,000 in time`} />
    </dl>
    <p class="note">These figures are of the last ten seconds. Below a chart stand the values of its latest second, or of the second under the pointer.</p>
    <div class="charts">
      <${TimeChart} title="Requests per second, by how they ended" times=${times} stack format=${rate} summary=${`Now ${rate(last.in_time)} in time, ${rate(last.refused)} refused or dropped, ${rate(last.late)} late.`}
        lines=${OUTCOMES.map(([column, label, colour]) => ({ label, colour, values: cut(column) }))} />
      <${TimeChart} title="Latency of answers" times=${times} format=${duration} marks=${spec.slo_s ? [{ value: spec.slo_s, label: "objective" }] : []} summary=${`Now p50 ${duration(now.p50_s)}, p99 ${duration(now.p99_s)}.`}
        lines=${[["p50_s", "p50", "c0"], ["p95_s", "p95", "c6"], ["p99_s", "p99", "c1"]].map(([column, label, colour]) => ({ label, colour, values: cut(column) }))} />
      <${TimeChart} title="Share in time" times=${times} format=${share} top=${1.04} summary=${`Now ${share(last.attained)}.`} lines=${[{ label: "In time", colour: "c2", values: judged, fill: true }]} />
      <${TimeChart} title="Cost per hour" times=${times} format=${dollars} summary=${`Now ${dollars(last.cost_usd * 3600)}.`} lines=${[{ label: "Cost per hour", colour: "c0", values: cut("cost_usd").map((value) => value * 3600), fill: true }]} />
    </div>
    <section><div class="head"><h2>Stages</h2><${Key} /></div><p class="note">Means of the last ten seconds. The bars are to one scale.</p>
      <${Graph} workflow=${spec} now=${stages} functions=${app.functions} />
      <details><summary>As a table</summary><${StageTable} workflow=${spec} now=${stages} functions=${app.functions} /></details></section>
    <${Refusals} name=${name} />
    <${Call} name=${name} />`;
}

// How to call a workflow from a shell.
function Call({ name }) {
  const [example, show] = useState("");
  useEffect(() => {
    ask("/").then((home) => {
      const app = home.apps?.find((one) => one.name === name.split(".")[0]);
      show(app?.workflows.find((one) => name === `${app.name}.${one.name}`)?.example ?? "");
    }, () => {});
  }, [name]);
  return example ? html`<section><h2>Call it</h2><pre><code>${example}</code></pre></section>` : "";
}

const Figure = ({ label, value, note, mood = "" }) => html`<div class="figure"><dt>${label}</dt><dd class=${mood}>${value}</dd><dd class="note">${note}</dd></div>`;

function Refusals({ name }) {
  const series = live.series[name], reasons = live.setup.reasons;
  const rows = Object.keys(reasons).map((code) => [code, total(series[code], 60), total(series[code], 900)]).filter(([, , all]) => all > 0).sort((one, other) => other[2] - one[2]);
  const most = Math.max(1, ...rows.map(([, , all]) => all));
  return html`<section><h2>Refusals by reason</h2>
    ${rows.length ? html`<div class="scroll"><table><thead><tr><th scope="col">Why</th><th scope="col">Last minute</th><th scope="col">15 minutes</th></tr></thead>
    <tbody>${rows.map(([code, minute, all]) => html`<tr><th scope="row" class="wrap">${reasons[code]}</th><td>${number(Math.round(minute))}</td><td><${Meter} value=${all / most} />${number(Math.round(all))}</td></tr>`)}</tbody></table></div>` : html`<p class="note">None in the last 15 minutes.</p>`}</section>`;
}

const total = (values, most) => (values ?? []).slice(-most).reduce((sum, value) => sum + (value ?? 0), 0);
