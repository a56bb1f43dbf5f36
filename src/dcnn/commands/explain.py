"""``dcnn explain``: why a text got its label, in the terminal and as a file."""

import json
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.text import Text

from dcnn.files import check_place, standard_output
from dcnn.inspection.explanation import Explanation, explain
from dcnn.inspection.writers import writer_for
from dcnn.predictor import Predictor
from dcnn.terminal import make_console, printable

NGRAMS, DELETIONS = 5, 10  # told in the terminal

SHADES = ("256", "truecolor")  # what a terminal needs to show more than that there is a colour
WHITE, FOR, AGAINST = (255, 255, 255), (31, 111, 180), (209, 73, 91)


def run_explain(
    model: Path, text: str, of_class: str | None, out: Path | None, as_json: bool
) -> None:
    """Explain one text: print what decided, and write the graph where it is asked for."""
    if out is not None:
        writer_for(out)  # a wrong ending, or a missing extra
        check_place("--out", out)
    standard_output("open it: the answer is printed there")
    explanation = explain(Predictor.load(model), text, of_class)
    if out is not None:
        explanation.save(out)
    if as_json:
        print(json.dumps(explanation.to_dict()))
        return
    print_explanation(make_console(), explanation)
    if out is not None:
        print(f"\nThe graph is in {out}.")


def print_explanation(console: Console, explanation: Explanation) -> None:
    """Label, coloured sentence, n-grams and deletions."""
    console.print(_answer(explanation), soft_wrap=True)
    console.print()
    coloured = console.color_system in SHADES and not console.no_color
    console.print(_sentence(explanation, coloured), soft_wrap=not coloured)
    console.print(_sum(explanation), soft_wrap=True)
    console.print(f"\nStrongest n-grams for {printable(explanation.label)}:", soft_wrap=True)
    for ngram in explanation.ngrams[:NGRAMS]:
        console.print(f"  {ngram.relevance:+.2f}  {printable(ngram)}", soft_wrap=True)
    changes = explanation.changes
    console.print(
        "\nDeleting one word changes the label:"
        if changes
        else "\nNo single deletion changes the label."
    )
    for change in changes[:DELETIONS]:
        console.print(
            f"  without {change.word!r} (word {change.position + 1}): "
            f"{printable(change.label)} {change.probability:.4f}",
            soft_wrap=True,
        )
    if len(changes) > DELETIONS:
        console.print(f"  and {len(changes) - DELETIONS} other words; --json tells all")


def _answer(explanation: Explanation) -> Text:
    (label, probability), *others = explanation.prediction.ranked
    text = Text(f"{printable(label)} {probability:.4f}", style="bold")
    rest = "".join(f"   {printable(other)} {p:.4f}" for other, p in others)
    return text.append(rest, style=Style(bold=False, dim=True))


def _sentence(explanation: Explanation, coloured: bool) -> Text:
    """The words on the colour of their relevance; with its number where there are no colours."""
    words = zip(map(printable, explanation.words), explanation.relevance, strict=True)
    if not coloured:
        return Text(" ".join(f"{word}({relevance:+.2f})" for word, relevance in words))
    largest = max(map(abs, explanation.relevance)) or 1.0
    sentence = Text()
    for word, relevance in words:
        sentence.append(f" {word} ", style=_colour(relevance / largest)).append(" ")
    return sentence


def _colour(strength: float) -> Style:
    """From white, for nothing, to the full colour of the strongest word."""
    full, share = (FOR if strength >= 0 else AGAINST), abs(strength)
    red, green, blue = (round(w + (c - w) * share) for w, c in zip(WHITE, full, strict=True))
    letters = "white" if share > 0.6 else "black"
    return Style(color=letters, bgcolor=f"rgb({red},{green},{blue})")


def _sum(explanation: Explanation) -> str:
    words = sum(explanation.relevance)
    line = (
        f"{printable(explanation.label)}: logit {explanation.logit:+.2f} = "
        f"words {words:+.2f}, biases {explanation.biases:+.2f}"
    )
    unknown = printable(", ".join(dict.fromkeys(explanation.words[i] for i in explanation.unknown)))
    return f"{line}\nNot in the vocabulary: {unknown}" if unknown else line
