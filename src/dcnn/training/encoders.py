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
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dcnn.artifact import is_model_folder
from dcnn.data.batching import shuffled_batches
from dcnn.data.labels import LONE_SURROGATE, LabelledTexts
from dcnn.errors import StorageError, UserError, needs_extra
from dcnn.files import write_folder_atomically
from dcnn.metrics import target_distributions
from dcnn.ops.reference import sigmoid
from dcnn.training import teachers
from dcnn.training.batches import example_weights
from dcnn.training.fit import choose_device
from dcnn.training.logistic import RegressionData, fit_head
from dcnn.training.objective import cross_entropy
from dcnn.training.teachers import TEXTS_PER_BLOCK, Probabilities, Report, Teacher, hash_of

logger = getLogger("dcnn")

Mode = Literal["auto", "finetune", "frozen"]
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_HUB_CACHE = re.compile(r"/models--([^/]+)/snapshots/[^/]+$")
MOST_SCORED = 20_000  # examples of dev that an evaluation of fine-tuning takes
HEAD_FILE, TEACHER_FILE = "head.safetensors", "teacher.json"
_RECORD = ("key", "name", "mode", "classes", "multi_label", "max_tokens", "network")


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


class EncoderTeacher(Teacher):
    """A pretrained encoder with an output layer, trained on the labelled texts when first needed.

    ``folder`` is where the trained teacher is saved, and from where an earlier one of the same key
    is loaded. An ``encoder`` that is such a folder is used as it is.
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
        self._train, self._dev, self._report = train, dev, report
        self.settings, self.folder = settings or FineTuning(), folder
        self.device = torch.device(device)
        self.classes, self.multi_label = tuple(train.classes), train.multi_label
        if mode == "auto":  # on a CPU an epoch of fine-tuning takes hours, and this minutes
            mode = "finetune" if self.device.type == "cuda" else "frozen"
        self.mode = mode
        self.device_name = "cpu"
        if self.device.type == "cuda":
            self.device_name = torch.cuda.get_device_name(self.device)
        self.tokenizer, self.encoder = _load_encoder(encoder)
        self.bytes = sum(4 * value.numel() for value in self.encoder.parameters())
        self.weights_sha256 = _weights_sha256(self.encoder.state_dict())
        self.head = torch.nn.Linear(self.encoder.config.hidden_size, len(self.classes))
        self._network = ""  # a hash of what was trained
        saved = _read_record(Path(encoder))
        if saved is not None:
            self._use_saved(Path(encoder), saved)
            return
        self.name = f"{encoder_name(encoder)}, {'fine-tuned' if mode == 'finetune' else 'frozen'}"
        data = hashlib.sha256()
        for part in (train, dev):
            if part is not None:
                data.update(repr((list(part.texts), part.targets.tolist())).encode())
                if part.weights is not None:
                    data.update(part.weights.tobytes())
        self.key = hash_of(
            "encoder",
            self.weights_sha256,
            mode if mode == "finetune" else "frozen, soft targets",
            asdict(self.settings),
            self.classes,
            self.multi_label,
            data.hexdigest(),
        )
        if folder is not None and folder.exists() and not self._is_held_by(folder):
            check_new(folder)

    def _use_saved(self, folder: Path, record: Mapping[str, Any]) -> None:
        """The teacher that an earlier run saved, with its output layer in the order of train."""
        if self.folder is not None:
            raise UserError(
                f"the teacher {folder} is a trained one already; copy its folder to save it"
            )
        teachers.check_multi_label(str(folder), record["multi_label"], self.multi_label)
        columns = teachers.columns_of(str(folder), record["classes"], self.classes)
        head = self._load_head(folder)
        self._set_head(head["weight"][columns], head["bias"][columns])
        self.encoder.to(self.device)
        self.head.to(self.device)
        self.name, self.mode = record["name"], record["mode"]
        self.settings = replace(self.settings, max_tokens=record["max_tokens"])
        self._network = self._hash_network()
        self.key = hash_of("trained encoder", self._network, self.mode, self.settings.max_tokens)

    @property
    def unsaved(self) -> bool:
        """Whether it is to be saved in a folder that does not hold it yet."""
        return self.folder is not None and not self._is_held_by(self.folder)

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

    def prepare(
        self, networks: Path | None = None, forget: Callable[[], None] = lambda: None
    ) -> None:
        """Load the trained teacher, or train it; and keep it."""
        if not self._network:
            self.encoder.to(self.device)
            self.head.to(self.device)
            places = [place for place in (self.folder, networks) if place is not None]
            if not any(self._load(place) for place in places):
                if self.mode == "frozen":
                    self._fit_head()
                else:
                    self._fine_tune()
                # Another process may have trained first and already label with its network.
                if networks is None or not self._load(networks):
                    self._network = self._hash_network()
            kept = None if networks is None else _read_record(networks)
            if networks is not None and (kept is None or kept["network"] != self._network):
                forget()
                try:  # a frozen encoder is unchanged, so it is not saved
                    self._save(networks, with_encoder=self.mode == "finetune")
                except StorageError as error:
                    logger.warning("what the teacher learned is not kept: %s", error)
        if self.folder is not None and self.unsaved:
            self._save(self.folder)

    def on_cpu(self) -> Teacher:
        """A copy on the CPU, to be timed."""
        timed = copy.copy(self)
        timed.device, timed.folder, timed._network = torch.device("cpu"), None, "to be timed"
        if self.device.type != "cpu":
            timed.encoder, timed.head = (copy.deepcopy(p).cpu() for p in (self.encoder, self.head))
        return timed

    @torch.no_grad()
    def _set_head(self, weight: Tensor, bias: Tensor) -> None:
        self.head.weight.copy_(weight)
        self.head.bias.copy_(bias)

    def _is_held_by(self, folder: Path) -> bool:
        record = _read_record(folder)
        return record is not None and record["key"] == self.key

    def _hash_network(self) -> str:
        return hash_of(*map(_weights_sha256, self._state()))

    def _save(self, folder: Path, with_encoder: bool = True) -> None:
        from safetensors.torch import save

        with write_folder_atomically(folder) as temporary:
            if with_encoder:
                self.encoder.save_pretrained(temporary)
                self.tokenizer.save_pretrained(temporary)
            head = {name: value.detach().cpu() for name, value in self.head.state_dict().items()}
            (temporary / HEAD_FILE).write_bytes(save(head))
            for file in temporary.iterdir():  # those of safetensors are for their owner alone
                file.chmod(file.stat().st_mode | _mode_of_new_files())
            values = (
                *(self.key, self.name, self.mode, self.classes, self.multi_label),
                *(self.settings.max_tokens, self._network),
            )
            record = dict(zip(_RECORD, values, strict=True))
            (temporary / TEACHER_FILE).write_text(json.dumps(record), "utf-8")

    def _load(self, folder: Path) -> bool:
        """Take this teacher from the folder, if it holds it."""
        record = _read_record(folder)
        if record is None or record["key"] != self.key:
            return False
        if self.mode == "finetune":
            self.encoder = _load_encoder(str(folder))[1].to(self.device)
        self.head.load_state_dict(self._load_head(folder))
        self._network = record["network"]
        return True

    @staticmethod
    def _load_head(folder: Path) -> dict[str, Tensor]:
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            return load((folder / HEAD_FILE).read_bytes())
        except (OSError, SafetensorError) as error:
            raise UserError(
                f"{folder / HEAD_FILE} cannot be read ({error}); remove the folder to train the "
                "teacher again"
            ) from error

    def _vectors(self, tokens: Mapping[str, Tensor]) -> Tensor:
        """(B, hidden size): the mean over the tokens that are not padding."""
        states: Tensor = self.encoder(**tokens).last_hidden_state  # (B, T, hidden size)
        mask = tokens["attention_mask"][..., None].to(states.dtype)
        return (states * mask).sum(dim=1) / mask.sum(dim=1)

    def _batch(self, token_ids: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        shape = len(token_ids), max(1, *map(len, token_ids))
        padded = np.full(shape, self.tokenizer.pad_token_id or 0)
        mask = np.zeros(shape, np.int64)
        for row, ids in enumerate(token_ids):
            padded[row, : len(ids)] = ids
            mask[row, : max(1, len(ids))] = 1  # an empty text is a padding token
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
            [LONE_SURROGATE.sub("\ufffd", text) for text in texts],  # tokenizers take UTF-8 alone
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
                size = max(1, most // max(1, len(token_ids[order[0]])))
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
        train, dev = self._train, self._dev
        data = self._regression_data(train, "embed")
        held_out = None if dev is None else self._regression_data(dev, "embed dev")
        self._set_head(*fit_head(data, held_out, self.multi_label))

    def _regression_data(self, data: LabelledTexts, stage: str) -> RegressionData:
        vectors = []
        size = TEXTS_PER_BLOCK // 8
        for start in range(0, len(data), size):
            self._report(stage, start, len(data), "texts")
            vectors.append(self._embed(self._tokenize(data.texts[start : start + size])))
        self._report(stage, len(data), len(data), "texts")
        n_classes = len(self.classes)
        targets = torch.from_numpy(target_distributions(data.targets, n_classes))
        weights = example_weights(data.targets, n_classes, False, data.weights)
        return (
            torch.nn.functional.normalize(torch.cat(vectors)),
            targets.to(self.device),
            None if weights is None else torch.from_numpy(weights).to(self.device),
        )

    def _fine_tune(self) -> None:
        settings, train = self.settings, self._train
        generator = torch.Generator().manual_seed(settings.seed)
        weight = torch.randn(self.head.weight.shape, generator=generator) * 0.02
        self._set_head(weight, torch.zeros(len(weight)))
        token_ids = self._tokenize(train.texts)
        lengths = np.array([len(one) for one in token_ids])
        targets = target_distributions(train.targets, len(train.classes))
        weights = example_weights(train.targets, len(train.classes), False, train.weights)
        epochs = settings.epochs or max(2, min(20, math.ceil(25_000 / len(train))))
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
        dev = self._dev
        if dev is not None and len(dev) > MOST_SCORED:
            dev = dev.select(np.sort(rng.permutation(len(dev))[:MOST_SCORED]))
        torch.manual_seed(settings.seed)  # of the encoder's own dropout
        self.encoder.train()
        for _ in range(epochs):
            for part in shuffled_batches(lengths, settings.batch_size, rng, max_words=sys.maxsize):
                batch = self._batch([token_ids[index] for index in part])
                with self._autocast():
                    vectors = torch.nn.functional.dropout(self._vectors(batch), settings.dropout)
                    logits = self.head(vectors)
                own = None if weights is None else self._sent(weights[part])
                loss = cross_entropy(
                    logits.float(), self._sent(targets[part]), own, self.multi_label
                )
                optimizer.zero_grad(set_to_none=True)
                torch.autograd.backward(loss)
                torch.nn.utils.clip_grad_norm_(self.encoder.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                step += 1
                if step % 50 == 0:
                    self._report("fine-tune", step, steps, "steps")
                if step * settings.evaluations % steps < settings.evaluations and dev:
                    score = self._score(dev)
                    if score > best_score:
                        best_score, best_state = score, copy.deepcopy(self._state())
                    self._report("fine-tune", step, steps, f"dev {100 * score:.2f}")
                    self.encoder.train()
        if best_state is not None:
            self.encoder.load_state_dict(best_state[0])
            self.head.load_state_dict(best_state[1])

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return self.encoder.state_dict(), self.head.state_dict()

    def _score(self, dev: LabelledTexts) -> float:
        """Accuracy, or if multi-label the fraction of labels that are right."""
        logits = self._logits(self._tokenize(dev.texts))
        if self.multi_label:
            right = ((logits > 0) == (dev.targets > 0.5)).mean(axis=1)
        else:
            right = logits.argmax(axis=1) == dev.class_numbers
        return float(np.average(right, weights=dev.weights))


def check_new(folder: Path) -> None:
    """Check that a folder in which a teacher is to be saved is empty."""
    if not folder.is_dir() or any(folder.iterdir()):
        raise UserError(
            f"{folder} exists and does not hold this teacher, so it is left alone; name another "
            "folder to save the teacher in"
        )


def encoder_name(source: str) -> str:
    """A name for people: that of the hub; of a folder its own, and its origin or architecture."""
    folder = Path(source).resolve()
    if not folder.is_dir():
        return source
    if cached := _HUB_CACHE.search(folder.as_posix()):
        return cached[1].replace("--", "/", 1)
    origin = architecture = None
    with suppress(ValueError, AttributeError, OSError):
        config = json.loads((folder / "config.json").read_text("utf-8"))
        origin, architecture = config.get("_name_or_path"), config.get("model_type")
    # It may be what the encoder was trained from, such as microsoft/mpnet-base: not its own name.
    if isinstance(origin, str) and _HUB_NAME.fullmatch(origin):
        return f"{folder.name} (from {origin})"
    return f"{folder.name} ({architecture})" if isinstance(architecture, str) else folder.name


def _load_encoder(source: str) -> tuple[Any, Any]:
    """The tokenizer and the encoder of a folder, or of a name on the Hugging Face Hub."""
    folder = Path(source)
    if not folder.is_dir() and not _HUB_NAME.fullmatch(source):
        raise UserError(
            f"the teacher {source} is neither a folder with a pretrained encoder nor the name "
            "of a model on the hub, such as sentence-transformers/all-MiniLM-L6-v2"
        )
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise UserError(
            f"the teacher {source} is a folder without config.json, so it holds neither a "
            "pretrained encoder nor a dcnn model; name one that does"
        )
    with needs_extra("A pretrained encoder as teacher", "distill"):
        import transformers
        from safetensors import SafetensorError
    logging: Any = transformers.logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    getLogger("huggingface_hub").setLevel(ERROR)  # it logs every retry without a network
    if not folder.is_dir() and not _is_downloaded(source):
        logger.info("downloading %s from the Hugging Face Hub", source)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        encoder: Any = transformers.AutoModel.from_pretrained(source).float()
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(
            f"no pretrained encoder can be loaded from the teacher {source} "
            f"({str(error).splitlines()[0]})"
        ) from error
    return tokenizer, encoder


def _is_downloaded(name: str) -> bool:
    """Whether the weights of a model of the hub are on this machine."""
    from huggingface_hub import try_to_load_from_cache

    files = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(name, file), str) for file in files)


def _read_record(folder: Path) -> dict[str, Any] | None:
    """The record of the teacher saved in ``folder``, or None if there is none."""
    path = folder / TEACHER_FILE
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text("utf-8"))
    except ValueError:
        return None
    return record if isinstance(record, dict) and record.keys() >= set(_RECORD) else None


def _mode_of_new_files() -> int:
    """What the umask allows, of reading and writing."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


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
    found: list[Teacher] = []
    for number, name in enumerate(names):
        if is_model_folder(Path(name)):
            if folder is not None:
                raise UserError(
                    f"the teacher {name} is a dcnn model, so no encoder is trained and there is "
                    f"nothing to save in {folder}; leave it out"
                )
            found.append(teachers.ModelTeacher(Path(name), train.classes, train.multi_label))
        else:
            own = folder
            if folder is not None and len(names) > 1:
                own = folder / f"{number}-{Path(name).name}"
            found.append(
                EncoderTeacher(
                    name, train, dev, mode=mode, device=device, folder=own, report=report
                )
            )
    return found[0] if len(found) == 1 else teachers.MeanTeacher(found)


def as_teacher(given: Any, train: LabelledTexts, dev: LabelledTexts, device: str) -> Teacher:
    """The teacher for an argument of the Python API: a teacher, name, function, model or list."""
    if isinstance(given, Teacher):
        return given
    if isinstance(given, str | Path):
        return choose_teacher([str(given)], train, dev, device=choose_device(device))
    if isinstance(given, list | tuple) and given:
        found = [as_teacher(one, train, dev, device) for one in given]
        return found[0] if len(found) == 1 else teachers.MeanTeacher(found)
    if not callable(getattr(given, "predict_proba", given)):
        raise UserError(
            f"teacher={given!r:.60} must be a function of a list of texts, an object with "
            "predict_proba, the name of an encoder or model folder, or a list of these"
        )
    return teachers.FunctionTeacher(given, train.classes, train.multi_label)
