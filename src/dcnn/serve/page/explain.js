// The view of one sentence: label, words, graph, n-grams and deletions, updated as the user types.

import { ask, post } from "./api.js";
import { hint, ofDetectors, ofNGram, ofNode, ofWord } from "./details.js";
import { abstaining, best, byId, choices, drawingWidth, make, percent, phrase, side, signed, verdict } from "./dom.js";
import { Graph, withDrawing } from "./graph.js";
import { BUSY, latest } from "./latest.js";
import { wordButtons } from "./words.js";

const WAITING = "Waiting for the server\u2026";
const PATIENCE = 400; // milliseconds that the previous answer stays on the screen
const NGRAMS = 8;
const DELETIONS = 8;
const REPLACEMENTS = 6;
const SIMILAR = 5;
const EXAMPLES = 8; // offered at once
const EXAMPLE_LENGTH = 60; // letters of one
const MANY_CLASSES = 12; // more can be searched
const RESIZED = 40; // pixels of change for which the graph is laid out again
const BESIDE = 322; // pixels of the panel beside the graph
const NODES = ["5", "10", "20", "40"];

export class ExplainView {
  constructor(changed) {
    this.changed = changed;
    this.model = null;
    this.of = "";
    this.ngram = null; // positions of the n-gram whose nodes are shown
    this.examples = [];
    this.find = "";
    this.detectors = new Map();
    this.graph = new Graph(byId("graph"), {
      show: (id) => this.#details(id),
      pin: () => {
        changed();
        this.#uncover();
      },
      moved: () => changed(),
    });
    this.send = latest((question) => this.#ask(question), (answer) => this.#show(answer), (error) => this.#fail(error));
    byId("text").addEventListener("input", () => this.refresh());
    byId("class").addEventListener("change", () => this.#explain(byId("class").value));
    byId("nodes").addEventListener("change", () => this.#expand(null));
    byId("back").addEventListener("click", () => this.#expand(null));
    byId("strength").addEventListener("input", () => this.#filter());
    byId("zoom-in").addEventListener("click", () => this.graph.zoom.by(1.25));
    byId("zoom-out").addEventListener("click", () => this.graph.zoom.by(0.8));
    byId("zoom-fit").addEventListener("click", () => this.graph.zoom.fit());
    new ResizeObserver(() => {
      if (this.answer?.graph && this.width && byId("graph").clientWidth && Math.abs(drawingWidth("graph", "text", BESIDE) - this.width) > RESIZED) this.refresh();
    }).observe(byId("graph"));
  }

  use(model, examples) {
    const other = this.model && this.model.name !== model.name;
    if (other) {
      this.of = "";
      this.ngram = null;
      // A text of the other model's data is no text for this one.
      if (!byId("text").value.trim() || this.examples.some((one) => one.text === byId("text").value)) byId("text").value = examples[0]?.text ?? "";
    }
    this.examples = examples;
    byId("examples").replaceChildren(...examples.slice(0, EXAMPLES).map(({ text, label }) =>
      make("button", { type: "button", title: `${label}: ${text}`, onclick: () => this.open(text) }, text.length > EXAMPLE_LENGTH ? `${text.slice(0, EXAMPLE_LENGTH - 1)}\u2026` : text)));
    this.model = model;
    this.detectors.clear();
    choices(byId("class"), ["predicted", ...model.classes.map(String)], this.of || "predicted");
  }

  // Show a text as if the user had typed it.
  open(text) {
    byId("text").value = text;
    this.ngram = null;
    this.refresh();
  }

  // The single nodes of an n-gram; null shows all n-grams again.
  #expand(positions) {
    this.ngram = positions;
    if (positions) byId("nodes").value = "";
    this.graph.pinned = null;
    this.graph.zoom.own = false;
    this.refresh();
  }

  refresh() {
    const text = byId("text").value;
    this.changed();
    if (!text.trim()) {
      this.send({ empty: true });
      return;
    }
    this.width = drawingWidth("graph", "text", BESIDE);
    const question = { model: this.model.name, text, width: this.width, similar: this.model.index ? SIMILAR : 0, ...abstaining(this.model) };
    if (this.of) question.class = this.of;
    if (this.ngram) question.ngram = this.ngram;
    else if (byId("nodes").value) question.nodes = Number(byId("nodes").value);
    this.send(question);
  }

  state() {
    const share = Number(byId("strength").value);
    return {
      text: byId("text").value,
      class: this.of,
      nodes: byId("nodes").value,
      ngram: this.ngram?.join("-") ?? "",
      strength: share ? share : "",
      node: this.graph.pinned ?? "",
      zoom: this.graph.zoom.state(),
    };
  }

  restore(state) {
    byId("text").value = state.text ?? this.examples[0]?.text ?? "";
    this.ngram = /^\d+(-\d+)*$/.test(state.ngram ?? "") ? state.ngram.split("-").map(Number) : null;
    this.of = this.model.classes.map(String).includes(state.class) ? state.class : "";
    byId("class").value = this.of || "predicted";
    byId("nodes").value = NODES.includes(state.nodes) ? state.nodes : "";
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
      // While typing, an open n-gram may no longer be there.
      if (question.ngram && error.status === 422) {
        this.ngram = null;
        const { ngram, ...whole } = question;
        return withDrawing((await post("/v1/explain", whole)).explanations[0]);
      }
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
    const problem = answer ? "" : `Type a sentence to see its label and the explanation.${this.examples.length ? "" : " Models trained with --keep-examples N have example sentences here."}`;
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
    this.#replacements(answer);
    this.#similar(answer);
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
    // The field stays where it is, so that an explanation that arrives does not interrupt typing.
    const card = byId("verdict"), many = ranked.length > MANY_CLASSES;
    const search = many ? card.querySelector(".find") ?? this.#classSearch() : null;
    if (search) search.placeholder = `Search ${ranked.length} classes`;
    for (const child of [...card.children]) if (child !== search) child.remove();
    if (search && !search.parentNode) card.append(search);
    card.prepend(
      make("div", { class: answer.abstained ? "label abstained" : "label" }, verdict(answer), answer.labels ? null : make("small", {}, percent(answer.probability))),
      ...(answer.abstained ? [make("p", { class: "reason" }, this.#reason(answer))] : []),
    );
    card.append(make("ul", { class: "bars" }, ...ranked.map(([label, share]) =>
      make("li", {}, make("button", { type: "button", "aria-pressed": String(label === of), title: `Explain ${label}`, onclick: () => this.#explain(label) },
        make("span", {}, label), make("span", { class: "number" }, percent(share)),
        make("span", { class: "track" }, make("span", { class: "fill", "--share": share.toFixed(4) })))))));
    this.#findClass();
  }

  #classSearch() {
    return make("input", {
      type: "search", class: "find", "aria-label": "Search classes", value: this.find,
      oninput: (event) => {
        this.find = event.target.value;
        this.#findClass();
      },
    });
  }

  #findClass() {
    const words = byId("verdict").querySelector(".find") ? this.find.toLowerCase() : "";
    for (const item of byId("verdict").querySelectorAll(".bars li")) item.hidden = !item.querySelector("span").textContent.toLowerCase().includes(words);
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
    const covered = `${percent(graph.coverage)} of the absolute contributions of all ${graph.top_nodes} nodes in the last layer`;
    const open = this.ngram && answer.ngrams.find((ngram) => ngram.positions.join() === this.ngram.join());
    byId("back").hidden = !open;
    byId("opened").replaceChildren(...(open ? [`Nodes of \u201c`, ...phrase(open.words, open.positions), "\u201d"] : []));
    if (graph.ngrams.length) {
      byId("caption").textContent = `The ${graph.nodes.filter((node) => node.positions.length).length} n-grams drawn have ${covered}. All boxes add up to the logit ${signed(answer.logit)}. Edge width shows the size of a contribution.`;
      return;
    }
    const shown = graph.edges.filter((edge) => edge.target === "root").length;
    byId("caption").textContent = `The ${shown} strongest nodes have ${covered}: ${signed(graph.node_contributions)} of the logit ${signed(answer.logit)}; the drawn paths contribute ${signed(graph.path_contributions)}. Edge width shows the size of a contribution.`;
  }

  #ngrams(answer) {
    const shown = answer.ngrams.length === NGRAMS + 1 ? NGRAMS + 1 : NGRAMS; // a rest of one takes a line as well
    const rest = answer.ngrams.slice(shown);
    const item = (amount, ...about) => make("li", {}, make("span", { class: `number ${side(amount)}` }, signed(amount)), make("span", {}, ...about));
    byId("ngrams").replaceChildren(make("ul", { class: "list" },
      ...answer.ngrams.slice(0, shown).map((ngram) => item(ngram.attribution,
        make("button", { type: "button", title: "Show its nodes", onclick: () => this.#expand(ngram.positions) }, ...phrase(ngram.words, ngram.positions)),
        make("span", { class: "aside" }, `  ${ngram.nodes} node${ngram.nodes > 1 ? "s" : ""}`))),
      ...(rest.length ? [item(rest.reduce((sum, ngram) => sum + ngram.attribution, 0), make("span", { class: "aside" }, `${rest.length} others`))] : [])));
  }

  #replacements(answer) {
    const listed = answer.replacements.slice(0, REPLACEMENTS);
    byId("replacements").replaceChildren(make("ul", { class: "list" }, ...listed.map((one) =>
      make("li", {}, make("span", { class: "number" }, percent(one.probability).replace(" ", "\u00a0")),
        make("span", {}, make("span", { class: one.changes ? "changes-label" : "" }, String(one.label)), " with ",
          make("button", { type: "button", onclick: () => this.#instead(one) }, make("s", {}, one.word), " ", make("b", {}, one.replacement)), this.#which(one))))));
  }

  // Which of several equal words it is.
  #which({ word, position }) {
    const isRepeated = this.answer.words.filter((other) => other.word === word).length > 1;
    return isRepeated ? make("span", { class: "aside" }, ` word ${position + 1}`) : null;
  }

  #similar(answer) {
    byId("similar-card").hidden = !answer.similar.length;
    byId("similar").replaceChildren(make("ul", { class: "list" }, ...answer.similar.map((one) =>
      make("li", {}, make("span", { class: "number" }, one.similarity.toFixed(2)),
        make("span", {}, make("span", { class: "aside" }, `${one.label}  `), make("button", { type: "button", onclick: () => this.open(one.text) }, one.text))))));
  }

  #deletions(answer) {
    const explained = answer.labels ? String(answer.class) : best(answer);
    const before = answer.probabilities[explained];
    const shift = (deletion) => (String(deletion.label) === explained ? before - deletion.probability : 1);
    const largest = [...answer.deletions].sort((a, b) => shift(b) - shift(a)).slice(0, DELETIONS);
    byId("deletions").replaceChildren(make("ul", { class: "list" }, ...largest.map((deletion) =>
      make("li", {}, make("span", { class: "number" }, percent(deletion.probability).replace(" ", "\u00a0")),
        make("span", {}, make("span", { class: deletion.changes ? "changes-label" : "" }, String(deletion.label)), " without ", make("button", { type: "button", class: "struck", onclick: () => this.#without(deletion.position) }, deletion.word), this.#which(deletion))))));
  }

  // The sentence without a word, as the network read it.
  #without(position) {
    this.open(this.answer.words.filter((_, i) => i !== position).map((word) => word.spelled).join("").trim());
    byId("text").focus();
  }

  #instead({ position, word, replacement }) {
    this.open(this.answer.words.map(({ spelled }, i) => (i === position ? spelled.replace(word, () => replacement) : spelled)).join("").trim());
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
    byId("details").classList.toggle("open", Boolean(this.graph.pinned));
    for (const [i, button] of [...byId("words").children].entries()) button.classList.toggle("lit", id === `word:${i}`);
    // A button of the panel must not be replaced while it is pressed.
    const now = [this.answer, id, id && id === this.graph.pinned];
    if (this.detailed?.every((value, i) => value === now[i])) return;
    this.detailed = now;
    if (!this.answer || !id || id === "root") {
      panel.replaceChildren(...hint());
      return;
    }
    if (id.startsWith("word:")) {
      panel.replaceChildren(...ofWord(this.answer, Number(id.slice(5))).filter(Boolean));
      return;
    }
    const node = this.answer.graph.nodes.find((other) => other.id === id);
    if (node.nodes !== undefined) {
      panel.replaceChildren(...ofNGram(this.answer, node, (positions) => this.#expand(positions)));
      return;
    }
    panel.replaceChildren(...ofNode(this.answer, node));
    if (id === this.graph.pinned) this.#detectors(panel, node);
    else panel.append(make("p", { class: "hint" }, "Click the node to see what activates its detectors."));
  }

  // On a narrow screen the details lie over the end of the graph: what was pinned stays in sight.
  #uncover() {
    const [panel, graph] = ["details", "graph"].map((id) => byId(id).getBoundingClientRect());
    const node = byId("graph").querySelector(".node.pinned")?.getBoundingClientRect();
    const covered = node && panel.left < graph.right ? node.bottom + 12 - panel.top : 0;
    if (covered > 0) scrollBy({ top: covered });
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
