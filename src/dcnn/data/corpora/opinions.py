"""The words of the built-in corpus: what is reviewed, and what is said about it.

Adjectives come in two groups so that sentences stay sensible: the first suits any aspect of a work,
the second only what tells something ("a witty script", but no "witty lighting").


The sentence patterns of the built-in corpus, and what their notation means.

``(a|b|)`` is a choice, possibly of nothing; every combination of choices is one skeleton. ``{...}``
is a slot. Slots for what is reviewed: ``n`` an aspect or the work, ``m`` an aspect that takes no
article, ``w`` the work, ``r`` a rival of the work. Slots for what is said: ``a`` adjective, ``v``
verdict, ``d`` verb in the past, ``i`` verb in the base form, ``c`` comparative. A digit tells slots
of a kind apart, and ties ``{+a1}`` to ``{n1}``.

The sign of an opinion slot is the whole semantics: a word in ``+`` has the sentence's polarity, a
word in ``-`` the opposite one. "The {n} is not {-a}" says that the label is what the word is not.

Where a pattern allows it, its sentences come as twins, the same words with opposite labels:

- a pattern with a rival is its own twin, the work and the rival exchanged;
- a pattern with words of both signs, numbered 1 and 2, is its own twin with 1 and 2 exchanged;
- otherwise the twin may be written out after ``||``, with its choices in the same order.


The built-in corpus: English opinions whose label depends on the order of the words.

Every sentence is generated, none was collected: patterns are filled with words of a lexicon
(``opinions_patterns``, ``opinions_lexicon``) by a seeded generator, so that a model can be trained
and shown without a download. It is a demonstration, not a benchmark of sentiment.

Design. The label of a sentence follows from its structure: what a negator reaches ("nobody would
call the plot dull", but "not only clever but funny"), which clause a connective lets win, whether a
degree word turns what it modifies ("hardly", "anything but", "too clever to be dull"), which side
of a comparison is the reviewed work, and whether an opinion is the outcome or was the expectation.
The words alone say little. Sentences are made in couples, one of each label, from one skeleton and
with the same opening and ending: neither length nor punctuation nor a function word gives the label
away. Where the pattern allows it the two are twins, with the same bag of words. Opinion words occur
with both labels, only somewhat more often with their own, since some sentences are plain.

Held out. Two things are dealt to train, dev and test so that no two of these share any:

- skeletons, which are sentences without opening and ending, their nouns and opinion words blanked;
- pairs of a noun and a word said of it, such as (plot, dull).

So a test sentence is a new skeleton filled with new pairs. Its parts are not new: every option of
every pattern, and every word, is in the training sentences. The dev set is dealt as the test set
is, because a dev set like the training set would prefer the epoch that remembers pairs best.

"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, product
from random import Random

WORKS = ("film", "movie", "picture", "show", "drama", "comedy")
RIVALS = ("book", "novel", "original", "trailer", "sequel", "remake")

_TELLING_MASS_ASPECTS = (
    *("dialogue", "humour", "narration", "writing", "satire", "storytelling", "banter"),
)
_CRAFT_MASS_ASPECTS = (
    *("acting", "direction", "pacing", "editing", "camerawork", "photography", "staging"),
    *("choreography", "animation", "scenery", "music", "lighting"),
)
_TELLING_ASPECTS = (
    *_TELLING_MASS_ASPECTS,
    *("plot", "story", "script", "screenplay", "romance", "premise", "mystery", "ending"),
    *("opening", "finale", "subplot", "prologue", "climax"),
)
_CRAFT_ASPECTS = (*_CRAFT_MASS_ASPECTS, "cast", "soundtrack", "score", "ensemble", "design")

_TELLING = (*_TELLING_ASPECTS, *WORKS, *RIVALS)

# What fills a slot for a noun, by the slot's kind; see opinions_patterns.
NOUNS = {
    "n": (*_TELLING_ASPECTS, *_CRAFT_ASPECTS, "film", "movie", "picture", "show"),
    "m": (*_TELLING_MASS_ASPECTS, *_CRAFT_MASS_ASPECTS),
    "w": WORKS,
    "r": RIVALS,
}
ALL_NOUNS = (*_TELLING_ASPECTS, *_CRAFT_ASPECTS, *WORKS, *RIVALS)

# What fills a slot for an opinion, by the slot's kind and the word's polarity.
WORDS = {
    ("a", 1): (
        *("superb", "brilliant", "splendid", "terrific", "wonderful", "marvellous", "excellent"),
        *("magnificent", "exquisite", "masterful", "inspired", "inventive", "elegant", "charming"),
        *("delightful", "dazzling", "captivating", "impressive", "memorable", "striking"),
        *("stunning", "stylish", "vivid", "lively", "fresh", "graceful", "sublime", "refreshing"),
        *("imaginative", "beautiful", "engaging"),
    ),
    ("a", -1): (
        *("dull", "clumsy", "bland", "stale", "lifeless", "awkward", "lazy", "muddled", "tiresome"),
        *("dreary", "flat", "forgettable", "grating", "sloppy", "weak", "messy", "mediocre"),
        *("lame", "drab", "feeble", "inept", "insipid", "irritating", "laboured", "monotonous"),
        *("plodding", "shoddy", "sluggish", "uninspired", "dreadful", "awful"),
    ),
    ("v", 1): (
        *("delight", "triumph", "joy", "treat", "masterpiece", "gem", "pleasure", "marvel"),
        *("revelation", "success"),
    ),
    ("v", -1): (
        *("bore", "mess", "disaster", "chore", "failure", "disappointment", "slog", "dud"),
        *("fiasco", "misfire"),
    ),
    ("d", 1): ("loved", "enjoyed", "admired", "adored", "praised", "relished", "savoured"),
    ("d", -1): ("hated", "loathed", "disliked", "resented", "mocked", "deplored", "detested"),
    ("i", 1): ("love", "enjoy", "admire", "adore", "praise", "relish", "savour"),
    ("i", -1): ("hate", "loathe", "dislike", "resent", "mock", "deplore", "detest"),
    ("c", 1): (
        *("better", "finer", "stronger", "sharper", "funnier", "smarter", "livelier", "bolder"),
    ),
    ("c", -1): (
        *("worse", "weaker", "duller", "poorer", "slower", "flatter", "clumsier", "sillier"),
    ),
}
_TELLING_WORDS = {
    ("a", 1): (
        *("witty", "clever", "gripping", "moving", "touching", "poignant", "heartfelt", "funny"),
        *("intelligent", "thoughtful", "absorbing", "compelling", "riveting", "thrilling"),
    ),
    ("a", -1): (
        *("boring", "tedious", "predictable", "shallow", "hollow", "contrived", "derivative"),
        *("pointless", "pretentious", "formulaic", "incoherent", "silly", "trite", "unfunny"),
    ),
}


def words_about(noun: str, kind: str, polarity: int) -> tuple[str, ...]:
    """The words of a kind and polarity (1 or -1) that go with ``noun``."""
    telling = _TELLING_WORDS.get((kind, polarity), ()) if noun in _TELLING else ()
    return (*WORDS[kind, polarity], *telling)


PATTERNS: dict[str, tuple[str, ...]] = {
    "plain": (
        "(A|What a|Such a|Another) {+a} {w}(.|!| all round.| once again.)",
        "{+a} {m} (throughout|as ever|once again|all round)(.|!)",
        "{+a1} {m1}(,| and) {+a2} {m2}(.|!| throughout.| all round.)",
        "(It has|It offers|There is) {+a} {m} (throughout|all round|to the end)(.|!)",
        "The {n} (is|was|feels|seems|felt|seemed) {+a}(| throughout| to the end| to me).",
        "(I|We|They) (found|thought|considered) the {n} {+a}(| throughout| to the end).",
        "The {n} (is|was|proved|remains) a {+v}(| to the end| for everyone| all round).",
        "(I|We|Everyone|My friends|The critics) {+d} the {n}(| once again| to the end| at once).",
        "(You will|They will|I still|We still) {+i} the {n}(| every time| in the end).",
        "(This is|They have made|She directs|He gives us) a {+a1} {w} with {+a2} {m2}(.|!)",
        "The {n1} (is|feels|seems) {+a1} and the {n2} (is|feels|seems) {+a2}.",
    ),
    "negation": (
        # The negator reaches the opinion word, near or far.
        "The {n} (is|was) (not|never|not at all|in no way|by no means) {-a}(| throughout| to me).",
        "(Nobody|No one|No critic|None of us) (would|could|will ever) (call|find) the {n} {-a}.",
        "(Nobody|No one), (in all honesty|after two viewings|whatever they expected), "
        "(would|could) (call|find) the {n} {-a}.",
        "(I|We) (did not|could not|would not) (for one moment|once|at any point) (call|find) "
        "the {n} {-a}.",
        "There (is|was) (nothing|not a thing|never anything) {-a} (about|in) the {n}.",
        "At no (point|time|moment) (is|was|did I find|would I call) the {n} {-a}.",
        "The {n} (is|was) (not|never|in no way|by no means) a {-v}.",
        "(I|We|You) (did not|could not|will never|would not) {-i} the {n}.",
        "(Nobody|No one|No critic|None of us) (would|could|will ever) {-i} the {n}.",
        "(Not one|Not a single|Never a) {-a} (scene|line|minute|moment) in (this|the whole) {w}.",
        "(Do not believe|Never trust|Do not listen to) (anyone|the critic|the friend) who "
        "(called|found) the {n} {-a}.",
        "A {w} without (a|a single|one) {-a} (scene|line|minute|moment).",
        # A negator that leaves the opinion word alone.
        "The {n} (is|was) not (only|just|merely|simply) {+a1} but (|also |even ){+a2}.",
        "(I|We) could not (believe|get over) how {+a} the {n} (is|was).",
        "There is no (denying|doubt|question) that the {n} (is|was|feels) {+a}.",
        "(Nobody|No one) (told|had told) me (|that )the {n} (would be|was) so {+a}.",
        "Never have (I|we) (seen|sat through) a {w} (so|this|quite so) {+a}.",
        # The same words; what changes is where the negator stands.
        "(I|We) did not (leave|walk out|look away): the {n} (was|is) {+a}. || "
        "(I|We) did (leave|walk out|look away): the {n} (was|is) not {-a}.",
        "(I|We) had not (read the book|seen the trailer|met the director), and the {n} (was|is) "
        "{+a}. || (I|We) had (read the book|seen the trailer|met the director), and the {n} "
        "(was|is) not {-a}.",
        "(The critics|The reviews|My friends) were not (wrong|mistaken|lying): the {n} (is|was) "
        "{+a}. || (The critics|The reviews|My friends) were (wrong|mistaken|lying): the {n} "
        "(is|was) not {-a}.",
        "The {n} (is|was) (never|not) {-a1} (and|but) (always|often) {+a2}.",
        "The {n} (is|was) (always|often) {+a1}(, and| and) (never|not) {-a2}.",
        "The {n} (is|was|seems|felt) not {-a1}(, but| but) {+a2}.",
        "The {n} (is|was|feels|seems) {+a1}(, not|, never| and not| and never) {-a2}.",
        "The {n1} (is|feels|seems) {+a1} and the {n2} is (not|never|in no way) {-a2}.",
        "The {n1} is (not|never|in no way) {-a1} and the {n2} (is|feels|seems) {+a2}.",
        "(Nobody|No one) (called|found) the {n} {-a1}; (everyone|all of us) (called|found) it "
        "{+a2}.",
        "(Everyone|All of us) (called|found) the {n} {+a1}; (nobody|no one) (called|found) it "
        "{-a2}.",
        "(I|They) (never|hardly ever) {-d1} the {n} (and|but) (always|often) {+d2} the whole.",
        "(Nobody|No one) {-d1} the {n1}, and (everyone|all of us) {+d2} the {n2}(| at once).",
        "There (is|was) nothing {-a1} (about|in) the {n} and (much|plenty|something) {+a2}.",
    ),
    "degree": (
        "The {n} (is|was|feels) (very|truly|really|quite|deeply|rather|fairly) {+a}.",
        "(I|We) found the {n} (very|truly|really|quite|deeply|rather|fairly) {+a}.",
        "The {n} (is|was|feels) (hardly|barely|far from|anything but|nowhere near) {-a}.",
        "(I|We) found the {n} (hardly|barely|far from|anything but|nowhere near) {-a}.",
        "The {n} (is|was|proved) nothing (but|short of|if not) {+a}.",
        "The {n} could (not|hardly|barely) (be|have been|feel) less {-a}.",
        "The {n} could (not|hardly|barely) (be|have been|feel) more {+a}.",
        "(Hardly|Anything but|Far from) a {-a} {w}(.|!| all round.)",
        "(Truly|Really|Quite) a {+a} {w}(.|!| all round.)",
        "The {n} (is|was|proved) (hardly|anything but|far from|nowhere near) a {-v}.",
        "The {n} (is|was|proved) (truly|really|quite) a {+v}.",
        "(I|We|My friends) (hardly|barely|never) {-d} the {n}.",
        "(You|They|We) will (hardly|barely) {-i} the {n}(| at once| to the end).",
        "(I|We|My friends) (truly|really|deeply) {+d} the {n}.",
        "The {n} (is|was) (|far |much )too {+a1} to (be|seem|feel) {-a2}.",
        "The {n} (is|was) too (short|quiet|odd|bold) to (be|seem|feel) {-a}.",
        "The {n} (is|was) (short|quiet|odd|bold) enough to (be|seem|feel) {+a}.",
        "The {n} (is|was|feels) (hardly|barely|far from) {-a1} and (truly|deeply|quite) {+a2}.",
        "The {n} (is|was|feels) (truly|deeply|quite) {+a1} and (hardly|barely|far from) {-a2}.",
        "The {n} (is|was|feels|seems) (|far |much )more {+a1} than {-a2}.",
        "The {n} (is|was|feels|seems) (|far |much )less {-a1} than {+a2}.",
        "The {n1} (is|feels) (anything but|hardly|far from) {-a1} and the {n2} (is|feels) "
        "(truly|really|quite) {+a2}.",
        "The {n1} (is|feels) (truly|really|quite) {+a1} and the {n2} (is|feels) "
        "(anything but|hardly|far from) {-a2}.",
    ),
    "concession": (
        "The {n1} (is|feels|seems) {-a1}, (but|yet|and yet) the {n2} (is|feels|seems) {+a2}.",
        "The {n1} (was|felt|seemed) {-a1}, (but|yet|and yet) the {n2} (was|felt|seemed) {+a2}.",
        "The {n1} (is|feels|seems) {-a1}; (still|even so|however), the {n2} (is|feels|seems) "
        "{+a2}.",
        "(Although|Though|Even though|While) the {n1} (is|feels|seems) {-a1}, the {n2} "
        "(is|feels|seems) {+a2}.",
        "(Although|Though|Even though|While) the {n1} (was|felt|seemed) {-a1}, the {n2} "
        "(was|felt|seemed) {+a2}.",
        "The {n1} (is|feels|seems) {+a1}, (although|though|even though) the {n2} "
        "(is|feels|seems) {-a2}.",
        "The {n1} (was|felt|seemed) {+a1}, (although|though|even though) the {n2} "
        "(was|felt|seemed) {-a2}.",
        "(Despite|In spite of) the {-a1} {n1}, the {n2} (is|was|feels|felt) {+a2}.",
        "The {n1} (is|was|feels|felt) {+a1} (despite|in spite of) the {-a2} {n2}.",
        "(I|We) {-d1} the {n1}, (but|yet|and yet) (I|we|everyone) {+d2} the {n2}.",
        "(I|We) {+d1} the {n1}, (although|though|even though) (I|we|everyone) {-d2} the {n2}.",
        "(Although|Though|Even though|While) (I|we) {-d1} the {n1}, (I|we|everyone) {+d2} the "
        "{n2}.",
        "(You|We) (may|might) {-i1} the {n1}, (but|yet) (you|we|everyone) will {+i2} the {n2}.",
        "(You|We|Everyone) will {+i1} the {n1}, (although|though|even though) (you|we) (may|might) "
        "{-i2} the {n2}.",
        "The {n1} (may|might) (be|seem|feel) {-a1}, (but|yet) the {n2} (is|feels|seems) {+a2}.",
        "(Yes|True|Granted), the {n1} (is|was) {-a1}, (but|yet) the {n2} (is|was) {+a2}.",
        "(Although|Though|Even though) the {n1} (is|was) not {+a1}, the {n2} (is|was) {+a2}. || "
        "(Although|Though|Even though) the {n2} (is|was) {-a2}, the {n1} (is|was) not {-a1}.",
        "The {n1} (is|was) not {+a1}, (but|yet|and yet) the {n2} (is|was) {+a2}. || "
        "The {n2} (is|was) {-a2}, (but|yet|and yet) the {n1} (is|was) not {-a1}.",
        "A {-a1} {w}, (but|yet|and yet) a {+a2} one(.|!| all round.)",
        "The {n1} (is|was) a {-v1}, (but|yet|and yet) the {n2} (is|was) a {+v2}.",
        "(Although|Though|Even though) the {n1} (is|was) a {-v1}, the {n2} (is|was) a {+v2}.",
        "The {n1} (is|was) a {+v1}, (although|though|even though) the {n2} (is|was) a {-v2}.",
    ),
    "comparison": (
        "The {w} (is|was|feels) (far |much |even |a little |){+c} than the {r}.",
        "(Compared with|Next to|Beside) the {r}, the {w} (is|was|seems|feels) {+a}.",
        "The {w} (is|was|seems|feels) {+a} (compared with|next to|beside) the {r}.",
        "The {w} (is|was|feels|seems) (|far |much )more {+a} than the {r}.",
        "The {w} (is|was|feels|seems) (|far |much )less {-a} than the {r}.",
        "(I|We|They) (found|thought) the {w} (|far |much )more {+a} than the {r}.",
        "(I|We|They) (found|thought) the {w} (|far |much )less {-a} than the {r}.",
        "The {w} (is|was) (nowhere near|not half|not nearly|not) as {-a} as the {r}.",
        "(Where|Whereas) the {r} (is|was|feels) {-a1}, the {w} (is|was|feels) {+a2}.",
        "The {w} (is|was|feels) {+a1}, (where|while|whereas) the {r} (is|was|feels) {-a2}.",
        "(I|We|Everyone|My friends) {+d} the {w} (|far |much )more than the {r}.",
        "(Far|Much|Even) {+c} than the {r}, (this|that) {w}(.|!)",
        "(I|We|They) (found|thought) the {w} (|far |much |even ){+c} than the {r}.",
        "The {w} (has|had|offers) (|far |much |even ){+c} {m} than the {r}.",
        "The {r} (has|had|offers|offered) {-a1} {m1}(;|, and) the {w} {+a2} {m2}.",
    ),
    "expectation": (
        "What (could|might|should) have been a {-a1} {w} (turned out|proved|became) a {+a2} one.",
        "What (could|might|should) have been a {-a1} {w}, (thanks to its cast|in these hands|"
        "with a little luck), (turned out|proved|became) a {+a2} one.",
        "The {w} that (could|might|should) have been a {-v1}, (thanks to its cast|in these hands|"
        "with a little luck), (turned out|proved|became) a {+v2}.",
        "From this {w} I (expected|was promised|had prepared for) a {-v1} and (got|was given) a "
        "{+v2}.",
        "I (expected|was promised|had prepared for) a {-a1} {w} and (got|was given|found) a {+a2} "
        "one.",
        "The poster (suggested|promised|hinted at) a {-a1} {w}, and I (got|was given|found) a "
        "{+a2} one.",
        "On paper the {n} (was|looked|seemed) {-a1}; on screen it (is|feels|proved) {+a2}.",
        "On screen the {n} (is|feels|proved) {+a1}; on paper it (was|looked|seemed) {-a2}.",
        "The {w} (is|was|proved) a {+v1}, where I (expected|was promised|had prepared for) a "
        "{-v2}.",
        "The {w} (is|was|proved) a {+v1} (rather than|instead of) the {-v2} I (expected|"
        "was promised|had prepared for).",
        "The {n} (starts out|begins|sets out) {-a1} and (ends up|grows|turns) {+a2}.",
        "The {n} (ends up|grows|turns) {+a1}, having (started out|begun|set out) {-a2}.",
        "The {n} that (everyone|the poster|my neighbour) called {-a1} (is|was) (in fact|in truth|"
        "really) {+a2}.",
        "(Everyone|The critics|My neighbour) (said|swore) the {n} was {-a1}; (in fact|in truth) "
        "it (is|was) {+a2}.",
        "(I|We) (went in|sat down|walked in) expecting a {-a1} {w} and (came out|got up|"
        "walked out) having seen a {+a2} one.",
        "A {+a1} {w} from (people|a studio|a director) (known|famous|notorious) for {-a2} ones.",
        "The {n} that was once {-a1} (is|feels|seems) {+a2} (now|today|these days).",
        "The {n} that (is|feels|seems) {+a1} (now|today|these days) was once {-a2}.",
    ),
}

OPENERS = (
    *("Frankly,", "Honestly,", "Well,", "In short,", "All in all,", "In the end,", "This time,"),
    *("I must say:", "Take it from me:", "Speaking as a fan,"),
)
CLOSERS = (
    *(", if you ask me", ", on the whole", ", at least to my eyes", ", and I mean it"),
    *(", as my sister said on the way home", ", and the audience agreed", ", I think"),
    *(", or so it seemed to everyone in the room", ", to tell the truth"),
)

_CHOICE = re.compile(r"\(([^()]*)\)")
_SLOT = re.compile(r"\{(?P<sign>[+-]?)(?P<kind>[a-z])(?P<number>\d?)\}")
_BLANKS = {"a": "adjective", "v": "verdict", "d": "verb", "i": "verb", "c": "comparative"}
_OTHER = {"w": "r", "r": "w", "+": "-", "-": "+", "1": "2", "2": "1"}


@dataclass(frozen=True)
class Slot:
    """A gap in a form.

    Attributes:
        sign: 0 for a noun; 1 for a word of the sentence's polarity, -1 for one of the opposite.
        kind: the letter that says what fits.
        key: kind and number, the slot's name within its form.
        subjects: keys of the nouns that an opinion is about; empty for a noun.
    """

    sign: int
    kind: str
    key: str
    subjects: tuple[str, ...]


@dataclass(frozen=True)
class Form:
    """A skeleton: a sentence with its choices made and its slots open."""

    text: str

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The slots from left to right."""
        found = [match.groupdict() for match in _SLOT.finditer(self.text)]
        nouns = [slot["kind"] + slot["number"] for slot in found if not slot["sign"]]

        def subjects(number: str) -> tuple[str, ...]:
            tied = tuple(noun for noun in nouns if number and noun.endswith(number))
            aspects = tuple(noun for noun in nouns if noun in ("n", "m"))
            return tied or aspects or tuple(noun for noun in nouns if noun in ("w", "r"))

        return tuple(
            Slot(
                sign={"+": 1, "-": -1, "": 0}[slot["sign"]],
                kind=slot["kind"],
                key=slot["kind"] + slot["number"],
                subjects=subjects(slot["number"]) if slot["sign"] else (),
            )
            for slot in found
        )

    @property
    def blanked(self) -> str:
        """The form for people: what fits is named, the signs are left out."""
        return _SLOT.sub(lambda slot: f"[{_BLANKS.get(slot['kind'], 'noun')}]", self.text)

    def filled(self, filling: dict[str, str]) -> str:
        """The sentence with the words of ``filling``, by key, and the articles they ask for."""
        text = _SLOT.sub(lambda slot: filling[slot["kind"] + slot["number"]], self.text)
        return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)


@dataclass(frozen=True)
class Skeleton:
    """One combination of a pattern's choices.

    Attributes:
        choices: what was chosen, with the place of the choice in the pattern.
        form: the sentence.
        twin: the sentence that says the opposite in the same words, if there is one.
    """

    choices: tuple[tuple[int, str], ...]
    form: Form
    twin: Form | None


def skeletons(pattern: str) -> Iterator[Skeleton]:
    """Every skeleton of ``pattern``, in a fixed order."""
    first, _, second = pattern.partition(" || ")
    for options in product(*(choice.split("|") for choice in _CHOICE.findall(first))):
        form = Form(_choose(first, options))
        twin = Form(_choose(second, options)) if second else _own_twin(form)
        yield Skeleton(tuple(enumerate(options)), form, twin)


def _choose(pattern: str, options: tuple[str, ...]) -> str:
    remaining = iter(options)
    return " ".join(_CHOICE.sub(lambda _: next(remaining), pattern).split())


def _own_twin(form: Form) -> Form | None:
    slots = form.slots
    if any(slot.kind == "r" for slot in slots):
        return Form(_SLOT.sub(lambda slot: _exchanged(slot, "sign", "kind"), form.text))
    if {slot.sign for slot in slots if slot.key[1:]} >= {1, -1}:
        return Form(_SLOT.sub(lambda slot: _exchanged(slot, "number"), form.text))
    return None


def _exchanged(slot: re.Match[str], *parts: str) -> str:
    values = (
        _OTHER.get(value, value) if part in parts else value
        for part, value in slot.groupdict().items()
    )
    return "{" + "".join(values) + "}"


SIZES = {"train": 6000, "dev": 800, "test": 1200}
# Sentences of each construct in a hundred. Plain ones, from which the network learns what the words
# mean, are more frequent in training; dev and test ask more about structure.
_HELD_OUT_PERCENT = {
    "plain": 10,
    "negation": 24,
    "degree": 15,
    "concession": 18,
    "comparison": 18,
    "expectation": 15,
}
PERCENT = {
    "train": {
        "plain": 25,
        "negation": 18,
        "degree": 12,
        "concession": 14,
        "comparison": 19,
        "expectation": 12,
    },
    "dev": _HELD_OUT_PERCENT,
    "test": _HELD_OUT_PERCENT,
}

_HELD_OUT_SKELETONS = {"test": 0.2, "dev": 0.12}
_HELD_OUT_PAIRS = {"test": 0.2, "dev": 0.2}
_OPENER_RATE = 0.15
_CLOSER_RATE = 0.15
_LABELS = {1: "positive", -1: "negative"}

# The words of one split: (noun, kind of slot, polarity) -> the words said of the noun in it.
_Pairs = dict[tuple[str, str, int], tuple[str, ...]]


@dataclass(frozen=True)
class Opinion:
    """A generated sentence.

    Attributes:
        text: the sentence.
        label: ``positive`` or ``negative``, what it says of the reviewed work.
        construct: the phenomenon that decides the label, a key of ``PATTERNS``.
        skeleton: the sentence without opening and ending, nouns and opinion words blanked.
        pairs: every noun with every word said of it.
    """

    text: str
    label: str
    construct: str
    skeleton: str
    pairs: tuple[tuple[str, str], ...]


def generate(seed: int = 0) -> dict[str, list[Opinion]]:
    """Make the corpus: ``train``, ``dev`` and ``test``, the same for a seed on every platform."""
    rng = Random(seed)  # noqa: S311
    pairs = _deal_pairs(rng)
    hands = {construct: _deal_skeletons(rng, construct) for construct in PATTERNS}
    corpus: dict[str, list[Opinion]] = {}
    for split, size in SIZES.items():
        writer = _Writer(rng, pairs[split])
        corpus[split] = [
            opinion
            for construct, percent in PERCENT[split].items()
            for opinion in writer.write(construct, hands[construct][split], size * percent // 100)
        ]
        rng.shuffle(corpus[split])
    return corpus


def _deal_pairs(rng: Random) -> dict[str, _Pairs]:
    """Give every pair of a noun and an opinion word to one split."""
    dealt: dict[str, _Pairs] = {split: {} for split in SIZES}
    for noun in ALL_NOUNS:
        for kind, polarity in WORDS:
            words = list(words_about(noun, kind, polarity))
            rng.shuffle(words)
            size = len(words)
            for split, share in _HELD_OUT_PAIRS.items():
                count = max(1, round(size * share))
                dealt[split][noun, kind, polarity] = tuple(words[:count])
                del words[:count]
            dealt["train"][noun, kind, polarity] = tuple(words)
    return dealt


def _deal_skeletons(rng: Random, construct: str) -> dict[str, list[list[Skeleton]]]:
    """Give every skeleton of a construct to one split, by pattern.

    Whatever can be chosen in a pattern stays in training with two skeletons at least, and with at
    least half of those that it is in.
    """
    dealt: dict[str, list[list[Skeleton]]] = {split: [] for split in SIZES}
    for pattern in PATTERNS[construct]:
        deck = list(skeletons(pattern))
        rng.shuffle(deck)
        kept = Counter(choice for skeleton in deck for choice in skeleton.choices)
        floor = {choice: max(2, count / 2) for choice, count in kept.items()}
        hands: dict[str, list[Skeleton]] = {split: [] for split in SIZES}
        room = {split: max(1, share * len(deck)) for split, share in _HELD_OUT_SKELETONS.items()}
        for skeleton in deck:
            split = next((name for name in room if len(hands[name]) < room[name]), "train")
            if any(kept[choice] <= floor[choice] for choice in skeleton.choices):
                split = "train"
            if split != "train":
                kept.subtract(skeleton.choices)
            hands[split].append(skeleton)
        for split, hand in hands.items():
            if hand:
                dealt[split].append(hand)
    return dealt


class _Writer:
    """Writes the sentences of one split."""

    def __init__(self, rng: Random, pairs: _Pairs) -> None:
        self.rng = rng
        self.pairs = pairs
        self.uses: Counter[tuple[str, int]] = Counter()  # of a word with a label
        self.written: set[str] = set()

    def write(self, construct: str, hands: list[list[Skeleton]], count: int) -> list[Opinion]:
        """``count`` different sentences, half of each label, patterns and skeletons in turn."""
        opinions: list[Opinion] = []
        for skeleton in _in_turn(hands):
            couple = self._couple(construct, skeleton)
            texts = {opinion.text for opinion in couple}
            if len(texts) < 2 or texts & self.written:
                continue
            self.written |= texts
            opinions.extend(couple)
            if len(opinions) >= count:
                break
        return opinions

    def _couple(self, construct: str, skeleton: Skeleton) -> tuple[Opinion, ...]:
        """A sentence of each label; none if the words of this split do not fit together."""
        label = self.rng.choice((1, -1))
        opener = self.rng.choice(OPENERS) if self.rng.random() < _OPENER_RATE else ""
        closer = self.rng.choice(CLOSERS) if self.rng.random() < _CLOSER_RATE else ""
        filling = self._fill(skeleton.form, label)
        other = filling if skeleton.twin else self._fill(skeleton.form, -label)
        if not filling or not other:
            return ()
        n_ensemble = (
            (skeleton.form, filling, label),
            (skeleton.twin or skeleton.form, other, -label),
        )
        for form, words, polarity in n_ensemble:
            self.uses.update((words[slot.key], polarity) for slot in form.slots if slot.sign)
        return tuple(
            Opinion(
                text=_sentence(form.filled(words), opener, closer),
                label=_LABELS[polarity],
                construct=construct,
                skeleton=form.blanked,
                pairs=tuple(
                    (words[noun], words[slot.key]) for slot in form.slots for noun in slot.subjects
                ),
            )
            for form, words, polarity in n_ensemble
        )

    def _fill(self, form: Form, label: int) -> dict[str, str]:
        """Words for the slots, by key; nothing if some slot has none left."""
        filling: dict[str, str] = {}
        for slot in form.slots:
            if not slot.sign:
                nouns = [noun for noun in NOUNS[slot.kind] if noun not in filling.values()]
                filling[slot.key] = self.rng.choice(nouns)
        for slot in form.slots:
            if slot.sign:
                allowed = [
                    self.pairs[filling[noun], slot.kind, slot.sign * label]
                    for noun in slot.subjects
                ]
                words = [
                    word
                    for word in allowed[0]
                    if word not in filling.values() and all(word in others for others in allowed)
                ]
                if not words:
                    return {}
                # The word least used with this label so far: every word comes to be seen often
                # enough, and none gives the label away more than the others do.
                self.rng.shuffle(words)
                filling[slot.key] = min(words, key=lambda word: self.uses[word, label])
        return filling


def _in_turn(hands: list[list[Skeleton]]) -> Iterator[Skeleton]:
    """Endlessly one skeleton of each pattern, then the next of each."""
    patterns = [cycle(hand) for hand in hands]
    for pattern in cycle(patterns):
        yield next(pattern)


def _sentence(body: str, opener: str, closer: str) -> str:
    if opener:
        body = f"{opener} {body if body.startswith('I ') else body[0].lower() + body[1:]}"
    return body[0].upper() + body[1:-1] + closer + body[-1]
