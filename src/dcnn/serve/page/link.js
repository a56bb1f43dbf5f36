// What is on the screen as the address's last part, so that a link reopens it.

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
  // Browsers refuse too many changes in a short time, and typing makes many.
  clearTimeout(timer);
  pending = hash;
  timer = setTimeout(flush, 120);
  return hash;
}

// What was on the screen before something else came there.
export function flush() {
  clearTimeout(timer);
  if (pending !== null) history.replaceState(null, "", pending);
  pending = null;
}
