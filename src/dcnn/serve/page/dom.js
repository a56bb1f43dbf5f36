// Elements from values. Text is inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const make = (tag, attributes = {}, ...children) =>
  filled(document.createElement(tag), attributes, children);

export const draw = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

// The labels of a text: one, or none if the model abstains, or all that reach their thresholds.
export const given = (answer) => (answer.labels ?? (answer.abstained ? [] : [answer.label])).map(String);

export const NO_ANSWER = "no answer";

export const verdict = (answer) => given(answer).join(", ") || (answer.abstained ? NO_ANSWER : "no label");

// The most probable label, whether or not the text gets it.
export const best = (answer) =>
  Object.entries(answer.probabilities).reduce((first, other) => (other[1] > first[1] ? other : first))[0];

// What a request asks for where the model stores a threshold.
export const abstaining = (model) => (model.abstention ? { abstain: true } : {});

export const signed = (number, digits = 2) =>
  (number < 0 ? "\u2212" : "+") + Math.abs(number).toFixed(digits);

export const percent = (share) => {
  const digits = share === 0 || share === 1 ? 0 : share > 0.9995 || share < 0.0005 ? 2 : 1;
  return `${(100 * share).toFixed(digits)} %`;
};

export const side = (number) => (number < 0 ? "against" : "for");

// Every amount relative to the largest one, 0 to 1.
export function strengths(amounts) {
  const largest = Math.max(...amounts.map(Math.abs), 1e-12);
  return amounts.map((amount) => Math.abs(amount) / largest);
}

// Pixels that a drawing has: those of its place, or while that is hidden of another element, less
// what is beside it on a wide screen.
export const drawingWidth = (id, other, beside = 0) => {
  const hidden = byId(other).clientWidth - (matchMedia("(min-width: 981px)").matches ? beside : 0);
  return Math.min(4000, Math.max(240, byId(id).clientWidth || hidden));
};

export function choices(select, values, chosen) {
  select.replaceChildren(...values.map((value) => make("option", { value }, value)));
  select.value = chosen;
}

// Words, with an ellipsis where words in between are missing.
export function phrase(words, positions) {
  const parts = [];
  words.forEach((word, i) => {
    if (i && positions[i] !== positions[i - 1] + 1) parts.push(make("span", { class: "gap" }, "\u2026"));
    else if (i) parts.push(" ");
    parts.push(word);
  });
  return parts;
}
