// Everything that the page knows: the last picture, the history of each workflow, and the requests that ended.
import { useEffect, useState } from "./preact.js";
import { Refused, ask, token, values } from "./api.js";

const MOST_POINTS = 900;
const MOST_ENDED = 600;
const EAGER = 8; // workflows whose past is asked for at once

export const live = { phase: "connecting", why: "", setup: null, picture: null, series: {}, ended: {}, instances: {}, manifests: {} };
const listeners = new Set();
const changed = () => listeners.forEach((tell) => tell({}));

export function useLive() {
  const [, redraw] = useState({});
  useEffect(() => {
    listeners.add(redraw);
    redraw({}); // an answer may have come between the first drawing and now
    return () => listeners.delete(redraw);
  }, []);
  return live;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export async function connect() {
  for (;;) {
    try {
      live.setup = await ask("/v1/dashboard");
      live.series = {}; live.ended = {}; live.manifests = {};
      remembered.clear();
      for await (const picture of values("/v1/dashboard/events")) {
        await take(picture);
        live.phase = "live";
        changed();
      }
      live.why = "The gateway has ended the connection.";
    } catch (error) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        live.why = token.get() || error.status === 403 ? error.message : "";
        live.phase = error.status === 401 ? "token" : "refused";
        token.clear();
        changed();
        return;
      }
      live.why = error instanceof Refused ? error.message : "The gateway does not answer.";
    }
    live.phase = live.picture ? "lost" : "connecting";
    changed();
    await pause(1500);
  }
}

export function enter(text) {
  token.set(text.trim());
  live.phase = "connecting";
  changed();
  connect();
}

async function take(picture) {
  live.picture = picture;
  for (const app of picture.apps) {
    if (app.instances) live.instances[app.name] = app.instances;
    if (live.manifests[app.name]?.generation !== app.generation) {
      const { manifest } = await ask(`/v1/apps/${app.name}`);
      live.manifests[app.name] = { generation: app.generation, ...manifest };
    }
  }
  for (const [place, [name, now]] of Object.entries(picture.workflows).entries()) {
    if (!live.series[name]) {
      live.series[name] = { t: [], ...Object.fromEntries(live.setup.columns.map((column) => [column, []])) };
      live.ended[name] = [];
      if (place < EAGER) await remember(name);
    }
    add(name, picture.at, now.point);
    const newest = live.ended[name][0]?.number ?? 0;
    const fresh = now.ended.filter((one) => one.number > newest).reverse();
    if (fresh.length) live.ended[name] = [...fresh, ...live.ended[name]].slice(0, MOST_ENDED);
  }
}

// Get the past of a workflow: of the first ones at once, of others when they are looked at.
const remembered = new Set();
export async function remember(name) {
  if (remembered.has(name)) return;
  remembered.add(name);
  const past = await ask(`/v1/dashboard/history/${name}`);
  live.series[name] = past.columns;
  live.ended[name] = past.ended.reverse();
}

function add(name, at, point) {
  const series = live.series[name];
  if (series.t.length && at <= series.t[series.t.length - 1]) return;
  series.t.push(at);
  live.setup.columns.forEach((column, place) => series[column].push(point[place]));
  if (series.t.length > MOST_POINTS) for (const column of Object.values(series)) column.shift();
}

// What the last seconds of a workflow come to: rates per second, and shares of what was asked for.
export function recent(name, seconds = 10) {
  const series = live.series[name];
  const found = { in_time: 0, late: 0, rejected: 0, dropped: 0, failed: 0, cancelled: 0, cost_usd: 0 };
  const last = series?.t.length ?? 0;
  const first = Math.max(0, last - seconds);
  for (const column of Object.keys(found)) {
    for (let place = first; place < last; place++) found[column] += series[column][place] / (last - first);
  }
  const judged = found.in_time + found.late + found.rejected + found.dropped + found.failed;
  found.refused = found.rejected + found.dropped;
  found.offered = judged + found.cancelled;
  found.attained = judged ? found.in_time / judged : null;
  return found;
}
