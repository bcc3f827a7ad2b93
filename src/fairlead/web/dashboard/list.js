// A table of any length: only the rows in sight exist.
import { html, useRef, useState } from "./preact.js";

const ROW = 36;

const numbered = (line, place) => {
  line.props["aria-rowindex"] = place + 2; // the head is row 1
  return line;
};

export function LongTable({ label, heads, rows, render, left = [], height = Math.max(360, innerHeight - 290) }) {
  const [top, scroll] = useState(0);
  const place = useRef(null);
  const shown = Math.ceil(height / ROW) + 12;
  const first = Math.max(0, Math.min(Math.floor(top / ROW) - 6, rows.length - shown)), last = Math.min(rows.length, first + shown); // rows may have gone
  const space = (count) => (count > 0 ? html`<tr aria-hidden="true"><td class="space" colspan=${heads.length} style=${{ height: `${count * ROW}px` }}></td></tr>` : "");
  return html`<div class="scroll long" ref=${place} style=${{ maxHeight: `${height}px` }} tabindex="0" role="region" aria-label=${label} onScroll=${(event) => scroll(event.currentTarget.scrollTop)}>
    <table aria-rowcount=${rows.length + 1}><thead><tr>${heads.map((head, place) => html`<th scope="col" class=${left.includes(place) ? "left" : ""}>${head}</th>`)}</tr></thead>
    <tbody>${space(first)}${rows.slice(first, last).map((row, place) => numbered(render(row), first + place))}${space(rows.length - last)}</tbody></table></div>`;
}
