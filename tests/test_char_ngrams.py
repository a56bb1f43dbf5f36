"""Character n-grams: their buckets, vectors and gradients, their folder and explanations."""

import json
from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dcnn import artifact as model_folder
from dcnn.artifact import NGRAMS, NGRAMS_USED, unpack
from dcnn.config import DEFAULT, Config, DCNNConfig, NBoWConfig, TextConfig
from dcnn.data.batching import Examples
from dcnn.data.labels import LabelledTexts
from dcnn.errors import ConfigError, ModelFolderError, UserError
from dcnn.export import export
from dcnn.export.onnx import onnx_bytes, open_session, run_onnx
from dcnn.inspection.detector_ranking import rank_corpus
from dcnn.inspection.explanation import explain
from dcnn.metrics import calibrate
from dcnn.ops import native, native_torch, reference
from dcnn.predictor import Predictor
from dcnn.text.encoder import Encoder
from dcnn.text.vocabulary import MAX_SPELLED, CharNgrams, marked
from dcnn.training.batches import RunSpec
from dcnn.training.fit import RunOptions, fit, initialize, make_model
from dcnn.training.objective import cross_entropy
from dcnn.training.trainer import Trainer
from networks import build_model, native_gradients
from untrained import make_artifact

compiled = pytest.mark.skipif(not native.available(), reason="not compiled")
NGRAMS_OF = CharNgrams(3, 5, 1000)
TEXTS = ["the plot is unbelievably dull", "acting", "qwertz", "", "not goood , not baad !"]


def test_the_ngrams_of_a_word_are_those_between_its_marks():
    expected = ["<no", "not", "ot>", "<not", "not>", "<not>"]
    assert NGRAMS_OF.buckets("not") == [crc32(gram.encode()) % 1000 for gram in expected]


def test_the_unknown_word_has_none_and_a_long_word_only_those_of_its_start():
    assert NGRAMS_OF.buckets("") == []
    long = "ab" * MAX_SPELLED
    assert NGRAMS_OF.buckets(long) == NGRAMS_OF.buckets(long[:MAX_SPELLED])


@compiled
@given(
    st.lists(st.text(st.characters(exclude_categories=()), max_size=80), max_size=8),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(1, 70_000),
)
def test_the_compiled_ngrams_are_the_same(words, shortest, more, n_buckets):
    ngrams = CharNgrams(shortest, shortest + more, n_buckets)
    expected = ngrams.bags(words)
    found = native.char_ngrams([marked(word) for word in words], *ngrams)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def bags_and_tables(seed=0, words=("not", "a", "nothing", "thing", "notable"), known=3, dim=6):
    generator = np.random.default_rng(seed)
    bags = CharNgrams(2, 4, 50).bags(["", *words])
    tables = [generator.normal(size=(rows, dim)).astype(np.float32) for rows in (known, 50)]
    return bags, *tables


def test_a_vector_is_the_words_own_plus_the_ngrams_over_the_root_of_their_number():
    bags, embeddings, ngrams = bags_and_tables()
    vectors = reference.compose(np.array([0, 1, 4]), bags, embeddings, ngrams)
    np.testing.assert_array_equal(vectors[0], embeddings[0])
    for row, own, word in ((1, 1, "not"), (2, 0, "thing")):  # "thing" is not in the vocabulary
        buckets = CharNgrams(2, 4, 50).buckets(word)
        expected = embeddings[own] + ngrams[buckets].sum(axis=0) / np.sqrt(len(buckets))
        np.testing.assert_allclose(vectors[row], expected, rtol=1e-5, atol=1e-6)


@compiled
def test_the_compiled_vectors_are_the_same():
    given_ = bags_and_tables()
    ids = np.array([5, 0, 2, 2, 4])
    np.testing.assert_allclose(
        native.compose(ids, *given_), reference.compose(ids, *given_), rtol=1e-5, atol=1e-6
    )


@compiled
@pytest.mark.parametrize("bad", [-1, 6])
def test_an_id_outside_the_words_is_refused(bad):
    with pytest.raises(ValueError, match="word id"):
        native.compose(np.array([bad]), *bags_and_tables())


def model_with_ngrams(config, scale=10.0):
    bags, *_ = bags_and_tables()
    model = build_model(config, 3, 2)
    model.add_ngrams(torch.from_numpy(bags.offsets), torch.from_numpy(bags.buckets), 50)
    model.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
        model.ngrams.normal_(generator=torch.Generator().manual_seed(1))
    return model, bags


def test_the_table_of_the_network_is_that_of_the_reference():
    model, bags = model_with_ngrams(NBoWConfig(dim=6))
    tables = model.embeddings.detach(), model.ngrams.detach()
    every = model.all_ngrams(tables[1])
    assert every.shape == (50, 6)
    expected = reference.compose(np.arange(6), bags, tables[0].numpy(), every.numpy())
    torch.testing.assert_close(model.table(*tables), torch.from_numpy(expected))


def test_ngrams_start_at_zero():
    model, _ = model_with_ngrams(NBoWConfig(dim=6))
    model.initialize(torch.Generator().manual_seed(0))
    assert not model.ngrams.any()


@compiled
@pytest.mark.parametrize("ids", [[[0, 4, 5, 1], [2, 4, 4, 0]], [[1, 2, 1, 2], [2, 1, 0, 0]]])
def test_gradients_are_autograds(ids, monkeypatch):
    model, _ = model_with_ngrams(DCNNConfig(dim=4, widths=(3,), maps=(2,), k_top=2))
    batch = torch.tensor(ids), torch.tensor([4, 2]), None
    targets = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    monkeypatch.setenv("DCNN_BACKEND", "torch")
    expected = cross_entropy(model(*batch), targets)
    expected.backward()
    monkeypatch.setenv("DCNN_BACKEND", "native")
    parameters = dict(model.named_parameters())
    loss, gradients = native_gradients(model, batch, targets)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=1e-6)
    for name, parameter in parameters.items():
        torch.testing.assert_close(gradients[name].to_dense(), parameter.grad, rtol=1e-4, atol=1e-6)
    for name in ("embeddings", "ngrams"):
        rows = gradients[name].indices()[0].tolist()
        assert rows == sorted(set(rows))


def many_words(count=3000, known=1000, dim=20):
    """Words with more n-grams than one thread takes, as tensors: ids, bags and tables."""
    generator = np.random.default_rng(0)
    words = ["".join(generator.choice(list("abcdef"), 6)) for _ in range(count)]
    bags, *tables = bags_and_tables(0, words, known, dim)
    ids = np.unique(generator.integers(0, count, count // 2))
    tensors = [torch.from_numpy(one) for one in (ids, *bags, *tables)]
    return tensors[0], (tensors[1], tensors[2]), tensors[3], tensors[4]


@compiled
def test_threads_change_no_bit_of_vectors(monkeypatch):
    ids, bags, *tables = many_words()
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(native_torch.compose(ids, bags, *tables))
    assert torch.equal(*found)
    counts = bags[0].diff()[ids]
    matrix = torch.zeros(len(ids), 50)  # of the n-grams in the words
    for row, word in zip(matrix, ids.tolist(), strict=True):
        row += torch.bincount(bags[1][bags[0][word] : bags[0][word + 1]], minlength=50)
    matrix /= counts.clamp(min=1).sqrt()[:, None]
    own = torch.where(ids < len(tables[0]), ids, 0)
    expected = tables[0][own] + matrix @ tables[1]
    torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-4)


@compiled
@pytest.mark.parametrize("threads", [1, 3])
def test_gradients_of_many_words_are_autograds(threads, monkeypatch):
    """More words and buckets than a thread takes at a time, known and new."""
    _, (offsets, buckets), embeddings, _ = many_words(600, 200, 8)
    model = build_model(DCNNConfig(dim=8, widths=(3,), maps=(2,), k_top=2), len(embeddings), 2)
    model.add_ngrams(offsets, buckets, 50)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    ids = torch.randint(600, (40, 9), generator=generator)
    lengths = torch.randint(1, 10, (40,), generator=generator)
    targets = torch.rand(40, 2, generator=generator)
    monkeypatch.setenv("DCNN_BACKEND", "torch")
    cross_entropy(model(ids, lengths), targets).backward()
    monkeypatch.setenv("DCNN_BACKEND", "native")
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    _, gradients = native_gradients(model, (ids, lengths, None), targets)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name].to_dense(), parameter.grad, rtol=1e-4, atol=1e-5)


@compiled
def test_buckets_outside_the_ngrams_are_refused():
    model, _ = model_with_ngrams(DCNNConfig(dim=4, widths=(3,), maps=(2,), k_top=2))
    model.bag_buckets[-1] = len(model.ngrams)
    batch = torch.zeros(1, 1, dtype=torch.int64), torch.tensor([1]), None
    with pytest.raises(ValueError, match="a bucket lies outside"):
        native_gradients(model, batch, torch.tensor([[1.0, 0.0]]))


def test_new_words_have_ids_after_the_vocabulary_and_keep_them_from_set_to_set():
    text = TextConfig(char_ngrams=(3, 5), min_count=2)
    encoder, sentences = Encoder.learn(["so so good", "so bad"], text)
    assert encoder.vocabulary.words == ("so",)
    assert sentences.new_words == ("good", "bad")
    assert sentences.ids.tolist() == [1, 1, 2, 1, 3]
    dev = encoder.encode_all(["bad , so dull", ""], sentences.new_words)
    assert dev.new_words == ("good", "bad", ",", "dull")
    assert dev.ids.tolist() == [3, 4, 1, 5, 0]
    assert dev.select(np.array([1])).new_words == dev.new_words


def test_without_ngrams_a_new_word_is_the_unknown_word():
    _, sentences = Encoder.learn(["so so good"], TextConfig(min_count=2))
    assert sentences.ids.tolist() == [1, 1, 0]
    assert sentences.new_words == ()


def test_further_new_words_than_the_limit_are_the_unknown_word(monkeypatch):
    monkeypatch.setattr("dcnn.text.vocabulary.MOST_NEW_WORDS", 2)
    _, sentences = Encoder.learn(["a b c a"], TextConfig(char_ngrams=(3, 5), min_count=9))
    assert sentences.ids.tolist() == [1, 2, 0, 1]


def test_the_encoder_keeps_its_ngrams():
    encoder, _ = Encoder.learn(TEXTS, TextConfig(char_ngrams=(2, 4), n_buckets=7))
    assert Encoder.from_json(encoder.to_json()).char_ngrams == CharNgrams(2, 4, 7)


@pytest.mark.parametrize(
    "value",
    [
        *(3, {"shortest": 3}, {"shortest": 5, "longest": 3, "n_buckets": 9}),
        *(
            {"shortest": 3, "longest": 1 << 62, "n_buckets": 9},
            {"shortest": 3, "longest": 5, "n_buckets": 1 << 60},
        ),
    ],
)
def test_damaged_ngrams_are_refused(value):
    encoder, _ = Encoder.learn(TEXTS, TextConfig(char_ngrams=(2, 4)))
    values = json.loads(encoder.to_json()) | {"char_ngrams": value}
    with pytest.raises(ValueError, match="char_ngrams"):
        Encoder.from_json(json.dumps(values))


@pytest.mark.parametrize("value", [[3], [5, 3], [0, 2], [3, 4, 5], [3, 65]])
def test_settings_that_are_no_range_are_refused(value):
    with pytest.raises(ConfigError, match="char_ngrams"):
        Config.from_dict({"text": {"char_ngrams": value}})


def test_characters_have_no_ngrams():
    text = TextConfig(tokenizer="characters", char_ngrams=(3, 5))
    assert Encoder.learn(TEXTS, text)[0].char_ngrams is None


@pytest.fixture(params=[DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=3), NBoWConfig(dim=8)])
def artifact(request):
    return make_artifact(request.param, char_ngrams=(2, 4))


def test_the_reference_gives_what_the_library_gives_for_new_words(artifact, monkeypatch):
    found = Predictor(artifact).probabilities(TEXTS)
    monkeypatch.setenv("DCNN_BACKEND", "reference")
    predictor = Predictor(artifact)
    assert predictor.backend == "reference"
    np.testing.assert_allclose(found, predictor.probabilities(TEXTS), atol=1e-6)


def test_new_words_are_told_apart(artifact):
    one, other, unknown = Predictor(artifact).probabilities(["qwertz", "zuiop", ""])
    assert not np.allclose(one, other)
    assert not np.allclose(one, unknown)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_folder_keeps_the_ngrams_that_training_reached(artifact, dtype, tmp_path):
    export(artifact, tmp_path / "model", dtype=dtype)
    loaded = model_folder.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.weights[NGRAMS], artifact.weights[NGRAMS])
    stored = model_folder.pack(loaded.weights, dtype)
    assert len(stored[NGRAMS]) == np.count_nonzero(stored[NGRAMS_USED]) == 66
    assert stored[NGRAMS].dtype == np.int8
    if dtype == "float32":
        np.testing.assert_array_equal(
            Predictor(loaded).probabilities(TEXTS), Predictor(artifact).probabilities(TEXTS)
        )


@pytest.mark.parametrize("damage", ["missing", "count", "buckets"])
def test_a_folder_with_damaged_ngrams_is_refused(artifact, damage, tmp_path, monkeypatch):
    packed = model_folder.pack(artifact.weights, "float32")
    if damage == "missing":
        del packed[NGRAMS]
    elif damage == "count":
        packed[NGRAMS_USED] = np.zeros_like(packed[NGRAMS_USED])
    else:
        packed[NGRAMS_USED] = packed[NGRAMS_USED][:-1]
    monkeypatch.setattr(model_folder, "pack", lambda *_: packed)
    model_folder.save(tmp_path / "model", artifact)
    with pytest.raises(ModelFolderError, match="ngrams"):
        model_folder.load(tmp_path / "model")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_onnx_gives_what_the_model_gives_for_new_words(artifact, dtype, tmp_path):
    pytest.importorskip("onnxruntime")
    export(artifact, tmp_path / "model.onnx", dtype=dtype)
    export(artifact, tmp_path / "model", dtype=dtype)
    loaded = model_folder.load(tmp_path / "model")
    session = open_session((tmp_path / "model.onnx").read_bytes())
    for texts in (TEXTS, ["the plot"]):  # the second has no new word
        found = run_onnx(session, loaded.encoder, loaded.encoder.encode_all(texts))
        np.testing.assert_allclose(found, Predictor(loaded).probabilities(texts), atol=1e-6)


def test_an_onnx_file_looks_up_the_ngrams_of_new_words_alone(artifact):
    onnx = pytest.importorskip("onnx")
    graph = onnx.shape_inference.infer_shapes(onnx.load_from_string(onnx_bytes(artifact))).graph
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in graph.value_info}
    assert max(ranks.values()) == 3  # not the n-grams of every word of every sentence, (B, s, n, d)


def test_a_batch_makes_the_vectors_of_its_own_new_words_alone(monkeypatch):
    predictor = Predictor(make_artifact(NBoWConfig(dim=8), char_ngrams=(2, 4)))
    made, find_bags = [], model_folder.find_bags

    def counted(ngrams, words):
        made.append(len(words))
        return find_bags(ngrams, words)

    monkeypatch.setattr(model_folder, "find_bags", counted)
    predictor.probabilities([f"the plot{i}" for i in range(2000)])
    assert len(made) > 1
    assert sum(made) == 2000


def test_other_texts_of_a_call_change_nothing(artifact, monkeypatch):
    monkeypatch.setattr("dcnn.text.encoder.MOST_TOKENS", 8)
    monkeypatch.setattr("dcnn.text.vocabulary.MOST_NEW_WORDS", 8)
    texts = ["", *(f"the plot{i} is word{i % 3} and" + " good" * (i % 9) for i in range(30)), ""]
    predictor = Predictor(artifact)
    together = predictor.probabilities(texts)
    for text, row in zip(texts, together, strict=True):
        np.testing.assert_allclose(predictor.probabilities([text])[0], row, atol=1e-6)
    assert predictor.probabilities([]).shape == (0, 2)


def test_an_explanation_of_new_words_adds_up_to_the_logit():
    predictor = Predictor(make_artifact(char_ngrams=(2, 4)))
    text = TEXTS[0]
    explained = explain(predictor, text, "pos")
    encoded = predictor.artifact.encoder.encode_all([text])
    logits = predictor.logits(encoded)[0]
    np.testing.assert_allclose(explained.trace.logits, logits, atol=1e-5)
    total = sum(explained.attributions) + explained.biases
    np.testing.assert_allclose(total, logits[1], atol=1e-5)
    assert [explained.words[i] for i in explained.unknown] == ["unbelievably"]


def test_detectors_tell_new_words_apart_whatever_the_chunks():
    predictor = Predictor(make_artifact(char_ngrams=(2, 4)))
    texts = [f"the plot{i} is word{i % 7} and not good{i}" for i in range(40)]
    for layers in ((1,), (2,)):
        sentences = [predictor.artifact.encoder.tokenizer(text) for text in texts]
        whole, parts = (
            rank_corpus(sentences, predictor, layers, 5, chunk=chunk) for chunk in (100, 3)
        )
        assert whole.words == parts.words
        assert whole.words["word1"] == 6
        assert whole.detections == parts.detections
        for found in whole.detections.values():
            assert len({one.words for one in found}) > 1


@pytest.mark.parametrize("layers", [(1,), (2,)])
def test_of_many_new_words_the_frequent_and_the_listed_are_counted(layers, monkeypatch):
    predictor = Predictor(make_artifact(char_ngrams=(2, 4)))
    texts = [f"plot{i} is {'often' if i % 2 else 'good'} seen{i}" for i in range(400)]
    sentences = [text.split() for text in texts]
    whole = rank_corpus(sentences, predictor, layers, 5, chunk=10)
    monkeypatch.setattr("dcnn.inspection.detector_ranking.MOST_NEW_WORDS", 40)
    fewer = rank_corpus(sentences, predictor, layers, 5, chunk=10)
    assert fewer.detections == whole.detections
    assert fewer.total == whole.total == 1600
    listed = {w for found in whole.detections.values() for one in found for w in one.words}
    assert {"often", *listed} <= fewer.words.keys()
    assert fewer.words["often"] == 200
    assert len(whole.words) > 800
    assert len(fewer.words.keys() - listed) < 40 + 2 * 10


FIELDS = ("texts", "targets", "classes")


def labelled(count=120):
    generator = np.random.default_rng(0)
    ends = ("ful", "less")
    targets = generator.integers(0, 2, count)
    texts = [f"it is w{i}{ends[target]} today" for i, target in enumerate(targets)]
    return LabelledTexts(texts, targets, ("no", "yes"))


SMALL = DEFAULT.with_settings(["model.dim=16", "model.maps=[4]", "training.n_ensemble=2"])


def test_training_learns_from_the_spelling_of_words_it_saw_once():
    train = labelled()
    artifact, _ = fit(train, None, SMALL.with_training(epochs=20), RunOptions(device="cpu"))
    assert "w1ful" not in artifact.encoder.vocabulary.words
    probabilities = Predictor(artifact).probabilities(
        ["it is hopeful today", "it is hopeless today"]
    )
    assert probabilities.argmax(axis=1).tolist() == [0, 1]


def test_what_is_trained_is_what_is_stored(tmp_path):
    artifact, _ = fit(labelled(), labelled(30), SMALL.with_training(epochs=2), RunOptions("cpu"))
    model_folder.save(tmp_path / "model", artifact)
    loaded = model_folder.load(tmp_path / "model")
    for name, value in artifact.weights.items():
        np.testing.assert_array_equal(loaded.weights[name], value)


def test_a_run_is_not_resumed_with_other_new_words(tmp_path):
    texts, targets, classes = (
        getattr(labelled(), name) for name in ("texts", "targets", "classes")
    )
    others = [text.replace("w", "v") for text in texts]
    options = RunOptions("cpu", checkpoint_path=tmp_path / "checkpoint")
    config = SMALL.with_training(epochs=1, folds=0)
    fit(LabelledTexts(texts, targets, classes), None, config, options)
    options = replace(options, resume=True)
    with pytest.raises(UserError, match="another run: data was"):
        fit(LabelledTexts(others, targets, classes), None, config, options)
    fit(LabelledTexts(texts, targets, classes), None, config, options)


@pytest.mark.parametrize("factor", [-1, 0.25])
def test_scores_and_temperature_are_those_of_the_ngrams_that_are_stored(factor, monkeypatch):
    def far_from_trained(stored):  # to tell the two apart
        return {NGRAMS: np.float32(factor) * unpack(stored)[NGRAMS]}

    monkeypatch.setattr("dcnn.training.fit.unpack", far_from_trained)
    texts, targets, classes = (getattr(labelled(400), name) for name in FIELDS)
    texts = [text.replace(" w", " x") for text in texts]  # all of them new
    targets = np.where(np.arange(400) % 4, targets, 1 - targets)  # a quarter of them wrong
    dev = LabelledTexts(texts, targets, classes)
    artifact, summary = fit(labelled(), dev, SMALL.with_training(epochs=20), RunOptions("cpu"))
    logits = Predictor(artifact).logits(artifact.encoder.encode_all(texts))
    accuracy = float(np.mean(logits.argmax(axis=1) == targets))
    assert artifact.metadata["dev_accuracy"] == summary.dev_accuracy == accuracy
    if factor < 0:
        assert accuracy < 0.5
    else:  # the temperature is part of the weights, which leaves none to find
        found = calibrate(logits, np.eye(2, dtype=np.float32)[targets])
        assert found.temperature == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_only_torch_has_all_words_as_a_matrix(backend, monkeypatch):
    if backend == "native" and not native.available():
        pytest.skip("not compiled")
    monkeypatch.setenv("DCNN_BACKEND", backend)
    encoder, sentences = Encoder.learn(labelled().texts, SMALL.text)
    model = make_model(SMALL, encoder, 2, new_words=sentences.new_words)
    initialize(model, SMALL, None)
    config, examples = (
        SMALL.with_training(epochs=1).training,
        Examples(sentences, labelled().targets),
    )
    trainer = Trainer(model, examples, [RunSpec(config)], examples)
    trainer.train()
    trainer.logits(sentences)
    assert len(trainer.weights_of(0)["embeddings"]) == len(encoder.vocabulary)
    assert (model.columns is None) == (backend == "native")


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_several_runs_are_each_that_of_one_alone(backend, monkeypatch):
    if backend == "native" and not native.available():
        pytest.skip("not compiled")
    monkeypatch.setenv("DCNN_BACKEND", backend)
    encoder, sentences = Encoder.learn(labelled().texts, SMALL.text)
    dev = encoder.encode_all(labelled(30).texts, sentences.new_words)
    parts = Examples(sentences, labelled().targets), Examples(dev, labelled(30).targets)

    def runs(seeds):
        model = make_model(SMALL, encoder, 2, new_words=dev.new_words)
        specs = []
        for seed in seeds:
            config = SMALL.with_training(seed=seed, epochs=2, word_dropout=0.0)
            initialize(model, config, None)
            weights = {name: value.detach().clone() for name, value in model.named_parameters()}
            specs.append(RunSpec(config.training, weights))
        trainer = Trainer(model, parts[0], specs, parts[1])
        trainer.runs.model.config = replace(SMALL.model, dropout=0.0)
        trainer.train()
        return [trainer.weights_of(run) for run in range(len(seeds))]

    together = runs([0, 1])
    assert together[0].keys() == together[1].keys()
    assert len(together[0]["embeddings"]) == len(encoder.vocabulary)
    assert not np.array_equal(together[0]["ngrams"], together[1]["ngrams"])
    assert together[0]["ngrams"].any()


def test_backends_train_the_same(monkeypatch):
    weights = []
    for backend in ("native", "torch") if native.available() else ("torch", "torch"):
        monkeypatch.setenv("DCNN_BACKEND", backend)
        config = SMALL.with_training(epochs=1, word_dropout=0.0)
        config = config.with_settings(["model.dropout=0.0", "training.calibrate=false"])
        weights.append(fit(labelled(), labelled(30), config, RunOptions("cpu"))[0].weights)
    for name, value in weights[0].items():
        np.testing.assert_allclose(value, weights[1][name], atol=2e-3)


@pytest.mark.parametrize("projection", [0.0, 0.1])
def test_ngrams_go_with_pretrained_vectors(projection, tmp_path):
    path = tmp_path / "vectors.txt"
    words = ("it", "is", "today", "w1ful", "w2less", "never")
    generator = np.random.default_rng(0)
    rows = (f"{word} {' '.join(map(str, generator.normal(size=16)))}" for word in words)
    path.write_text("\n".join(rows) + "\n")
    settings = [f"text.vectors={path}", f"text.vectors_projection={projection}"]
    config = SMALL.with_settings([*settings, "text.vectors_words=6"]).with_training(epochs=1)
    artifact, _ = fit(labelled(), labelled(30), config, RunOptions("cpu"))
    assert "w2less" in artifact.encoder.vocabulary.words
    probabilities = Predictor(artifact).probabilities(["it is never w2less", "unheard"])
    assert np.isfinite(probabilities).all()
