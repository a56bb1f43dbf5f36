"""``svm-features``: TREC questions by engineered features and a linear SVM (Table 2).

In the manner of the systems that the table quotes (Huang et al. 2008, Silva et al. 2011): words and
pairs of words, the question word, the head word, which is the noun that is asked for, found by
rules in a dependency parse, shapes of words, parts of speech, the hypernyms of the head word in
WordNet, named entities, and patterns of whole questions. spaCy parses (the extra ``features``);
WordNet is read from its own data files.

The rules work on ``Token``s and know no parser.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction import DictVectorizer
from sklearn.model_selection import StratifiedKFold

from dcnn.data.corpora.registry import Source
from dcnn.data.corpora.trec import read_trec
from dcnn.errors import DataError, needs_extra
from dcnn.experiments.ngrams import NGRAM_MODELS, score_held_out
from dcnn.experiments.results import FEATURES
from dcnn.text.vocabulary import Ints

PARSER = "en_core_web_md"  # of spaCy 3.8
WORDNET = Path("/usr/share/wordnet")

_QUESTION_WORDS = ("what", "which", "who", "whom", "whose", "when", "where", "why", "how")
# A noun that says nothing of what is asked for: "kind of bird" asks for a bird.
_EMPTY = frozenset(
    [
        "kind",
        "type",
        "name",
        "sort",
        "term",
        "word",
        "part",
        "form",
        "example",
        "one",
        "genre",
        "group",
        "title",
        "brand",
    ]
)
# Questions whose form says more than their head word.
_PATTERNS = {
    "definition": re.compile(
        r"^what(?: is| 's| are) (?:an? |the )?\S+(?: \S+)? \?$", re.IGNORECASE
    ),
    "meaning": re.compile(r"^what (?:do|does) .* mean\b", re.IGNORECASE),
    "stands for": re.compile(r"\b(?:stands? for|abbreviation|acronym|full form)\b", re.IGNORECASE),
    "substance": re.compile(r"^what .*\b(?:composed|made|made out) of \?$", re.IGNORECASE),
    "does": re.compile(r"^what (?:do|does|did) .* do\b", re.IGNORECASE),
    "called": re.compile(r"^what .*\b(?:call|called|named|nicknamed|known)\b", re.IGNORECASE),
    "cause": re.compile(r"^what (?:cause|causes|caused)\b", re.IGNORECASE),
    "use": re.compile(r"^what .*\b(?:used for|purpose|function)\b", re.IGNORECASE),
    "person": re.compile(r"^[Ww]ho (?:is|was|are|were) (?:[A-Z]\S* )+\?$"),
}


class Token(NamedTuple):
    """A word of a parsed question, as spaCy describes it."""

    text: str
    lemma: str
    tag: str  # part of speech of the Penn Treebank
    pos: str  # universal part of speech
    dep: str  # relation to its head
    head: int  # place of its head; the root is its own
    entity: str  # type of the named entity that it is part of, or empty

    @property
    def is_noun(self) -> bool:
        """Whether it can be the head word."""
        return self.pos in ("NOUN", "PROPN", "NUM")


Question = Sequence[Token]


def question_word(question: Question) -> int | None:
    """The place of the first what, which, who, ..., or none: "Name a film"."""
    for place, token in enumerate(question):
        if token.text.lower() in _QUESTION_WORDS and token.tag.startswith("W"):
            return place
    return None


def head_word(question: Question) -> int | None:
    """The place of the noun that is asked for; none where the question word says it all."""
    place = question_word(question)
    if place is None:  # "Name a film": the object of the verb
        verbs, relations, after = [_root(question)], ["dobj", "attr", "nsubj", "oprd"], 0
    elif question[place].text.lower() in ("what", "which", "whose"):
        head = question[place].head
        beside = question[place].dep in ("det", "poss", "nmod", "compound", "amod")
        if beside and question[head].is_noun:  # "what bird"
            return _without_empty(question, head)
        last = place
        while last + 1 < len(question) and question[last + 1].pos in ("NOUN", "PROPN"):
            last += 1
        if last > place:  # the same, with another parse
            return _without_empty(question, last)
        # "What is the bird", "What did the bird eat"
        verbs, after = [head, _root(question)], place + 1
        relations = ["nsubj", "attr", "nsubjpass", "dobj", "oprd"]
    else:
        return None
    for verb in verbs:
        for relation in relations:
            for child in _children(question, verb, relation):
                if child != place and question[child].is_noun:
                    return _without_empty(question, child)
    nouns = (at for at in range(after, len(question)) if question[at].pos == "NOUN")
    return next(nouns, None)


def _root(question: Question) -> int:
    return next(at for at, token in enumerate(question) if token.head == at)


def _children(question: Question, head: int, relation: str) -> list[int]:
    return [
        at
        for at, token in enumerate(question)
        if token.head == head != at and token.dep == relation
    ]


def _without_empty(question: Question, place: int) -> int:
    """Of "kind of bird" the place of "bird"; any other noun's own."""
    if question[place].lemma.lower() in _EMPTY:
        for preposition in _children(question, place, "prep"):
            for noun in _children(question, preposition, "pobj"):
                if question[preposition].text.lower() == "of" and question[noun].is_noun:
                    return _without_empty(question, noun)
    return place


def word_shape(word: str) -> str:
    """Letters and digits, upper and lower case."""
    if word.isdigit():
        return "digits"
    if any(character.isdigit() for character in word):
        return "with digits"
    cases = {"upper": word.isupper(), "title": word.istitle(), "lower": word.islower()}
    return next((name for name, holds in cases.items() if holds), "other")


class WordNet:
    """The nouns of WordNet: the more general concepts of the most frequent sense of a word."""

    def __init__(self, folder: Path = WORDNET) -> None:
        self._senses: dict[str, str] = {}  # the first synset of a lemma
        self._hypernyms: dict[str, list[str]] = {}  # of a synset
        self._irregular = dict(line[:2] for line in _lines(folder, "noun.exc"))
        for line in _lines(folder, "index.noun"):
            # lemma, part of speech, synsets, kinds of pointers, those kinds, two counts, synsets
            self._senses[line[0]] = line[int(line[3]) + 6]
        for line in _lines(folder, "data.noun"):
            # synset, file, type, words in hexadecimal, words, pointers: kind, synset, two numbers
            first = 5 + 2 * int(line[3], 16)
            pointers = range(first, first + 4 * int(line[first - 1]), 4)
            self._hypernyms[line[0]] = [line[at + 1] for at in pointers if line[at] in ("@", "@i")]

    def hypernyms(self, noun: str) -> set[str]:
        """The synset of the first sense of ``noun`` and all above it; none of an unknown word."""
        word = noun.lower()
        forms = (word, self._irregular.get(word), word.removesuffix("s"), word.removesuffix("es"))
        found: set[str] = set()
        new = [next((self._senses[form] for form in forms if form in self._senses), "")]
        while new and new[0]:
            found.update(new)
            new = [above for synset in new for above in self._hypernyms[synset]]
        return found


def _lines(folder: Path, name: str) -> Iterator[list[str]]:
    """The fields of every line of a file of WordNet, without licence and glosses."""
    try:
        with (folder / name).open(encoding="utf-8") as stream:
            for line in stream:
                if not line.startswith(" "):
                    yield line.partition(" | ")[0].split()
    except OSError as error:
        raise DataError(
            f"{folder / name} cannot be read ({error.strerror}); install WordNet (Debian: "
            "wordnet-base), or name the folder of its data files with --wordnet"
        ) from error


def parse(texts: Sequence[str], parser: str = PARSER) -> tuple[list[list[Token]], str]:
    """Parse questions with a model of spaCy, by the name of its package or by its folder.

    Returns:
        The tokens of each text, and the name and version of the model and of spaCy.
    """
    with needs_extra(f"The model {FEATURES}", "features"):
        spacy = import_module("spacy")  # an extra: without it, there is nothing to check types with
    try:
        model = spacy.load(parser)
    except OSError as error:
        raise DataError(
            f"--parser {parser} is neither an installed package nor a folder of spaCy's ({error}); "
            f"run: python -m spacy download {PARSER}"
        ) from None
    parsed = [
        [
            Token(one.text, one.lemma_, one.tag_, one.pos_, one.dep_, one.head.i, one.ent_type_)
            for one in document
        ]
        for document in model.pipe(texts, batch_size=128)
    ]
    about = "{lang}_{name} {version}".format_map(model.meta)
    return parsed, f"{about}, spaCy {spacy.__version__}"


class _Parsed(NamedTuple):
    """A question with what several groups of features need of it."""

    tokens: Question
    words: list[str]  # in lower case
    asks: str  # the question word
    noun: Token | None  # the head word
    wordnet: WordNet


def _bigrams(question: _Parsed) -> Iterator[str]:
    return map("{} {}".format, ["<s>", *question.words], [*question.words, "</s>"])


def _question_words(question: _Parsed) -> Iterator[str]:
    place = question_word(question.tokens)
    yield question.asks
    yield f"first {question.words[0]}"
    yield f"verb {question.asks} {question.tokens[_root(question.tokens)].lemma.lower()}"
    if place is not None and place + 1 < len(question.words):
        # "how many", "how far"; of others what kind of word follows
        next_one = question.tokens[place + 1]
        follows = next_one.text.lower() if question.asks == "how" else next_one.tag
        yield f"{question.asks} {follows}"


def _head_words(question: _Parsed) -> Iterator[str]:
    lemma = "none" if question.noun is None else question.noun.lemma.lower()
    yield lemma
    yield f"{question.asks} {lemma}"


def _shapes(question: _Parsed) -> Iterator[str]:
    yield from (word_shape(token.text) for token in question.tokens)
    if question.noun is not None:
        yield f"head {question.asks} {word_shape(question.noun.text)}"


def _parts_of_speech(question: _Parsed) -> Iterator[str]:
    tags = [token.tag for token in question.tokens]
    yield from tags
    yield from map("{} {}".format, ["<s>", *tags], [*tags, "</s>"])
    if question.noun is not None:
        yield f"head {question.asks} {question.noun.tag}"


def _hypernyms(question: _Parsed) -> Iterator[str]:
    if question.noun is not None:
        yield from question.wordnet.hypernyms(question.noun.lemma)


def _entities(question: _Parsed) -> Iterator[str]:
    yield from (token.entity for token in question.tokens if token.entity)
    if question.noun is not None and question.noun.entity:
        yield f"head {question.noun.entity}"


def _patterns(question: _Parsed) -> Iterator[str]:
    text = " ".join(token.text for token in question.tokens)
    yield from (name for name, pattern in _PATTERNS.items() if pattern.search(text))


GROUPS: dict[str, Callable[[_Parsed], Iterator[str]]] = {
    "unigrams": lambda question: iter(question.words),
    "bigrams": _bigrams,
    "question word": _question_words,
    "head word": _head_words,
    "word shape": _shapes,
    "part of speech": _parts_of_speech,
    "hypernyms": _hypernyms,
    "named entities": _entities,
    "patterns": _patterns,
}


def features_of(tokens: Question, wordnet: WordNet) -> dict[str, int]:
    """The features of a question, each as ``group: value``."""
    place, noun = question_word(tokens), head_word(tokens)
    question = _Parsed(
        tokens,
        [token.text.lower() for token in tokens],
        "none" if place is None else tokens[place].text.lower(),
        None if noun is None else tokens[noun],
        wordnet,
    )
    return {f"{name}: {one}": 1 for name, group in GROUPS.items() for one in group(question)}


class FeatureRun(NamedTuple):
    """What ``fit_features`` found."""

    predicted: Ints  # classes of the test questions
    accuracy: float  # cross-validated, of all groups
    notes: dict[str, Any]


def fit_features(
    sources: dict[str, Source], folds: int, parser: str, wordnet_folder: Path
) -> FeatureRun:
    """Choose C, and measure every group, by cross-validation; then fit, and predict test once."""
    wordnet = WordNet(wordnet_folder)
    train, test = (read_trec(sources[part].path) for part in ("train", "test"))
    parsed, version = parse([*train.texts, *test.texts], parser)
    questions = [features_of(tokens, wordnet) for tokens in parsed]
    vectorizer = DictVectorizer(dtype=np.float32)
    known = vectorizer.fit_transform(questions[: len(train.texts)])
    known.indices, known.indptr = (one.astype(np.int32) for one in (known.indices, known.indptr))
    truth, names = train.targets, np.array(vectorizer.get_feature_names_out())
    group_of = np.array([name.partition(": ")[0] for name in names])
    splits = list(StratifiedKFold(folds).split(truth, truth))
    model = NGRAM_MODELS["svm"]

    def accuracy(features: csr_matrix, setting: float) -> float:
        scores = (score_held_out(model.make(setting), features, truth, *split) for split in splits)
        return fmean(scores)

    by_setting = {setting: accuracy(known, setting) for setting in model.choices}
    best = max(by_setting, key=by_setting.__getitem__)
    groups = list(GROUPS)
    measured = {
        name: {
            "features": int((group_of == name).sum()),
            "with those before": accuracy(known[:, np.isin(group_of, groups[: at + 1])], best),
            "all others": accuracy(known[:, group_of != name], best),
        }
        for at, name in enumerate(groups)
    }
    fitted = model.make(best).fit(known, truth)
    predicted = fitted.predict(vectorizer.transform(questions[len(train.texts) :]))
    notes = {"setting": best, "features": len(names), "groups": measured, "parser": version}
    return FeatureRun(predicted, by_setting[best], notes)
