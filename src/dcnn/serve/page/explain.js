// The view of one sentence: label, words, graph, n-grams and deletions, updated as the user types.

import { ask, post } from "./api.js";
import { hint, ofDetectors, ofNode, ofWord } from "./details.js";
import { abstaining, best, byId, choices, make, percent, phrase, side, signed, verdict } from "./dom.js";
import { Graph, withDrawing } from "./graph.js";
import { BUSY, latest } from "./latest.js";
import { wordButtons } from "./words.js";

const EXAMPLES = ["The plot is thin, but the acting is superb.", "not a dull moment", "It never quite comes together, and the jokes fall flat.", "A gorgeous, witty, seductive movie."];
const WAITING = "Waiting for the server\u2026";
const PATIENCE = 400; // milliseconds that the previous answer stays on the screen
const NGRAMS = 8;
const DELETIONS = 8;

export class ExplainView {
  constructor(changed) {
    this.changed = changed;
    this.model = null;
    this.of = "";
    this.detectors = new Map();
    this.graph = new Graph(byId("graph"), {
      show: (id) => this.#details(id),
      pin: () => changed(),
      moved: () => changed(),
    });
    this.send = latest((question) => this.#ask(question), (answer) => this.#show(answer), (error) => this.#fail(error));
    byId("text").addEventListener("input", () => this.refresh());
    byId("class").addEventListener("change", () => this.#explain(byId("class").value));
    byId("nodes").addEventListener("change", () => this.refresh());
    byId("strength").addEventListener("input", () => this.#filter());
    byId("zoom-in").addEventListener("click", () => this.graph.zoom.by(1.25));
    byId("zoom-out").addEventListener("click", () => this.graph.zoom.by(0.8));
    byId("zoom-fit").addEventListener("click", () => this.graph.zoom.fit());
    byId("examples").append(...EXAMPLES.map((text) => make("button", { type: "button", onclick: () => this.open(text) }, text)));
  }

  use(model) {
    if (this.model?.name !== model.name) this.of = "";
    this.model = model;
    this.detectors.clear();
    choices(byId("class"), ["predicted", ...model.classes.map(String)], this.of || "predicted");
  }

  // Show a text as if the user had typed it.
  open(text) {
    byId("text").value = text;
    this.refresh();
  }

  refresh() {
    const text = byId("text").value;
    this.changed();
    if (!text.trim()) {
      this.send({ empty: true });
      return;
    }
    const question = { model: this.model.name, text, nodes: Number(byId("nodes").value), ...abstaining(this.model) };
    if (this.of) question.class = this.of;
    this.send(question);
  }

  state() {
    const share = Number(byId("strength").value);
    return {
      text: byId("text").value,
      class: this.of,
      nodes: byId("nodes").value === "10" ? "" : byId("nodes").value,
      strength: share ? share : "",
      node: this.graph.pinned ?? "",
      zoom: this.graph.zoom.state(),
    };
  }

  restore(state) {
    byId("text").value = state.text ?? EXAMPLES[0];
    this.of = this.model.classes.map(String).includes(state.class) ? state.class : "";
    byId("class").value = this.of || "predicted";
    byId("nodes").value = ["5", "10", "20", "40"].includes(state.nodes) ? state.nodes : "10";
    byId("strength").value = state.strength ?? 0;
    this.graph.pinned = state.node || null;
    if (state.zoom) this.graph.zoom.restore(state.zoom);
    this.#filter();
    this.refresh();
  }

  async #ask(question) {
    if (question.empty) return null;
    const { model, text, abstain } = question;
    if (this.model.explainable) return this.#whileWaiting(question, post("/v1/explain", question));
    return { ...(await post("/v1/predict", { model, text, abstain })).predictions[0], text, plain: true };
  }

  // On a busy server the label arrives long before the explanation.
  async #whileWaiting(question, explained) {
    const { model, text, abstain } = question;
    let over = false;
    const showWaiting = () => over || this.#problem(WAITING);
    const timer = setTimeout(showWaiting, this.answer ? PATIENCE : 0);
    post("/v1/predict", { model, text, abstain }).then(({ predictions }) => {
      if (!over && byId("text").value === text) this.#early(predictions[0]);
    }).catch(() => {}); // the other request reports what is wrong
    try {
      return withDrawing((await explained).explanations[0]);
    } catch (error) {
      if (error.status === BUSY) showWaiting();
      throw error;
    } finally {
      over = true;
      clearTimeout(timer);
    }
  }

  #early(prediction) {
    if (!this.answer) for (const card of document.querySelectorAll("#answer .card:not(#verdict)")) card.hidden = true;
    byId("answer").hidden = false;
    this.#verdict({ ...prediction, class: this.of || best(prediction) });
  }

  #show(answer) {
    this.answer = answer;
    byId("answer").hidden = !answer;
    const problem = answer ? "" : "Type a sentence to see its label and the explanation.";
    this.#problem(answer?.plain ? `A model of kind ${this.model.kind} has no feature graph, only probabilities.` : problem);
    if (!answer) return;
    this.#verdict(answer);
    for (const card of document.querySelectorAll("#answer .card:not(#verdict)")) card.hidden = Boolean(answer.plain);
    if (answer.plain) return;
    this.#words(answer);
    this.graph.show(answer);
    this.#caption(answer);
    this.#ngrams(answer);
    this.#deletions(answer);
  }

  #fail(error) {
    if (error.status) {
      byId("answer").hidden = true;
      this.#problem(error.message);
    }
  }

  #problem(text) {
    byId("problem").textContent = text;
    byId("problem").hidden = !text;
  }

  #verdict(answer) {
    const ranked = Object.entries(answer.probabilities);
    const of = String(answer.class ?? best(answer));
    byId("verdict").replaceChildren(
      make("div", { class: answer.abstained ? "label abstained" : "label" }, verdict(answer), answer.labels ? null : make("small", {}, percent(answer.probability))),
      ...(answer.abstained ? [make("p", { class: "reason" }, this.#reason(answer))] : []),
      make("ul", { class: "bars" }, ...ranked.map(([label, share]) =>
        make("li", {}, make("button", { type: "button", "aria-pressed": String(label === of), title: `Explain ${label}`, onclick: () => this.#explain(label) },
          make("span", {}, label), make("span", { class: "number" }, percent(share)),
          make("span", { class: "track" }, make("span", { class: "fill", "--share": share.toFixed(4) })))))),
    );
  }

  #reason(answer) {
    const { threshold, target_precision: target, out_of_scope: outside } = this.model.abstention;
    if (best(answer) === String(outside)) return `The most probable label, ${outside}, is out of scope.`;
    return `The most probable label is ${best(answer)}, and its probability is below ${percent(threshold)}, the threshold for a precision of ${percent(target)}.`;
  }

  #explain(label) {
    this.of = label === "predicted" ? "" : label;
    byId("class").value = this.of || "predicted";
    this.refresh();
  }

  #words(answer) {
    byId("legend").replaceChildren(make("b", { class: "for" }, `for ${answer.class}`), " ", make("b", { class: "against" }, "against"));
    const amounts = answer.words.map((word) => word.attribution);
    byId("words").replaceChildren(...wordButtons(answer.words, amounts, {
      point: (i) => this.graph.follow(i === null ? null : `word:${i}`),
      click: (i) => this.graph.pin(`word:${i}`),
    }));
    const sum = amounts.reduce((a, b) => a + b, 0);
    byId("sum").replaceChildren("logit of ", make("b", {}, String(answer.class)), ` ${signed(answer.logit)} = words ${signed(sum)}, biases ${signed(answer.biases)}`);
  }

  #caption(answer) {
    const graph = answer.graph;
    const shown = graph.edges.filter((edge) => edge.target === "root").length;
    byId("caption").textContent = `The ${shown} strongest of ${graph.top_nodes} nodes in the last layer contribute ${signed(graph.node_contributions)} to the logit ${signed(answer.logit)}; the drawn paths contribute ${signed(graph.path_contributions)}. Edge width shows the size of a contribution.`;
  }

  #ngrams(answer) {
    byId("ngrams").replaceChildren(make("ul", { class: "list" }, ...answer.ngrams.slice(0, NGRAMS).map((ngram) =>
      make("li", {}, make("span", { class: `number ${side(ngram.attribution)}` }, signed(ngram.attribution)),
        make("span", {}, ...phrase(ngram.words, ngram.positions), make("span", { class: "aside" }, `  ${ngram.nodes} node${ngram.nodes > 1 ? "s" : ""}`))))));
  }

  #deletions(answer) {
    const explained = answer.labels ? String(answer.class) : best(answer);
    const before = answer.probabilities[explained];
    const shift = (deletion) => (String(deletion.label) === explained ? before - deletion.probability : 1);
    const largest = [...answer.deletions].sort((a, b) => shift(b) - shift(a)).slice(0, DELETIONS);
    byId("deletions").replaceChildren(make("ul", { class: "list" }, ...largest.map((deletion) =>
      make("li", {}, make("span", { class: "number" }, percent(deletion.probability).replace(" ", "\u00a0")),
        make("span", {}, make("span", { class: deletion.changes ? "changes-label" : "" }, String(deletion.label)), " without ", make("button", { type: "button", class: "struck", onclick: () => this.#without(deletion.position) }, deletion.word))))));
  }

  // The sentence without a word, as the network read it.
  #without(position) {
    this.open(this.answer.words.filter((_, i) => i !== position).map((word) => word.spelled).join("").trim());
    byId("text").focus();
  }

  #filter() {
    const share = Number(byId("strength").value);
    byId("strength-value").textContent = share ? `\u2265 ${share} %` : "all";
    this.graph.filter(share / 100);
    this.changed();
  }

  #details(id) {
    const panel = byId("details");
    for (const [i, button] of [...byId("words").children].entries()) button.classList.toggle("lit", id === `word:${i}`);
    if (!this.answer || !id || id === "root") {
      panel.replaceChildren(...hint());
      return;
    }
    if (id.startsWith("word:")) {
      panel.replaceChildren(...ofWord(this.answer, Number(id.slice(5))).filter(Boolean));
      return;
    }
    const node = this.answer.graph.nodes.find((other) => other.id === id);
    panel.replaceChildren(...ofNode(this.answer, node));
    if (id === this.graph.pinned) this.#detectors(panel, node);
    else panel.append(make("p", { class: "hint" }, "Click the node to see what activates its detectors."));
  }

  async #detectors(panel, node) {
    if (!this.model.detectors) {
      panel.append(make("p", { class: "hint detector" }, `What activates it is unknown: ${this.model.detectors_note}.`));
      return;
    }
    const place = `${node.layer}:${node.map}:${node.row}`;
    const query = new URLSearchParams({ model: this.model.name, node: place });
    if (!this.detectors.has(place)) this.detectors.set(place, ask(`/v1/detectors?${query}`));
    try {
      const found = await this.detectors.get(place);
      if (this.graph.pinned === node.id) {
        panel.querySelectorAll(".found").forEach((old) => old.remove());
        panel.append(make("div", { class: "found" }, ...ofDetectors(found)));
      }
    } catch (error) {
      this.detectors.delete(place);
      if (error.status) panel.append(make("p", { class: "hint" }, error.message));
    }
  }
}
