// The page: its head, the views, and the question for the token.
import { html, render, useEffect, useState } from "./preact.js";
import { token } from "./api.js";
import { connect, enter, live, useLive } from "./live.js";
import { duration } from "./format.js";
import { Overview } from "./overview.js";
import { Requests } from "./requests.js";
import { Machines } from "./machines.js";
import { WhatIf } from "./whatif.js";
import { Logs } from "./logs.js";

const VIEWS = { "": ["Overview", Overview], requests: ["Requests", Requests], machines: ["Machines", Machines], "what-if": ["What if", WhatIf], logs: ["Logs", Logs] };

const place = () => {
  const [view = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  let name = rest.join("/");
  try { name = decodeURIComponent(name); } catch { /* a link that was cut off */ }
  return [Object.hasOwn(VIEWS, view) ? view : "", name];
};

function Page() {
  const { phase, picture } = useLive();
  const [[view, named], go] = useState(place());
  useEffect(() => {
    const moved = () => go(place());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  useEffect(() => { document.title = `${VIEWS[view][0]} · Fairlead`; }, [view]);
  if (phase === "token") return html`<${Door} />`;
  if (phase === "refused") return html`<main class="alone" id="main"><h1>Fairlead</h1><p class="poor" role="alert">${live.why}</p></main>`;
  const names = Object.keys(picture?.workflows ?? {});
  const chosen = names.includes(named) ? named : names[0] ?? "";
  const link = (key, name = chosen) => `#/${key}${name ? `/${encodeURIComponent(name)}` : ""}`;
  const View = VIEWS[view][1];
  return html`<header><div class="top">
      <a class="brand" href="#/"><img src="/ui/mark.svg" alt="" width="26" height="26" />Fairlead</a>
      <nav aria-label="Views">${Object.entries(VIEWS).map(([key, [text]]) => html`<a href=${link(key)} aria-current=${key === view ? "page" : undefined}>${text}</a>`)}</nav>
      ${names.length > 1 ? html`<label class="which"><span class="hidden">Workflow</span><select onChange=${(event) => { location.hash = link(view, event.target.value); }}>${names.map((name) => html`<option value=${name} selected=${name === chosen}>${name}</option>`)}</select></label>` : ""}
      <${State} />
      <button class="theme" type="button" aria-label="Switch between light and dark" title="Light or dark">◐</button>
      ${live.setup?.has_token ? html`<button class="quiet" onClick=${() => { token.clear(); location.reload(); }}>Forget token</button>` : ""}
    </div></header>
    <main id="main" tabindex="-1">${picture ? html`<${View} chosen=${chosen} choose=${(name) => { location.hash = link(view, name); }} />` : html`<p class="alone note busy" role="status">${live.why || "Connecting …"}</p>`}</main>
    <footer>${picture ? html`Fairlead ${live.setup.version} · up ${duration(Math.max(0, ...picture.apps.map((app) => app.uptime_s)))} · <a href="/docs">HTTP interface</a> · <a href="/openapi.json">openapi.json</a>` : ""}</footer>`;
}

function State() {
  const { phase, picture } = live;
  const [mood, text] = phase === "lost" ? ["poor", "Connection lost, trying again"] : !picture ? ["", "Connecting"] : picture.is_draining ? ["fair", "Draining"] : picture.obstacles.length ? ["poor", "Blocked"] : picture.is_ready ? ["good", "Ready"] : ["fair", "Starting"];
  return html`<span class=${`state ${mood}`} role="status" title=${picture?.obstacles.join(" ") ?? ""}><i></i>${text}${phase === "live" && picture.obstacles.length ? html`<span class="hidden">: ${picture.obstacles.join(" ")}</span>` : ""}</span>`;
}

function Door() {
  const [text, type] = useState("");
  return html`<main class="alone door" id="main"><h1><img src="/ui/mark.svg" alt="" width="34" height="34" /> Fairlead</h1>
    <p>This gateway has a token. It is kept for this tab only, and sent to this gateway only.</p>
    <form onSubmit=${(event) => { event.preventDefault(); if (text.trim()) enter(text); }}>
      <label for="token">Token</label><input id="token" type="password" autocomplete="off" value=${text} onInput=${(event) => type(event.target.value)} autofocus />
      <button class="main" type="submit">Open the dashboard</button></form>
    ${live.why ? html`<p class="poor" role="alert">${live.why}</p>` : ""}</main>`;
}

document.getElementById("app").replaceChildren();
render(html`<${Page} />`, document.getElementById("app"));
connect();
