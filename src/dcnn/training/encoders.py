"""A pretrained encoder as teacher: fine-tuned on the labelled texts, or frozen under a linear head.

Its sentence vector is the mean of the last hidden states over the tokens of the text, as in
sentence-transformers; any encoder that ``transformers.AutoModel`` loads will do, with its own
tokenizer. Fine-tuning is for a GPU. The frozen encoder with logistic regression takes minutes on a
CPU and is the better of the two with a handful of labels.
"""

import copy
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dcnn.artifact import is_model_folder
from dcnn.data.labels import LabelledTexts
from dcnn.errors import UserError, needs_extra
from dcnn.ops.reference import sigmoid
from dcnn.training import teachers
from dcnn.training.fit import choose_device
from dcnn.training.objective import target_distributions
from dcnn.training.teachers import TEXTS_PER_BLOCK, Probabilities, Report, Teacher, hash_of

Mode = Literal["auto", "finetune", "frozen"]
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
HEAD_FILE, TEACHER_FILE = "head.safetensors", "teacher.json"


@dataclass(frozen=True)
class FineTuning:
    """How an encoder is fine-tuned: AdamW, linear warm-up and decay, selection on dev."""

    epochs: int = 0  # 0: so many that about 25,000 texts are seen, from 2 to 20
    batch_size: int = 32
    learning_rate: float = 3e-5
    head_learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warm_up: float = 0.1  # of all steps
    dropout: float = 0.1  # of the sentence vector
    max_tokens: int = 128
    evaluations: int = 4  # per training
    seed: int = 0

    def epochs_for(self, examples: int) -> int:
        """The number of passes over ``examples`` texts."""
        return self.epochs or max(2, min(20, math.ceil(25_000 / examples)))


class EncoderTeacher(Teacher):
    """A pretrained encoder with an output layer, trained on the labelled texts when first needed.

    ``folder`` keeps the trained teacher, and an earlier one of the same key is loaded from there.
    """

    def __init__(
        self,
        encoder: str,
        train: LabelledTexts,
        dev: LabelledTexts | None,
        *,
        mode: Mode = "auto",
        device: str = "cpu",
        folder: Path | None = None,
        settings: FineTuning | None = None,
        report: Report = lambda *_: None,
    ) -> None:
        self._source, self._train, self._dev = encoder, train, dev
        self.settings, self._report, self.folder = settings or FineTuning(), report, folder
        self.device = torch.device(device)
        if (
            mode == "auto"
        ):  # on a CPU an epoch of fine-tuning takes an hour where this takes minutes
            mode = "finetune" if self.device.type == "cuda" else "frozen"
        self.mode, self.classes, self.multi_label = mode, tuple(train.classes), train.multi_label
        if not Path(encoder).is_dir() and not _HUB_NAME.fullmatch(encoder):
            raise UserError(
                f"--teacher {encoder} is neither a folder with a pretrained encoder nor the name "
                "of a model on the hub, such as sentence-transformers/all-MiniLM-L6-v2"
            )
        with needs_extra("A pretrained encoder as teacher", "distill"):
            import transformers
        logging: Any = transformers.logging
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        getLogger("huggingface_hub").setLevel(ERROR)  # it logs every retry without a network
        try:
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
            self.encoder: Any = transformers.AutoModel.from_pretrained(encoder).float()
        except (OSError, ValueError) as error:
            raise UserError(
                f"--teacher {encoder}: no pretrained encoder can be loaded from there "
                f"({str(error).splitlines()[0]})"
            ) from error
        self.bytes = sum(4 * value.numel() for value in self.encoder.parameters())
        self.weights_sha256 = _weights_sha256(self.encoder.state_dict())
        data = hashlib.sha256()
        for part in (train, dev):
            if part is not None:
                data.update(repr((list(part.texts), part.targets.tolist())).encode())
        self.key = hash_of(
            "encoder",
            self.weights_sha256,
            mode,
            asdict(self.settings),
            self.classes,
            self.multi_label,
            data.hexdigest(),
        )
        self.name = f"{Path(encoder).name}, {'fine-tuned' if mode == 'finetune' else 'frozen'}"
        self.head = torch.nn.Linear(self.encoder.config.hidden_size, len(self.classes))
        self._ready = False

    def stream(self, texts: Sequence[str]) -> Iterator[Probabilities]:
        """Blocks of texts, inside which texts of similar length share a batch."""
        self.prepare()
        # A few seconds each, so that progress shows and little is lost if it is interrupted.
        size = 4 * TEXTS_PER_BLOCK if self.device.type == "cuda" else TEXTS_PER_BLOCK // 8
        with ThreadPoolExecutor(1) as thread:  # tokenizes the next block meanwhile
            coming = thread.submit(self._tokenize, texts[:size])
            for start in range(size, len(texts) + size, size):
                token_ids = coming.result()
                coming = thread.submit(self._tokenize, texts[start : start + size])
                logits = self._logits(token_ids)
                if self.multi_label:
                    yield sigmoid(logits)
                else:
                    yield torch.softmax(torch.from_numpy(logits), dim=1).numpy()

    def prepare(self) -> None:
        """Load the trained teacher, or train it and keep it."""
        if self._ready:
            return
        if self.folder is not None and _key_of(self.folder) == self.key:
            self._load(self.folder)
            self._ready = True
            return
        self.encoder.to(self.device)
        self.head.to(self.device)
        if self.mode == "frozen":
            self._fit_head()
        else:
            self._fine_tune()
        self._ready = True
        if self.folder is not None:
            self.save(self.folder)

    def save(self, folder: Path) -> None:
        """Write encoder, tokenizer and output layer."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        self.encoder.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        head = {name: value.detach().cpu() for name, value in self.head.state_dict().items()}
        save_file(head, folder / HEAD_FILE)
        record = {"key": self.key, "name": self.name, "classes": self.classes}
        (folder / TEACHER_FILE).write_text(json.dumps(record))

    def _load(self, folder: Path) -> None:
        import transformers
        from safetensors.torch import load_file

        self.encoder = transformers.AutoModel.from_pretrained(folder).float().to(self.device)
        self.head.load_state_dict(load_file(folder / HEAD_FILE))
        self.head.to(self.device)

    def _vectors(self, tokens: Mapping[str, Tensor]) -> Tensor:
        """(B, hidden size): the mean over the tokens that are not padding."""
        states: Tensor = self.encoder(**tokens).last_hidden_state  # (B, T, hidden size)
        mask = tokens["attention_mask"][..., None].to(states.dtype)
        return (states * mask).sum(dim=1) / mask.sum(dim=1)

    def _batch(self, token_ids: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        shape = len(token_ids), max(map(len, token_ids))
        padded = np.full(shape, self.tokenizer.pad_token_id or 0)
        mask = np.zeros(shape, np.int64)
        for row, ids in enumerate(token_ids):
            padded[row, : len(ids)] = ids
            mask[row, : len(ids)] = 1
        return {"input_ids": self._sent(padded), "attention_mask": self._sent(mask)}

    def _sent(self, values: NDArray[Any]) -> Tensor:
        """On the device; pinned memory, so that the processor need not wait for the copy."""
        tensor = torch.from_numpy(values)
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:  # what tokenizers refuse
            return []
        ids: list[list[int]] = self.tokenizer(
            list(texts),
            truncation=True,
            max_length=self.settings.max_tokens,
            return_attention_mask=False,
            return_token_type_ids=False,
        )["input_ids"]
        return ids

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, hidden size) sentence vectors."""
        vectors: NDArray[np.float32] = self._embed(self._tokenize(texts)).cpu().numpy()
        return vectors

    @torch.inference_mode()
    def _embed(self, token_ids: Sequence[Sequence[int]]) -> Tensor:
        """(N, hidden size): texts of similar length share a batch, of so many tokens in all."""
        most = 32_768 if self.device.type == "cuda" else 2_048  # what fills a GPU; a cache
        order = sorted(range(len(token_ids)), key=lambda index: -len(token_ids[index]))
        vectors = torch.empty(len(order), self.encoder.config.hidden_size, device=self.device)
        self.encoder.eval()
        with self._autocast():
            while order:
                size = max(1, most // len(token_ids[order[0]]))
                part, order = order[:size], order[size:]
                found = self._vectors(self._batch([token_ids[index] for index in part]))
                vectors[self._sent(np.array(part))] = found.float()
        return vectors

    @torch.inference_mode()
    def _logits(self, token_ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        vectors = self._embed(token_ids)
        if self.mode == "frozen":
            vectors = torch.nn.functional.normalize(vectors)
        logits: NDArray[np.float32] = self.head(vectors).cpu().numpy()
        return logits

    def _fit_head(self) -> None:
        """Logistic regression on unit vectors; its strength of regularization is chosen on dev."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier

        train, dev = self._train, self._dev
        vectors = self._unit_vectors(train.texts, "embed")
        dev_vectors = self._unit_vectors(dev.texts, "embed dev") if dev is not None else None
        best, best_loss = None, math.inf
        for strength in (1.0, 3.0, 10.0, 30.0, 100.0) if dev is not None else (10.0,):
            model: Any = LogisticRegression(C=strength, max_iter=2000)
            if self.multi_label:
                model = OneVsRestClassifier(model)
            model.fit(vectors, train.targets if self.multi_label else train.class_numbers)
            if dev is None or dev_vectors is None:
                best = model
                break
            found = np.clip(model.predict_proba(dev_vectors), 1e-7, 1 - 1e-7)
            if self.multi_label:
                truth = dev.targets
                loss = -(truth * np.log(found) + (1 - truth) * np.log(1 - found)).mean()
            else:
                numbers = np.searchsorted(model.classes_, dev.class_numbers)
                loss = -np.log(found[np.arange(len(dev)), numbers]).mean()
            if loss < best_loss:
                best, best_loss = model, float(loss)
        self._set_head(best)

    def _unit_vectors(self, texts: Sequence[str], stage: str) -> NDArray[np.float32]:
        vectors = []
        size = TEXTS_PER_BLOCK // 8
        for start in range(0, len(texts), size):
            self._report(stage, start, len(texts), "texts")
            vectors.append(self.embed(texts[start : start + size]))
        self._report(stage, len(texts), len(texts), "texts")
        joined = np.concatenate(vectors)
        unit: NDArray[np.float32] = joined / np.linalg.norm(joined, axis=1, keepdims=True)
        return unit

    def _set_head(self, model: Any) -> None:
        """Take over the weights of scikit-learn's models; classes without an example get none."""
        if self.multi_label:
            weights = np.concatenate([one.coef_ for one in model.estimators_])
            bias = np.concatenate([one.intercept_ for one in model.estimators_])
        elif len(model.classes_) == 2:  # one row of weights: of the second against the first
            weights = np.concatenate([-model.coef_, model.coef_]) / 2
            bias = np.concatenate([-model.intercept_, model.intercept_]) / 2
        else:
            weights, bias = model.coef_, model.intercept_
        with torch.no_grad():
            self.head.weight.zero_()
            self.head.bias.fill_(0.0 if self.multi_label else -30.0)
            rows = slice(None) if self.multi_label else torch.from_numpy(model.classes_)
            place = self.head.weight.device
            self.head.weight[rows] = torch.from_numpy(weights).float().to(place)
            self.head.bias[rows] = torch.from_numpy(bias).float().to(place)

    def _fine_tune(self) -> None:
        settings, train = self.settings, self._train
        generator = torch.Generator().manual_seed(settings.seed)
        with torch.no_grad():
            self.head.weight.copy_(torch.randn(self.head.weight.shape, generator=generator) * 0.02)
            self.head.bias.zero_()
        token_ids = self._tokenize(train.texts)
        targets = target_distributions(train.targets, len(train.classes))
        epochs = settings.epochs_for(len(train))
        per_epoch = math.ceil(len(train) / settings.batch_size)
        steps = epochs * per_epoch
        decayed = [p for p in self.encoder.parameters() if p.ndim > 1]
        others = [p for p in self.encoder.parameters() if p.ndim <= 1]
        optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": settings.weight_decay},
                {"params": others, "weight_decay": 0.0},
                {"params": self.head.parameters(), "lr": settings.head_learning_rate},
            ],
            lr=settings.learning_rate,
            fused=self.device.type == "cuda",
        )
        warm_up = max(1, round(settings.warm_up * steps))
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda step: min((step + 1) / warm_up, (steps - step) / max(1, steps - warm_up)),
        )
        best_score, best_state = -math.inf, None
        step, rng = 0, np.random.default_rng(settings.seed)
        torch.manual_seed(settings.seed)  # of the encoder's own dropout
        self.encoder.train()
        for _ in range(epochs):
            for part in _batches_by_length(token_ids, settings.batch_size, rng):
                batch = self._batch([token_ids[index] for index in part])
                with self._autocast():
                    vectors = torch.nn.functional.dropout(self._vectors(batch), settings.dropout)
                    logits = self.head(vectors)
                losses = self._losses(logits.float(), self._sent(targets[part]))
                optimizer.zero_grad(set_to_none=True)
                torch.autograd.backward(losses.mean())
                torch.nn.utils.clip_grad_norm_(self.encoder.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                step += 1
                if step % 50 == 0:
                    self._report("fine-tune", step, steps, "steps")
                if step * settings.evaluations % steps < settings.evaluations and self._dev:
                    score = self._score(self._dev)
                    if score > best_score:
                        best_score, best_state = score, copy.deepcopy(self._state())
                    self._report("fine-tune", step, steps, f"dev {100 * score:.2f}")
                    self.encoder.train()
        if best_state is not None:
            self.encoder.load_state_dict(best_state[0])
            self.head.load_state_dict(best_state[1])

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return self.encoder.state_dict(), self.head.state_dict()

    def _losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.multi_label:
            return torch.nn.functional.binary_cross_entropy_with_logits(
                logits, targets, reduction="none"
            ).sum(dim=1)
        return -(targets * torch.log_softmax(logits, dim=1)).sum(dim=1)

    def _score(self, dev: LabelledTexts) -> float:
        """Accuracy, or of several labels per text the share of labels that are right."""
        logits = self._logits(self._tokenize(dev.texts))
        if self.multi_label:
            return float(((logits > 0) == (dev.targets > 0.5)).mean())
        return float((logits.argmax(axis=1) == dev.class_numbers).mean())


def _key_of(folder: Path) -> str | None:
    """The key of the teacher that was saved there, if one was."""
    record = folder / TEACHER_FILE
    return str(json.loads(record.read_text())["key"]) if record.is_file() else None


def _batches_by_length(
    token_ids: Sequence[Sequence[int]], batch_size: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Batches of similar length in random order: shuffled, sorted inside pools, shuffled again."""
    lengths = np.array([len(one) for one in token_ids])
    order = rng.permutation(len(token_ids))
    pool = 64 * batch_size
    batches = []
    for start in range(0, len(order), pool):
        part = order[start : start + pool]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches += [part[at : at + batch_size] for at in range(0, len(part), batch_size)]
    return [batches[place] for place in rng.permutation(len(batches))]


def _weights_sha256(weights: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def choose_teacher(
    names: Sequence[str],
    train: LabelledTexts,
    dev: LabelledTexts | None,
    *,
    mode: Mode = "auto",
    device: str = "cpu",
    folder: Path | None = None,
    report: Report = lambda *_: None,
) -> Teacher:
    """The teacher of this name: a dcnn model folder or an encoder; of several, their mean."""
    found: list[Teacher] = [
        teachers.ModelTeacher(Path(name), train.classes, train.multi_label)
        if is_model_folder(Path(name))
        else EncoderTeacher(
            name,
            train,
            dev,
            mode=mode,
            device=device,
            folder=folder if folder is None or len(names) == 1 else folder / Path(name).name,
            report=report,
        )
        for name in names
    ]
    return found[0] if len(found) == 1 else teachers.MeanTeacher(found)


def as_teacher(given: Any, train: LabelledTexts, dev: LabelledTexts, device: str) -> Teacher:
    """What a caller of Python means by a teacher."""
    if isinstance(given, Teacher):
        return given
    if isinstance(given, str | Path | list | tuple):
        names = [given] if isinstance(given, str | Path) else given
        return choose_teacher(
            [str(name) for name in names], train, dev, device=choose_device(device).type
        )
    if not callable(getattr(given, "predict_proba", given)):
        raise UserError(
            f"teacher={given!r:.60} must be a function of a list of texts, an object with "
            "predict_proba, or the name of an encoder or model folder"
        )
    return teachers.FunctionTeacher(given, train.classes, train.multi_label)
