"""``dcnn experiment``: the paper's four experiments, and the tables made from their results."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from dcnn.cli.options import DataFolder, Device, MarkdownFiles

experiment_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run the paper's experiments, and render their tables.",
)

Results = Annotated[
    Path, typer.Option("--results", help="The folder of the results, one file a run.")
]

_TITLES = {
    "sst2": "Stanford Sentiment, 2 classes (Table 1)",
    "sst5": "Stanford Sentiment, 5 classes (Table 1)",
    "trec": "TREC questions, 6 classes (Table 2)",
    "twitter": "1.6 million tweets, 2 classes (Table 3)",
}


def _make_command(experiment: str, title: str) -> Callable[..., None]:
    def command(
        models: Annotated[
            str,
            typer.Option(
                "--models",
                help="Which, with commas: dcnn, max-tdnn, nbow, nb, binb, svm, maxent.",
            ),
        ] = "dcnn",
        seeds: Annotated[
            int,
            typer.Option(
                "--seeds", min=1, max=1000, help="How many, from 0 on; n-gram models have none."
            ),
        ] = 5,
        recipe: Annotated[
            str,
            typer.Option("--recipe", help="How to train: paper, tuned, best, or a .toml file."),
        ] = "tuned",
        device: Device = "auto",
        jobs: Annotated[
            int, typer.Option("--jobs", min=0, help="CPU: runs side by side; 0 is one a core.")
        ] = 0,
        data: DataFolder = None,
        results: Results = Path("results"),
        save: Annotated[
            Path | None, typer.Option("--save", help="Leave the trained model folders there.")
        ] = None,
        sample: Annotated[
            bool,
            typer.Option("--sample", help="The corpus is a sample: no checksums."),
        ] = False,
    ) -> None:
        from dcnn.commands.experiment import ExperimentOptions, run_experiment

        run_experiment(
            ExperimentOptions(
                experiment=experiment,
                models=tuple(name.strip() for name in models.split(",") if name.strip()),
                seeds=seeds,
                recipe=recipe,
                device=device,
                jobs=jobs,
                data=data,
                results=results,
                save=save,
                sample=sample,
            )
        )

    command.__doc__ = f"""{title}.

    Finished runs are kept, one JSON file each; the same command again runs what is missing.

    \b
    Examples:
      dcnn experiment {experiment}
      dcnn experiment {experiment} --recipe paper --device cuda
      dcnn experiment {experiment} --models nbow,max-tdnn,binb,svm --seeds 3
    """
    return command


for _name, _title in _TITLES.items():
    experiment_app.command(_name)(_make_command(_name, _title))


@experiment_app.command()
def tables(
    results: Results = Path("results"),
    write: MarkdownFiles = None,
) -> None:
    """Render Tables 1 to 3 beside the paper's figures, from the results alone.

    \b
    Examples:
      dcnn experiment tables
      dcnn experiment tables --write README.md --write docs/experiments.md
    """
    from dcnn.commands.experiment_tables import run_tables

    run_tables(results, write or [])
