// The requests that ended last, and the story of one: where its time went, and why.
import { html, useEffect, useRef, useState } from "./preact.js";
import { ask } from "./api.js";
import { live } from "./live.js";
import { KINDS, clock, duration, plural } from "./format.js";
import { LongTable } from "./list.js";

const PARTS = [["wait_s", "Wait"], ["cold_s", "Cold start"], ["transfer_s", "Transfer"], ["run_s", "Run"]];

export function Requests({ chosen }) {
  const [kind, filter] = useState("all");
  const [held, hold] = useState(null);
  const [open, show] = useState(null);
  const now = held ?? live.ended[chosen] ?? [];
  const rows = kind === "all" ? now : now.filter((one) => one.kind === kind);
  const longest = Math.max(1e-9, ...rows.slice(0, 200).map((one) => one.latency_s));
  return html`<section><div class="head"><div><h1>Requests</h1><p class="facts">The last ones of ${chosen}. Choose one to see where its time went.</p></div>
      <div class="tools"><label>Show <select value=${kind} onChange=${(event) => filter(event.target.value)}><option value="all">all</option>${Object.entries(KINDS).map(([key, text]) => html`<option value=${key}>${text.toLowerCase()}</option>`)}</select></label>
      <button aria-pressed=${held !== null} onClick=${() => hold(held ? null : [...now])}>${held ? "Go on" : "Pause"}</button></div></div>
    ${rows.length ? html`<${LongTable} key=${kind} label="Requests" heads=${["Request", "Ended", "How", "Latency", "Where the time went", "Why"]} left=${[2, 5]} rows=${rows} render=${(one) => html`<tr key=${one.number}>
      <th scope="row"><button class="link" onClick=${() => show(one)} aria-label=${`Story of ${one.id}`}>${one.id}</button></th><td>${clock(one.at)}</td>
      <td class="left"><span class=${`chip ${one.kind}`}>${KINDS[one.kind]}</span></td>
      <td>${duration(one.latency_s)}${one.allowed_s != null ? html`<span class="of"> of ${duration(one.allowed_s)}</span>` : ""}</td>
      <td><${Bar} one=${one} longest=${longest} /></td><td class="left reason">${one.reason ?? ""}</td></tr>`} />` : html`<p class="note">None yet.</p>`}
    ${open ? html`<${Story} one=${open} close=${() => show(null)} />` : ""}</section>`;
}

function Bar({ one, longest }) {
  const words = PARTS.filter(([part]) => one[part]).map(([part, name]) => `${name.toLowerCase()} ${duration(one[part])}`).join(", ");
  const sum = one.wait_s + one.cold_s + one.run_s;
  const scale = (150 * Math.min(1, one.latency_s / longest)) / Math.max(sum, one.latency_s, 1e-9);
  return html`<span class="bar" role="img" aria-label=${words || "nothing ran"} title=${words}>${PARTS.map(([part]) => (one[part] ? html`<i class=${part} style=${{ width: `${Math.max(1, one[part] * scale)}px` }}></i>` : ""))}</span>`;
}

function Story({ one, close }) {
  const box = useRef(null);
  const [story, tell] = useState(null);
  const [fault, fail] = useState("");
  useEffect(() => {
    const dialog = box.current;
    dialog.showModal();
    const stop = new AbortController();
    ask(`/v1/dashboard/requests/${one.id}`, { signal: stop.signal }).then(tell, (error) => stop.signal.aborted || fail(error.message));
    return () => stop.abort();
  }, [one.id]);
  return html`<dialog ref=${box} class="story" aria-labelledby="story" onClose=${close} onClick=${(event) => event.target === box.current && box.current.close()}>
    <div class="head"><div><h2 id="story">${one.id}</h2><p class="facts"><span class=${`chip ${one.kind}`}>${KINDS[one.kind]}</span> after ${duration(one.latency_s)}${one.allowed_s != null ? ` of ${duration(one.allowed_s)}` : ""}, at ${clock(one.at)}</p></div>
      <button onClick=${() => box.current.close()} aria-label="Close">Close</button></div>
    ${fault ? html`<p class="poor" role="alert">${fault}</p>` : story ? html`<${Waterfall} story=${story} /><div class="words">${story.words.map((line) => html`<p class=${line.startsWith(" ") ? "inner" : ""}>${line.trim()}</p>`)}</div>` : html`<p class="note busy" role="status">Reading the records of the run …</p>`}
  </dialog>`;
}

export function Waterfall({ story }) {
  const end = Math.max(story.end ?? story.arrival, ...story.stages.map((stage) => stage.end ?? 0), story.arrival + 1e-6);
  const deadline = Number.isFinite(story.deadline) ? story.deadline : null;
  const most = Math.max(end, deadline && deadline - story.arrival < 3 * (end - story.arrival) ? deadline : 0) - story.arrival;
  if (!story.stages.length) return html`<p class="note">No stage of it was started.</p>`;
  const WIDTH = 770, LEFT = 150, ROW = 28, height = story.stages.length * ROW + 34;
  const x = (instant) => LEFT + ((instant - story.arrival) / most) * (WIDTH - LEFT - 8);
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return html`<ul class="legend">${PARTS.map(([part, name]) => html`<li><span class=${`swatch ${part}`}></span>${name}</li>`)}</ul>
  <div class="scroll"><svg class="waterfall" viewBox=${`0 0 ${WIDTH} ${height}`} role="img" aria-label=${`Waterfall of ${plural(story.stages.length, "stage run")}. The table below has the times.`}>
    ${ticks.map((share) => html`<line class="grid" x1=${x(story.arrival + share * most)} x2=${x(story.arrival + share * most)} y1="4" y2=${height - 24} /><text class="tick" x=${x(story.arrival + share * most)} y=${height - 8} text-anchor=${share === 1 ? "end" : "middle"}>${duration(share * most)}</text>`)}
    ${story.stages.map((stage, row) => {
      let at = stage.ready;
      return html`<g><text class="name" x="0" y=${row * ROW + 21}>${stage.stage}${stage.attempt > 1 ? ` (attempt ${stage.attempt})` : ""}</text>${PARTS.map(([part, name]) => {
        const from = at; at += stage[part];
        return stage[part] > 0 ? html`<rect class=${`part ${part}`} x=${x(from)} y=${row * ROW + 8} width=${Math.max(1.5, x(at) - x(from))} height="16" rx="3"><title>${name} ${duration(stage[part])}</title></rect>` : "";
      })}</g>`;
    })}
    ${deadline && deadline - story.arrival <= most * 1.001 ? html`<line class="slo" x1=${x(deadline)} x2=${x(deadline)} y1="2" y2=${height - 24} />` : ""}
  </svg></div>
  <details><summary>As a table</summary><div class="scroll"><table><thead><tr><th scope="col">Stage</th>${PARTS.map(([, name]) => html`<th scope="col">${name}</th>`)}<th scope="col">Batch</th><th scope="col">Where</th></tr></thead><tbody>
    ${story.stages.map((stage) => html`<tr><th scope="row">${stage.stage}</th>${PARTS.map(([part]) => html`<td>${duration(stage[part])}</td>`)}<td>${stage.batch_size}</td><td>${stage.node ? `instance ${stage.instance} of ${stage.node}` : "the cache"}</td></tr>`)}</tbody></table></div></details>`;
}
