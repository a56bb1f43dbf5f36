// Predictions of a file as a table; with correct labels also scores, confusions and errors.

import { ask } from "./api.js";
import { NO_ANSWER, abstaining, byId, choices, given, make, percent, verdict } from "./dom.js";

const PAGE = 50; // rows shown at once
const LISTED = 6; // labels counted in the summary
const MATRIX = 12; // more classes are a list of the most frequent confusions
const CONFUSIONS = 15;
const ALL = "all";
const FORMULA = /^[=+\-@\t\r]/;

const truths = (row) => [row.truth].flat().map(String);
const correct = (row) => same(truths(row), row.labels ? given(row) : [row.answer]);
const same = (a, b) => a.length === b.length && a.every((label) => b.includes(label));

export class FileView {
  constructor(limits, open) {
    this.limits = limits;
    this.open = open;
    this.rows = [];
    this.order = { by: "line", down: false };
    this.page = 0;
    this.cell = null; // a confusion that is listed: [truth, label]
    const drop = byId("drop");
    drop.addEventListener("dragover", (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      if (event.dataTransfer.files[0]) this.read(event.dataTransfer.files[0]);
    });
    // A file dropped elsewhere must not replace the page.
    for (const name of ["dragover", "drop"]) window.addEventListener(name, (event) => event.preventDefault());
    byId("chosen").addEventListener("change", () => {
      if (byId("chosen").files[0]) this.read(byId("chosen").files[0]);
      byId("chosen").value = "";
    });
    byId("find").addEventListener("input", () => this.#reset());
    byId("only").addEventListener("change", () => this.#reset());
    byId("kind").addEventListener("change", () => {
      this.order = byId("kind").value === "errors" ? { by: "probability", down: true } : { by: "line", down: false };
      this.cell = null;
      this.#reset();
    });
    byId("threshold").addEventListener("input", () => this.#answered());
    byId("previous").addEventListener("click", () => this.#turn(-1));
    byId("next").addEventListener("click", () => this.#turn(1));
    byId("download-csv").addEventListener("click", () => this.#download("csv", "text/csv", csv(this.#chosen(), this.labels)));
    byId("download-jsonl").addEventListener("click", () => this.#download("jsonl", "application/jsonl", this.#chosen().map(({ answer, ...row }) => JSON.stringify(row)).join("\n") + "\n"));
  }

  use(model) {
    if (this.model && this.model.name !== model.name) {
      // The rows are another model's answers.
      this.rows = [];
      byId("table-card").hidden = true;
    }
    this.model = model;
    this.labels = model.classes.map(String);
  }

  async read(file) {
    this.#problem("");
    if (file.size > this.limits.file_bytes) {
      this.#problem(`${file.name} has ${file.size.toLocaleString()} bytes; this server accepts at most ${this.limits.file_bytes.toLocaleString()}.`);
      return;
    }
    const query = new URLSearchParams({ name: file.name, model: this.model.name, ...abstaining(this.model) });
    for (const [id, name] of [["column", "text_column"], ["label-column", "label_column"]]) {
      if (byId(id).value.trim()) query.set(name, byId(id).value.trim());
    }
    this.name = file.name;
    this.rows = [];
    this.cell = null;
    this.order = { by: "line", down: false };
    choices(byId("only"), [ALL, ...this.#names()], ALL);
    byId("find").value = "";
    byId("kind").value = ALL;
    byId("threshold").value = Math.round(100 * (this.model.abstention?.threshold ?? 0));
    byId("table-title").textContent = file.name;
    try {
      const answer = await ask(`/v1/predict-file?${query}`, { method: "POST", body: file, stream: true });
      byId("table-card").hidden = false;
      await this.#receive(answer.body.getReader());
    } catch (error) {
      this.#problem(error.status ? error.message : "The connection to the server was lost before the file was complete.");
    }
  }

  async #receive(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    let drawn = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line) this.rows.push(withAnswer(JSON.parse(line)));
      // Drawing takes longer the more rows there are.
      if (this.rows.length > 2 * drawn) {
        drawn = this.rows.length;
        this.#all();
      }
    }
    this.#all();
  }

  #all() {
    this.#scores();
    this.#answered();
    this.#reset();
  }

  // What a text can get, beside a label.
  #names() {
    return this.model.abstention ? [...this.labels, NO_ANSWER] : this.labels;
  }

  #reset() {
    this.page = 0;
    this.#draw();
  }

  #turn(step) {
    this.page += step;
    this.#draw();
    byId("table").scrollIntoView({ block: "nearest" });
  }

  #labelled() {
    return this.rows.filter((row) => row.truth !== undefined);
  }

  #scores() {
    const rows = this.#labelled();
    byId("scores").hidden = !rows.length;
    byId("kind-label").hidden = !rows.length;
    if (!rows.length) return;
    const right = rows.filter(correct).length;
    const known = new Set(this.labels);
    const strange = new Set(rows.flatMap(truths).filter((label) => !known.has(label)));
    const several = Boolean(rows[0].labels);
    const counts = new Map(); // of each label: correct, predicted, true
    const count = (label) => counts.get(label) ?? counts.set(label, [0, 0, 0]).get(label);
    const pairs = new Map();
    for (const row of rows) {
      const predicted = several ? given(row) : [row.answer];
      for (const label of truths(row)) {
        count(label)[2] += 1;
        if (predicted.includes(label)) count(label)[0] += 1;
      }
      for (const label of predicted) count(label)[1] += 1;
      if (!several) {
        const key = JSON.stringify([truths(row)[0], row.answer]);
        pairs.set(key, (pairs.get(key) ?? 0) + 1);
      }
    }
    const f1 = ([hits, predicted, actual]) => (predicted + actual ? (2 * hits) / (predicted + actual) : 0);
    const sums = [...counts.values()].reduce((sum, one) => sum.map((value, i) => value + one[i]), [0, 0, 0]);
    const actual = [...counts.values()].filter((one) => one[2]);
    const fields = [
      [several ? "label sets correct" : "accuracy", `${percent(right / rows.length)} (${right.toLocaleString()} of ${rows.length.toLocaleString()})`],
      ...(several ? [["micro F1", percent(f1(sums))]] : []),
      ["macro F1", percent(actual.reduce((sum, one) => sum + f1(one), 0) / (actual.length || 1))],
      ["errors", (rows.length - right).toLocaleString()],
      ...(strange.size ? [["labels the model does not know", [...strange].slice(0, LISTED).join(", ") + (strange.size > LISTED ? ` and ${strange.size - LISTED} more` : "")]] : []),
    ];
    byId("score").replaceChildren(...fields.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
    byId("confusion").parentElement.hidden = several;
    if (!several) this.#confusion(pairs, counts);
  }

  #confusion(pairs, counts) {
    const amount = (truth, label) => pairs.get(JSON.stringify([truth, label])) ?? 0;
    const button = (truth, label, text) => make("button", { type: "button", class: "open", title: `${truth}, predicted as ${label}`, onclick: () => this.#list(truth, label) }, text);
    if (counts.size <= MATRIX) {
      const names = [...new Set([...this.labels.filter((label) => counts.has(label)), ...counts.keys()])];
      const actual = names.filter((label) => counts.get(label)[2]);
      byId("confusion-title").textContent = "Confusion matrix (rows: true, columns: predicted)";
      byId("confusion").replaceChildren(make("table", { class: "matrix" },
        make("thead", {}, make("tr", {}, make("th", {}), ...names.map((label) => make("th", { scope: "col" }, label)))),
        make("tbody", {}, ...actual.map((truth) => make("tr", {}, make("th", { scope: "row" }, truth), ...names.map((label) =>
          make("td", { class: truth === label ? "right" : "wrong", "--share": (amount(truth, label) / counts.get(truth)[2]).toFixed(3) }, amount(truth, label) ? button(truth, label, amount(truth, label).toLocaleString()) : "0")))))));
      return;
    }
    const wrong = [...pairs].map(([key, number]) => [...JSON.parse(key), number]).filter(([truth, label]) => truth !== label);
    wrong.sort((a, b) => b[2] - a[2]);
    byId("confusion-title").textContent = wrong.length > CONFUSIONS ? `The ${CONFUSIONS} most frequent of ${wrong.length.toLocaleString()} confusions` : "Confused labels";
    byId("confusion").replaceChildren(make("table", {},
      make("thead", {}, make("tr", {}, make("th", { class: "number" }, "texts"), make("th", {}, "true"), make("th", {}, "predicted"))),
      make("tbody", {}, ...wrong.slice(0, CONFUSIONS).map(([truth, label, number]) => make("tr", {}, make("td", { class: "number" }, button(truth, label, number.toLocaleString())), make("td", { class: "text" }, truth), make("td", { class: "text" }, label))))));
  }

  #list(truth, label) {
    this.cell = [truth, label];
    this.order = { by: "probability", down: true };
    byId("kind").value = ALL;
    byId("only").value = ALL;
    byId("find").value = "";
    this.#reset();
    byId("table-title").scrollIntoView({ block: "start", behavior: "smooth" });
  }

  // Coverage, and the share of correct labels among those given, at the slider's threshold.
  #answered() {
    byId("answering").hidden = Boolean(this.rows[0]?.labels);
    const least = Number(byId("threshold").value) / 100;
    byId("threshold-value").textContent = `${byId("threshold").value} %`;
    const rows = this.rows.filter((row) => row.probability >= least);
    const known = rows.filter((row) => row.truth !== undefined);
    const coverage = `Coverage ${percent(rows.length / (this.rows.length || 1))}: ${rows.length.toLocaleString()} of ${this.rows.length.toLocaleString()} texts get a label`;
    const right = known.filter(correct).length;
    const precision = known.length ? `; precision ${percent(right / known.length)}: ${right.toLocaleString()} of ${known.length.toLocaleString()} labels are correct` : "";
    byId("answered").textContent = `${coverage}${precision}.`;
  }

  #chosen() {
    const words = byId("find").value.toLowerCase();
    const label = byId("only").value;
    const kind = byId("kind").value;
    const rows = this.rows.filter((row) =>
      (label === ALL || given(row).includes(label) || (row.abstained && label === NO_ANSWER)) &&
      (!words || row.text.toLowerCase().includes(words)) &&
      (kind === ALL || (row.truth !== undefined && correct(row) === (kind === "correct"))) &&
      (!this.cell || (truths(row)[0] === this.cell[0] && row.answer === this.cell[1])));
    const { by, down } = this.order;
    const value = (row) => (by === "label" ? verdict(row) : by === "truth" ? truths(row).join() : row[by]);
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
    return rows.sort((a, b) => (down ? -1 : 1) * compare(value(a), value(b)) || a.line - b.line);
  }

  #summary(chosen) {
    const counts = new Map();
    for (const row of this.rows) for (const label of row.abstained ? [NO_ANSWER] : given(row)) counts.set(label, (counts.get(label) ?? 0) + 1);
    const ranked = [...counts].sort((a, b) => b[1] - a[1]);
    const listed = ranked.slice(0, LISTED).map(([label, count]) => `${label} ${count.toLocaleString()}`);
    if (ranked.length > LISTED) listed.push(`${ranked.length - LISTED} other labels`);
    return `${chosen.length.toLocaleString()} of ${this.rows.length.toLocaleString()} texts; ${listed.join(", ")}`;
  }

  #draw() {
    const chosen = this.#chosen();
    const last = Math.max(0, Math.ceil(chosen.length / PAGE) - 1);
    this.page = Math.min(Math.max(this.page, 0), last);
    const start = this.page * PAGE;
    const labelled = this.rows.some((row) => row.truth !== undefined);
    const only = this.cell ? [make("button", { type: "button", class: "chip", onclick: () => ((this.cell = null), this.#reset()) }, `${this.cell[0]} predicted as ${this.cell[1]} \u00d7`), " "] : [];
    byId("table-summary").replaceChildren(...only, this.#summary(chosen));
    const heads = [["line", "line", "number"], ["label", "label", ""], ...(labelled ? [["truth", "true label", ""]] : []), ["probability", "probability", ""], ["text", "text", ""]];
    byId("table").replaceChildren(
      make("thead", {}, make("tr", {}, ...heads.map(([by, name, kind]) =>
        make("th", { class: kind, scope: "col", "aria-sort": this.order.by === by ? (this.order.down ? "descending" : "ascending") : null },
          make("button", { type: "button", onclick: () => this.#sort(by) }, name))))),
      make("tbody", {}, ...chosen.slice(start, start + PAGE).map((row) => make("tr", { class: row.truth !== undefined && !correct(row) ? "error" : null },
        make("td", { class: "number" }, String(row.line)),
        make("td", {}, verdict(row)),
        ...(labelled ? [make("td", { class: "truth" }, row.truth === undefined ? "" : truths(row).join(", "))] : []),
        make("td", { class: "share" }, make("span", { class: "meter" }, make("i", { "--share": row.probability.toFixed(3) })), percent(row.probability)),
        make("td", { class: "text" }, make("button", { type: "button", class: "open", title: "Explain this text", onclick: () => this.open(row.text) }, row.text))))));
    byId("page-number").textContent = chosen.length ? `${(start + 1).toLocaleString()}\u2013${Math.min(start + PAGE, chosen.length).toLocaleString()} of ${chosen.length.toLocaleString()}` : "no text";
    byId("previous").disabled = this.page === 0;
    byId("next").disabled = this.page === last;
  }

  #sort(by) {
    this.order = { by, down: this.order.by === by ? !this.order.down : by === "probability" };
    this.#reset();
    byId("table").querySelector("th[aria-sort] button").focus();
  }

  #download(ending, type, content) {
    const address = URL.createObjectURL(new Blob([content], { type }));
    make("a", { href: address, download: `${this.name.replace(/\.[^.]*$/, "")}-predicted.${ending}` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  #problem(text) {
    byId("file-problem").textContent = text;
    byId("file-problem").hidden = !text;
    if (text) byId("table-card").hidden = true;
  }
}

// The most probable label, even of a text that gets none; probabilities come sorted.
function withAnswer(row) {
  let answer = "";
  let largest = -1;
  for (const [label, share] of Object.entries(row.probabilities)) if (share > largest) [answer, largest] = [label, share];
  return { ...row, answer };
}

function csv(rows, labels) {
  const cell = (value) => {
    let text = String(value);
    // A spreadsheet would run such a text as a formula.
    if (typeof value === "string" && FORMULA.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const labelled = rows.some((row) => row.truth !== undefined);
  const head = ["line", "text", ...(labelled ? ["true label"] : []), "label", "probability", ...labels.map((label) => `probability of ${label}`)];
  const lines = rows.map((row) => [row.line, row.text, ...(labelled ? [row.truth === undefined ? "" : truths(row).join("|")] : []), row.labels ? row.labels.join("|") : row.label ?? "", row.probability, ...labels.map((label) => row.probabilities[label])]);
  return [head, ...lines].map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
}
