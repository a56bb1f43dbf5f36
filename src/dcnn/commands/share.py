"""``dcnn push`` and ``dcnn pull``: a model to and from where others find it."""

from pathlib import Path

from dcnn.hub import pull, push


def run_push(
    model: Path, to: str, private: bool, revision: str | None, message: str | None
) -> None:
    """Bring the model there and say where it is."""
    place = push(model, to, private=private, revision=revision, message=message)
    print(f"{model} is at {place}")


def run_pull(source: str, out: Path, revision: str | None, overwrite: bool) -> None:
    """Bring the model here and say what it is."""
    pulled = pull(source, out, revision=revision, overwrite=overwrite)
    kind, labels = pulled.artifact.config.model.kind, len(pulled.artifact.classes)
    print(f"{pulled.origin} is in {out}: {kind}, {labels} labels; try: dcnn predict {out} 'a text'")
