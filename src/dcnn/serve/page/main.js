// Entry point: models, views, and the link that restores the state of the page.

import { ask, start, whenBack } from "./api.js";
import { CompareView } from "./compare.js";
import { byId, choices } from "./dom.js";
import { ExplainView } from "./explain.js";
import { FileView } from "./file.js";
import * as link from "./link.js";
import { ModelView } from "./model.js";
import { startTheme } from "./theme.js";

const VIEWS = ["explain", "compare", "file", "model"];
const PANELS = { model: "about" }; // the others are named like their view
const TOAST = 1800; // milliseconds

let models = [];
let cards = new Map(); // of models, by name
let views = {};
let current = "";
let restoring = false;
let switching = false;

startTheme();
begin().catch(() => whenBack(() => location.reload()));

async function begin() {
  await start();
  const answer = await ask("/v1/models");
  models = answer.models;
  choices(byId("model"), models.map((model) => model.name), models[0].name);
  views = {
    explain: new ExplainView(remember),
    compare: new CompareView(remember),
    file: new FileView(answer.limits, explainText),
    model: new ModelView(),
  };
  for (const id of ["text", "first", "second"]) byId(id).maxLength = answer.limits.characters;
  listen();
  await restore();
}

function listen() {
  VIEWS.forEach((name, i) => {
    const tab = byId(`tab-${name}`);
    tab.addEventListener("click", () => show(name));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) byId(`tab-${VIEWS[(i + step + VIEWS.length) % VIEWS.length]}`).click();
      if (step) byId(`tab-${current}`).focus();
    });
  });
  byId("model").addEventListener("change", async () => {
    await use();
    views[current].refresh?.();
    remember();
  });
  byId("link").addEventListener("click", copyLink);
  window.addEventListener("hashchange", restore);
  whenBack(() => views[current].refresh?.());
}

const chosenModel = () => models.find((model) => model.name === byId("model").value);

async function use() {
  const model = chosenModel();
  if (!cards.has(model.name)) cards.set(model.name, await ask(`/v1/model?${new URLSearchParams({ model: model.name })}`));
  const card = cards.get(model.name);
  if (model === chosenModel()) for (const view of Object.values(views)) view.use(model, card.examples, card);
}

function show(name, state = {}) {
  if (current === name) return;
  // The back button leads to the previous view.
  if (!restoring) link.flush();
  const before = current;
  current = name;
  switching = true;
  for (const other of VIEWS) {
    byId(PANELS[other] ?? other).hidden = other !== name;
    byId(`tab-${other}`).setAttribute("aria-selected", String(other === name));
    byId(`tab-${other}`).tabIndex = other === name ? 0 : -1;
  }
  const view = views[name];
  if (view.restore && !view.opened) view.restore(state);
  else view.refresh?.();
  view.opened = true;
  switching = false;
  remember(Boolean(before));
}

async function restore() {
  const state = link.read();
  if (models.some((model) => model.name === state.model)) byId("model").value = state.model;
  await use();
  restoring = true;
  current = "";
  for (const view of Object.values(views)) view.opened = false;
  show(VIEWS.includes(state.view) ? state.view : "explain", state);
  restoring = false;
}

function remember(push = false) {
  if (restoring || switching || !current) return "";
  const state = { view: current, model: byId("model").value, ...(views[current].state?.() ?? {}) };
  return link.write(state, { push: push === true });
}

function explainText(text) {
  byId("text").value = text;
  views.explain.opened = true;
  show("explain");
}

async function copyLink() {
  const address = location.origin + location.pathname + remember();
  try {
    await navigator.clipboard.writeText(address);
    toast("Copied");
  } catch {
    toast("The link is in the address bar");
  }
}

function toast(text) {
  byId("toast").textContent = text;
  byId("toast").hidden = false;
  setTimeout(() => (byId("toast").hidden = true), TOAST);
}
