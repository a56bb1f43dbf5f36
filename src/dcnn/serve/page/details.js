// The panel beside the graph: details of the word or node under the pointer.

import { make, percent, side, signed, strengths } from "./dom.js";

const MOST = 9; // words listed per node

export function hint() {
  if (matchMedia("(hover: none)").matches) {
    return [make("p", { class: "hint" }, "Tap a word to see its paths, or an n-gram or a node to see the words that contribute to it. An n-gram opens to its single nodes.")];
  }
  return [
    make("p", { class: "hint" }, "Point at a word to see its paths, or at an n-gram to see the words that contribute to it. Click an n-gram to open its single nodes, and a node for what activates its detectors."),
    make("p", { class: "hint" }, make("kbd", {}, "Tab"), " enters the graph, ", make("kbd", {}, "\u2190 \u2191 \u2192 \u2193"), " move between nodes, ", make("kbd", {}, "Enter"), " pins a node, ", make("kbd", {}, "+ \u2212 0"), " zoom."),
  ];
}

export function ofWord(explanation, position) {
  const { word, attribution, known } = explanation.words[position];
  const deletion = explanation.deletions[position];
  const edges = explanation.graph.edges.filter((edge) => edge.source === `word:${position}`);
  const paths = edges.map((edge) => [edge.target, edge.contribution]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  return [
    make("h3", {}, `\u201c${word}\u201d`),
    known ? null : make("p", { class: "hint" }, `Not in the vocabulary: the network ${explanation.char_ngrams ? "knows it by its spelling alone" : "treats it as the unknown word"}.`),
    fields([
      ["attribution", `${signed(attribution, 3)} ${side(attribution)} ${explanation.class}`],
      ["without it", `${deletion.label} ${percent(deletion.probability)}`],
    ]),
    make("h4", {}, paths.length ? "Contributions along the drawn paths" : "No drawn path starts here."),
    bars(paths.slice(0, MOST).map(([id, flow]) => [explanation.graph.nodes.find((node) => node.id === id)?.full ?? nodeName(id), flow])),
  ];
}

export function ofNGram(explanation, node, expand) {
  const shares = node.word_contributions ?? [];
  const listed = explanation.words.map((word, i) => [word.word, shares[i] ?? 0]).filter(([, amount]) => Math.abs(amount) > 0.0005);
  listed.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const amounts = [["contribution", `${signed(node.contribution, 3)} to the logit`]];
  if (node.nodes) {
    amounts.push(["nodes", `${node.nodes}: ${signed((node.absolute + node.contribution) / 2, 3)} for, ${signed((node.contribution - node.absolute) / 2, 3)} against`]);
  }
  return [
    make("h3", {}, node.positions.length ? `\u201c${node.full}\u201d` : node.full),
    fields(amounts),
    ...(node.positions.length ? [make("p", {}, make("button", { type: "button", class: "expand", onclick: () => expand(node.positions) }, `Show its node${node.nodes > 1 ? "s" : ""}`))] : []),
    ...(listed.length ? [make("h4", {}, "Contributions of the words through it"), bars([...listed.slice(0, MOST), ...others(listed.slice(MOST))])] : []),
    ...(node.id === "biases" ? [make("p", { class: "hint" }, "What nodes and the class have without any word.")] : []),
  ];
}

export function ofNode(explanation, node) {
  const words = explanation.words.map((word, i) => [word.word, node.word_contributions[i]]);
  const listed = words.filter(([, amount]) => Math.abs(amount) > 0.0005);
  listed.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const biases = node.value - node.word_contributions.reduce((sum, amount) => sum + amount, 0);
  return [
    make("h3", {}, `Layer ${node.layer}, map ${node.map}, row ${node.row}`),
    fields([
      ["value", `${signed(node.value, 3)}, after tanh`],
      ["margin", node.margin === null ? "nothing was dropped" : node.margin.toFixed(3)],
      ["contribution", `${signed(node.contribution, 3)} to the logit`],
    ]),
    make("h4", {}, "Contributions of the words to its value"),
    bars([...listed.slice(0, MOST), ...others(listed.slice(MOST)), ["biases", biases]]),
  ];
}

// The rest of a truncated list, so that the numbers still add up.
const others = (left) =>
  left.length > 1 ? [[`${left.length} others`, left.reduce((sum, [, amount]) => sum + amount, 0)]] : left;

export function ofDetectors(answer) {
  return [
    make("h4", {}, answer.detectors.length > 1 ? "What activates its two detectors, which folding sums" : "What activates its detector"),
    ...answer.detectors.map((detector) => {
      const [label, amount] = Object.entries(detector.contributions).sort((a, b) => b[1] - a[1])[0];
      return make("div", { class: "detector" },
        make("div", { class: "title" }, detector.name || "no distinctive word"),
        make("div", { class: "where" }, `detector ${detector.layer}:${detector.map}:${detector.row}, contributes ${signed(amount, 3)} to ${label}${detector.weak ? ", weights near zero" : ""}`),
        make("ol", {}, ...detector.top.map((ngram) => make("li", {}, detection(ngram), make("span", { class: "number" }, signed(ngram.value))))),
      );
    }),
  ];
}

// An n-gram of the corpus; the words that contribute most are bold.
function detection(ngram) {
  const strongest = new Set(ngram.strongest);
  const parts = [];
  ngram.words.forEach((word, i) => {
    if (i) parts.push(ngram.positions[i] === ngram.positions[i - 1] + 1 ? " " : " \u2026 ");
    parts.push(strongest.has(ngram.positions[i]) ? make("b", {}, word) : word);
  });
  return make("span", {}, ...parts);
}

export const nodeName = (id) => {
  if (id === "root") return "the class";
  const [layer, map, row] = id.split(":");
  return `${layer}:${map}:${row}`;
};

function fields(pairs) {
  return make("dl", { class: "fields" }, ...pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

export function bars(pairs) {
  const strong = strengths(pairs.map(([, amount]) => amount));
  return make("ul", { class: "contributions" }, ...pairs.map(([name, amount], i) =>
    make("li", {}, make("span", { class: "name", title: name }, name), axis(amount, strong[i]), make("span", { class: "number" }, signed(amount, 3)))));
}

export const axis = (amount, share) =>
  make("span", { class: "axis" }, make("i", { class: side(amount), "--share": share.toFixed(3) }));
