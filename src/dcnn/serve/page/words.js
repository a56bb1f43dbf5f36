// Words coloured by amounts.

import { make, side, signed, strengths } from "./dom.js";

// One button per word; `events`: point(position or null), click(position).
export function wordButtons(words, amounts, events = {}) {
  const strong = strengths(amounts);
  return words.map((word, i) =>
    make("button", {
      type: "button",
      class: `word ${side(amounts[i])}${strong[i] > 0.7 ? " strong" : ""}${word.known ? "" : " unknown"}`,
      "--strength": strong[i].toFixed(3),
      title: word.known ? null : "not in the vocabulary",
      onpointerenter: () => events.point?.(i),
      onpointerleave: () => events.point?.(null),
      onfocus: () => events.point?.(i),
      onblur: () => events.point?.(null),
      onclick: () => events.click?.(i),
    }, word.word, make("small", {}, signed(amounts[i]))),
  );
}

// Colour the same buttons by other amounts.
export function recolour(buttons, amounts) {
  const strong = strengths(amounts);
  buttons.forEach((button, i) => {
    if (!button) return;
    button.style.setProperty("--strength", strong[i].toFixed(3));
    button.classList.toggle("against", amounts[i] < 0);
    button.classList.toggle("strong", strong[i] > 0.7);
    button.querySelector("small").textContent = signed(amounts[i]);
  });
}
