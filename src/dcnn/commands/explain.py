"""``dcnn explain``: why a text got its label, in the terminal and as a file."""

import json
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.text import Text

from dcnn.files import check_place, standard_output
from dcnn.inspection.explanation import Explanation, explain, explain_each
from dcnn.inspection.render import graph_writer
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
        graph_writer(out)  # a wrong ending, or a missing extra
        check_place("--out", out)
    standard_output("open it: the answer is printed there")
    predictor = Predictor.load(model)
    each = [explain(predictor, text, of_class)] if of_class else explain_each(predictor, text)
    if out is not None:
        each[0].save(out)
    if as_json:
        first = each[0].to_dict()
        # Of one label it is what it always was; several come as a list.
        several = {"explanations": [one.to_dict() for one in each]}
        print(json.dumps(several if predictor.multi_label and of_class is None else first))
        return
    console = make_console()
    for number, explanation in enumerate(each):
        if number:
            console.print()
        print_explanation(console, explanation)
    if out is not None:
        print(
            f"\nThe graph{f' of {printable(each[0].label)}' if len(each) > 1 else ''} is in {out}."
        )


def print_explanation(console: Console, explanation: Explanation) -> None:
    """Label, coloured sentence, n-grams and deletions."""
    console.print(_answer(explanation), soft_wrap=True)
    console.print()
    coloured = console.color_system in SHADES and not console.no_color
    console.print(_sentence(explanation, coloured), soft_wrap=not coloured)
    console.print(_sum(explanation), soft_wrap=True)
    console.print(f"\nStrongest n-grams for {printable(explanation.label)}:", soft_wrap=True)
    for ngram in explanation.ngrams[:NGRAMS]:
        console.print(f"  {ngram.attribution:+.2f}  {printable(ngram)}", soft_wrap=True)
    changes, unit = explanation.changes, explanation.trace.unit
    what = (
        f"whether it is {printable(explanation.label)}"
        if explanation.trace.multi_label
        else "the label"
    )
    console.print(
        f"\nDeleting one {unit} changes {what}:"
        if changes
        else f"\nNo single deletion changes {what}.",
        soft_wrap=True,
    )
    for change in changes[:DELETIONS]:
        console.print(
            f"  without {change.word!r} ({unit} {change.position + 1}): "
            f"{printable(change.label)} {change.probability:.4f}",
            soft_wrap=True,
        )
    if len(changes) > DELETIONS:
        console.print(f"  and {len(changes) - DELETIONS} other {unit}s; --json tells all")


def _answer(explanation: Explanation) -> Text:
    if explanation.trace.multi_label:
        return _answers(explanation)
    (label, probability), *others = explanation.prediction.ranked
    text = Text(f"{printable(label)} {probability:.4f}", style="bold")
    rest = "".join(f"   {printable(other)} {p:.4f}" for other, p in others)
    return text.append(rest, style=Style(bold=False, dim=True))


def _answers(explanation: Explanation) -> Text:
    """Every label with its probability; those that are given are bold."""
    given = explanation.prediction.labels
    text = Text("" if given else "no label   ")
    for label, probability in explanation.prediction.ranked:
        style = Style(bold=True) if label in given else Style(dim=True)
        text.append(f"{printable(label)} {probability:.4f}   ", style=style)
    text.rstrip()
    return text


def _sentence(explanation: Explanation, coloured: bool) -> Text:
    """The words on the colour of their attribution; with its number where there are no colours."""
    words = zip(map(printable, explanation.words), explanation.attributions, strict=True)
    if not coloured:
        return Text(" ".join(f"{word}({attribution:+.2f})" for word, attribution in words))
    largest = max(map(abs, explanation.attributions)) or 1.0
    sentence = Text()
    for word, attribution in words:
        sentence.append(f" {word} ", style=_colour(attribution / largest)).append(" ")
    return sentence


def _colour(strength: float) -> Style:
    """From white, for nothing, to the full colour of the strongest word."""
    full, share = (FOR if strength >= 0 else AGAINST), abs(strength)
    red, green, blue = (round(w + (c - w) * share) for w, c in zip(WHITE, full, strict=True))
    letters = "white" if share > 0.6 else "black"
    return Style(color=letters, bgcolor=f"rgb({red},{green},{blue})")


def _sum(explanation: Explanation) -> str:
    words = sum(explanation.attributions)
    line = (
        f"{printable(explanation.label)}: logit {explanation.logit:+.2f} = "
        f"{explanation.trace.unit}s {words:+.2f}, biases {explanation.biases:+.2f}"
    )
    unknown = printable(", ".join(dict.fromkeys(explanation.words[i] for i in explanation.unknown)))
    return f"{line}\nNot in the vocabulary: {unknown}" if unknown else line
