"""The built-in corpus as the package reads it; tests/benchmarks checks what is in it."""

import opinions as generator
from dcnn.data.corpora.opinions import read_opinions


def test_the_corpus_is_what_was_generated() -> None:
    corpus = read_opinions()
    assert list(corpus) == ["train", "dev", "test"]
    for split, generated in generator.generate().items():
        assert corpus[split] == [(one.text, one.label, one.construct) for one in generated]
