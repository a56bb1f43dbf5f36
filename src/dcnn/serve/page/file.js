// Predictions of a file as a table.

import { ask } from "./api.js";
import { NO_ANSWER, abstaining, byId, choices, given, make, percent, verdict } from "./dom.js";

const PAGE = 200; // rows shown at once
const ALL = "all";
const FORMULA = /^[=+\-@\t\r]/;

export class FileView {
  constructor(limits, open) {
    this.limits = limits;
    this.open = open;
    this.rows = [];
    this.order = { by: "line", down: false };
    this.shown = PAGE;
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
    byId("more").addEventListener("click", () => {
      this.shown += PAGE;
      this.#draw();
    });
    byId("download-csv").addEventListener("click", () => this.#download("csv", "text/csv", csv(this.#chosen(), this.labels)));
    byId("download-jsonl").addEventListener("click", () => this.#download("jsonl", "application/jsonl", this.#chosen().map((row) => JSON.stringify(row)).join("\n") + "\n"));
  }

  use(model) {
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
    if (byId("column").value.trim()) query.set("text_column", byId("column").value.trim());
    this.name = file.name;
    this.rows = [];
    choices(byId("only"), [ALL, ...this.#names()], ALL);
    byId("find").value = "";
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
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line) this.rows.push(JSON.parse(line));
      this.#reset();
    }
  }

  // What a text can get, beside a label.
  #names() {
    return this.model.abstention ? [...this.labels, NO_ANSWER] : this.labels;
  }

  #reset() {
    this.shown = PAGE;
    this.#draw();
  }

  #chosen() {
    const words = byId("find").value.toLowerCase();
    const label = byId("only").value;
    const rows = this.rows.filter((row) => (label === ALL || given(row).includes(label) || (row.abstained && label === NO_ANSWER)) && (!words || row.text.toLowerCase().includes(words)));
    const { by, down } = this.order;
    const value = (row) => (by === "label" ? verdict(row) : row[by]);
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
    return rows.sort((a, b) => (down ? -1 : 1) * compare(value(a), value(b)) || a.line - b.line);
  }

  #draw() {
    const chosen = this.#chosen();
    const counts = this.labels.map((label) => [label, this.rows.filter((row) => given(row).includes(label)).length]);
    if (this.model.abstention) counts.push([NO_ANSWER, this.rows.filter((row) => row.abstained).length]);
    byId("table-summary").textContent = `${chosen.length.toLocaleString()} of ${this.rows.length.toLocaleString()} texts; ${counts.map(([label, count]) => `${label} ${count.toLocaleString()}`).join(", ")}`;
    const heads = [["line", "line", "number"], ["label", "label", ""], ["probability", "probability", ""], ["text", "text", ""]];
    byId("table").replaceChildren(
      make("thead", {}, make("tr", {}, ...heads.map(([by, name, kind]) =>
        make("th", { class: kind, scope: "col", "aria-sort": this.order.by === by ? (this.order.down ? "descending" : "ascending") : null },
          make("button", { type: "button", onclick: () => this.#sort(by) }, name))))),
      make("tbody", {}, ...chosen.slice(0, this.shown).map((row) => make("tr", {},
        make("td", { class: "number" }, String(row.line)),
        make("td", {}, verdict(row)),
        make("td", { class: "share" }, make("span", { class: "meter" }, make("i", { "--share": row.probability.toFixed(3) })), percent(row.probability)),
        make("td", { class: "text" }, make("button", { type: "button", class: "open", title: "Explain this text", onclick: () => this.open(row.text) }, row.text))))));
    byId("more").hidden = chosen.length <= this.shown;
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

function csv(rows, labels) {
  const cell = (value) => {
    let text = String(value);
    // A spreadsheet would run such a text as a formula.
    if (typeof value === "string" && FORMULA.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const head = ["line", "text", "label", "probability", ...labels.map((label) => `probability of ${label}`)];
  const lines = rows.map((row) => [row.line, row.text, row.labels ? row.labels.join("|") : row.label ?? "", row.probability, ...labels.map((label) => row.probabilities[label])]);
  return [head, ...lines].map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
}
