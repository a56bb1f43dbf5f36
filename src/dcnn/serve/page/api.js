// Requests to the server: its key, its errors, and whether it can be reached.

import { byId } from "./dom.js";

const WAIT = [1000, 2000, 4000]; // milliseconds between attempts to reach it

let key = sessionStorage.getItem("dcnn-key") || "";
let dead = false;
const returns = new Set();

export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Called when the server can be reached again.
export const whenBack = (callback) => returns.add(callback);

export async function start() {
  const health = await ask("/healthz");
  if (health.key && !key) await askForKey();
}

export async function ask(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (key) headers["x-api-key"] = key;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name !== "AbortError") lost();
    throw error;
  }
  if (answer.status === 401) {
    await askForKey();
    return ask(path, options);
  }
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new ServerError(answer.status, body.error || `the server answered ${answer.status}`);
  }
  return options.stream ? answer : answer.json();
}

export const post = (path, question) =>
  ask(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(question),
  });

function askForKey() {
  const dialog = byId("key-dialog");
  byId("key").value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener(
      "close",
      () => {
        key = byId("key").value;
        sessionStorage.setItem("dcnn-key", key);
        resolve();
      },
      { once: true },
    );
  });
}

function lost() {
  if (dead) return;
  dead = true;
  const banner = byId("banner");
  banner.textContent = "The server does not answer. This page shows its last answer; trying again\u2026";
  banner.hidden = false;
  retry(0);
}

function retry(tries) {
  setTimeout(async () => {
    try {
      const answer = await fetch("/healthz");
      if (!answer.ok) throw new Error("not yet");
    } catch {
      retry(tries + 1);
      return;
    }
    dead = false;
    byId("banner").hidden = true;
    returns.forEach((callback) => callback());
  }, WAIT[Math.min(tries, WAIT.length - 1)]);
}
