"use strict";
/* The live page: asks for the numbers once a second, and shows them. All that comes from messages is put in as text, never as HTML. */

const EVERY_MS = 1000;
const ROWS_MAX = 200;           // of a table; the broker chooses those that have most to say
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

/* Rows and cells stay where they are, and only what has changed is written: else a click would be lost whose button is replaced
   while it is down. */
function fill(id, items, show) {
  const rows = $(id).tBodies[0];
  const row = (at) => { const found = rows.rows[at] || rows.insertRow(); found.next = 0; return found; };
  items.forEach((item, at) => show(row(at), item));
  if (!items.length) cell(row(0), "none", "faint");
  for (const left of rows.rows) while (left.cells.length > left.next) left.deleteCell(-1);
  while (rows.rows.length > Math.max(items.length, 1)) rows.deleteRow(-1);
}

/* The next cell of a row. On a phone a row is a card, which says what a value is, and leaves out what says nothing: see page.css.
   With `press` it is a button. */
function cell(row, value, kind = "", press = null) {
  const at = row.next++;
  const made = row.cells[at] || row.insertCell();
  const text = String(value);
  made.dataset.label = row.closest("table").tHead.rows[0].cells[at].textContent;
  made.className = text === "" || text === "0" ? `${kind} nothing` : kind;
  if (press && !made.firstElementChild) made.replaceChildren(document.createElement("button"));
  const holder = press ? made.firstElementChild : made;
  if (holder.textContent !== text) holder.textContent = text;
  if (press) holder.onclick = press;
}

const short = (number) => number >= 1e6 ? (number / 1e6).toFixed(1) + "M" : number >= 1e4 ? (number / 1e3).toFixed(1) + "k"
  : String(Math.round(number * 10) / 10);
const counted = (count) => count === 1 ? "1 message" : `${count} messages`;
const total = (reasons) => Object.values(reasons).reduce((sum, count) => sum + count, 0);

function age(oldest, now) {
  if (oldest === null) return "";
  const seconds = Math.max(0, (now - oldest) / 1e9);
  return seconds < 60 ? `${seconds.toFixed(0)} s` : seconds < 3600 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function show(all) {
  $("summary").textContent = `${all.user.name} · ${short(all.engine.held_messages)} messages in ${all.totals.queues} queues · `
    + `${all.totals.connections} connections`;
  const omitted = Object.entries(all.totals).filter(([name, count]) => count > all[name].length);
  $("omitted").hidden = !omitted.length;
  $("omitted").textContent = omitted.map(([name, count]) => `${all[name].length} of ${short(count)} ${name}`).join(", ")
    + " are shown, those with most to say.";
  fill("queues", all.queues, (row, queue) => {
    cell(row, queue.name, "", () => look(queue.name));
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
    cell(row, one.peer || "");
    cell(row, short(one.channels), "number");
    cell(row, short(one.unconfirmed), "number");
    cell(row, one.windows.map(windowSaid).join(", "));
    cell(row, one.waits.join(", "), one.waits.length ? "bad" : "");
  });
  $("beside-section").hidden = !all.beside.length;
  fill("beside", all.beside, (row, one) => {
    cell(row, one.name);
    const numbers = Object.entries(one.numbers).map(([name, value]) => `${name.replaceAll("_", " ")}: ${short(value)}`);
    cell(row, numbers.join(" · "), one.numbers.dead ? "bad" : "");
  });
  before = all;
  permit();
}

function windowSaid({ queue, outstanding, credit, channel }) {
  const whose = queue !== null ? queue : `channel ${channel}`;
  return `${whose}: ${short(outstanding)} of ${credit === null ? "any number" : short(credit)}`;
}

/* What the reader may do with the queue whose dialog is open. */
function permit() {
  const found = before.queues.find((queue) => queue.name === open);
  if (!found) return;
  $("hold").textContent = found.held ? "Release" : "Hold";
  $("actions").hidden = !found.may_configure;
  $("publishing").hidden = !(found.may_write && before.user.may_configure);
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
    show(await ask("GET", path(["overview"], { limit: ROWS_MAX })));
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
  $("requeue").hidden = true;
  $("filter").reset();
  permit();
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
    if (found.some((message) => message.way)) $("requeue").hidden = false;
    next = found.length === 20 ? found[found.length - 1].id - 1 : null;
    $("more").hidden = !next;
    if (!found.length && start === null) $("messages").textContent = "No messages.";
  });
}

function shown(message) {
  const { id, address, body, body_base64, headers, timestamp, hops, state, until, way, amqp, ...rest } = message;
  const made = document.createElement("article");
  const title = document.createElement("div");
  title.textContent = [`${id}`, address || "no address", new Date(timestamp / 1e6).toLocaleString(), state
    + (until ? ` until ${new Date(until / 1e6).toLocaleString()}` : "")].join(" · ");
  made.append(title);
  const say = (text) => {
    const line = document.createElement("div");
    line.className = "faint";
    line.textContent = text;
    if (text) made.append(line);
  };
  const { headers: table, exchange, ...properties } = amqp || {};
  const stations = (way || []).map(({ queue, reason, count }) => `${queue} (${reason}${count > 1 ? `, ${count} times` : ""})`);
  if (amqp) stations.unshift(exchange ? `exchange ${exchange}` : "the default exchange");
  if (stations.length || hops) say(`way: ${[...stations, open].join(" → ")}` + (hops ? ` (${hops} ${hops === 1 ? "hop" : "hops"})` : ""));
  if (!rest.priority) delete rest.priority;
  say(Object.entries(table || headers).map(pair).join(" · "));
  say(Object.entries({ ...rest, ...properties }).map(pair).join(" · "));
  const text = document.createElement("pre");
  text.textContent = body === undefined ? `base64: ${body_base64}` : body;
  made.append(text);
  return made;
}

const pair = ([name, value]) => `${name}: ${JSON.stringify(value)}`;

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
  return `${counted(purged)} deleted.`;
});
$("requeue").onclick = () => doing(async () => {
  const { requeued } = await ask("POST", path(["queues", open, "requeue"]));
  browse(null);
  return `${counted(requeued)} went back.`;
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
