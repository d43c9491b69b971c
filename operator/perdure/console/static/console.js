"use strict";

// The page of an open run: replace what has changed every few seconds, unless the reader has turned that off.
function keepUpdating() {
  const live = document.querySelector("#live[data-live]");
  if (!live) return;
  let last = "";
  async function update() {
    const wanted = document.getElementById("updates");
    if (!document.hidden && wanted.checked) {
      const response = await fetch(location.pathname, { cache: "no-store" });
      const next = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("live");
      if (next && next.innerHTML !== last) {
        last = next.innerHTML;
        replace(next);
      }
      if (next && !("live" in next.dataset)) {
        wanted.closest("p").remove();
        return;
      }
    }
    setTimeout(update, 3000);
  }
  const again = () => update().catch(() => setTimeout(again, 3000));
  setTimeout(again, 3000);
}

// Put new content in place, and keep the focus and the scrolled parts where they were.
function replace(next) {
  const live = document.getElementById("live");
  const focused = live.contains(document.activeElement) ? key(document.activeElement) : null;
  const scrolled = new Map();
  for (const part of live.querySelectorAll("[aria-label]")) scrolled.set(key(part), [part.scrollLeft, part.scrollTop]);
  live.replaceChildren(...next.childNodes);
  for (const part of live.querySelectorAll("[aria-label], a")) {
    const at = scrolled.get(key(part));
    if (at) [part.scrollLeft, part.scrollTop] = at;
    if (focused !== null && key(part) === focused) part.focus({ preventScroll: true });
  }
}

function key(element) {
  return element.getAttribute("href") || element.getAttribute("aria-label") || "";
}

// The page of a log: append its lines as they come. They are text, never HTML.
async function follow() {
  const log = document.getElementById("log");
  if (!log) return;
  const state = document.getElementById("log-state");
  const scrolls = document.getElementById("scrolls");
  try {
    const response = await fetch(log.dataset.source, { cache: "no-store" });
    if (!response.ok) throw new Error(`status ${response.status}`);
    state.textContent = "Following the log";
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      log.append(part.value);
      while (log.childNodes.length > 20000) log.firstChild.remove();
      if (scrolls.checked) log.scrollTop = log.scrollHeight;
    }
    state.textContent = "The log has ended";
  } catch (error) {
    state.textContent = `The log cannot be read (${error.message}); reload the page`;
  }
}

keepUpdating();
follow();
