// Moving and scaling a drawing: buttons, keys, Ctrl and wheel (or pinch), and dragging.

const SMALLEST = 0.2;
const LARGEST = 4;
const STRETCHED = 1.3; // of a small drawing
const MOVED = 4; // pixels after which a press is a drag

export class Zoom {
  constructor(svg, scene, moved) {
    this.svg = svg;
    this.scene = scene;
    this.moved = moved;
    this.view = { x: 0, y: 0, scale: 1 };
    this.own = false; // whether the user chose the view
    this.dragged = false;
    svg.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    svg.addEventListener("pointerdown", (event) => this.#press(event));
    new ResizeObserver(() => this.#resized()).observe(svg.parentElement);
  }

  // Set the size of the drawing; a view that the user chose is kept.
  size(width, height) {
    this.width = width;
    this.height = height;
    if (this.own) this.#apply();
    else this.#start();
  }

  by(factor, at = null) {
    const { clientWidth, clientHeight } = this.svg;
    const [x, y] = at ?? [clientWidth / 2, clientHeight / 2];
    const scale = Math.min(LARGEST, Math.max(SMALLEST, this.view.scale * factor));
    const ratio = scale / this.view.scale;
    this.#set({ x: x - (x - this.view.x) * ratio, y: y - (y - this.view.y) * ratio, scale });
  }

  // Show the whole drawing.
  fit() {
    this.own = false;
    this.#start();
    this.moved();
  }

  reveal({ x, y }) {
    const { clientWidth, clientHeight } = this.svg;
    const [left, top] = [this.view.x + x * this.view.scale, this.view.y + y * this.view.scale];
    const inside = (place, size) => (place < 50 ? 50 - place : place > size - 50 ? size - 50 - place : 0);
    const [dx, dy] = [inside(left, clientWidth), inside(top, clientHeight)];
    if (dx || dy) this.#set({ ...this.view, x: this.view.x + dx, y: this.view.y + dy });
  }

  state() {
    const { x, y, scale } = this.view;
    return this.own ? [x.toFixed(2), y.toFixed(2), scale.toFixed(4)].join(",") : "";
  }

  restore(text) {
    const [x, y, scale] = text.split(",").map(Number);
    if (![x, y, scale].every(Number.isFinite)) return;
    this.view = { x, y, scale: Math.min(LARGEST, Math.max(SMALLEST, scale)) };
    this.own = true;
  }

  // The whole drawing, in the middle: nothing is cropped until the user zooms.
  #start() {
    const room = this.svg.parentElement.clientWidth;
    if (!room || !this.width) return;
    const scale = this.#fitting(room);
    this.view = { x: (room - this.width * scale) / 2, y: 0, scale };
    this.#apply();
  }

  #fitting(room) {
    return Math.min(room / this.width, this.height > 600 ? 1 : STRETCHED);
  }

  #resized() {
    if (!this.width) return; // nothing is drawn yet
    if (this.own) this.#apply();
    else this.#start();
  }

  #set(view) {
    this.own = true;
    this.view = view;
    this.#apply();
    this.moved();
  }

  #apply() {
    const { x, y, scale } = this.view;
    this.scene.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)}) scale(${scale.toFixed(4)})`);
    const room = this.svg.parentElement.clientWidth;
    const height = Math.round(this.height * this.#fitting(room));
    this.svg.setAttribute("height", height);
    this.svg.parentElement.parentElement.style.setProperty("--graph-height", `${height}px`);
  }

  #wheel(event) {
    const focused = this.svg.contains(document.activeElement);
    if (!event.ctrlKey && !event.metaKey && !focused) return;
    event.preventDefault();
    const box = this.svg.getBoundingClientRect();
    this.by(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), [event.clientX - box.left, event.clientY - box.top]);
  }

  #press(event) {
    if (event.button !== 0) return;
    const from = { x: event.clientX, y: event.clientY };
    const before = this.view;
    this.dragged = false;
    const move = (next) => {
      const [dx, dy] = [next.clientX - from.x, next.clientY - from.y];
      if (!this.dragged && Math.hypot(dx, dy) < MOVED) return;
      this.dragged = true;
      this.svg.classList.add("held");
      this.#set({ ...before, x: before.x + dx, y: before.y + dy });
    };
    const end = () => {
      window.removeEventListener("pointermove", move);
      this.svg.classList.remove("held");
      // The click that ends a drag comes after this.
      setTimeout(() => (this.dragged = false), 0);
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", end, { once: true });
    window.addEventListener("pointercancel", end, { once: true });
  }
}
