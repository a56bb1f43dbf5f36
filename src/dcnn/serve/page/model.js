// What is known about a model: scores, data, settings, labels, and its card.

import { byId, make, percent } from "./dom.js";

// Names of the metadata that come first, as people call them; shares are shown in percent.
const NAMES = {
  test_accuracy: "test accuracy", test_micro_f1: "test micro F1", test_macro_f1: "test macro F1",
  dev_accuracy: "dev accuracy", dev_micro_f1: "dev micro F1", dev_macro_f1: "dev macro F1",
  "examples.train": "training texts", "examples.dev": "dev texts", data: "data", date: "date",
};
const FEW = 12; // labels that need no search
const SHARE = /accuracy|_f1$|precision|coverage|error_|^calibration\.error/;

export class ModelView {
  constructor() {
    byId("label-find").addEventListener("input", () => this.#labels());
  }

  use(model, _, card) {
    this.model = model;
    this.card = card;
    byId("label-find").value = "";
    this.refresh();
  }

  refresh() {
    const metadata = flatten(this.card.metadata);
    const folds = metadata.get("cross_validation.folds"); // in place of a dev set
    if (folds) metadata.delete("examples.dev");
    const called = (name) => (folds ? NAMES[name]?.replace(/^dev (.*)/, `$1, ${folds}-fold cross-validation`) : NAMES[name]);
    const record = (names) => names.map((name) => [called(name) ?? name.replaceAll("_", " "), shown(name, metadata.get(name))]);
    const about = [
      ["kind", this.model.kind], ["labels", this.card.labels.length], ["vocabulary", this.model.vocabulary_size.toLocaleString()], ["backend", this.model.backend],
      ["index", this.model.index ? `${this.model.index.toLocaleString()} texts` : "none"], ["examples kept", this.card.examples.length || "none"],
    ];
    byId("label-find").hidden = this.card.labels.length <= FEW;
    byId("about-name").textContent = this.model.name;
    fill("metadata", [...record(Object.keys(NAMES).filter((name) => metadata.has(name))), ...about]);
    fill("record", record([...metadata.keys()].filter((name) => !(name in NAMES))));
    fill("settings", Object.entries(this.card.settings).map(([name, value]) => [name, shown(name, value)]));
    byId("card-text").textContent = this.card.card;
    this.#labels();
  }

  #labels() {
    const words = byId("label-find").value.toLowerCase();
    const found = this.card.labels.filter(({ label }) => String(label).toLowerCase().includes(words));
    found.sort((a, b) => (b.count ?? 0) - (a.count ?? 0));
    const total = this.card.labels.reduce((sum, { count }) => sum + (count ?? 0), 0);
    const largest = Math.max(...this.card.labels.map(({ count }) => count ?? 0), 1);
    byId("labels").replaceChildren(
      make("p", { class: "note" }, total ? `${found.length.toLocaleString()} labels by number of training texts` : "The folder does not say how often each label occurs; models trained from now on do."),
      make("ul", { class: "bars tall" }, ...found.map(({ label, count, threshold }) =>
        make("li", {}, make("div", { class: "bar" },
          make("span", {}, String(label), threshold === null ? null : make("span", { class: "aside" }, `  from ${percent(threshold)}`)),
          make("span", { class: "number" }, count === null ? "" : `${count.toLocaleString()}`),
          count === null ? null : make("span", { class: "track" }, make("span", { class: "fill", "--share": (count / largest).toFixed(4) })))))));
  }
}

function fill(id, pairs) {
  byId(id).replaceChildren(...pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
}

// Nested values by dotted name; lists stay as they are.
function flatten(values, prefix = "") {
  const found = new Map();
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined) continue;
    if (typeof value === "object" && !Array.isArray(value)) for (const pair of flatten(value, `${prefix}${name}.`)) found.set(...pair);
    else found.set(prefix + name, value);
  }
  return found;
}

function shown(name, value) {
  if (typeof value !== "number") return Array.isArray(value) ? value.join(", ") : String(value);
  if (SHARE.test(name) && value <= 1) return percent(value);
  return Number.isInteger(value) ? value.toLocaleString() : String(Number(value.toPrecision(4)));
}
