// What pages do beyond links and forms: update themselves, draw charts, confirm in a dialog, search with "/".
"use strict";

// --- Updates: the server sends the live part of the page again. Only differences are changed, so that focus, selection
// and open details stay. ---

function patch(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || key(old) !== key(fresh)) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  }
  if (old.classList.contains("plot")) draw(old);
  else patchChildren(old, fresh);
}

function patchChildren(old, fresh) {
  const kept = new Map();
  for (const child of old.children) if (key(child)) kept.set(key(child), child);
  const wanted = [...fresh.childNodes];
  const stays = new Set(wanted.map(key).filter(Boolean));
  let at = old.firstChild;
  for (const child of wanted) {
    const known = key(child) && kept.get(key(child));
    if (known && known !== at) {
      if (old.moveBefore) old.moveBefore(known, at);
      else old.insertBefore(known, at);
      at = known;
    }
    if (!at) {
      old.append(child);
      continue;
    }
    if ((key(child) && !known) || (!known && stays.has(key(at)))) {
      old.insertBefore(child, at);
      continue;
    }
    const next = at.nextSibling;
    patch(at, child);
    at = next;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function key(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.dataset.key : undefined;
}

// On a phone the navigation is a row that scrolls: scroll to the current page.
const current = document.querySelector("nav a[aria-current]");
if (current) {
  const row = current.closest("ul");
  row.scrollLeft += current.getBoundingClientRect().left - (row.clientWidth - current.offsetWidth) / 2;
}

const live = document.getElementById("live");
const button = document.getElementById("live-switch");
const AGAIN_MS = 5000; // A browser reconnects by itself after a broken connection, not after a refusal.
let source = null;
let again = null;

function listen() {
  source = new EventSource(live.dataset.live);
  source.onmessage = (event) => {
    showState(true);
    const fresh = document.createElement("div");
    fresh.innerHTML = JSON.parse(event.data);
    patchChildren(live, fresh);
    drawAll();
  };
  source.onerror = () => {
    showState(false);
    if (source.readyState !== EventSource.CLOSED) return;
    rest();
    again = setTimeout(follow, AGAIN_MS);
  };
}

function rest() {
  clearTimeout(again);
  if (source) source.close();
  source = null;
}

function showState(current) {
  button.classList.toggle("late", !current);
  const text = current ? "Live" : "Not live";
  button.lastElementChild.textContent = isOn() ? text : "Stopped";
}

function isOn() {
  return button.getAttribute("aria-pressed") === "true";
}

function follow() {
  showState(!button.classList.contains("late"));
  if (!isOn() || document.hidden) rest();
  else if (!source) listen();
}

if (button && live.dataset.live) {
  button.hidden = false;
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", isOn() ? "false" : "true");
    follow();
  });
  document.addEventListener("visibilitychange", follow);
  window.addEventListener("pagehide", rest);
  window.addEventListener("pageshow", follow);
}

// --- Charts. A .plot carries its numbers: [times in seconds, a series, ...]. ---

const drawn = new Map();
const themed = window.matchMedia("(prefers-color-scheme: dark)");

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function shorten(value) {
  if (value === null || value === undefined) return "";
  if (value >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (value >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  return (+value.toPrecision(3)).toLocaleString("en");
}

function options(plot, series) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  axis.font = "12px system-ui, sans-serif";
  const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return {
    width: Math.max(120, plot.clientWidth),
    height: plot.clientHeight || 150,
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    legend: { show: false },
    scales: { y: { range: (self, low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [
      { ...axis, space: 60, size: 26, values: (self, times) => times.map((time) => clock.format(time * 1000)) },
      { ...axis, size: 46, values: (self, values) => values.map(shorten) },
    ],
    series: [
      {},
      ...series.map((_, number) => ({
        stroke: colour(`--chart-${number + 1}`),
        width: 2,
        fill: number === 0 ? `${colour("--chart-1")}22` : undefined,
        points: { show: false },
      })),
    ],
  };
}

function draw(plot) {
  const numbers = plot.dataset.numbers;
  const before = drawn.get(plot);
  if (before && before.numbers === numbers) return;
  const data = JSON.parse(numbers);
  if (before) {
    before.chart.setData(data);
    before.numbers = numbers;
    return;
  }
  const chart = new uPlot(options(plot, data.slice(1)), data, plot);
  drawn.set(plot, { chart, numbers });
}

function drawAll() {
  for (const [plot, { chart }] of drawn) {
    if (!plot.isConnected) {
      chart.destroy();
      drawn.delete(plot);
    }
  }
  for (const plot of document.querySelectorAll(".plot[data-numbers]")) draw(plot);
}

function drawAnew() {
  for (const { chart } of drawn.values()) chart.destroy();
  drawn.clear();
  drawAll();
}

drawAll();
themed.addEventListener("change", drawAnew);
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return;
  width = window.innerWidth;
  drawAnew();
});

// --- Actions are confirmed in a dialog; without a script, or if that fails, on a page of their own. ---

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-asks]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  let question = null;
  try {
    const answer = await fetch(link.href, { headers: { accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    question = answer.ok && page.querySelector(".ask");
  } catch {
    question = null;
  }
  if (!question) {
    window.location.assign(link.href);
    return;
  }
  const dialog = document.createElement("dialog");
  const title = question.querySelector("h1");
  title.id = "question";
  dialog.setAttribute("aria-labelledby", "question");
  dialog.append(question);
  dialog.addEventListener("click", (inside) => {
    if (inside.target.closest("[data-no]") || inside.target === dialog) {
      inside.preventDefault();
      dialog.close();
    }
  });
  dialog.addEventListener("close", () => {
    dialog.remove();
    link.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
});

// --- The key "/" focuses the search; the key of a notice leaves the address ---

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, dialog");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const find = document.getElementById("find");
  if (find) {
    event.preventDefault();
    find.focus();
  }
});

const address = new URL(window.location.href);
if (address.searchParams.has("did")) {
  address.searchParams.delete("did");
  window.history.replaceState(null, "", address);
}
