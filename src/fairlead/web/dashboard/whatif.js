// What if another policy had decided? The last minutes, replayed in the simulator with the requests as they came.
import { html, useState } from "./preact.js";
import { ask } from "./api.js";
import { live } from "./live.js";
import { dollars, duration, grade, number, rate, share } from "./format.js";
import { Meter } from "./overview.js";

const SPANS = [[60, "last minute"], [300, "last 5 minutes"], [900, "last 15 minutes"]];
const MOST = 4;

export function WhatIf({ chosen }) {
  const app = live.picture.apps.find((one) => one.name === chosen.split(".")[0]);
  const [span, last] = useState(60);
  const [picked, pick] = useState(["fifo", "earliest-deadline"]);
  const [state, set] = useState({});
  if (!app) return html`<section class="empty"><h2>No app is served yet</h2></section>`;
  const others = live.setup.policies.filter((name) => name !== app.policy);
  const wanted = picked.filter((name) => others.includes(name));
  const run = async (event) => {
    event.preventDefault();
    set({ busy: true });
    try {
      set({ answer: await ask("/v1/dashboard/replays", { method: "POST", body: { app: app.name, policies: wanted, last_s: span } }), own: app.policy });
    } catch (error) {
      set({ fault: error.message });
    }
  };
  const toggle = (name) => pick(picked.includes(name) ? picked.filter((one) => one !== name) : [...wanted, name].slice(-MOST));
  return html`<section><h1>What if</h1><p class="facts">The requests of ${app.name} as they came, replayed in the simulator under other policies. Serving goes on meanwhile: the replay runs in a process of its own, at the lowest priority.</p>
    <form class="whatif" onSubmit=${run}>
      <fieldset><legend>Policies, at most ${MOST}</legend>${others.map((name) => html`<label class="pick"><input type="checkbox" checked=${wanted.includes(name)} onChange=${() => toggle(name)} /> ${name}</label>`)}</fieldset>
      <label>Of the <select value=${span} onChange=${(event) => last(Number(event.target.value))}>${SPANS.map(([seconds, text]) => html`<option value=${seconds}>${text}</option>`)}</select></label>
      <button type="submit" class="main" disabled=${state.busy || !wanted.length}>${state.busy ? "Replaying …" : "Replay"}</button>
    </form>
    <div role="status" aria-live="polite">${state.busy ? html`<p class="note busy">This takes some seconds.</p>` : state.fault ? html`<p class="poor">${state.fault}</p>` : state.answer ? html`<${Ranking} ...${state} />` : ""}</div></section>`;
}

function Ranking({ answer, own }) {
  const [recorded, ...replayed] = answer.results;
  const ranked = [...replayed].sort((one, other) => (other.slo_attainment ?? 0) - (one.slo_attainment ?? 0) || other.goodput_rps - one.goodput_rps || one.cost_usd - other.cost_usd);
  const best = ranked[0], mine = replayed.find((one) => one.policy === own);
  const gain = mine && best ? 100 * (best.slo_attainment - mine.slo_attainment) : 0;
  const off = answer.deviation?.attainment;
  const row = (one, rank) => html`<tr class=${one.policy === own ? "chosen" : ""}><th scope="row">${rank ? `${rank}. ` : ""}${one.policy}${rank ? "" : html`<small>as it was served</small>`}${rank && one.policy === own ? html`<small>serving now</small>` : ""}</th>
    <td class=${grade(one.slo_attainment)}><${Meter} value=${one.slo_attainment ?? 0} />${share(one.slo_attainment)}</td><td>${rate(one.goodput_rps)}</td><td>${duration(one.latency_s.p50)}</td><td>${duration(one.latency_s.p99)}</td><td>${number(one.rejected + one.dropped)}</td><td>${dollars(one.cost_usd)}</td></tr>`;
  return html`<p class="finding">${!best ? "" : best.policy === own || gain < 0.05 ? html`<b>${own}</b> is as good as any of these.` : html`<b>${best.policy}</b> would have answered ${gain.toFixed(1)} points more in time than ${own}.`}</p>
    <div class="scroll"><table><thead><tr><th scope="col">Policy</th><th scope="col">In time</th><th scope="col">Goodput</th><th scope="col">p50</th><th scope="col">p99</th><th scope="col">Refused</th><th scope="col">Cost</th></tr></thead>
    <tbody>${ranked.map((one, place) => row(one, place + 1))}${row(recorded, 0)}</tbody></table></div>
    <p class="note">${number(recorded.requests)} requests.${off != null ? ` The replay under the policy that served them is ${off === 0 ? "exactly" : `${(100 * Math.abs(off)).toFixed(1)} points ${off > 0 ? "above" : "below"}`} what was recorded: take differences of that size as none.` : ""}</p>`;
}
