// Nodes, instances and functions: what is in use, and the two orders that an operator may give.
import { html, useEffect, useRef, useState } from "./preact.js";
import { ask } from "./api.js";
import { live } from "./live.js";
import { duration, memory, number, plural } from "./format.js";
import { colour } from "./charts.js";
import { LongTable } from "./list.js";

const STATES = ["starting", "idle", "busy", "leaving"];
const COLOURS = ["c4", "c5", "c2", "c7"];
const MOST_CARDS = 48;

export function Machines({ chosen }) {
  const app = live.picture.apps.find((one) => one.name === chosen.split(".")[0]);
  const [node, look] = useState("");
  if (!app) return html`<section class="empty"><h2>No app is served yet</h2></section>`;
  const instances = live.instances[app.name] ?? [];
  return html`<div class="head"><div><h1>Machines</h1><p class="facts">${plural(app.nodes.length, "node")}, ${plural(Object.values(app.counts).flat().reduce((sum, count) => sum + count, 0), "instance")} of ${app.name}</p></div>
      <ul class="legend">${STATES.map((state, place) => html`<li><span class=${`swatch ${COLOURS[place]}`}></span>${state}</li>`)}</ul></div>
    <${Functions} app=${app} />
    ${app.nodes.length <= MOST_CARDS ? html`<div class="nodes">${app.nodes.map((one, place) => html`<${NodeCard} key=${one.name} node=${one} counts=${app.counts[one.name]} instances=${instances.filter((each) => each[2] === place)} chosen=${node === one.name} choose=${() => look(node === one.name ? "" : one.name)} />`)}</div>` : html`<${NodeTable} app=${app} node=${node} look=${look} />`}
    <${Instances} app=${app} instances=${instances} node=${node} look=${look} />`;
}

function Use({ label, used, idle = 0, all, text }) {
  const share = (value) => `${Math.min(100, (100 * value) / (all || 1))}%`;
  return html`<div class="use"><span>${label}</span><span class="track" role="img" aria-label=${`${label}: ${text}`}><i class="now" style=${{ width: share(used) }}></i><i class="kept" style=${{ width: share(idle) }}></i></span><span>${text}</span></div>`;
}

const reserved = (node) => (node.used_memory_gb + node.idle_memory_gb ? memory(node.used_memory_gb + node.idle_memory_gb) : "none reserved");

const uses = (node) => html`<${Use} label="vCPU" used=${node.used_vcpus} all=${node.vcpus} text=${`${number(node.used_vcpus)} of ${number(node.vcpus)}`} />
  ${node.memory_gb != null ? html`<${Use} label="Memory" used=${node.used_memory_gb} idle=${node.idle_memory_gb} all=${node.memory_gb} text=${`${reserved(node)} of ${memory(node.memory_gb)}`} />` : ""}
  ${node.devices.map((device, place) => html`<${Use} label=${`Device ${place}`} used=${device.used_vgpus} all=${device.vgpus} text=${`${number(device.used_vgpus)} of ${number(device.vgpus)} vGPU${device.memory_gb != null ? `, ${memory(device.used_memory_gb)} of ${memory(device.memory_gb)}` : ""}`} />`)}
  ${node.pressure ? html`<${Use} label="Others" used=${node.pressure} all=${1} text=${`${Math.round(node.pressure * 100)} %`} />` : ""}`;

const words = (counts) => STATES.map((state, place) => (counts[place] ? `${counts[place]} ${state}` : "")).filter(Boolean).join(", ") || "no instances";

function NodeCard({ node, counts, instances, chosen, choose }) {
  return html`<section class=${`node ${chosen ? "chosen" : ""}`}><h3><button class="link" aria-pressed=${chosen} onClick=${choose}>${node.name}</button>${node.state !== "up" ? html` <span class="chip late">${node.state}</span>` : ""}<small>${node.kind}${node.speed !== 1 ? `, speed ${number(node.speed)}` : ""}</small></h3>
    ${uses(node)}<${Dots} instances=${instances} label=${words(counts)} /><p class="note">${words(counts)}</p></section>`;
}

// One square per instance, coloured by what it does. A canvas, since there may be thousands.
function Dots({ instances, label }) {
  const place = useRef(null);
  const size = 9, gap = 3, across = 22;
  const height = Math.max(1, Math.ceil(instances.length / across)) * (size + gap);
  useEffect(() => {
    const canvas = place.current, scale = devicePixelRatio || 1, context = canvas.getContext("2d");
    canvas.width = across * (size + gap) * scale;
    canvas.height = height * scale;
    context.scale(scale, scale);
    const paints = COLOURS.map(colour);
    instances.forEach((one, index) => {
      context.fillStyle = paints[one[4]];
      context.fillRect((index % across) * (size + gap), Math.floor(index / across) * (size + gap), size, size);
    });
  });
  return html`<canvas ref=${place} class="dots" role="img" aria-label=${label} style=${{ width: `${across * (size + gap)}px`, height: `${height}px` }}></canvas>`;
}

function NodeTable({ app, node, look }) {
  return html`<section><h2>Nodes</h2><${LongTable} label="Nodes" heads=${["Node", "Kind", "State", "vCPUs in use", "Memory", "vGPUs in use", "Instances"]} rows=${app.nodes} height=${360} render=${(one) => html`<tr key=${one.name} class=${node === one.name ? "chosen" : ""}>
    <th scope="row"><button class="link" aria-pressed=${node === one.name} onClick=${() => look(node === one.name ? "" : one.name)}>${one.name}</button></th><td>${one.kind}</td><td>${one.state}</td>
    <td>${number(one.used_vcpus)} of ${number(one.vcpus)}</td><td>${memory(one.used_memory_gb + one.idle_memory_gb)}</td><td>${number(one.devices.reduce((sum, device) => sum + device.used_vgpus, 0))}</td><td>${words(app.counts[one.name])}</td></tr>`} /></section>`;
}

function Instances({ app, instances, node, look }) {
  const [name, narrow] = useState("");
  const rows = instances.filter((one) => (!node || app.nodes[one[2]]?.name === node) && (!name || one[1] === name));
  return html`<section><div class="head"><h2>Instances</h2><div class="tools">
      <label>Function <select value=${name} onChange=${(event) => narrow(event.target.value)}><option value="">all</option>${app.functions.map((one) => html`<option value=${one.name}>${one.name}</option>`)}</select></label>
      <label>Node <select value=${node} onChange=${(event) => look(event.target.value)}><option value="">all</option>${app.nodes.map((one) => html`<option value=${one.name} selected=${one.name === node}>${one.name}</option>`)}</select></label></div></div>
    <p class="note" role="status">${plural(rows.length, "instance")} shown</p>
    <${LongTable} key=${`${node} ${name}`} label="Instances" heads=${["Instance", "Function", "Node", "State", "vCPUs", "vGPUs", "Memory", "Age"]} rows=${rows} height=${360} render=${(one) => html`<tr key=${one[0]}><th scope="row">${one[0]}</th><td>${one[1]}</td><td>${app.nodes[one[2]]?.name ?? "–"}${one[3] != null ? ` / ${one[3]}` : ""}</td>
      <td><span class=${`swatch ${COLOURS[one[4]]}`}></span>${STATES[one[4]]}</td><td>${number(one[5])}</td><td>${number(one[6])}</td><td>${one[7] ? memory(one[7]) : "–"}</td><td>${duration(one[8])}</td></tr>`} /></section>`;
}

function Functions({ app }) {
  const [told, tell] = useState(null);
  const order = async (path, body, done) => {
    tell({ text: "Sending the order …" });
    try {
      await ask(`/v1/apps/${app.name}/functions/${path}`, { method: "POST", body });
      tell({ text: done });
    } catch (error) {
      tell({ text: error.message, bad: true });
    }
  };
  return html`<section><h2>Functions</h2><p class="note">Hold a function at a number of instances, or bring its instances to a node. "Release" gives it back to the policy.</p>
    <div class="scroll"><table><thead><tr><th scope="col">Function</th><th scope="col">Waiting</th><th scope="col">Instances</th><th scope="col">Batch</th><th scope="col">CPU time</th><th scope="col">Held at</th><th scope="col">Hold or move</th></tr></thead>
    <tbody>${app.functions.map((one) => html`<tr key=${one.name}><th scope="row">${one.name}</th><td>${number(one.waiting)}</td><td>${one.busy} busy, ${one.idle} idle${one.starting ? `, ${one.starting} starting` : ""}</td><td>${number(one.recent_batch_size, 2)}</td><td>${duration(one.cpu_s)}</td><td>${one.held ? number(one.replicas) : one.replicas != null ? `${number(one.replicas)} (scaler)` : "–"}</td>
      <td><${Orders} one=${one} nodes=${app.nodes} order=${order} /></td></tr>`)}</tbody></table></div>
    <p role="status" class=${told?.bad ? "poor" : "note"}>${told?.text ?? ""}</p></section>`;
}

function Orders({ one, nodes, order }) {
  const [count, change] = useState("");
  const [picked, choose] = useState("");
  const node = nodes.some((each) => each.name === picked) ? picked : nodes[0]?.name;
  const submit = (event) => {
    event.preventDefault();
    if (count !== "") order(`${one.name}/scale`, { instances: Number(count) }, `${one.name} is held at ${plural(Number(count), "instance")}.`);
  };
  return html`<form class="orders" onSubmit=${submit}>
    <input type="number" min="0" max="10000" step="1" value=${count} onInput=${(event) => change(event.target.value)} aria-label=${`Instances of ${one.name}`} placeholder=${one.busy + one.idle} />
    <button type="submit" disabled=${count === ""} aria-label=${`Hold ${one.name} at this number`}>Hold</button>
    <button type="button" disabled=${!one.held} aria-label=${`Release ${one.name}`} onClick=${() => order(`${one.name}/scale`, { instances: null }, `${one.name} is the policy's again.`)}>Release</button>
    ${nodes.length > 1 ? html`<select onChange=${(event) => choose(event.target.value)} aria-label=${`Node for ${one.name}`}>${nodes.map((each) => html`<option value=${each.name} selected=${each.name === node}>${each.name}</option>`)}</select>
    <button type="button" aria-label=${`Move ${one.name} there`} onClick=${() => order(`${one.name}/move`, { node }, `${one.name} moves to ${node}.`)}>Move</button>` : ""}</form>`;
}
