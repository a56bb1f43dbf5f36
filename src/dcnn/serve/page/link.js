// What is on the screen as the address's last part, so that a link reopens it.

let timer = 0;

export const read = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

export function write(state) {
  const parts = Object.entries(state).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const hash = `#${new URLSearchParams(parts)}`;
  // Browsers refuse too many changes in a short time, and typing makes many.
  clearTimeout(timer);
  timer = setTimeout(() => history.replaceState(null, "", hash), 120);
  return hash;
}
