"""The sentence patterns of the built-in corpus, by construct.

``(a|b|)`` is a choice, possibly of nothing; every combination of choices is one skeleton. ``{...}``
is a slot. Slots for what is reviewed: ``n`` an aspect or the work, ``m`` an aspect that takes no
article, ``w`` the work, ``r`` a rival of the work. Slots for what is said: ``a`` adjective, ``v``
verdict, ``d`` verb in the past, ``i`` verb in the base form, ``c`` comparative. A digit tells slots
of a kind apart, and ties ``{a1}`` to ``{n1}``.

The sign of an opinion slot is the whole semantics: a word in ``+`` has the sentence's polarity, a
word in ``-`` the opposite one. "The plot is not {-a}" says that the label is what the word is not.

Where a pattern allows it, its sentences come as two with the same words and opposite labels:

- one with words of both signs numbered 1 and 2 is its own twin, with 1 and 2 exchanged;
- one that compares the work with a rival is its own twin, with the two exchanged;
- otherwise the twin is written out after ``||``, its choices in the same order.
"""

PATTERNS: dict[str, tuple[str, ...]] = {
    "plain": (
        "(A|What a|Such a|Another) {+a} {w}(.|!| all round.| once again.)",
        "{+a} {m} (throughout|as ever|once again|all round)(.|!)",
        "The {n} (is|was|feels|seems|felt|seemed) {+a}(| throughout| to the end| to me).",
        "(I|We|They) (found|thought|considered) the {n} {+a}(| throughout| to the end).",
        "The {n} (is|was|proved|remains) a {+v}(| to the end| for everyone| all round).",
        "(I|We|Everyone|My friends|The critics) {+d} the {n}(| once again| to the end| at once).",
        "(You|We|Everyone) (will|would) {+i} the {n}(| once again| to the end| at once).",
        "(This is|They have made|She directs|He gives us) a {+a1} {w} with {+a2} {m2}(.|!)",
        "The {n1} (is|feels|seems) {+a1} and the {n2} (is|feels|seems) {+a2}.",
    ),
    "negation": (
        # The negator reaches the opinion word, near or far.
        "The {n} (is|was|has been) (not|never|not at all|in no way|by no means) {-a}.",
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
        "(I|We) did not (leave|walk out|switch off|look away): the {n} (was|is) {+a}. || "
        "(I|We) did (leave|walk out|switch off|look away): the {n} (was|is) not {-a}.",
        "(I|We) had not (read the book|seen the trailer|met the director), and the {n} (was|is) "
        "{+a}. || (I|We) had (read the book|seen the trailer|met the director), and the {n} "
        "(was|is) not {-a}.",
        "(The critics|The reviews|My friends) were not (wrong|mistaken|lying): the {n} (is|was) "
        "{+a}. || (The critics|The reviews|My friends) were (wrong|mistaken|lying): the {n} "
        "(is|was) not {-a}.",
        "The {n} (is|was) (never|not) {-a1} (and|but) (always|often) {+a2}.",
        "The {n} (is|was|feels) (always|often) {+a1} and (never|not) {-a2}.",
        "The {n} (is|was|seems|felt) not {-a1}(, but| but) {+a2}.",
        "The {n} (is|was|feels|seems) {+a1}(, not|, never| and not| and never) {-a2}.",
        "The {n1} (is|feels|seems) {+a1} and the {n2} is (not|never|in no way) {-a2}.",
        "The {n1} is (not|never|in no way) {-a1} and the {n2} (is|feels|seems) {+a2}.",
        "(Nobody|No one) (called|found) the {n} {-a1}; (everyone|all of us) (called|found) it "
        "{+a2}.",
        "(Everyone|All of us) (called|found) the {n} {+a1}; (nobody|no one) (called|found) it "
        "{-a2}.",
        "There (is|was) nothing {-a1} (about|in) the {n} and (much|plenty|something) {+a2}.",
    ),
    "degree": (
        "The {n} (is|was|feels) (very|truly|really|quite|deeply) {+a}.",
        "The {n} (is|was|feels) (hardly|scarcely|far from|anything but|nowhere near) {-a}.",
        "The {n} (is|was|proved) nothing (but|short of|if not) {+a}.",
        "The {n} could (not|hardly|scarcely) (be|have been|feel) less {-a}.",
        "The {n} could (not|hardly|scarcely) (be|have been|feel) more {+a}.",
        "(Hardly|Scarcely|Anything but|Far from) a {-a} {w}(.|!| all round.)",
        "(Truly|Really|Quite|Simply) a {+a} {w}(.|!| all round.)",
        "The {n} (is|was|proved) (hardly|scarcely|anything but|far from) a {-v}.",
        "The {n} (is|was|proved) (truly|really|quite|simply) a {+v}.",
        "(I|We|My friends) (hardly|scarcely|never) {-d} the {n}.",
        "(I|We|My friends) (truly|really|simply) {+d} the {n}.",
        "The {n} (is|was) (far |much |simply |)too {+a1} to (be|seem|feel) {-a2}.",
        "The {n} (is|was) too (short|brisk|odd|bold) to (be|seem|feel) {-a}.",
        "The {n} (is|was) (short|brisk|odd|bold) enough to (be|seem|feel) {+a}.",
        "The {n} (is|was|feels) (hardly|scarcely|far from) {-a1} and (truly|deeply|quite) {+a2}.",
        "The {n} (is|was|feels) (truly|deeply|quite) {+a1} and (hardly|scarcely|far from) {-a2}.",
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
        "The {w} (is|was|feels) (|far |much |even )more {+a} than the {r}.",
        "The {w} (is|was|feels) (|far |much |even )less {-a} than the {r}.",
        "The {w} (is|was|feels) (not|nowhere near|not half) as {-a} as the {r}.",
        "(Where|While|Whereas) the {r} (is|was|feels) {-a1}, the {w} (is|was|feels) {+a2}.",
        "The {w} (is|was|feels) {+a1}, (where|while|whereas) the {r} (is|was|feels) {-a2}.",
        "(I|We) (prefer|would choose|would take) the {w} (to|over) the {-a} {r}.",
        "(I|We) (prefer|would choose|would take) the {+a} {w} (to|over) the {r}.",
        "(I|We|Everyone|My friends) {+d} the {w} (|far |much )more than the {r}.",
        "(Far|Much|Even) {+c} than the {r}, (this|that) {w}(.|!)",
        "(I|We|They) (found|thought) the {w} (|far |much |even ){+c} than the {r}.",
        "The {w} (has|had|offers) (|far |much |even ){+c} {m} than the {r}.",
        "The {r} (has|had|offers) {-a1} {m1}; the {w} (has|had|offers) {+a2} {m2}.",
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
        "The {w} (is|was|proved) a {+v1}, where I (expected|was promised|had prepared for) a {-v2}.",
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
