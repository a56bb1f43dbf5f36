// The state of the page as the fragment of its address, so that a link restores it.

let timer = 0;
let pending = null;

export const read = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

export function write(state, { push = false } = {}) {
  const parts = Object.entries(state).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const hash = `#${new URLSearchParams(parts)}`;
  if (push) {
    flush();
    if (hash !== location.hash) history.pushState(null, "", hash);
    return hash;
  }
  // Browsers limit the rate of changes, and typing makes many.
  clearTimeout(timer);
  pending = hash;
  timer = setTimeout(flush, 120);
  return hash;
}

// Write a pending change now.
export function flush() {
  clearTimeout(timer);
  if (pending !== null) history.replaceState(null, "", pending);
  pending = null;
}
