"""The effect of the paper's own choices (Sect. 3 and 5), one at a time, on dev.

    DCNN_DATA=... python benchmarks/ablations.py --device cuda          # runs what is missing
    DCNN_DATA=... python benchmarks/ablations.py --fft                  # times FFT on this CPU
    python benchmarks/ablations.py --write docs/ablations.md            # tables and plots

The network of the tuned recipes of SST-2 and TREC, without teachers, is the base; each variant
changes one choice. Five seeds each: accuracy on dev (SST-2, best epoch) or cross-validated over the
training questions (TREC). The test sets are not predicted. Every variant has a file in
``results/ablations/``; after ``--minutes`` no further one is started.

What the settings cannot express, other pooling and the narrow convolution, is ``VariantNetwork``,
on torch operators. A narrow convolution of few words leaves fewer columns than k; what is missing
is zero, and a sentence shorter than the filter is padded with zeros, as for the Max-TDNN.
"""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from dcnn.config import DCNNConfig
from dcnn.experiments.recipes import DistillationConfig, Recipe, load_recipe
from dcnn.experiments.runs import ExperimentEnv, Job, NetworkTrainer
from dcnn.experiments.tables import markdown_table
from dcnn.models import MODELS, SentenceModel
from dcnn.ops.reference import dynamic_k, fold
from dcnn.ops.torch_backend import k_max, wide_convolution
from dcnn.plots import BLUE, GREY, draw_svg
from results import ROOT, make_parser, provenance, read_json, render_block, write_json

RESULTS = ROOT / "results" / "ablations"
FIGURES = ROOT / "docs" / "figures"
BLOCK = "ablations"
TASKS = {"sst2": "SST-2", "trec": "TREC"}
SEEDS = 5
SENTENCES, ROWS, MAPS = 64, 48, 6  # of a timed convolution: the first layer of SST-2
WIDTHS, LENGTHS = (3, 5, 7, 10, 15, 25, 50, 100), (10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Variant:
    """A network that differs from the base in one choice."""

    title: str
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # by task, as section.key
    fixed_k: int = 0  # of all layers below the top; 0: dynamic k
    narrow: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is a network of the package."""
        return not (self.fixed_k or self.narrow)


def both(**settings: Any) -> dict[str, dict[str, Any]]:
    """The same settings of the model for both tasks."""
    return {task: {f"model.{name}": value for name, value in settings.items()} for task in TASKS}


def layers(number: int) -> dict[str, dict[str, Any]]:
    """As many layers: the widths and maps of SST-2 for all of them, the base's own first."""
    deep = {"model.widths": [7, 5, 3][:number], "model.maps": [6, 14, 20][:number]}
    shallow = {"model.widths": [8, 5, 3][:number], "model.maps": [5, 10, 15][:number]}
    return {"sst2": deep, "trec": shallow}


VARIANTS = {
    "base": Variant("the base"),
    "max-top": Variant("max pooling on top (k_top = 1)", both(k_top=1)),
    "max": Variant("max pooling in every layer", both(k_top=1), fixed_k=1),
    "fixed-4": Variant("fixed k = 4", fixed_k=4),
    "narrow": Variant("narrow convolution", narrow=True),
    "no-folding": Variant("no folding", both(fold=False)),
    "layers-1": Variant("1 layer", layers(1)),
    "layers-2": Variant("2 layers", layers(2)),
    "layers-3": Variant("3 layers", layers(3)),
    "k-top-2": Variant("k_top = 2", both(k_top=2)),
    "k-top-6": Variant("k_top = 6", both(k_top=6)),
    "random": Variant(
        "random vectors", {"trec": {"text.vectors": "", "text.vectors_projection": 0.0}}
    ),
    "pretrained": Variant(
        "pretrained vectors (GloVe)",
        {
            "sst2": {
                "text.vectors": "glove",
                "text.vectors_scale": 0.25,
                "text.vectors_projection": 0.03,
                "data.authors_tokens": False,
            }
        },
    ),
}
# Title, and the variants of each task in the order of the rows; the base is one of them.
TOPICS: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "pooling": (
        "k-max against max pooling",
        {"sst2": ("base", "max-top", "max"), "trec": ("base", "max-top")},
    ),
    "dynamic-k": (
        "Dynamic against fixed k",
        {"sst2": ("base", "fixed-4")},
    ),
    "width": ("Wide against narrow convolution", dict.fromkeys(TASKS, ("base", "narrow"))),
    "folding": ("Folding on and off", dict.fromkeys(TASKS, ("base", "no-folding"))),
    "layers": (
        "Number of layers",
        {"sst2": ("layers-1", "base", "layers-3"), "trec": ("base", "layers-2", "layers-3")},
    ),
    "k-top": ("k_top", dict.fromkeys(TASKS, ("max-top", "k-top-2", "base", "k-top-6"))),
    "vectors": (
        "Pretrained against random vectors",
        {"sst2": ("base", "pretrained"), "trec": ("base", "random")},
    ),
}


class VariantNetwork(SentenceModel):
    """The DCNN with a fixed k below the top, or with narrow convolutions."""

    config: DCNNConfig
    variant: Variant

    def encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """(B, s), (B,) -> (B, maps * rows * k_top)."""
        config, x, valid = self.config, self.sentence_matrix(ids), lengths  # (B, 1, d, s), (B,)
        for number, layer in enumerate(self.convolutions, start=1):
            m = layer.filters.shape[-1]
            beyond = torch.arange(x.shape[-1], device=x.device) >= valid[:, None, None, None]
            c = wide_convolution(x.masked_fill(beyond, 0), layer.filters)  # (B, o, d, w)
            columns = valid + m - 1
            if self.variant.narrow:  # the m-grams that end inside the sentence
                c, columns = c[..., m - 1 :], (valid - m + 1).clamp(min=1)
            c = fold(c) if config.fold else c
            k, width = self.pooled(lengths, ids.shape[1], number)
            k = torch.minimum(k, columns)
            values, positions = k_max(c, columns, k, width)
            x = torch.tanh(values + layer.bias[:, :, None]).masked_fill(positions < 0, 0)
            valid = k
        return torch.flatten(x, start_dim=1)

    def pooled(self, lengths: Tensor, longest: int, number: int) -> tuple[Tensor, int]:
        """The k of each sentence, and the largest that there can be."""
        depth, k_top = self.config.depth, self.config.k_top
        if self.variant.fixed_k and number < depth:
            return torch.full_like(lengths, self.variant.fixed_k), self.variant.fixed_k
        k = dynamic_k(lengths, number, depth, k_top)
        return k, dynamic_k(longest, number, depth, k_top)


def recipe_of(task: str, variant: Variant, epochs: int | None = None) -> Recipe:
    """The tuned recipe without teachers, with the settings of a variant."""
    recipe = replace(load_recipe(task, "tuned"), distillation=DistillationConfig())
    sections = recipe.to_dict()
    for name, value in variant.settings.get(task, {}).items():
        section, _, key = name.partition(".")
        sections[section][key] = value
    if epochs is not None:
        sections["training"]["epochs"] = epochs
    return Recipe.from_sections("ablation", "dcnn", sections, "ablations.py")


def measure(task: str, name: str, env: ExperimentEnv, seeds: int, epochs: int | None) -> None:
    """Train the seeds of a variant, and write their accuracies on dev."""
    started, variant = time.monotonic(), VARIANTS[name]
    data, recipe = env.load(recipe_of(task, variant, epochs))
    kind = type("Variant", (VariantNetwork,), {"variant": variant})
    with patch.dict(MODELS, {} if variant.is_plain else {"dcnn": kind}):
        networks = NetworkTrainer(data, recipe, env.device, report=lambda *_: None)
    configs = [recipe.config.with_training(seed=seed) for seed in range(seeds)]
    if data.dev is None:
        accuracies = networks.cross_validated(configs)
    else:
        jobs = [Job(config) for config in configs]
        summaries = [one for part, _ in networks.train(jobs, name) for one in part]
        accuracies = [one.dev_accuracy or 0.0 for one in summaries]
    write_json(
        env.results / f"{task}-{name}.json",
        {
            "task": task,
            "variant": name,
            "accuracies": accuracies,
            "seconds": round(time.monotonic() - started, 1),
            "settings": recipe_of(task, variant, epochs).to_dict(),
            **provenance(env.device),
        },
    )


def by_fft(x: Tensor, filters: Tensor) -> Tensor:
    """The wide convolution by the convolution theorem; see ``reference.wide_convolution_fft``."""
    columns = x.shape[-1] + filters.shape[-1] - 1
    size = 1 << (columns - 1).bit_length()  # a power of two, which is what FFT is fast at
    spectra = torch.fft.rfft(x, size), torch.fft.rfft(filters.flip(-1), size)
    return torch.fft.irfft(torch.einsum("bndf,ondf->bodf", *spectra), size)[..., :columns]


def time_convolutions(budget: float = 0.5) -> dict[str, Any]:
    """The time of the convolution by FFT relative to the direct one, both on one thread."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    cells = []
    for width in WIDTHS:
        for length in LENGTHS:
            x = torch.randn(SENTENCES, 1, ROWS, length, generator=generator)
            filters = torch.randn(MAPS, 1, ROWS, width, generator=generator)
            seconds: dict[Any, list[float]] = {wide_convolution: [], by_fft: []}
            torch.testing.assert_close(
                by_fft(x, filters), wide_convolution(x, filters), rtol=1e-3, atol=1e-3
            )
            ends = time.perf_counter() + budget  # per cell, in seconds
            # In turn; the fastest call is the one least disturbed by others.
            while time.perf_counter() < ends or len(seconds[by_fft]) < 3:
                for convolve, taken in seconds.items():
                    started = time.perf_counter()
                    convolve(x, filters)
                    taken.append(time.perf_counter() - started)
            direct, fft = (min(seconds[one]) for one in (wide_convolution, by_fft))
            cells.append({"width": width, "length": length, "direct": direct, "fft": fft})
    return {"cells": cells, **provenance()}


def accuracies_of(task: str, name: str, folder: Path) -> list[float]:
    """Those on dev of a variant, or none if it has not been run."""
    path = folder / f"{task}-{name}.json"
    return [float(one) for one in read_json(path)["accuracies"]] if path.exists() else []


def topic_section(topic: str, folder: Path, figures: Path) -> str:
    """Heading, table and picture of a topic; the picture is written."""
    title, tasks = TOPICS[topic]
    rows, bars = [], []
    for task, names in tasks.items():
        base = accuracies_of(task, "base", folder)
        for name in names:
            found = [100 * one for one in accuracies_of(task, name, folder)]
            label = VARIANTS[name].title
            if not found:
                rows.append((TASKS[task], label, "not yet run", "-", "-"))
                continue
            spread = stdev(found) if len(found) > 1 else 0.0
            apart = (
                "-" if name == "base" or not base else f"{fmean(found) - 100 * fmean(base):+.1f}"
            )
            shown = f"{fmean(found):.1f} ± {spread:.1f}"
            rows.append((TASKS[task], label, shown, apart, str(len(found))))
            bars.append((f"{TASKS[task]}: {label}", fmean(found), spread, name == "base"))
    table = markdown_table(
        ("task", "network", "dev accuracy, mean ± sd", "minus base", "seeds"), rows
    )
    picture = ""
    if bars:
        path = figures / f"ablation-{topic}.svg"
        path.write_text(draw_svg(partial(draw_bars, bars), height=0.8 + 0.35 * len(bars)))
        picture = f"![{title}: accuracy on dev](figures/{path.name})\n\n"
    return f"## {title}\n\n{picture}{table}"


def draw_bars(bars: Sequence[tuple[str, float, float, bool]], axes: Any) -> None:
    """A point with its standard deviation per network, the base in blue."""
    for place, (_, mean, spread, is_base) in enumerate(bars):
        color = BLUE if is_base else GREY
        axes.errorbar(mean, -place, xerr=spread, fmt="o", color=color, capsize=3)
    axes.set_yticks([-place for place in range(len(bars))], [bar[0] for bar in bars])
    axes.set_ylim(0.6 - len(bars), 0.4)
    axes.set_xlabel("accuracy on dev in %, mean and standard deviation")


def fft_section(folder: Path, figures: Path) -> str:
    """Heading, table and picture of the timings."""
    path = folder / "fft.json"
    title = "## FFT against direct convolution"
    if not path.exists():
        return f"{title}\n\nNot yet run."
    report = read_json(path)
    ratios = {(one["width"], one["length"]): one["fft"] / one["direct"] for one in report["cells"]}
    rows = [
        (str(width), *(f"{ratios[width, length]:.2f}" for length in LENGTHS)) for width in WIDTHS
    ]
    table = markdown_table(("filter width", *(f"{n:,} words" for n in LENGTHS)), rows)

    def draw(axes: Any) -> None:
        for place, width in enumerate(WIDTHS):
            shade = str(0.75 - 0.75 * place / len(WIDTHS))
            values = [ratios[width, length] for length in LENGTHS]
            axes.plot(LENGTHS, values, marker="o", color=shade, label=f"width {width}")
        axes.axhline(1, color=BLUE)
        axes.set(xscale="log", yscale="log", xlabel="words", ylabel="time of FFT / direct")
        axes.legend(fontsize=7, ncol=2)

    (figures / "ablation-fft.svg").write_text(draw_svg(draw, height=3.8))
    faster = [str(width) for width in WIDTHS if ratios[width, 50] < 1]
    found = f"at the widths {', '.join(faster)}" if faster else "at no measured width"
    return (
        f"{title}\n\nTime of the convolution by FFT divided by that of the torch backend "
        f"({report['hardware']}; one thread, {SENTENCES} sentences of {ROWS} rows, {MAPS} maps). "
        f"For sentences of 50 words FFT is faster {found}.\n\n![Time by width and length]"
        f"(figures/ablation-fft.svg)\n\n{table}"
    )


def render(folder: Path, figures: Path) -> str:
    """All sections."""
    sections = [topic_section(topic, folder, figures) for topic in TOPICS]
    return "\n\n".join([*sections, fft_section(folder, figures)])


def parse() -> argparse.Namespace:
    """The command line."""
    parser = make_parser(__doc__, block=BLOCK)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the results")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="after them none is started")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--epochs", type=int, help="instead of the recipe's, to try it out")
    parser.add_argument("--fft", action="store_true", help="only time the convolutions, on the CPU")
    return parser.parse_args()


def main() -> None:
    """Run what is missing, time the convolutions, or render."""
    given = parse()
    if given.write:
        render_block(given.write, BLOCK, render(given.out, FIGURES))
        return
    if given.fft:
        write_json(given.out / "fft.json", time_convolutions())
        return
    ends = time.monotonic() + 60 * given.minutes
    torch.set_num_threads(1)
    for task in given.tasks:
        used = {name for _, tasks in TOPICS.values() for name in tasks.get(task, ())}
        env = ExperimentEnv(task, Path(os.environ["DCNN_DATA"]), given.out, given.device)
        for name in given.variants:
            if name not in used or (given.out / f"{task}-{name}.json").exists():
                continue
            if time.monotonic() > ends:
                raise SystemExit("stopped by --minutes; the same command runs the rest")
            measure(task, name, env, given.seeds, given.epochs)


if __name__ == "__main__":
    main()
