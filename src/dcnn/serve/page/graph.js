// The feature graph, drawn with the server's layout and explored by pointer and keyboard.
//
// It has n-grams, each with all nodes of the last layer that saw it, or single nodes. Pointing at a
// word keeps the paths that start at it; pointing at an n-gram or a node keeps the paths through it
// and colours the words by their contributions to it.

import { draw, percent, side, signed, strengths } from "./dom.js";
import { Zoom } from "./zoom.js";

const ROOT = "root";
const WORD_HEIGHT = 30;
const NGRAM_HEIGHT = 42;
const MARGIN = 28; // below the words
const HIT = 15; // radius in which a pointer hits a node

export class Graph {
  // `events`: show(id or null), pin(id), moved(zoom).
  constructor(container, events = {}) {
    this.container = container;
    this.events = events;
    this.pinned = null;
    this.strength = 0;
    this.svg = draw("svg", { class: "drawing", role: "application", tabindex: "-1" });
    this.scene = draw("g");
    this.svg.append(this.scene);
    container.replaceChildren(this.svg);
    this.zoom = new Zoom(this.svg, this.scene, () => events.moved?.(this.zoom.state()));
    this.svg.addEventListener("keydown", (event) => this.#key(event));
    this.svg.addEventListener("click", (event) => {
      if (event.target === this.svg) this.pin(null);
    });
  }

  show(explanation) {
    this.explanation = explanation;
    const graph = (this.drawing = explanation.graph);
    this.parts = new Map();
    this.svg.setAttribute("aria-label", `Feature graph of: ${explanation.text}. Use the arrow keys to move between nodes.`);
    const edges = graph.edges.map((edge) => this.#edge(edge));
    const nodes = graph.nodes.map((node) => (node.nodes === undefined ? this.#node(node) : this.#ngram(node)));
    const words = this.#words(graph.words, graph.vertical);
    const root = this.#root(graph.root, explanation);
    this.scene.replaceChildren(...this.#layers(graph), ...edges, ...nodes, ...words, root);
    this.zoom.size(graph.width, graph.height);
    this.filter(this.strength);
    if (this.pinned && !this.parts.has(this.pinned)) this.pinned = null;
    this.#tabStop(this.pinned || `word:${strongestWord(explanation)}`);
    this.follow(this.pinned);
    this.#markPinned();
  }

  // Hide edges whose contribution is below this share of the largest one.
  filter(share) {
    this.strength = share;
    if (!this.drawing) return;
    const largest = Math.max(...this.drawing.edges.map((edge) => Math.abs(edge.contribution)), 1e-12);
    const joined = new Set([ROOT]);
    for (const edge of this.drawing.edges) {
      const shown = Math.abs(edge.contribution) >= share * largest;
      edge.element.classList.toggle("filtered", !shown);
      if (shown) joined.add(edge.source).add(edge.target);
    }
    for (const node of this.drawing.nodes) {
      this.parts.get(node.id).classList.toggle("filtered", !joined.has(node.id));
    }
  }

  // Keep only the paths through this word or node; null shows everything again.
  follow(id) {
    const target = id ?? this.pinned;
    const above = target ? this.#reach(target, "source", "target") : null;
    const below = target ? this.#reach(target, "target", "source") : null;
    for (const [name, element] of this.parts) {
      element.classList.toggle("faint", Boolean(target) && !above.has(name) && !below.has(name));
      element.classList.toggle("lit", name === id && name !== this.pinned);
    }
    for (const edge of this.drawing.edges) {
      const up = above?.has(edge.source) && above?.has(edge.target);
      const down = below?.has(edge.source) && below?.has(edge.target);
      edge.element.classList.toggle("faint", Boolean(target) && !up && !down);
    }
    const node = this.drawing.nodes.find((other) => other.id === target);
    this.#shade(node?.word_contributions ?? this.explanation.words.map((word) => word.attribution));
    if (node?.word_contributions) {
      // Words may contribute to a node along paths that are not drawn.
      const strong = strengths(node.word_contributions);
      for (const word of this.drawing.words) {
        if (word.id && strong[word.position] > 0.15) this.parts.get(word.id).classList.remove("faint");
      }
    }
    this.events.show?.(target);
  }

  pin(id) {
    this.pinned = this.pinned === id ? null : id;
    this.#markPinned();
    this.follow(this.pinned);
    this.events.pin?.(this.pinned);
  }

  // Colour the words by other amounts, one per word of the text.
  shadeWith(amounts) {
    this.#shade(amounts ?? this.explanation.words.map((word) => word.attribution));
  }

  #shade(amounts) {
    const strong = strengths(amounts);
    for (const word of this.drawing.words) {
      if (!word.id) continue;
      const element = this.parts.get(word.id);
      element.style.setProperty("--strength", strong[word.position].toFixed(3));
      element.classList.toggle("against", amounts[word.position] < 0);
      element.querySelector(".amount").textContent = signed(amounts[word.position]);
    }
  }

  #markPinned() {
    for (const [name, element] of this.parts) {
      element.classList.toggle("pinned", name === this.pinned);
      if (name !== ROOT && !name.startsWith("word:")) {
        element.setAttribute("aria-pressed", String(name === this.pinned));
      }
    }
  }

  #reach(start, from, to) {
    const seen = new Set([start]);
    const waiting = [start];
    while (waiting.length) {
      const here = waiting.pop();
      for (const edge of this.drawing.edges) {
        if (edge[from] === here && !seen.has(edge[to]) && !edge.element.classList.contains("filtered")) {
          seen.add(edge[to]);
          waiting.push(edge[to]);
        }
      }
    }
    return seen;
  }

  #layers(graph) {
    return graph.layers.map(([x, y, name]) =>
      draw("g", {},
        graph.vertical ? null : draw("line", { class: "layer-line", x1: 0, x2: graph.width, y1: y + 6, y2: y + 6 }),
        draw("text", { class: graph.vertical ? "layer-name middle" : "layer-name", x, y }, name)),
    );
  }

  #edge(edge) {
    const [[x1, y1], [x2, y2]] = [edge.start, edge.end];
    const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
    const bends = this.drawing.vertical ? `${x} ${y1} ${x} ${y2}` : `${x1} ${y} ${x2} ${y}`;
    edge.element = draw("path", {
      class: `edge ${side(edge.contribution)}`,
      d: `M${x1} ${y1}C${bends} ${x2} ${y2}`,
      "stroke-width": edge.width,
    });
    return edge.element;
  }

  #node(node) {
    const about = `layer ${node.layer}, map ${node.map}, row ${node.row}: value ${signed(node.value, 3)}, contribution ${signed(node.contribution, 3)}`;
    return this.#part(node.id, `node disc-node ${side(node.contribution)}`, about, [
      draw("circle", { class: "hit", cx: node.x, cy: node.y, r: Math.max(HIT, node.radius) }),
      draw("circle", { class: "halo", cx: node.x, cy: node.y, r: node.radius + 3 }),
      draw("circle", { class: "disc", cx: node.x, cy: node.y, r: node.radius }),
    ]);
  }

  #ngram(node) {
    const box = { x: node.x - node.width / 2, y: node.y - NGRAM_HEIGHT / 2, width: node.width, height: NGRAM_HEIGHT, rx: 9 };
    const about = `${node.full}: contribution ${signed(node.contribution, 3)}`;
    return this.#part(node.id, `node ngram-node ${side(node.contribution)}`, about, [
      draw("rect", { class: "box", ...box }),
      draw("rect", { class: "shade", ...box, "--strength": Math.abs(node.strength).toFixed(3) }),
      draw("text", { class: "ngram-text", x: node.x, y: node.y - 3 }, node.text),
      draw("text", { class: "amount", x: node.x, y: node.y + 14 }, signed(node.contribution)),
    ]);
  }

  #words(words, vertical) {
    return words.map((word) => {
      const box = { x: word.x - word.width / 2, y: word.y - WORD_HEIGHT / 2, width: word.width, height: WORD_HEIGHT, rx: 7 };
      const inside = [
        draw("rect", { class: "box", ...box }),
        draw("rect", { class: "shade", ...box }),
        draw("text", { class: "token", x: word.x, y: word.y + 5 }, word.text),
        vertical
          ? draw("text", { class: "amount before", x: word.x - word.width / 2 - 6, y: word.y + 4 })
          : draw("text", { class: "amount", x: word.x, y: word.y + WORD_HEIGHT / 2 + 14 }),
      ];
      if (!word.id) return draw("g", {}, inside[2]);
      return this.#part(word.id, "node word-node", `${word.text}: ${signed(word.attribution, 3)}`, inside);
    });
  }

  #root({ x, y, width, height, text_y: middle, text }, explanation) {
    const label = String(explanation.class);
    const number = `logit ${signed(explanation.logit)}, ${percent(explanation.probabilities[label])}`;
    const inside = this.drawing.vertical
      ? [draw("text", { class: "top-bar", x, y: middle + 5, transform: `rotate(-90 ${x} ${middle})` }, draw("tspan", { class: "top-label" }, text[0]), `  ${number}`)]
      : [draw("text", { class: "top-label", x, y: y - 2 }, text[0]), draw("text", { class: "top-number", x, y: y + 15 }, number)];
    return this.#part(ROOT, "node root-node", `${label}, ${number}`, [
      draw("rect", { class: "top-box", x: x - width / 2, y: y - height / 2, width, height, rx: 11 }), ...inside,
    ]);
  }

  #part(id, kind, about, inside) {
    const element = draw("g", {
      class: kind, "data-id": id, tabindex: "-1", role: "button", "aria-label": about,
      onpointerenter: () => this.follow(id),
      onpointerleave: () => this.follow(null),
      onfocus: () => {
        this.#tabStop(id);
        this.follow(id);
      },
      onblur: () => this.follow(null),
      onclick: () => {
        if (!this.zoom.dragged) this.pin(id === ROOT ? null : id);
      },
    }, ...inside);
    this.parts.set(id, element);
    return element;
  }

  // The graph is one stop of the Tab key; arrow keys move inside it.
  #tabStop(id) {
    for (const [name, element] of this.parts) element.setAttribute("tabindex", name === id ? "0" : "-1");
  }

  #key(event) {
    const here = document.activeElement?.dataset?.id;
    // In a column of words, the root is on the right.
    const turns = this.drawing?.vertical ? ["down", "up", "left", "right"] : ["left", "right", "up", "down"];
    const direction = turns[["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].indexOf(event.key)];
    if (direction && here) this.#walk(here, direction);
    else if (event.key === "Enter" || event.key === " ") this.pin(here === ROOT ? null : here);
    else if (event.key === "Escape") this.pin(null);
    else if (event.key === "+" || event.key === "=") this.zoom.by(1.25);
    else if (event.key === "-") this.zoom.by(0.8);
    else if (event.key === "0") this.zoom.fit();
    else return;
    event.preventDefault();
  }

  #walk(here, direction) {
    const places = new Map([...this.drawing.nodes, ...this.drawing.words].map((part) => [part.id, part]));
    places.set(ROOT, this.drawing.root);
    const [along, away] = this.drawing.vertical ? ["y", "x"] : ["x", "y"];
    const layer = (id) => (id.startsWith("word:") ? "word" : id.includes(":") && !id.startsWith("ngram:") ? id.split(":")[0] : "ngram");
    const at = places.get(here);
    let next = null;
    if (direction === "up" || direction === "down") {
      const [from, to] = direction === "up" ? ["source", "target"] : ["target", "source"];
      const edges = this.drawing.edges.filter((edge) => edge[from] === here && !edge.element.classList.contains("filtered"));
      edges.sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution));
      next = edges[0]?.[to];
    } else {
      const sign = direction === "right" ? 1 : -1;
      const beside = [...places].filter(([id, part]) => id && (layer(id) === layer(here) || Math.abs(part[away] - at[away]) < 1) && sign * (part[along] - at[along]) > 0.01 && !this.parts.get(id).classList.contains("filtered"));
      beside.sort(([, a], [, b]) => sign * (a[along] - b[along]));
      next = beside[0]?.[0];
    }
    if (next) {
      this.parts.get(next).focus({ preventScroll: true });
      this.zoom.reveal(places.get(next));
    }
  }
}

// An explanation whose graph has flat nodes, edges and words, as they are drawn.
export function withDrawing(explanation) {
  const { layout, ...graph } = explanation.graph;
  const nodes = layout.nodes.map(({ node, ...place }) => ({ ...node, ...place, word_contributions: graph.word_contributions[node.id] }));
  nodes.push(...layout.ngrams.map(({ ngram, ...place }) => ({ ...ngram, ...place, full: ngram.text, word_contributions: graph.word_contributions[ngram.id] })));
  const edges = layout.edges.map(({ edge, ...place }) => ({ ...edge, ...place }));
  const words = layout.words.map((word) => ({
    ...word,
    id: word.position === null ? "" : `word:${word.position}`,
    attribution: explanation.words[word.position]?.attribution,
  }));
  const height = layout.caption[0][0] - (layout.vertical ? MARGIN / 2 : 6); // without the caption of the SVG
  return { ...explanation, graph: { ...graph, ...layout, nodes, edges, words, height } };
}

// Identifies a node's detector across sentences.
export const detectorOf = (node) => `${node.layer}:${node.map}:${node.row}`;

function strongestWord(explanation) {
  const drawn = explanation.graph.words.filter((word) => word.id);
  drawn.sort((a, b) => Math.abs(b.attribution) - Math.abs(a.attribution));
  return drawn[0]?.position ?? 0;
}
