"""Random texts of many scripts, with all that makes tokenizing hard, for programs to agree on."""

import random
import unicodedata

# Of a version of Unicode that every library knows; a newer character is known to some only.
KNOWN = unicodedata.ucd_3_2_0
SAMPLES = (
    "ΟΔΥΣΣΕΥΣ ΚΑΙ ΣΟΦΟΣ, Α.Σ. Σ Ἀχιλλεύς",
    "İstanbul'da CAFÉ Straße ŒUVRE naïve l'été e\u0301t\u00e9 ﬁn K\u212a",
    "我喜欢这部电影，很好看！哈哈哈哈 ひらがなカタカナー漢字",
    "ดีมากครับ ລາວ မြန်မာ ខ្មែរ",
    "यह अच्छा है। বাংলা தமிழ் తెలుగు",
    "مَدْرَسَة؟ می\u200cخواهم עִבְרִית",
    "👍🏽 👨\u200d👩\u200d👧 🇩🇪🇫🇷🇩 ❤\ufe0f ☺ ①²ª Ⓐⓐ",
    "don’t DON'T o''o 'a' 3.14 1,000.50 3.11rc1 5x user_name e-mail",
    "@bob http://t.co/x?a=1 HTTPS://X.Y www.a.b Www.C me@x.com haaaappy LOOOOL USER URL user "
    "USER's aUSER USER_ ★\u0308USER x\u200dUSER @ΣΑΣ @",
    "한국어 문장 \u1112\u1161\u11ab \u3000 a\u200bb\ufeffc\x00d \u2060user \u2061 \u2423a\u2423",
    "u\u0315\u0300\u05ae\u0300\u0062 \u0344 \u1e9b\u0323 \u0345Α\u0345Σ Α\u00adΣ Α:Σ",
    "ΣΣ ΑΣ'Α ΑΣ’ ʰΣ ΑΣΣΣΣ İİİİ",
)
RANGES = (0x20, 0x7F), (0xA0, 0x250), (0x300, 0x600), (0x600, 0x2000), (0x2000, 0x3100)
RANGES += (0x3100, 0xD800), (0xE000, 0xFFFE), (0x1D400, 0x1D800), (0x20000, 0x20100)


def random_texts(count: int, seed: int = 0, words: tuple[str, ...] = ()) -> list[str]:
    """Characters, pieces of ``SAMPLES`` and ``words`` in any order and case."""
    generator = random.Random(seed)
    pieces = [piece for sample in SAMPLES for piece in sample.split(" ")] + list(words)
    signs = sorted(set("".join(SAMPLES)))

    def sign() -> str:
        while True:
            found = chr(generator.randrange(*generator.choice(RANGES)))
            if KNOWN.category(found) != "Cn":
                return found

    def piece() -> str:
        match generator.randrange(6):
            case 0:
                return generator.choice(" .,'’_\t")
            case 1:
                return generator.choice(signs)
            case 2:
                return sign()
            case _:
                whole = generator.choice(pieces)
                return generator.choice((whole, whole.upper(), whole.title(), whole.swapcase()))

    def text() -> str:
        space = generator.choice(("", " ", " "))
        return space.join(piece() for _ in range(generator.randrange(9)))

    return [text() for _ in range(count)]
