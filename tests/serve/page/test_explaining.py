"""A sentence is typed, and explained."""

import pytest

from explorer_page import OTHER, expect, explanation, signed

pytestmark = pytest.mark.browser


def test_typing_shows_label_probabilities_and_words(page, server):
    page.fill("#text", "")
    expect(page.locator("#problem")).to_be_visible()
    expect(page.locator("#problem")).to_contain_text("Type a sentence")
    page.locator("#text").press_sequentially(OTHER, delay=5)
    found = explanation(server, OTHER)
    expect(page.locator("#words .word")).to_have_count(len(OTHER.split()))
    expect(page.locator("#verdict .label")).to_contain_text(found["label"])
    share = f"{100 * found['probability']:.1f} %"
    expect(page.locator("#verdict .label small")).to_have_text(share)
    for word, button in zip(found["words"], page.locator("#words .word").all(), strict=True):
        expect(button).to_have_text(word["word"] + signed(word["attribution"]))
        assert ("against" in button.get_attribute("class")) == (word["attribution"] < 0)


def test_the_label_does_not_wait_for_the_explanation(opened):
    page = opened("#view=explain&text=")
    expect(page.locator("#problem")).to_contain_text("Type a sentence")
    waiting = []
    page.route("**/v1/explain", lambda route: waiting.append(route))  # answered when we say so
    page.fill("#text", OTHER)
    expect(page.locator("#problem")).to_have_text("Waiting for the server\u2026")
    expect(page.locator("#verdict .label")).to_be_visible()
    expect(page.locator("#words")).to_be_hidden()
    waiting[0].continue_()
    expect(page.locator("#words .word")).to_have_count(len(OTHER.split()))
    expect(page.locator("#problem")).to_be_hidden()


def test_a_keystroke_is_answered_at_once(page):
    """From a key to the words on the screen; the fastest, since other tests run beside this."""
    times = page.evaluate(
        """async () => {
            const field = document.getElementById("text"), words = document.getElementById("words");
            const times = [];
            for (const letter of " very good and not bad") {
                const start = performance.now();
                const shown = new Promise(done => {
                    const watch = new MutationObserver(() => { watch.disconnect(); done(); });
                    watch.observe(words, {childList: true});
                });
                field.value += letter;
                field.dispatchEvent(new Event("input"));
                await shown;
                times.push(performance.now() - start);
            }
            return times.sort((a, b) => a - b);
        }"""
    )
    assert times[0] < 100


def test_a_model_without_a_graph_still_predicts(page):
    page.select_option("#model", "bag")
    expect(page.locator("#problem")).to_contain_text("nbow has no feature graph")
    expect(page.locator("#verdict .label")).to_be_visible()
    expect(page.locator("#graph")).to_be_hidden()


def test_markup_stays_text(opened):
    text = "<img src=x onerror=alert(1)> <b>good</b>"
    page = opened(
        "#view=explain&text=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%20%3Cb%3Egood%3C/b%3E"
    )
    expect(page.locator("#text")).to_have_value(text)
    expect(page.locator("#words .word").first).to_be_visible()
    assert page.locator("main img, main .word b").count() == 0
