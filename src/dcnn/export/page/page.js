// The page: a text box, the label with all probabilities, and the words coloured by what they
// contribute to the logit of one label. Texts are inserted as text, never as markup.

const SHOWN = 8; // labels before "show all"
const MOST_WORDS = 1000; // that are coloured; a longer text is only classified
const MINUS = "\u2212";

let model = null;

const byId = (id) => document.getElementById(id);
const signed = (number) => (number < 0 ? MINUS : "+") + Math.abs(number).toFixed(2);
const percent = (share) => `${(100 * share).toFixed(share > 0.9995 || share < 0.0005 ? 2 : 1)} %`;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

let explained = null; // number of the label that the reader chose; null is the most probable
let showAll = false;

function refresh() {
  const text = byId("text").value;
  const empty = !text.trim();
  byId("answer").hidden = empty;
  byId("hint").hidden = !empty;
  if (empty) return;
  const answer = model.predict(text);
  const long = answer.tokens.length > MOST_WORDS;
  const shown = long ? { ...answer, number: explained ?? answer.best, attributions: null } : model.explain(text, explained, answer);
  showLabels(shown);
  showWords(shown, long);
}

function showLabels(answer) {
  const none = answer.abstained ? "no answer" : "no label";
  const sure = model.multiLabel || answer.abstained ? null : make("small", {}, percent(answer.ranked[0].probability));
  const { length } = answer.labels;
  byId("label").className = length > 1 ? "label many" : length ? "label" : "label none";
  byId("label").replaceChildren(...[answer.labels.join(", ") || none, sure].filter((part) => part !== null));
  byId("reason").hidden = !answer.abstained;
  byId("reason").textContent = answer.abstained ? reason(answer) : "";
  const rows = showAll ? answer.ranked : answer.ranked.filter((one, i) => i < SHOWN || one.number === answer.number);
  byId("bars").replaceChildren(...rows.map((one) => bar(one, answer.number)));
  byId("more").hidden = answer.ranked.length <= SHOWN;
  byId("more").textContent = showAll ? "Show fewer" : `Show all ${answer.ranked.length} labels`;
}

function reason(answer) {
  const { label, probability } = answer.ranked[0];
  if (String(label) === String(model.abstention.out_of_scope)) return `The most probable label, ${label}, is out of scope.`;
  return `The most probable label is ${label} (${percent(probability)}), below the threshold of ${percent(model.abstention.threshold)}.`;
}

function bar({ number, label, probability, given }, chosen) {
  const threshold = model.multiLabel ? make("span", { class: "threshold", "--share": model.thresholds[number] }) : null;
  const track = make("span", { class: "track" }, make("span", { class: "fill", "--share": probability }), threshold);
  const attributes = { type: "button", "aria-pressed": String(number === chosen), title: `Explain ${label}` };
  attributes.onclick = () => { explained = number; refresh(); };
  const name = make("span", { class: given ? "given" : null }, String(label));
  return make("li", {}, make("button", attributes, name, make("span", { class: "number" }, percent(probability)), track));
}

function showWords({ tokens, known, attributions, number, logit, biases }, long) {
  const label = String(model.classes[number]);
  byId("why").hidden = !attributions && !long;
  byId("words").hidden = byId("legend").hidden = !attributions;
  if (long) byId("sum").textContent = `The text has more than ${MOST_WORDS} words, too many to explain.`;
  if (!attributions) return;
  byId("legend").replaceChildren(make("b", { class: "for" }, `for ${label}`), " ", make("b", { class: "against" }, "against"));
  const total = attributions.reduce((a, b) => a + b, 0);
  const sum = ` ${signed(logit)} = words ${signed(total)}, biases ${signed(biases)}`;
  const showSum = () => byId("sum").replaceChildren("logit of ", make("b", {}, label), sum);
  const largest = Math.max(...attributions.map(Math.abs), 1e-12);
  byId("words").replaceChildren(...tokens.flatMap((token, i) => {
    const spelled = model.tokenizer.spell(token);
    const gap = spelled.startsWith(" ") && spelled.length > 1 ? " " : "";
    const text = gap ? spelled.slice(1) : spelled;
    const word = make("span", {
      class: `word${attributions[i] < 0 ? " against" : ""}${known[i] ? "" : " unknown"}`,
      "--strength": (Math.abs(attributions[i]) / largest).toFixed(3),
      title: `${signed(attributions[i])}${known[i] ? "" : unknownNote()}`,
      tabindex: 0,
      onfocus: () => { byId("sum").textContent = `${text} ${word.title}`; }, // on a phone a title never shows
      onblur: showSum,
    }, text);
    return [gap, word];
  }));
  showSum();
}

const unknownNote = () => (model.encoder.char_ngrams ? "; not in the vocabulary, known by its spelling" : "; not in the vocabulary");

// For other scripts: after `await ready`, model.predict(text) and model.explain(text, number).
globalThis.ready = Model.read(JSON.parse(byId("model").textContent)).then(start, (error) => {
  byId("hint").textContent = `The model cannot be read, which takes a browser of 2023 or later (${error.message}).`;
});

function start(read) {
  globalThis.model = model = read;
  byId("about").textContent = `A sentence classifier with ${model.classes.length} labels${model.multiLabel ? ", any number per text" : ""}`;
  byId("text").addEventListener("input", () => { explained = null; refresh(); });
  byId("more").addEventListener("click", () => { showAll = !showAll; refresh(); });
  refresh();
}
