import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.text.tokenizer import PRESETS, Tokenizer

words = Tokenizer("words")
tweet = Tokenizer("tweet")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("It's NOT bad, really!", "it's not bad , really !"),
        ("don’t", "don't"),
        ("pay 1,000.50 now (3.5x)", "pay 1,000.50 now ( 3 . 5x )"),
        ("e-mail user_name", "e - mail user_name"),
        ("wait...", "wait . . ."),
        ("naïve l'été", "naïve l'été"),
        ("यह अच्छा है।", "यह अच्छा है ।"),
        ("مَدْرَسَة؟", "مَدْرَسَة ؟"),
        ("我喜欢 this！", "我 喜 欢 this ！"),
        ("ひらカナー漢", "ひ ら カ ナ ー 漢"),
        ("한국어 문장", "한국어 문장"),
        ("ดีมาก", "ดี ม า ก"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👍🏽 👨\u200d👩\u200d👧 🇩🇪❤\ufe0f", "👍🏽 👨\u200d👩\u200d👧 🇩🇪 ❤\ufe0f"),
        ("a\u200bb\ufeffc\x00d\ud800e", "a b c d e"),
        ("", ""),
        (" \t\n\u3000", ""),
    ],
)
def test_words_of_any_language(text, tokens):
    assert words(text) == tokens.split()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("@bob LOOOOL see http://t.co/x?a=1", "USER lool see URL"),
        ("www.example.com me@x.com", "URL me @ x . com"),
        ("USER says URL", "USER says URL"),
        ("see WWW.EXAMPLE.COM", "see URL"),
        ("Awww...that's cute Www.Example.com", "aww . . . that's cute URL"),
        ("soooo goooood 1000", "soo good 1000"),
        ("Ünnnglaublich", "ünnglaublich"),
    ],
)
def test_tweets_lose_names_links_and_repeated_letters(text, tokens):
    assert tweet(text) == tokens.split()


def test_whitespace_splits_on_nothing_else():
    assert Tokenizer("whitespace")("It 's a- \u3000 b.") == ["it", "'s", "a-", "b."]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Not  bad!", "not␣bad!"),
        (" a\tb\u200b\n", "a␣b"),
        ("e\u0301té", "été"),
        ("می\u200cخواهم", "میخواهم"),
        ("don’t", "don't"),
        ("", ""),
    ],
)
def test_characters_are_code_points_with_a_visible_gap(text, tokens):
    assert Tokenizer("characters")(text) == list(tokens)


def test_case_can_be_kept():
    assert Tokenizer("words", lowercase=False)("The Café") == ["The", "Café"]


@pytest.mark.parametrize("preset", PRESETS)
@given(st.text())
def test_normal_forms_give_the_same_tokens(preset, text):
    tokenize = Tokenizer(preset)
    assert tokenize(unicodedata.normalize("NFD", text)) == tokenize(
        unicodedata.normalize("NFC", text)
    )


@pytest.mark.parametrize("preset", PRESETS)
@given(st.text())
def test_tokens_are_visible_and_repeatable(preset, text):
    tokens = Tokenizer(preset)(text)
    assert tokens == Tokenizer(preset)(text)
    assert all(token and not any(c.isspace() for c in token) for token in tokens)


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_no_visible_character_is_lost(text):
    # Case folding changes lengths in a few languages, so the case is kept here.
    text = unicodedata.normalize("NFC", text).replace("’", "'")
    assert "".join(Tokenizer("words", lowercase=False)(text)) == text


def test_a_long_text_takes_no_longer_than_its_length():
    assert len(words("word, " * 10_000)) == 20_000


def test_the_time_of_a_run_of_combining_marks_grows_with_its_length_alone():
    # Sorting the whole run as NFC asks would take minutes.
    text = "a" + "\u0315\u0300" * 200_000
    tokens = words(text)
    assert len(tokens) == 1
    assert words(tokens[0]) == tokens
