"""The page in one file, in a real Chromium: it computes what the package computes, and shows it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from browser import chromium
from dcnn import artifact as model_folder
from dcnn.artifact import STORED_DTYPES, pack, unpack
from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig, TextConfig
from dcnn.errors import UserError
from dcnn.export import export
from dcnn.export.html import _described, stored_weights
from dcnn.export.onnx import decided_by_rounding
from dcnn.inspection import explain
from dcnn.predictor import Predictor
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import LEARNED, PRESETS
from strings import random_texts
from untrained import VOCABULARY_TEXT, make_artifact

COMPUTE = """async ([described, texts, classes]) => {
  const model = await Model.read(described);
  return texts.map((text, i) => {
    const { tokens, trace, labels, attributions, logit } = model.explain(text, classes[i]);
    return { tokens, labels, attributions, logit, probabilities: trace.probabilities };
  });
}"""
TOKENS = """([values, patterns, texts]) => {
  const tokenizer = new Tokenizer(values, patterns);
  return texts.map((text) => tokenizer.tokens(text));
}"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def scripts(browser, tmp_path_factory):
    """A page whose scripts compute for other models too."""
    path = tmp_path_factory.mktemp("page") / "m.html"
    export(make_artifact(), path)
    page = browser.new_page()
    page.goto(path.as_uri())
    return page


@pytest.fixture
def opened(browser, tmp_path):
    """Export and open a page; at the end, check that it asked for nothing and logged nothing."""
    contexts, faults, asked = [], [], set()

    def open_page(artifact, **options):
        path = tmp_path / "opinions.html"
        export(artifact, path, overwrite=True)
        contexts.append(browser.new_context(offline=True, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(8000)
        page.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: asked.add(request.url))
        page.goto(path.as_uri())
        page.evaluate("ready")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults
    assert {url.split(":")[0] for url in asked} <= {"file", "data"}


def words_of_any_length(seed, count, most):
    generator = np.random.default_rng(seed)
    words = [*VOCABULARY_TEXT.split(), "xyzzy", "dullish", "UNHEARD-OF"]
    return [" ".join(generator.choice(words, generator.integers(1, most))) for _ in range(count)]


def networks():
    generator = np.random.default_rng(0)
    for number in range(16):
        fold, depth = bool(number % 2), 1 + number % 3
        widths = tuple(map(int, generator.integers(1, 7, depth)))
        config = DCNNConfig(
            dim=int(2**depth * generator.integers(1, 4)),
            widths=widths,
            maps=tuple(map(int, generator.integers(1, 5, depth))),
            k_top=int(generator.integers(1, widths[0] + 1)),
            fold=fold,
        )
        ngrams = (3, 5) if number % 4 > 1 else ()
        thresholds = (0.3, 0.5, 0.7) if number % 5 == 0 else None
        yield make_artifact(config, number, ("a", "b", "c"), thresholds, ngrams)


def assert_same(scripts, artifact, dtype, texts):
    """Probabilities to 1e-5, labels, and attributions by the definition of `dcnn explain`."""
    artifact = replace(artifact, dtype=dtype)
    described = json.loads(json.dumps(_described(artifact, "m")))
    artifact = replace(artifact, weights=unpack(stored_weights(artifact)))
    predictor = Predictor(artifact)
    classes = [i % len(artifact.classes) for i in range(len(texts))]
    answers = scripts.evaluate(COMPUTE, [described, texts, classes])
    expected = zip(predictor.probabilities(texts), predictor.predict(texts), strict=True)
    for text, number, answer, (probabilities, prediction) in zip(
        texts, classes, answers, expected, strict=True
    ):
        words = artifact.encoder.tokenizer(text)
        assert answer["tokens"] == words
        sentence = artifact.encoder.encode_words([words])
        if not np.allclose(answer["probabilities"], probabilities, rtol=0, atol=1e-5):
            assert decided_by_rounding(artifact, sentence), (text, answer, probabilities)
            continue
        assert answer["labels"] == list(prediction.labels)
        if not words or artifact.config.model.kind != "dcnn":
            assert answer["attributions"] is None
            continue
        explained = explain(predictor, text, artifact.classes[number])
        np.testing.assert_allclose(answer["attributions"], explained.attributions, atol=1e-4)
        assert answer["logit"] == pytest.approx(explained.logit, abs=1e-4)


@pytest.mark.parametrize("dtype", STORED_DTYPES)
def test_networks_with_dynamic_k_give_the_probabilities_and_attributions_of_the_model(
    scripts, dtype
):
    for number, artifact in enumerate(networks()):
        assert_same(scripts, artifact, dtype, ["", *words_of_any_length(number, 6, 30)])
    long = " ".join(words_of_any_length(99, 1, 400) * 2)
    assert_same(scripts, make_artifact(char_ngrams=(3, 5)), dtype, [long])


@pytest.mark.parametrize("config", [MaxTDNNConfig(dim=5, width=6), NBoWConfig(dim=5)])
def test_max_tdnn_and_nbow_give_the_probabilities_of_the_model(scripts, config):
    texts = ["", *words_of_any_length(1, 20, 12)]
    assert_same(scripts, make_artifact(config, char_ngrams=(3, 5)), "float32", texts)
    assert_same(scripts, make_artifact(config, thresholds=(0.5, 0.6)), "int8", texts)


def encoder_of(preset, lowercase, texts):
    config = TextConfig(tokenizer=preset, lowercase=lowercase, min_count=1, n_subwords=300)
    return Encoder.learn(texts, config)[0]


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("preset", [*PRESETS, *LEARNED])
def test_every_preset_splits_as_the_package_does(scripts, preset, lowercase):
    encoder = encoder_of(preset, lowercase, random_texts(500, seed=1))
    artifact = replace(make_artifact(), encoder=encoder)
    described = _described(artifact, "m")
    texts = [*random_texts(2000, seed=2), "a\ud800b", "e" + "\u0315\u0300" * 20_000, "x" * 200]
    sent = [described["encoder"], described["patterns"], texts]
    # A lone surrogate passes as an escape of JSON.
    evaluated = f"({TOKENS})({json.dumps(sent)})"
    assert scripts.evaluate(evaluated) == [encoder.tokenizer(text) for text in texts]


@pytest.mark.parametrize("preset", [*PRESETS, *LEARNED])
def test_new_words_are_known_by_their_spelling(scripts, preset):
    artifact = make_artifact(char_ngrams=(3, 5))
    encoder = encoder_of(preset, True, [VOCABULARY_TEXT])
    ngrams = None if preset == "characters" else artifact.encoder.char_ngrams
    encoder = encoder._replace(
        vocabulary=type(encoder.vocabulary)(encoder.vocabulary.words[:15]),
        char_ngrams=ngrams,
    )
    weights = dict(artifact.weights)
    count = len(encoder.vocabulary)
    weights["embeddings"] = np.resize(weights["embeddings"], (count, 8)).astype(np.float32)
    if ngrams is None:
        del weights["ngrams"]
    artifact = replace(artifact, encoder=encoder, weights=weights)
    texts = [
        "Größer 哈哈 dullness 👍🏽 isn’t",
        "x" * 100,
        "\U0001d400\U0001d401",
        *random_texts(20),
    ]
    assert_same(scripts, artifact, "int8", texts)


def test_the_page_shows_label_probabilities_and_words(opened):
    artifact = make_artifact(char_ngrams=(3, 5))
    page = opened(artifact)
    assert page.title() == page.locator("h1").inner_text() == "opinions"
    assert page.locator("#answer").is_hidden()
    text = "the plot is not dullish"
    page.fill("#text", text)
    explained = explain(Predictor(model_folder.Artifact(**rounded(artifact))), text)
    assert page.locator("#label").inner_text().startswith(str(explained.prediction.label))
    bars = page.locator("#bars button")
    assert bars.count() == 2
    assert f"{100 * explained.prediction.probability:.1f} %" in bars.first.inner_text()
    shown = page.locator("#words .word")
    assert shown.all_inner_texts() == text.split()
    for word, amount in zip(shown.all(), explained.attributions, strict=True):
        assert word.get_attribute("title").startswith(f"{amount:+.2f}".replace("-", "\u2212"))
        assert ("against" in word.get_attribute("class")) == (amount < 0)
    assert "known by its spelling" in shown.last.get_attribute("title")
    bars.last.click()  # explains the other label
    assert (
        page.locator("#legend").inner_text().startswith(f"for {explained.prediction.ranked[1][0]}")
    )
    page.fill("#text", "  ")
    assert page.locator("#answer").is_hidden()


def rounded(artifact):
    stored = replace(artifact, weights=unpack(pack(artifact.weights, "int8")), dtype="int8")
    return vars(artifact) | {"weights": unpack(stored_weights(stored))}


def test_the_page_of_a_multi_label_model_shows_its_thresholds(opened):
    page = opened(make_artifact(classes=("dull", "good", "plot"), thresholds=(0.0, 0.0, 1.0)))
    page.fill("#text", "the plot")
    label = page.locator("#label").inner_text()
    assert sorted(label.split(", ")) == ["dull", "good"]
    assert page.locator("#bars .threshold").count() == 3
    assert page.locator("#bars .given").count() == 2


def test_the_page_abstains_where_the_model_does(opened):
    record = {"threshold": 0.999999, "out_of_scope": None}
    artifact = replace(make_artifact(), metadata={"abstention": record})
    page = opened(artifact)
    page.fill("#text", "the plot")
    assert page.locator("#label").inner_text() == "no answer"
    assert "below the threshold of 100.00 %" in page.locator("#reason").inner_text()


def test_many_labels_a_long_text_and_markup_are_shown_as_they_are(opened):
    names = tuple(f"<b>&label {number}" for number in range(30))
    page = opened(make_artifact(classes=names), viewport={"width": 390, "height": 800})
    page.fill("#text", "<script>alert(1)</script> " + "plot " * 1200)
    assert page.locator("#bars li").count() == 8
    page.click("#more")
    assert page.locator("#bars li").count() == 30
    assert page.locator("#bars").inner_text().count("<b>&label") == 30
    assert "too many to explain" in page.locator("#sum").inner_text()
    page.fill("#text", "<script>alert(1)</script> " + "q" * 300)
    assert page.locator("#words .word").all_inner_texts()[:3] == ["<", "script", ">"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_model_without_a_graph_is_not_explained(opened):
    page = opened(make_artifact(NBoWConfig(dim=4)))
    page.fill("#text", "the plot")
    assert page.locator("#bars li").count() == 2
    assert page.locator("#why").is_hidden()


def test_a_browser_that_cannot_read_the_weights_is_told_so(browser, tmp_path):
    export(make_artifact(), tmp_path / "m.html")
    page = browser.new_page()
    page.add_init_script("delete globalThis.DecompressionStream")
    page.goto((tmp_path / "m.html").as_uri())
    page.evaluate("ready")
    assert "takes a browser of 2023 or later" in page.locator("#hint").inner_text()
    page.close()


def test_vectors_of_a_small_page_have_few_values():
    artifact = replace(make_artifact(char_ngrams=(3, 5)), dtype="int8")
    small = stored_weights(artifact)
    assert set(np.unique(small["ngrams"])) == set(range(-3, 4))
    assert np.abs(small["embeddings"]).max() == 31
    exact = stored_weights(replace(artifact, dtype="float32"))["ngrams"]
    assert exact.max() == 127


def test_the_size_of_a_page_is_limited(tmp_path):
    artifact = make_artifact()
    with pytest.raises(UserError, match=r"max_size=1000 allows 1 KB; raise --max-size"):
        export(artifact, tmp_path / "m.html", max_size=1000)
    with pytest.raises(UserError, match=r"allows 1 KB; choose --dtype int8, or raise"):
        export(artifact, tmp_path / "m.html", "float32", max_size=1000)
    with pytest.raises(UserError, match=r"max_size=5 limits the size of an HTML page; got format="):
        export(artifact, tmp_path / "m", max_size=5)
    assert not list(tmp_path.iterdir())
    written = export(artifact, tmp_path / "m.html")
    assert (written.dtype, written.size) == ("int8", (tmp_path / "m.html").stat().st_size)
