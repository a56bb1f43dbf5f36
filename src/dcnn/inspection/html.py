"""The picture as a page of its own: the SVG and a little script, nothing from a network.

Pointing at a node, or reaching it with the Tab key, leaves only what it comes from and what it goes
to. The policy in the page's head forbids to load anything.
"""

from dcnn.inspection.picture import Picture
from dcnn.inspection.svg import escaped, to_svg

_STYLE = """
body { margin: 2rem auto; max-width: 90rem; padding: 0 1rem; color: #1d2530; background: #f4f6f8;
  font-family: system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; }
figure { margin: 0; padding: 1rem; background: #fff; border-radius: 12px; overflow-x: auto; }
svg { display: block; margin: auto; }
.node { cursor: pointer; outline: none; }
.node, .edge { transition: opacity 0.12s; }
.faint { opacity: 0.08; }
#about { min-height: 1.5em; color: #6b7684; }
"""

_SCRIPT = """
const edges = [...document.querySelectorAll('.edge')];
const nodes = [...document.querySelectorAll('.node')];
const about = document.getElementById('about');
const hint = about.textContent;

function reach(start, from, to) {
  const seen = new Set([start]), kept = new Set(), waiting = [start];
  while (waiting.length) {
    const here = waiting.pop();
    for (const edge of edges) {
      if (edge.dataset[from] !== here) continue;
      kept.add(edge);
      if (!seen.has(edge.dataset[to])) {
        seen.add(edge.dataset[to]);
        waiting.push(edge.dataset[to]);
      }
    }
  }
  return [seen, kept];
}

function show(node) {
  const [above, upward] = reach(node.dataset.id, 'from', 'to');
  const [below, downward] = reach(node.dataset.id, 'to', 'from');
  for (const other of nodes) {
    other.classList.toggle('faint', !above.has(other.dataset.id) && !below.has(other.dataset.id));
  }
  for (const edge of edges) {
    edge.classList.toggle('faint', !upward.has(edge) && !downward.has(edge));
  }
  const title = node.querySelector('title');
  about.textContent = title ? title.textContent : hint;
}

function clear() {
  for (const item of [...nodes, ...edges]) item.classList.remove('faint');
  about.textContent = hint;
}

for (const node of nodes) {
  node.setAttribute('tabindex', '0');
  node.addEventListener('mouseenter', () => show(node));
  node.addEventListener('mouseleave', clear);
  node.addEventListener('focus', () => show(node));
  node.addEventListener('blur', clear);
}
"""


def to_html(picture: Picture) -> str:
    """The picture as a self-contained HTML page."""
    sentence = escaped(" ".join(picture.words))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escaped(str(picture.label))}: {sentence}</title>
<style>{_STYLE}</style>
</head>
<body>
<figure>
{to_svg(picture)}</figure>
<p id="about">Point at a {picture.unit} or a node to see what it comes from and where it goes.</p>
<script>{_SCRIPT}</script>
</body>
</html>
"""
