"""The page of all settings, generated from the dataclasses of the configuration.

``python docs/_site/settings_page.py`` writes docs/settings.md again; tests/docs checks that it is
current.
"""

import inspect
import json
import re
import typing
from pathlib import Path
from typing import Any

from dcnn import config
from dcnn.config import (
    DEFAULT,
    Config,
    DCNNConfig,
    MaxTDNNConfig,
    NBoWConfig,
    Section,
    TextConfig,
    TrainingConfig,
    settings_of,
    to_plain,
    to_toml,
)
from dcnn.experiments.recipes import DataConfig, DistillationConfig

PAGE = Path(__file__).parents[1] / "settings.md"

_INTRODUCTION = """# All settings

Generated from the code by `python docs/_site/settings_page.py`.

Settings have the same names in a TOML file (`--config`), on the command line
(`--set section.key=value`) and in [a recipe of an experiment](experiments.md#recipes-of-your-own);
[`DCNNClassifier`](api/classifier.md) takes them as parameters. The default recipe is what
`dcnn train`, `dcnn tune` and `DCNNClassifier` start from; `Config()` is the paper's network for
SST binary, which the recipes of experiments start from. An unknown name, or a value that breaks its
rule, is an error that says what is expected. The default recipe as a file:

```toml
{toml}
```
"""
_AUTO = """## What `auto` stands for

`auto` is replaced when training starts. The value is stored in the model folder. A value that you
set yourself is never changed. An update is a step on one batch.

| setting | value |
| --- | --- |
| `epochs` | {epochs}, from {small:,} to {few:,} examples {small_epochs}; \
at least {updates} updates, and {per_class} per class up to {most:,} |
| `batch_size` | {batch_size}, from {small:,} to {few:,} examples {small_batch_size} |
| `schedule` | `linear` |
| `word_dropout` | 0 |
| `keep` | `last` |
| `patience` | {patience}, or as many as make {patience_updates} updates |
| `dev_fraction` | {dev_fraction}; 0 below {few:,} examples unless dev selects the weights |
| `folds` | 0; {folds} below {few:,} examples without a dev set, until {enough} are scored; \
0 where dev selects the weights |

If you ask for a constant rate, the best weights or a patience, what is still `auto` is as in
`Config()`: a constant rate, {usual} epochs at most (more if the updates need them), and dev, held
out below {few:,} examples too, selects the weights.
"""
_TYPES = {int: "integer", float: "number", bool: "true or false", str: "string"}


def settings_page() -> str:
    """The Markdown text of the page."""
    default, plain = DEFAULT.to_dict(), Config().to_dict()

    def both(section: str) -> dict[str, dict[str, Any]]:
        return {"default recipe": default[section], "`Config()`": plain[section]}

    def alone(kind: type[Section]) -> dict[str, dict[str, Any]]:
        return {"default": to_plain(kind())}

    return "\n".join(
        [
            _INTRODUCTION.format(toml=to_toml(DEFAULT).rstrip()),
            _section(TextConfig, "`[text]`", both("text")),
            _section(DCNNConfig, '`[model]`, kind = "dcnn"', both("model")),
            _section(MaxTDNNConfig, '`[model]`, kind = "max-tdnn"', alone(MaxTDNNConfig)),
            _section(NBoWConfig, '`[model]`, kind = "nbow"', alone(NBoWConfig)),
            _section(TrainingConfig, "`[training]`", both("training")),
            "With another kind of network, `n_ensemble` is 1 by default. In a recipe of an "
            "experiment, `patience` is 0 and `calibrate` false.\n",
            _AUTO.format(
                few=config.FEW_EXAMPLES,
                enough=config.ENOUGH_SCORED,
                updates=config.MIN_UPDATES,
                per_class=config.UPDATES_PER_CLASS,
                most=config.MOST_UPDATES,
                patience_updates=config.MIN_PATIENCE,
                folds=config.FOLDS,
                epochs=config.EPOCHS,
                batch_size=config.BATCH_SIZE,
                small=config.SMALL_CORPUS,
                small_epochs=config.SMALL_EPOCHS,
                small_batch_size=config.SMALL_BATCH_SIZE,
                usual=TrainingConfig.epochs,
                patience=TrainingConfig.patience,
                dev_fraction=TrainingConfig.dev_fraction,
            ),
            _section(DataConfig, "`[data]`, in recipes only", alone(DataConfig)),
            _section(
                DistillationConfig, "`[distillation]`, in recipes only", alone(DistillationConfig)
            ),
        ]
    )


def _section(kind: type[Section], title: str, values: dict[str, dict[str, Any]]) -> str:
    """A table with a row per setting; ``values`` are its columns of defaults."""
    meanings, hints = _meanings(kind), typing.get_type_hints(kind, include_extras=True)
    header = ["setting", *values, "type", "must be", "meaning"]
    rows = []
    for item in settings_of(kind):
        type_, rule = _type_and_rule(hints[item])
        defaults = [f"`{json.dumps(column[item])}`" for column in values.values()]
        rows.append([f"`{item}`", *defaults, type_, rule, meanings[item]])
    lines = [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
    summary = _markdown((inspect.getdoc(kind) or "").split("\n\n", maxsplit=1)[0])
    return f"## {title}\n\n{summary}\n\n" + "\n".join(lines) + "\n"


def _meanings(kind: type) -> dict[str, str]:
    """Setting and meaning, from the section "Attributes:" of the docstring."""
    _, _, attributes = (inspect.getdoc(kind) or "").partition("Attributes:\n")
    found = re.findall(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", attributes, re.MULTILINE | re.DOTALL)
    return {name: _markdown(text) for name, text in found}


def _markdown(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("|", r"\|")


def _type_and_rule(hint: Any) -> tuple[str, str]:
    rule = ""
    if typing.get_origin(hint) is typing.Annotated:
        hint, *rules = typing.get_args(hint)
        rule = ", ".join(rule.words for rule in rules)
    if typing.get_origin(hint) is typing.Literal:
        return "one of", ", ".join(f"`{option}`" for option in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"list of {_TYPES[typing.get_args(hint)[0]]}s", rule
    return _TYPES[hint], rule


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
