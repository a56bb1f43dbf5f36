"""Detectors as files: JSON for programs, Markdown and a page of its own for people."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dcnn.errors import UserError
from dcnn.inspection.detector_lists import Detection, Detector
from dcnn.inspection.detectors import DetectorIndex
from dcnn.inspection.render import escaped

ENDINGS = (".json", ".html", ".md")


@dataclass(frozen=True)
class Chosen:
    """A detector that is shown.

    Attributes:
        detector: which.
        note: why, for people; may be empty.
        values: the same for programs.
    """

    detector: Detector
    note: str = ""
    values: dict[str, Any] = field(default_factory=dict)


Writer = Callable[[DetectorIndex, Sequence[Chosen]], str]


def writer_for(path: Path) -> Writer:
    """What makes the text of a file named ``path``.

    Raises:
        UserError: the ending is none of ``ENDINGS``.
    """
    match path.suffix.lower():
        case ".json":
            return to_json
        case ".html":
            return to_html
        case ".md":
            return to_markdown
        case ending:
            raise UserError(
                f"{path}: the ending {ending!r} names no format; use one of {', '.join(ENDINGS)}"
            )


def pushes(index: DetectorIndex, detector: Detector) -> str:
    """What a detector's n-grams carry of each logit, for people."""
    amounts = zip(index.predictor.classes, index.push(detector), strict=True)
    return "carries " + ", ".join(f"{label} {amount:+.3f}" for label, amount in amounts)


def about(index: DetectorIndex) -> str:
    """A sentence on what was looked at."""
    corpus = index.corpus
    return (
        f"{corpus.sentences:,} sentences, {corpus.total:,} {index.unit}s in all, shown to "
        f"{len(index.detectors)} detectors."
    )


def to_json(index: DetectorIndex, chosen: Sequence[Chosen]) -> str:
    """The chosen detectors, in their order, with the fields of ``DetectorIndex.describe``."""
    values = index.summary() | {
        "detectors": [index.describe(one.detector) | one.values for one in chosen]
    }
    return json.dumps(values, ensure_ascii=False)


def to_markdown(index: DetectorIndex, chosen: Sequence[Chosen]) -> str:
    """A table a detector."""
    parts = ["# Feature detectors", about(index)]
    for one in chosen:
        notes = [part for part in (one.note, pushes(index, one.detector)) if part]
        rows = [
            f"| {found.value:+.3f} | {found.count:,} | {_marked_words(found)} |"
            for found in index.top(one.detector)
        ]
        parts += [
            f"## {one.detector}: {_literal(index.name(one.detector))}",
            _literal("; ".join(notes)),
            "\n".join(["| value | times | n-gram |", "|---:|---:|---|", *rows]),
        ]
    return "\n\n".join(parts) + "\n"


def _literal(text: str) -> str:
    """``text`` without a meaning in Markdown or HTML."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]()#+!|~<>&" else c for c in " ".join(text.split()))


def _marked_words(found: Detection) -> str:
    return _joined(found, _literal, lambda word: f"**{_literal(word)}**")


def _joined(found: Detection, plain: Callable[[str], str], strong: Callable[[str], str]) -> str:
    return " ".join(strong(part) if mark else plain(part) for part, mark in found.parts())


_STYLE = """
:root { color-scheme: light dark; --ink: #1d2530; --grey: #5c6773; --page: #f4f6f8;
  --card: #ffffff; --mark: #dcecf9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaee; --grey: #9aa5b1; --page: #14181d; --card: #1e242b; --mark: #1f4666; }
}
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: var(--ink);
  background: var(--page);
  font-family: system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; }
input { font: inherit; width: 100%; box-sizing: border-box; padding: 0.5rem 0.75rem;
  border: 1px solid var(--grey); border-radius: 8px; background: var(--card); color: inherit; }
section { background: var(--card); border-radius: 12px; padding: 0.75rem 1rem; margin: 1rem 0;
  overflow-x: auto; }
h2 { font-size: 1.05rem; margin: 0; }
h2 code, p { color: var(--grey); }
section p { margin: 0.25rem 0; font-size: 0.9rem; }
td { padding: 0.1rem 0.75rem 0.1rem 0; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; color: var(--grey); }
mark { background: var(--mark); color: inherit; border-radius: 3px; padding: 0 0.15em; }
"""

_SCRIPT = """
const sections = [...document.querySelectorAll('section')];
const texts = sections.map((section) => section.textContent.toLowerCase());
const count = document.getElementById('count');
const search = document.getElementById('search');
search.addEventListener('input', () => {
  const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let shown = 0;
  sections.forEach((section, i) => {
    section.hidden = !words.every((word) => texts[i].includes(word));
    shown += !section.hidden;
  });
  count.textContent = shown;
});
"""


def to_html(index: DetectorIndex, chosen: Sequence[Chosen]) -> str:
    """A page that loads nothing, with a box to search in."""
    sections = "\n".join(_section(index, one) for one in chosen)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Feature detectors</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>Feature detectors</h1>
<p>{escaped(about(index))} {index.unit.capitalize()}s that bring most of a value are marked.</p>
<input id="search" type="search" placeholder="Search names, {index.unit}s, layer:map:row"
  aria-label="Search the detectors">
<p><span id="count">{len(chosen)}</span> shown</p>
{sections}
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _section(index: DetectorIndex, one: Chosen) -> str:
    rows = "\n".join(
        f'<tr><td class="number">{found.value:+.3f}</td>'
        f'<td class="number">{found.count:,}\u00d7</td>'
        f"<td>{_joined(found, escaped, lambda word: f'<mark>{escaped(word)}</mark>')}</td></tr>"
        for found in index.top(one.detector)
    )
    note = f"<p>{escaped(one.note)}</p>\n" if one.note else ""
    return (
        f"<section>\n<h2><code>{one.detector}</code> {escaped(index.name(one.detector))}</h2>\n"
        f"{note}<p>{escaped(pushes(index, one.detector))}</p>\n"
        f"<table>\n{rows}\n</table>\n</section>"
    )
