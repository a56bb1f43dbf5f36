"""``dcnn explain``: why a text gets its label, in the terminal and as a file."""

import json
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text
from typer import Argument, Option

from dcnn.cli.console import Json, ModelFolder, make_console, printable
from dcnn.errors import UserError
from dcnn.files import check_place, standard_output
from dcnn.inspection.explanation import Explanation, explain_each
from dcnn.inspection.explanation import explain as explain_label
from dcnn.inspection.render import GRAPH_WRITERS, choose_writer
from dcnn.inspection.similar import SimilarText, TextIndex
from dcnn.predictor import Predictor

NGRAMS, DELETIONS, CLASSES, REPLACEMENTS = 5, 10, 5, 3  # shown in the terminal
MOST_SIMILAR = 100
SHADES = ("256", "truecolor")  # colour systems that can show strength as well as sign
FOR, AGAINST = (31, 111, 180), (209, 73, 91)


def explain(
    model: ModelFolder,
    text: Annotated[str, Argument(metavar="TEXT")],
    of_class: Annotated[str | None, Option("--class", metavar="C")] = None,
    out: Path | None = None,
    nodes: Annotated[int | None, Option(metavar="N", min=1, max=200)] = None,
    similar: Annotated[int, Option(metavar="N", min=0, max=MOST_SIMILAR)] = 0,
    show_all: Annotated[bool, Option("--all")] = False,
    as_json: Json = False,
) -> None:
    """Show why a text gets its label: words, n-grams, deletions, the feature graph.

    Prints the most probable labels, the sentence with its words coloured by attribution (with
    numbers where the output is not a terminal), the strongest n-grams, and the words whose deletion
    or replacement changes the label. A picture shows the n-grams that decide, with at least 80 % of
    what the last layer contributes; .json and .graphml hold the whole graph. For a multi-label
    model, every label that the text is given is explained.
    """
    if nodes is not None and (out is None or out.suffix.lower() not in (".svg", ".png")):
        raise UserError(f"--nodes {nodes} chooses what a picture shows; add --out FILE.svg or .png")
    if out is not None:
        choose_writer(out, GRAPH_WRITERS)  # a wrong suffix, or a missing extra
        check_place("--out", out)
    standard_output("open it: the explanation is printed there")
    predictor = Predictor.load(model)
    found = _similar(model, predictor, text, similar)
    if of_class:
        explanations = [explain_label(predictor, text, of_class)]
    else:
        explanations = explain_each(predictor, text)
    if out is not None:
        explanations[0].save(out, nodes)
    if as_json:
        plain = [explanation.to_dict() for explanation in explanations]
        if similar:
            plain[0]["similar"] = [vars(one) for one in found]
        is_list = predictor.multi_label and of_class is None
        print(json.dumps({"explanations": plain} if is_list else plain[0]))
        return
    console = make_console()
    for number, explanation in enumerate(explanations):
        if number:
            console.print()
        print_explanation(console, explanation, everything=show_all)
    if found:
        console.print("\nMost similar texts of the index:")
    for one in found:
        console.print(f"  {one.similarity:+.3f}  {printable(one.label)}  {printable(one.text)}")
    if out is not None:
        of_label = f" of {printable(explanations[0].label)}" if len(explanations) > 1 else ""
        print(f"\nThe graph{of_label} is in {out}.")


def _similar(model: Path, predictor: Predictor, text: str, count: int) -> list[SimilarText]:
    if not count:
        return []
    if (index := TextIndex.load(model, predictor.artifact)) is None:
        raise UserError(
            f"--similar {count} needs an index of texts and {model} has none; write one with: "
            f"dcnn index {model} FILE"
        )
    return index.search(predictor, text, count)


def print_explanation(
    console: Console, explanation: Explanation, *, everything: bool = False
) -> None:
    """Labels, coloured sentence, n-grams, deletions and replacements."""
    label, unit = printable(explanation.label), explanation.trace.unit
    prediction = explanation.prediction
    answer = Text("" if prediction.labels else "no label   ")
    # Those that the text is given, in bold, and the next ones.
    shown = len(prediction.ranked) if everything else max(CLASSES, len(prediction.labels))
    for name, probability in prediction.ranked[:shown]:
        style = "bold" if name in prediction.labels else "dim"
        answer.append(f"{printable(name)} {probability:.4f}   ", style=style)
    if hidden := prediction.ranked[shown:]:
        answer.append(f"{len(hidden)} others {sum(p for _, p in hidden):.4f}", style="dim")
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
    ngrams, listed = explanation.ngrams, len(explanation.ngrams) if everything else NGRAMS
    for ngram in ngrams[:listed]:
        console.print(f"  {ngram.attribution:+.2f}  {printable(ngram)}")
    if rest := ngrams[listed:]:
        others = sum(ngram.attribution for ngram in rest)
        console.print(f"  {others:+.2f}  {len(rest)} others; all of them add up to the {unit}s")
    what = f"whether it is {label}" if explanation.trace.multi_label else "the label"
    if changes := explanation.changes:
        console.print(f"\nDeleting one {unit} changes {what}:")
    else:
        console.print(f"\nNo single deletion changes {what}.")
    listed = len(changes) if everything else DELETIONS
    for change in changes[:listed]:
        console.print(
            f"  without {change.word!r} ({unit} {change.position + 1}): "
            f"{printable(change.label)} {change.probability:.4f}"
        )
    if len(changes) > listed:
        console.print(f"  and {len(changes) - listed} other {unit}s; --all prints them")
    swaps = [one for one in explanation.replacements if one.changes]
    if swaps:
        console.print(f"\nReplacing one {unit} changes {what}:")
    for swap in swaps if everything else swaps[:REPLACEMENTS]:
        console.print(
            f"  {swap.replacement!r} for {swap.word!r} ({unit} {swap.position + 1}): "
            f"{printable(swap.label)} {swap.probability:.4f}"
        )


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
