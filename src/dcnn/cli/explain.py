"""``dcnn explain``: why a text gets its label, in the terminal and as a file."""

import json
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text
from typer import Argument, Option

from dcnn.cli.console import Json, ModelFolder, make_console, printable
from dcnn.files import check_place, standard_output
from dcnn.inspection.explanation import Explanation, explain_each
from dcnn.inspection.explanation import explain as explain_label
from dcnn.inspection.render import GRAPH_WRITERS, choose_writer
from dcnn.predictor import Predictor

NGRAMS, DELETIONS = 5, 10  # shown in the terminal
SHADES = ("256", "truecolor")  # colour systems that can show strength as well as sign
FOR, AGAINST = (31, 111, 180), (209, 73, 91)


def explain(
    model: ModelFolder,
    text: Annotated[str, Argument(metavar="TEXT")],
    of_class: Annotated[str | None, Option("--class", metavar="C")] = None,
    out: Path | None = None,
    as_json: Json = False,
) -> None:
    """Show why a text gets its label: words, n-grams, deletions, the feature graph.

    Prints the label, the sentence with its words coloured by attribution (with numbers where the
    output is not a terminal), the strongest n-grams, and the words whose deletion changes the
    label. A picture shows the part of the graph that decides; .json and .graphml hold all of it.
    For a multi-label model, every label that the text is given is explained.
    """
    if out is not None:
        choose_writer(out, GRAPH_WRITERS)  # a wrong suffix, or a missing extra
        check_place("--out", out)
    standard_output("open it: the explanation is printed there")
    predictor = Predictor.load(model)
    if of_class:
        explanations = [explain_label(predictor, text, of_class)]
    else:
        explanations = explain_each(predictor, text)
    if out is not None:
        explanations[0].save(out)
    if as_json:
        plain = [explanation.to_dict() for explanation in explanations]
        is_list = predictor.multi_label and of_class is None
        print(json.dumps({"explanations": plain} if is_list else plain[0]))
        return
    console = make_console()
    for number, explanation in enumerate(explanations):
        if number:
            console.print()
        print_explanation(console, explanation)
    if out is not None:
        of_label = f" of {printable(explanations[0].label)}" if len(explanations) > 1 else ""
        print(f"\nThe graph{of_label} is in {out}.")


def print_explanation(console: Console, explanation: Explanation) -> None:
    """Label, coloured sentence, n-grams and deletions."""
    label, unit = printable(explanation.label), explanation.trace.unit
    prediction = explanation.prediction
    answer = Text("" if prediction.labels else "no label   ")
    for name, probability in prediction.ranked:  # those that the text is given in bold
        style = "bold" if name in prediction.labels else "dim"
        answer.append(f"{printable(name)} {probability:.4f}   ", style=style)
    answer.rstrip()
    console.print(answer)
    console.print()
    coloured = console.color_system in SHADES and not console.no_color
    console.print(_sentence(explanation, coloured), soft_wrap=not coloured)
    console.print(
        f"{label}: logit {explanation.logit:+.2f} = {unit}s {sum(explanation.attributions):+.2f}, "
        f"biases {explanation.biases:+.2f}"
    )
    if unknown := dict.fromkeys(explanation.words[i] for i in explanation.unknown):
        how = ", known by their spelling alone" if explanation.trace.char_ngrams else ""
        console.print(f"Not in the vocabulary{how}: {printable(', '.join(unknown))}")
    console.print(f"\nStrongest n-grams for {label}:")
    for ngram in explanation.ngrams[:NGRAMS]:
        console.print(f"  {ngram.attribution:+.2f}  {printable(ngram)}")
    what = f"whether it is {label}" if explanation.trace.multi_label else "the label"
    if not (changes := explanation.changes):
        console.print(f"\nNo single deletion changes {what}.")
        return
    console.print(f"\nDeleting one {unit} changes {what}:")
    for change in changes[:DELETIONS]:
        console.print(
            f"  without {change.word!r} ({unit} {change.position + 1}): "
            f"{printable(change.label)} {change.probability:.4f}"
        )
    if len(changes) > DELETIONS:
        console.print(f"  and {len(changes) - DELETIONS} other {unit}s; --json has all")


def _sentence(explanation: Explanation, coloured: bool) -> Text:
    """The words, coloured by attribution; with the number where there are no colours."""
    words = zip(map(printable, explanation.words), explanation.attributions, strict=True)
    if not coloured:
        return Text(" ".join(f"{word}({value:+.2f})" for word, value in words))
    largest = max(map(abs, explanation.attributions)) or 1.0
    sentence = Text()
    for word, value in words:
        # From white, for no attribution, to the full colour of the strongest word.
        full, share = (FOR if value >= 0 else AGAINST), abs(value) / largest
        rgb = ",".join(str(round(255 + (colour - 255) * share)) for colour in full)
        letters = "white" if share > 0.6 else "black"
        sentence.append(f" {word} ", style=f"{letters} on rgb({rgb})").append(" ")
    return sentence
