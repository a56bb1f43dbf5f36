"""The words of the built-in corpus: what is reviewed, and what is said about it.

Adjectives come in two groups so that sentences stay sensible: the first group suits every aspect of
a work, the second only what can tell something ("a witty script", never "witty lighting").
"""

WORKS = ("film", "movie", "picture", "show", "drama", "comedy")
RIVALS = ("book", "novel", "original", "trailer", "sequel", "remake", "play", "musical")

_TELLING_MASS = ("dialogue", "humour", "narration", "writing", "satire", "storytelling", "banter")
_CRAFT_MASS = (
    *("acting", "direction", "pacing", "editing", "camerawork", "photography", "staging"),
    *("choreography", "animation", "scenery", "music", "lighting"),
)
MASS_ASPECTS = _TELLING_MASS + _CRAFT_MASS
TELLING_ASPECTS = (
    *_TELLING_MASS,
    *("plot", "story", "script", "screenplay", "romance", "premise", "mystery", "ending"),
    *("opening", "finale", "subplot", "prologue", "climax"),
)
CRAFT_ASPECTS = (*_CRAFT_MASS, "cast", "soundtrack", "score", "ensemble", "design")
ASPECTS = TELLING_ASPECTS + CRAFT_ASPECTS

GOOD_ADJECTIVES = (
    *("superb", "brilliant", "splendid", "terrific", "wonderful", "marvellous", "excellent"),
    *("magnificent", "exquisite", "masterful", "assured", "inspired", "inventive", "elegant"),
    *("delightful", "dazzling", "captivating", "impressive", "remarkable", "memorable", "striking"),
    *("stunning", "stylish", "vivid", "lively", "fresh", "polished", "graceful", "sublime"),
    *("tremendous", "refreshing", "enchanting", "confident", "imaginative", "beautiful"),
    *("glorious", "flawless", "exciting", "engaging", "effective", "outstanding", "charming"),
    *("subtle", "luminous", "accomplished"),
)
GOOD_TELLING_ADJECTIVES = (
    *("witty", "clever", "gripping", "moving", "touching", "poignant", "heartfelt", "sincere"),
    *("tender", "intelligent", "thoughtful", "absorbing", "compelling", "riveting", "thrilling"),
    *("funny", "ingenious", "profound", "perceptive", "suspenseful", "satisfying", "rewarding"),
)
BAD_ADJECTIVES = (
    *("dull", "clumsy", "bland", "stale", "lifeless", "awkward", "lazy", "muddled", "tiresome"),
    *("dreary", "flat", "forgettable", "grating", "sloppy", "weak", "messy", "mediocre", "lame"),
    *("limp", "drab", "feeble", "inept", "insipid", "irritating", "laboured", "monotonous"),
    *("pedestrian", "plodding", "ragged", "shoddy", "sluggish", "tasteless", "tepid"),
    *("uninspired", "dismal", "dreadful", "abysmal", "atrocious", "awful", "poor", "terrible"),
    *("amateurish", "lacklustre", "tired", "ugly"),
)
BAD_TELLING_ADJECTIVES = (
    *("boring", "tedious", "predictable", "shallow", "hollow", "contrived", "derivative"),
    *("pointless", "pretentious", "formulaic", "incoherent", "mawkish", "ponderous"),
    *("preposterous", "repetitive", "silly", "stodgy", "trite", "turgid", "unconvincing"),
    *("vapid", "unfunny"),
)

GOOD_VERDICTS = (
    *("delight", "triumph", "joy", "treat", "masterpiece", "gem", "pleasure", "marvel"),
    *("revelation", "success"),
)
BAD_VERDICTS = (
    *("bore", "mess", "disaster", "chore", "failure", "disappointment", "slog", "dud"),
    *("fiasco", "misfire"),
)

GOOD_PAST_VERBS = ("loved", "enjoyed", "admired", "adored", "praised", "relished", "savoured")
BAD_PAST_VERBS = ("hated", "loathed", "disliked", "resented", "mocked", "deplored", "detested")
GOOD_BASE_VERBS = ("love", "enjoy", "admire", "adore", "praise", "relish", "savour")
BAD_BASE_VERBS = ("hate", "loathe", "dislike", "resent", "mock", "deplore", "detest")

GOOD_COMPARATIVES = (
    *("better", "finer", "stronger", "sharper", "funnier", "smarter", "livelier", "bolder"),
)
BAD_COMPARATIVES = (
    *("worse", "weaker", "duller", "poorer", "slower", "flatter", "clumsier", "sillier"),
)
