// The stages of a workflow as a graph in layers, with what each of them did in the last ten seconds.
import { html } from "./preact.js";
import { duration, number, rate } from "./format.js";

const WIDTH = 214, HEIGHT = 112, GAP_X = 62, GAP_Y = 22;
const PARTS = [["wait_s", "Wait"], ["cold_s", "Cold start"], ["transfer_s", "Transfer"], ["run_s", "Run"]];

function layers(stages) {
  const depth = new Map();
  for (const stage of stages) depth.set(stage.name, 1 + Math.max(-1, ...stage.after.map((name) => depth.get(name) ?? 0)));
  const columns = [];
  for (const stage of stages) (columns[depth.get(stage.name)] ??= []).push(stage);
  // Each stage at the mean height of those before it, so that few lines cross.
  const height = new Map();
  for (const column of columns) {
    const wanted = (stage) => (stage.after.length ? stage.after.reduce((sum, name) => sum + height.get(name), 0) / stage.after.length : 0);
    column.sort((one, other) => wanted(one) - wanted(other));
    column.forEach((stage, place) => height.set(stage.name, place - (column.length - 1) / 2));
  }
  return columns;
}

export function Graph({ workflow, now, functions }) {
  const stages = workflow.stages.map((stage) => ({ ...stage, after: stage.after ?? [] }));
  const columns = layers(stages);
  const most = Math.max(...columns.map((column) => column.length));
  const width = columns.length * (WIDTH + GAP_X) - GAP_X + 4, height = most * (HEIGHT + GAP_Y) - GAP_Y + 4;
  const at = new Map();
  columns.forEach((column, x) => column.forEach((stage, y) => at.set(stage.name, [
    2 + x * (WIDTH + GAP_X), height / 2 + (y - column.length / 2) * (HEIGHT + GAP_Y) + GAP_Y / 2,
  ])));
  const found = (stage) => now.find((one) => one.stage === stage.name) ?? {};
  const longest = Math.max(1e-9, ...now.map((one) => PARTS.reduce((sum, [part]) => sum + (one[part] ?? 0), 0)));
  return html`<div class="graph scroll">
    <svg viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} role="img" aria-label=${`${stages.length} stages: ${stages.map((stage) => stage.name).join(", ")}. The table below has their figures.`}>
      ${stages.flatMap((stage) => stage.after.map((name) => {
        const [x1, y1] = at.get(name), [x2, y2] = at.get(stage.name);
        const from = [x1 + WIDTH, y1 + HEIGHT / 2], to = [x2, y2 + HEIGHT / 2], middle = (from[0] + to[0]) / 2;
        return html`<path class=${`edge ${stage.when != null ? "arm" : ""}`} d=${`M${from}C${middle},${from[1]} ${middle},${to[1]} ${to}`} />`;
      }))}
      ${stages.map((stage) => {
        const [x, y] = at.get(stage.name), one = found(stage), own = functions.find((each) => each.name === stage.function);
        let left = x + 14;
        return html`<g class="stage">
          <rect class="box" x=${x} y=${y} width=${WIDTH} height=${HEIGHT} rx="9" />
          <text class="name" x=${x + 14} y=${y + 23}>${cut(stage.name, 19)}${stage.map ? " × n" : ""}</text>
          ${one.waiting ? html`<text class="waits" x=${x + WIDTH - 14} y=${y + 23} text-anchor="end">${number(one.waiting)} wait</text>` : ""}
          <rect class="track" x=${x + 14} y=${y + 34} width=${WIDTH - 28} height="8" rx="4" />
          ${PARTS.map(([part]) => {
            const wide = ((one[part] ?? 0) / longest) * (WIDTH - 28);
            const shape = wide > 0.5 ? html`<rect class=${`part ${part}`} x=${left} y=${y + 34} width=${wide} height="8" rx="2" />` : "";
            left += wide;
            return shape;
          })}
          <text x=${x + 14} y=${y + 61}>wait <tspan class="strong">${duration(one.wait_s)}</tspan> · run <tspan class="strong">${duration(one.run_s)}</tspan></text>
          <text class="soft" x=${x + 14} y=${y + 79}>${rate(one.rps ?? 0)} · batches of ${number(one.batch_size, 2)}</text>
          ${own ? html`<text class="soft" x=${x + 14} y=${y + 97}>${own.busy} busy, ${own.idle} idle${own.starting ? `, ${own.starting} starting` : ""}</text>` : ""}
        </g>`;
      })}
    </svg>
  </div>`;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export function StageTable({ workflow, now, functions }) {
  return html`<div class="scroll"><table>
    <thead><tr><th scope="col">Stage</th><th scope="col">Waiting</th><th scope="col">Runs</th>${PARTS.map(([, name]) => html`<th scope="col">${name}</th>`)}<th scope="col">Batch</th><th scope="col">Instances</th></tr></thead>
    <tbody>${workflow.stages.map((stage) => {
      const one = now.find((each) => each.stage === stage.name) ?? {}, own = functions.find((each) => each.name === stage.function);
      return html`<tr><th scope="row">${stage.name}${stage.function !== stage.name ? html`<small>${stage.function}</small>` : ""}</th>
        <td>${number(one.waiting ?? 0)}</td><td>${rate(one.rps ?? 0)}</td>${PARTS.map(([part]) => html`<td>${duration(one[part])}</td>`)}
        <td>${number(one.batch_size, 2)}</td><td>${own ? own.busy + own.idle + own.starting : "–"}</td></tr>`;
    })}</tbody></table></div>`;
}

export const Key = () => html`<ul class="legend">${PARTS.map(([part, name]) => html`<li><span class=${`swatch ${part}`}></span>${name}</li>`)}</ul>`;
