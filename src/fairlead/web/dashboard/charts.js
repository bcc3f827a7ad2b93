// Charts over time, drawn by uPlot, each with a table behind it for those who read rather than see.
import { html, useEffect, useRef, useState } from "./preact.js";
import { clock } from "./format.js";

const probe = document.createElement("i");
probe.hidden = true;
document.body.append(probe);

// The colour that a name has in the present theme.
export function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

const faint = (rgb, alpha) => rgb.replace(/^rgb\(/, "rgba(").replace(/\)$/, `, ${alpha})`);

// Add up what lies below each series, so that they can be drawn on top of each other.
function stacked(columns) {
  const sums = [];
  for (const column of columns) {
    const below = sums[sums.length - 1];
    sums.push(column.map((value, place) => (value ?? 0) + (below ? below[place] : 0)));
  }
  return sums;
}

/* `lines`: [{label, colour, values, dashed}], `marks`: [{value, label}] are lines across, `format` is of values. */
export function TimeChart({ title, times, lines, format, stack = false, marks = [], top, summary, height = 170 }) {
  const place = useRef(null);
  const plot = useRef(null);
  const latest = useRef({});
  latest.current = { lines, marks, format };
  const [isDark, turn] = useState({});
  useEffect(() => {
    const redraw = () => turn({});
    document.documentElement.addEventListener("theme", redraw);
    return () => document.documentElement.removeEventListener("theme", redraw);
  }, []);

  const columns = stack ? stacked(lines.map((line) => line.values)) : lines.map((line) => line.values);
  const data = [times, ...columns];

  useEffect(() => {
    const soft = colour("soft"), grid = colour("grid"), ink = colour("ink");
    const axis = { stroke: soft, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const options = {
      width: place.current.clientWidth || 300,
      height,
      padding: [8, 26, 0, 0],
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      legend: { live: true, markers: { width: 0, fill: (_, index) => colour(lines[index - 1]?.colour ?? "soft") } },
      scales: { x: { time: true }, y: { range: (_, low, high) => {
        const most = top ?? Math.max(high ?? 0, ...latest.current.marks.map((mark) => mark.value * 1.15), 1e-9);
        return [0, top ?? most * 1.08];
      } } },
      axes: [
        { ...axis, space: 70, size: 28, values: (_, ticks) => ticks.map((tick) => clock(tick).slice(0, _.scales.x.max - _.scales.x.min < 240 ? 8 : 5)) },
        { ...axis, size: 58, space: 34, values: (_, ticks) => ticks.map((tick) => latest.current.format(tick)) },
      ],
      series: [
        { value: (_, at) => (at == null ? "now" : clock(at)) },
        ...lines.map((line, index) => ({
          label: line.label,
          stroke: colour(line.colour),
          width: stack ? 1 : 1.8,
          dash: line.dashed ? [5, 4] : undefined,
          fill: stack ? faint(colour(line.colour), 0.75) : line.fill ? faint(colour(line.colour), 0.14) : undefined,
          points: { show: false },
          spanGaps: false,
          value: (_, _shown, _series, at) => {
            const found = latest.current.lines[index]?.values;
            return found?.length ? latest.current.format(found[at ?? found.length - 1]) : "–";
          },
        })),
      ],
      bands: stack ? lines.slice(1).map((_, index) => ({ series: [index + 2, index + 1] })) : [],
      hooks: {
        draw: [(chart) => {
          const { ctx, bbox } = chart;
          for (const mark of latest.current.marks) {
            const y = Math.round(chart.valToPos(mark.value, "y", true));
            if (y < bbox.top || y > bbox.top + bbox.height) continue;
            ctx.save();
            ctx.strokeStyle = ctx.fillStyle = ink;
            ctx.lineWidth = devicePixelRatio;
            ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
            ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
            ctx.textAlign = "right"; ctx.textBaseline = "alphabetic";
            ctx.font = `${11 * devicePixelRatio}px system-ui`;
            ctx.fillText(mark.label, bbox.left + bbox.width - 4 * devicePixelRatio, y - 5 * devicePixelRatio);
            ctx.restore();
          }
        }],
      },
    };
    plot.current = new uPlot(options, data, place.current);
    const resize = new ResizeObserver(() => {
      const width = place.current?.clientWidth;
      if (width) plot.current.setSize({ width, height });
    });
    resize.observe(place.current);
    return () => { resize.disconnect(); plot.current.destroy(); };
  }, [isDark, lines.map((line) => line.label).join("|")]);

  useEffect(() => plot.current?.setData(data), [times[times.length - 1], times.length, lines[0]?.values]);

  const every = Math.max(1, Math.floor(times.length / 10));
  const rows = times.map((at, index) => index).filter((index) => index % every === 0).slice(-10);
  return html`<section class="chart">
    <h3>${title}</h3>
    <div ref=${place} role="img" aria-label=${`${title}. ${summary}`}></div>
    <details><summary>As a table</summary>
      <div class="scroll"><table><thead><tr><th scope="col">Time</th>${lines.map((line) => html`<th scope="col">${line.label}</th>`)}</tr></thead>
      <tbody>${rows.map((index) => html`<tr><th scope="row">${clock(times[index])}</th>${lines.map((line) => html`<td>${format(line.values[index])}</td>`)}</tr>`)}</tbody></table></div>
    </details>
  </section>`;
}
