// What functions print, as it comes; of one function or one request if that is asked for.
import { html, useEffect, useRef, useState } from "./preact.js";
import { Refused, values } from "./api.js";
import { live } from "./live.js";
import { clock } from "./format.js";

const MOST = 2000;

export function Logs({ chosen }) {
  const app = live.picture.apps.find((one) => one.name === chosen.split(".")[0]);
  const [name, narrow] = useState("");
  const [request, find] = useState("");
  const [asked, ask] = useState("");
  const [found, add] = useState([]);
  const [state, set] = useState("connecting");
  const box = useRef(null), isAtEnd = useRef(true);
  useEffect(() => {
    if (!live.setup.has_logs) return undefined;
    const stop = new AbortController();
    let lines = [], timer = null;
    const flush = () => { timer = null; add(lines); };
    add([]); set("connecting");
    (async () => {
      const query = new URLSearchParams({ follow: "1", app: chosen.split(".")[0] });
      if (name) query.set("function", name);
      if (asked) query.set("request", asked);
      try {
        const stream = values(`/v1/logs?${query}`, stop.signal);
        set("open");
        for await (const line of stream) {
          lines = [...lines.slice(1 - MOST), line];
          timer ??= setTimeout(flush, 200);
        }
        set("ended");
      } catch (error) {
        if (!stop.signal.aborted) set(error instanceof Refused ? error.message : "The gateway does not answer.");
      }
    })();
    return () => { stop.abort(); clearTimeout(timer); };
  }, [name, asked, chosen]);
  useEffect(() => { if (isAtEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight; }, [found]);
  if (!live.setup.has_logs) return html`<section class="empty"><h1>Logs</h1><p class="note">This gateway does not collect what functions print.</p></section>`;
  return html`<section><div class="head"><div><h1>Logs</h1><p class="facts">What functions print and log. The newest ${MOST.toLocaleString("en-US")} lines are kept on this page.</p></div>
    <form class="tools" onSubmit=${(event) => { event.preventDefault(); ask(request.trim()); }}>
      <label>Function <select value=${name} onChange=${(event) => narrow(event.target.value)}><option value="">all</option>${(app?.functions ?? []).map((one) => html`<option>${one.name}</option>`)}</select></label>
      <label>Request <input value=${request} onInput=${(event) => find(event.target.value)} placeholder="any" size="16" /></label><button type="submit">Find</button></form></div>
    <div class="log" ref=${box} tabindex="0" role="log" aria-live="off" aria-label="Lines" onScroll=${(event) => { const { scrollTop, clientHeight, scrollHeight } = event.currentTarget; isAtEnd.current = scrollTop + clientHeight > scrollHeight - 30; }}>
      ${found.map((line) => html`<div class=${line.stream === "stderr" || /error|critical/i.test(line.level ?? "") ? "poor" : ""}><time>${clock(line.t)}</time><b>${line.function}</b><span>${line.text}</span>${[line.request ?? []].flat().slice(0, 2).map((id) => html`<button class="link id" type="button" title="Only the lines of this request" onClick=${() => { find(id); ask(id); }}>${id}</button>`)}</div>`)}
      ${found.length ? "" : html`<p class="note">${state === "open" ? "Nothing yet." : state === "connecting" ? "Connecting …" : state === "ended" ? "The gateway has ended the stream." : state}</p>`}</div></section>`;
}
