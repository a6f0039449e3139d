"use strict";
/* The live page: asks for the numbers once a second, and shows them. All that comes from messages is put in as text, never as HTML. */

const EVERY_MS = 1000;
const $ = (id) => document.getElementById(id);
const vhost = new URLSearchParams(location.search).get("vhost");
let before = null;              // the numbers of the last look, for rates of selectors
let open = null;                // the queue whose dialog is open
let next = null;                // the id at which older messages begin

function path(parts, query = {}) {
  const given = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value != null));
  if (vhost !== null) given.set("vhost", vhost);
  const text = given.toString();
  return parts.map(encodeURIComponent).join("/") + (text && "?" + text);
}

async function ask(method, url, options = {}) {
  const response = await fetch(url, { method, ...options });
  const kind = response.headers.get("Content-Type") || "";
  const found = kind.includes("json") ? await response.json() : await response.text();
  if (!response.ok) throw new Error(found.detail || `${response.status} ${response.statusText}`);
  return found;
}

function cell(row, value, kind) {
  const made = row.insertCell();
  if (value instanceof Node) made.append(value); else made.textContent = value;
  if (kind) made.className = kind;
  return made;
}

function fill(id, items, show) {
  const rows = document.createElement("tbody");
  for (const item of items) show(rows.insertRow(), item);
  if (!items.length) cell(rows.insertRow(), "none", "faint").colSpan = 9;
  $(id).tBodies[0].replaceWith(rows);
}

const short = (number) => number >= 1e6 ? (number / 1e6).toFixed(1) + "M" : number >= 1e4 ? (number / 1e3).toFixed(1) + "k"
  : String(Math.round(number * 10) / 10);
const total = (reasons) => Object.values(reasons).reduce((sum, count) => sum + count, 0);

function age(oldest, now) {
  if (oldest === null) return "";
  const seconds = Math.max(0, (now - oldest) / 1e9);
  return seconds < 60 ? `${seconds.toFixed(0)} s` : seconds < 3600 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function show(all) {
  $("summary").textContent = `${all.user.name} · ${short(all.engine.held_messages)} messages in ${all.queues.length} queues · `
    + `${all.connections.length} connections`;
  fill("queues", all.queues, (row, queue) => {
    const name = document.createElement("button");
    name.textContent = queue.name;
    name.onclick = () => look(queue.name);
    cell(row, name);
    cell(row, queue.store, "faint");
    for (const key of ["ready", "delayed", "outstanding", "history"]) cell(row, short(queue[key]), "number");
    for (const rate of queue.rates) cell(row, short(rate), "number");
    cell(row, age(queue.oldest, all.now), "number");
    const lost = total(queue.dropped), dead = total(queue.dead_lettered);
    const said = [queue.held && "held", lost && `${short(lost)} dropped`, dead && `${short(dead)} dead-lettered`];
    cell(row, said.filter(Boolean).join(", "), lost ? "bad" : "");
  });
  const served = before && new Map(before.selectors.map((one) => [one.id, one.served + one.copied]));
  const seconds = before && (all.now - before.now) / 1e9;
  fill("selectors", all.selectors, (row, one) => {
    cell(row, one.name || one.id);
    cell(row, one.source);
    cell(row, one.when);
    cell(row, one.do);
    cell(row, one.credit, "number");
    cell(row, short(one.outstanding), "number");
    const then = served && served.get(one.id);
    cell(row, then === undefined || !seconds ? "" : short((one.served + one.copied - then) / seconds), "number");
    cell(row, one.why || "", one.why ? "bad" : "");
  });
  fill("connections", all.connections, (row, one) => {
    cell(row, one.client);
    cell(row, one.user || "");
    cell(row, one.peer);
    cell(row, one.channels, "number");
  });
  $("beside-section").hidden = !all.beside.length;
  fill("beside", all.beside, (row, one) => {
    cell(row, one.name);
    const numbers = Object.entries(one.numbers).map(([name, value]) => `${name.replaceAll("_", " ")}: ${short(value)}`);
    cell(row, numbers.join(" · "), one.numbers.dead ? "bad" : "");
  });
  const found = all.queues.find((queue) => queue.name === open);
  if (found) $("hold").textContent = found.held ? "Release" : "Hold";
  $("actions").hidden = $("publish").hidden = !all.user.may_configure;
  before = all;
}

async function draw() {
  const response = await fetch(path(["graph.svg"]));
  const drawn = response.ok;
  $("graph").hidden = !drawn;
  $("no-graph").hidden = drawn;
  if (!drawn) { $("no-graph").textContent = (await response.json()).detail; return; }
  $("graph").src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(await response.text());
}

async function refresh() {
  try {
    show(await ask("GET", path(["overview"])));
    await draw();
    $("trouble").hidden = true;
  } catch (error) {
    $("trouble").textContent = `The broker does not answer: ${error.message}`;
    $("trouble").hidden = false;
  }
  setTimeout(refresh, EVERY_MS);
}

function look(name) {
  open = name;
  $("queue-name").textContent = name;
  $("done").textContent = "";
  const found = before.queues.find((queue) => queue.name === name);
  $("hold").textContent = found && found.held ? "Release" : "Hold";
  $("queue").showModal();
  browse(null);
}

async function browse(start) {
  const form = new FormData($("filter"));
  const query = { reverse: "true", limit: 20, start, state: form.get("state"), where: form.get("where") };
  if (start === null) $("messages").replaceChildren();
  await doing(async () => {
    const found = await ask("GET", path(["queues", open, "messages"], query));
    for (const message of found) $("messages").append(shown(message));
    next = found.length === 20 ? found[found.length - 1].id - 1 : null;
    $("more").hidden = !next;
    if (!found.length && start === null) $("messages").textContent = "No messages.";
  });
}

function shown(message) {
  const { id, address, body, body_base64, headers, timestamp, hops, ...rest } = message;
  const made = document.createElement("article");
  const title = document.createElement("div");
  title.textContent = `${id} · ${address || "no address"} · ${new Date(timestamp / 1e6).toISOString()} · ${hops} hops`;
  const about = document.createElement("div");
  about.className = "faint";
  about.textContent = [...Object.entries(headers), ...Object.entries(rest)].map(([key, value]) => `${key}: ${JSON.stringify(value)}`).join(" · ");
  const text = document.createElement("pre");
  text.textContent = body === undefined ? `base64: ${body_base64}` : body;
  made.append(title, about, text);
  return made;
}

async function doing(work) {
  try {
    const said = await work();
    if (said) $("done").textContent = said;
    $("done").className = "";
  } catch (error) {
    $("done").textContent = error.message;
    $("done").className = "bad";
  }
}

$("filter").onsubmit = (event) => { event.preventDefault(); browse(null); };
$("more").onclick = () => browse(next);
$("hold").onclick = () => doing(async () => {
  const { held } = await ask("POST", path(["queues", open, $("hold").textContent.toLowerCase()]));
  $("hold").textContent = held ? "Release" : "Hold";
  return held ? "Held: it routes and delivers nothing." : "Released.";
});
$("purge").onclick = () => doing(async () => {
  if (!confirm(`Delete all ready and delayed messages of ${open}?`)) return "";
  const { purged } = await ask("POST", path(["queues", open, "purge"]));
  browse(null);
  return `${purged} messages deleted.`;
});
$("requeue").onclick = () => doing(async () => {
  const { requeued } = await ask("POST", path(["queues", open, "requeue"]));
  browse(null);
  return `${requeued} messages went back to where they came from.`;
});
$("publish").onsubmit = (event) => {
  event.preventDefault();
  doing(async () => {
    const form = new FormData($("publish"));
    const headers = form.get("headers") ? { "Xump-Headers": form.get("headers") } : {};
    const { ids } = await ask("POST", path(["queues", open], { address: form.get("address") }),
      { body: form.get("body"), headers: { "Content-Type": "text/plain", ...headers } });
    browse(null);
    return `Published as message ${ids.join(", ")}.`;
  });
};
refresh();
