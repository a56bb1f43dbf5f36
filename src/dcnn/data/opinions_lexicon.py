"""The words of the built-in corpus: what is reviewed, and what is said about it.

Adjectives come in two groups so that sentences stay sensible: the first suits any aspect of a work,
the second only what tells something ("a witty script", but no "witty lighting").
"""

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
