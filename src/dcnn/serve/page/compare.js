// Two sentences side by side, and what changes between them.

import { post } from "./api.js";
import { axis, nodeName } from "./details.js";
import { abstaining, byId, choices, drawingWidth, make, percent, signed, strengths, verdict } from "./dom.js";
import { Graph, detectorOf, withDrawing } from "./graph.js";
import { latest } from "./latest.js";
import { recolour, wordButtons } from "./words.js";

const SIDES = ["first", "second"];

export class CompareView {
  constructor(changed) {
    this.changed = changed;
    this.of = "";
    this.graphs = SIDES.map((name) => new Graph(byId(`${name}-graph`)));
    this.send = latest((question) => this.#ask(question), (answer) => this.#show(answer), (error) => this.#fail(error));
    for (const name of SIDES) byId(name).addEventListener("input", () => this.refresh());
    byId("compare-class").addEventListener("change", () => {
      this.of = byId("compare-class").value;
      if (this.of === "predicted") this.of = "";
      this.refresh();
    });
  }

  use(model, examples) {
    if (this.model?.name !== model.name) this.of = "";
    this.examples = examples;
    this.model = model;
    choices(byId("compare-class"), ["predicted", ...model.classes.map(String)], this.of || "predicted");
  }

  refresh() {
    this.changed();
    const texts = SIDES.map((name) => byId(name).value);
    const width = drawingWidth("first-graph", "first");
    const question = { model: this.model.name, texts, width, ...abstaining(this.model) };
    if (this.of) question.class = this.of;
    this.send(texts.every((text) => text.trim()) ? question : { empty: true });
  }

  state() {
    return { first: byId("first").value, second: byId("second").value, class: this.of };
  }

  restore(state) {
    SIDES.forEach((name, i) => (byId(name).value = state[name] ?? this.examples[i]?.text ?? ""));
    this.of = this.model.classes.map(String).includes(state.class) ? state.class : "";
    byId("compare-class").value = this.of || "predicted";
    this.refresh();
  }

  async #ask(question) {
    if (question.empty || !this.model.explainable) return null;
    const { explanations, comparison } = await post("/v1/compare", question);
    return { explanations: explanations.map(withDrawing), ...comparison };
  }

  #show(answer) {
    byId("comparison").hidden = !answer;
    this.#problem(answer ? "" : this.model.explainable ? "Type two sentences." : `A model of kind ${this.model.kind} has no feature graph to compare.`);
    if (!answer) return;
    this.answer = answer;
    answer.explanations.forEach((explanation, i) => {
      byId(`${SIDES[i]}-answer`).replaceChildren(make("b", {}, verdict(explanation)), ` ${percent(explanation.labels ? explanation.probabilities[explanation.class] : explanation.probability)}, logit of ${explanation.class} ${signed(explanation.logit)}`);
    });
    const [before, after] = answer.explanations;
    byId("difference").replaceChildren(
      "The logit of ", make("b", {}, String(before.class)), ` goes from ${signed(before.logit)} to ${signed(after.logit)}: `,
      make("b", {}, signed(answer.difference)), `. The ${answer.changes.length} largest changes below add up to ${signed(answer.difference - answer.others)}, all others to ${signed(answer.others)}.`);
    this.#aligned(answer);
    this.#changes(answer);
    this.#graphs(answer);
  }

  #fail(error) {
    if (!error.status) return;
    byId("comparison").hidden = true;
    this.#problem(error.message);
  }

  #problem(text) {
    byId("compare-problem").textContent = text;
    byId("compare-problem").hidden = !text;
  }

  #aligned(answer) {
    this.buttons = answer.explanations.map((explanation, which) =>
      wordButtons(explanation.words, explanation.words.map((word) => word.attribution), {
        point: (i) => this.graphs[which].follow(i === null ? null : `word:${i}`),
      }));
    byId("aligned").replaceChildren(...answer.aligned.map((pair) => {
      const words = pair.map((position, which) => (position === null ? null : answer.explanations[which].words[position].word));
      const cells = pair.map((position, which) => (position === null ? make("div", { class: "absent" }) : this.buttons[which][position]));
      return make("div", { class: `pair${words[0] === words[1] ? "" : " other"}` }, ...cells);
    }));
  }

  #changes(answer) {
    const strong = strengths(answer.changes.flatMap((change) => [...change.contributions, change.contributions[1] - change.contributions[0]]));
    const rows = answer.changes.map((change, i) => {
      const [a, b] = change.contributions;
      const enter = () => this.#colour(change.word_contributions);
      const leave = () => this.#colour(null);
      return make("tr", { tabindex: "0", onpointerenter: enter, onpointerleave: leave, onfocus: enter, onblur: leave },
        make("td", { class: "name" }, change.name || nodeName(detectorOf(change)), change.name ? make("small", {}, nodeName(detectorOf(change))) : null),
        make("td", {}, axis(a, strong[3 * i])), make("td", { class: "number" }, signed(a, 3)),
        make("td", {}, axis(b, strong[3 * i + 1])), make("td", { class: "number" }, signed(b, 3)),
        make("td", { class: "number" }, make("b", {}, signed(b - a, 3))));
    });
    byId("changes").replaceChildren(make("div", { class: "scroll" }, make("table", {},
      make("thead", {}, make("tr", {}, make("th", {}, "detector"), make("th", { colspan: 2 }, "first sentence"), make("th", { colspan: 2 }, "second sentence"), make("th", { class: "number" }, "change"))),
      make("tbody", {}, ...rows))));
  }

  #colour(contributions) {
    this.answer.explanations.forEach((explanation, which) => {
      const amounts = contributions ? contributions[which] : explanation.words.map((word) => word.attribution);
      recolour(this.buttons[which], amounts);
      this.graphs[which].shadeWith(amounts);
    });
  }

  #graphs(answer) {
    answer.explanations.forEach((explanation, which) => {
      this.graphs[which].show(explanation);
      byId(`${SIDES[which]}-only`).textContent = `${percent(explanation.graph.coverage)} of the absolute contributions`;
    });
  }
}
