"""``dcnn distill``: a teacher labels text, and a DCNN of a megabyte learns what it says."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from dcnn.cli import console as cli
from dcnn.cli.train import checkpoint_of, only_run, print_summary, run_of, training_callbacks
from dcnn.errors import TrainingStoppedError, UserError, needs_extra

if TYPE_CHECKING:
    from rich.console import Console

    from dcnn.artifact import Artifact
    from dcnn.data import readers
    from dcnn.training.teachers import Report, Teacher


@cli.grouped
@only_run
def distill(
    data: cli.TrainFile,
    out: cli.NewModelFolder,
    reading: cli.LabelTable,
    run: cli.RunConfig,
    teacher: list[str] | None = None,
    teacher_command: Annotated[str | None, Option(metavar="CMD")] = None,
    teacher_mode: Literal["auto", "finetune", "frozen"] = "auto",
    unlabelled: list[Path] | None = None,
    augment: Annotated[int | None, Option(metavar="N", min=0)] = None,
    teacher_weight: Annotated[float, Option(min=0, max=1)] = 0.7,
    save_teacher: Annotated[Path | None, Option(metavar="DIR")] = None,
    dev: Path | None = None,
    test: Path | None = None,
    weight_column: str | None = None,
    epochs: int | None = None,
    device: cli.Device = "auto",
    resume: cli.Resume = False,
    overwrite: cli.Overwrite = False,
    threads: cli.Threads = 1,
) -> None:
    """Train a small classifier on the predictions of a large model, its teacher.

    The teacher is trained on TRAIN, unless it is a command or a dcnn model. It labels TRAIN, the
    unlabelled texts and those of --augment; the student is trained on these probabilities, and
    selected on the labels of dev or, where labels are few, on unlabelled texts. Unlabelled text of
    the same domain helps most. The teacher's labels are stored on disk, so that the same command
    continues an interrupted run. An encoder needs the extra `distill`.
    """
    from dcnn.artifact import is_model_folder, save
    from dcnn.data.readers import read_examples
    from dcnn.files import show_size

    console = cli.make_console(stderr=True)
    if resume and not overwrite and not checkpoint_of(out).exists() and is_model_folder(out):
        console.print(f"{out} is finished already; there is nothing to resume.")
        return
    checkpoint, replaces = run_of(out, resume, overwrite)
    if bool(teacher) == bool(teacher_command):
        raise UserError("name the teacher: pass --teacher or --teacher-command, and not both")
    if save_teacher is not None and teacher_command is not None:
        raise UserError(
            f"--save-teacher {save_teacher}: a command is not trained, so there is nothing to "
            "save; leave it out"
        )
    if teacher_mode != "auto" and teacher_command is not None:
        raise UserError(f"--teacher-mode {teacher_mode}: a command is used as it is; leave it out")
    columns = reading(weight_column=weight_column)
    run_config = run(epochs=epochs)
    train_set, dev_set, test_set = read_examples(data, dev, test, columns, multi_label=True)
    texts = read_unlabelled(unlabelled or (), columns)
    with needs_extra("Distillation", "train"):
        from dcnn.training import distillation
        from dcnn.training.encoders import choose_teacher
        from dcnn.training.fit import RunOptions, choose_device, fit
        from dcnn.training.teachers import CommandTeacher

    if dev_set is None:
        train_set, dev_set = distillation.hold_out_dev(
            train_set, test_set, texts, run_config.training
        )
    cli.print_sizes(console, train_set, 0 if dev_set is None else len(dev_set))
    if dev_set is None:
        console.print(
            "Labels are few: the teacher learns all of them, and the student is selected on "
            "unlabelled texts; its dev accuracy is how often it agrees with the teacher"
        )
    if texts:
        console.print(f"{len(texts):,} unlabelled texts")
    elif teacher_command is not None and augment is None:
        console.print(
            "There is no unlabelled text, and none is made of the words of TRAIN, since each text "
            "may cost a call: pass --unlabelled with text of the domain, or --augment N"
        )
    elif augment != 0:
        console.print(
            "There is no unlabelled text, so texts are made of the words of TRAIN; real text of "
            "the domain teaches more: pass it with --unlabelled"
        )
    device = choose_device(device)
    chosen: Teacher
    with _stages(console) as report, _report_interrupt():
        if teacher_command is not None:
            chosen = CommandTeacher(teacher_command, train_set.classes, train_set.multi_label)
        else:
            chosen = choose_teacher(
                teacher or (),
                train_set,
                dev_set,
                mode=teacher_mode,
                device=device,
                folder=save_teacher,
                report=report,
            )
            _check_mode(teacher_mode, chosen)
        console.print(f"Teacher: {chosen.name}")
        labels = distillation.pseudo_label(
            chosen,
            train_set,
            dev_set,
            test_set,
            texts,
            copies=augment,
            teacher_weight=teacher_weight,
            seed=run_config.training.seed,
            cache=distillation.cache(),
            report=report,
        )
    if labels.networks is not None:
        n_bytes = sum(file.stat().st_size for file in labels.networks.rglob("*") if file.is_file())
        console.print(
            f"What the teacher learned is kept in {labels.networks} ({show_size(n_bytes)}), to "
            "label further texts; the folder may be removed"
        )
    with training_callbacks(console, None, run_config, patient=False) as callback:
        options = RunOptions(device, checkpoint, resume, callback=callback, threads=threads)
        own = labels.student_config(run_config)
        artifact, summary = fit(labels.examples, labels.dev_set, own, options)
    print_summary(console, artifact, summary)
    record = distillation.compare(artifact, labels, test_set)
    artifact = record.added_to(artifact)
    metadata = artifact.metadata | cli.run_metadata(data, dev, test)
    if record.test is not None:
        score = "test_micro_f1" if artifact.multi_label else "test_accuracy"
        metadata[score] = record.test.student
    artifact = replace(artifact, metadata=metadata)
    save(out, artifact, replaces)
    checkpoint.unlink(missing_ok=True)
    _print_comparison(console, artifact)
    console.print(f"The model is in {out}; try: dcnn predict {out} 'a text'")


def _check_mode(mode: str, teacher: "Teacher") -> None:
    """Check that a mode that was asked for applies: what is trained already is used as it is."""
    every = getattr(teacher, "teachers", [teacher])
    if mode != "auto" and mode not in [getattr(one, "mode", None) for one in every]:
        raise UserError(
            f"--teacher-mode {mode}: the teacher {teacher.name} is a trained one and used as it "
            "is; leave it out, or name a pretrained encoder"
        )


@contextmanager
def _report_interrupt() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise TrainingStoppedError(
            "stopped; the labels that the teacher gave so far are kept, and the same command "
            "continues with the other texts"
        ) from None


def read_unlabelled(files: Sequence[Path], columns: "readers.TableOptions") -> list[str]:
    """The distinct texts of all files; each must have one."""
    from dcnn.data import readers

    columns = replace(columns, label_columns=(), weight_column=None)
    texts: dict[str, None] = {}
    for file in files:
        own = [row.text for row in readers.read_rows(file, columns, labels=False)]
        own = [text for text in own if text.strip()]
        if not own:
            raise UserError(f"--unlabelled {file} has no text; leave it out, or name another")
        texts |= dict.fromkeys(own)
    return list(texts)


@contextmanager
def _stages(console: "Console") -> "Iterator[Report]":
    """A bar per stage, with its rate and the time left, and a line when it is done."""
    from rich.progress import TimeRemainingColumn

    amount = "{task.completed:,.0f}/{task.total:,.0f} {task.fields[remark]}"
    columns = amount, "{task.fields[rate]}", TimeRemainingColumn()
    bar = cli.progress_bar(console, "{task.description}", *columns)
    tasks: dict[str, tuple[Any, float, int]] = {}  # with the start of each, and what was done then

    def report(stage: str, done: int, total: int, remark: str) -> None:
        if stage not in tasks:
            task = bar.add_task(stage, total=total, remark=remark, rate="")
            tasks[stage] = task, time.monotonic(), done
        task, started, before = tasks[stage]
        seconds, number = time.monotonic() - started, done - before
        per_second = number / max(seconds, 1e-9)
        rate = f"{per_second:,.{0 if per_second >= 10 else 1}f}/s"
        bar.update(task, completed=done, remark=remark, rate=rate)
        if remark.startswith("dev"):
            console.print(f"{stage} {done:,}/{total:,} steps: {remark} %")
        if done == total:
            bar.remove_task(tasks.pop(stage)[0])
            if number:
                console.print(f"{stage}: {number:,} in {seconds:.1f} s ({rate})")

    with bar:
        yield report


def _print_comparison(console: "Console", artifact: "Artifact") -> None:
    """Teacher and student side by side, as in the model card."""
    from dcnn.model_card import compare_with_teacher

    (header, *rows), remarks = compare_with_teacher(artifact)
    table = cli.make_table(*header)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for line in remarks:
        console.print(line)
