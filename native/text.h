// Texts to tokens: dcnn/text/tokenizer.py is the definition, and this gives the same tokens.
//
// Text that is not ASCII is composed and lower-cased in Python, whose functions are compiled and use the
// Unicode version of the interpreter; Python also passes the classes of characters, once. See
// dcnn/text/native.py.
#ifndef DCNN_TEXT_H
#define DCNN_TEXT_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "dcnn_native.h"

using Text = std::string_view;

inline Text string_at(const dcnn_strings& strings, int64_t i) {
    const int64_t start = i ? strings.ends[i - 1] : 0;
    return Text(strings.text + start, static_cast<size_t>(strings.ends[i] - start));
}

// Distinct strings, numbered in the order in which they were added.
class WordTable {
  public:
    int32_t size() const { return static_cast<int32_t>(ends_.size()) - 1; }
    Text word(int32_t number) const {
        const size_t at = static_cast<size_t>(number);
        return Text(letters_).substr(ends_[at], ends_[at + 1] - ends_[at]);
    }

    // The number of a word, or -1.
    int32_t find(Text word) const {
        if (slots_.empty()) return -1;
        return slots_[place(word, hash(word))].number;
    }

    int32_t add(Text word) {
        if (2 * static_cast<size_t>(size() + 1) > slots_.size()) grow();
        const uint32_t hashed = hash(word);
        Slot& slot = slots_[place(word, hashed)];
        if (slot.number < 0) {
            slot = {hashed, size()};
            letters_.append(word);
            ends_.push_back(letters_.size());
        }
        return slot.number;
    }

    void clear() {
        if (size() == 0) return;
        letters_.clear();
        ends_.resize(1);
        slots_.assign(std::min(slots_.size(), KEPT_SLOTS), Slot{0, -1});
    }

  private:
    static constexpr size_t KEPT_SLOTS = 1024;  // a power of two; more would be cleared per text

    struct Slot {
        uint32_t hash;
        int32_t number;
    };

    static uint32_t hash(Text word) {
        uint64_t mixed = word.size() * 0x9E3779B97F4A7C15u;
        const char* at = word.data();
        size_t left = word.size();
        for (; left >= 8; left -= 8, at += 8) {
            uint64_t part;
            std::memcpy(&part, at, 8);
            mixed = (mixed ^ part) * 0xD6E8FEB86659FD93u;
            mixed ^= mixed >> 32;
        }
        uint64_t part = 0;
        for (size_t i = 0; i < left; ++i)
            part |= static_cast<uint64_t>(static_cast<uint8_t>(at[i])) << 8 * i;
        mixed = (mixed ^ part) * 0xD6E8FEB86659FD93u;
        return static_cast<uint32_t>(mixed >> 32);
    }

    // Where the word is, or would be.
    size_t place(Text searched, uint32_t hashed) const {
        for (size_t at = hashed & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
            const Slot& slot = slots_[at];
            if (slot.number < 0 || (slot.hash == hashed && word(slot.number) == searched)) return at;
        }
    }

    void grow() {
        std::vector<Slot> before(slots_.empty() ? 64 : 2 * slots_.size(), Slot{0, -1});
        before.swap(slots_);
        for (const Slot& slot : before) {
            if (slot.number < 0) continue;
            size_t at = slot.hash & (slots_.size() - 1);
            while (slots_[at].number >= 0) at = (at + 1) & (slots_.size() - 1);
            slots_[at] = slot;
        }
    }

    std::string letters_;
    std::vector<size_t> ends_{0};
    std::vector<Slot> slots_;  // a power of two
};

enum Preset : int32_t { WORDS, TWEET, WHITESPACE, CHARACTERS, BPE, UNIGRAM };

constexpr size_t MOST_SPLIT = 64;  // MAX_WORD_LENGTH of the definition

struct Tokenizer {
    Preset preset;
    bool lowercase, runs;
    WordTable words;  // the vocabulary: number + 1 is the id
    // Byte-pair encoding: `pairs` are two numbers of `symbols` each, by rank, and `merged` is the symbol
    // that each pair becomes. Unigram model: `symbols` are the subwords.
    WordTable symbols, pairs;
    std::vector<int32_t> merged;
    std::vector<double> scores;
    double unknown = 0;
    size_t longest = 1;  // code points of a subword
};

// What a thread needs to split texts; tokens lie in it until the next text.
struct TextScratch {
    std::string text, other, token;
    size_t starts[MOST_SPLIT + 1];
    int32_t parts[MOST_SPLIT], ranks[MOST_SPLIT], from[MOST_SPLIT + 1];
    double best[MOST_SPLIT + 1];
};

// Calls take(token) for every token; `ready` texts are tokens separated by spaces.
template <class Take>
void split_text(const Tokenizer& tokenizer, Text text, bool ready, TextScratch& scratch,
                const Take& take);

namespace text_detail {

// Bits of a character's class, as the definition's regular expressions name them.
enum : uint8_t {
    WORD = 1,         // \w
    MARK = 2,         // combining
    SPACELESS = 4,    // of a script without spaces between words
    INVISIBLE = 8,
    SPACE = 16,       // \s
    ALPHABETIC = 32,  // \w but digits and the underscore
    FLAG = 64,        // a regional indicator: two of them are a flag
    TONE = 128,       // a modifier of the skin tone
};

struct Unicode {
    const uint8_t* classes;  // of the code points below `size`; beyond, and in gaps, 0
    const uint32_t* lower;
    uint32_t size;
};
const Unicode& unicode();  // set by dcnn_unicode

struct AsciiClasses {
    uint8_t of[128];
    constexpr AsciiClasses() : of() {
        for (int c = 0; c < 128; ++c) {
            const bool digit = c >= '0' && c <= '9';
            const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
            const bool space = c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31);
            of[c] = static_cast<uint8_t>((digit || letter || c == '_' ? WORD : 0) |
                                         (letter ? ALPHABETIC : 0) | (space ? SPACE : 0) |
                                         (c <= 32 || c == 127 ? INVISIBLE : 0));
        }
    }
};
constexpr AsciiClasses ASCII;

inline bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }
inline char lowered(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

inline bool is_ascii(Text text) {
    const char* at = text.data();
    size_t left = text.size();
    uint64_t bits = 0, part;
    for (; left >= 8; left -= 8, at += 8) {
        std::memcpy(&part, at, 8);
        bits |= part;
    }
    for (; left; --left) bits |= static_cast<uint8_t>(*at++);
    return !(bits & 0x8080808080808080u);
}

// The code point at `at`, of valid UTF-8, and where the next one begins.
inline uint32_t decode(const char*& at) {
    const uint8_t* byte = reinterpret_cast<const uint8_t*>(at);
    if (byte[0] < 0x80) return at += 1, byte[0];
    if (byte[0] < 0xE0) return at += 2, (byte[0] & 0x1Fu) << 6 | (byte[1] & 0x3Fu);
    if (byte[0] < 0xF0)
        return at += 3, (byte[0] & 0xFu) << 12 | (byte[1] & 0x3Fu) << 6 | (byte[2] & 0x3Fu);
    at += 4;
    return (byte[0] & 7u) << 18 | (byte[1] & 0x3Fu) << 12 | (byte[2] & 0x3Fu) << 6 |
           (byte[3] & 0x3Fu);
}

inline void append(std::string& to, uint32_t code) {
    const auto byte = [&](uint32_t value) { to.push_back(static_cast<char>(value)); };
    if (code < 0x80) return byte(code);
    if (code < 0x800) return byte(0xC0 | code >> 6), byte(0x80 | (code & 0x3F));
    if (code < 0x10000)
        byte(0xE0 | code >> 12);
    else
        byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 0x3F));
    byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F));
}

inline uint8_t class_of(uint32_t code) {
    if (code < 128) return ASCII.of[code];
    const Unicode& known = unicode();
    return code < known.size ? known.classes[code] : 0;
}

inline bool is_joiner(uint32_t code) { return code == 0x200C || code == 0x200D; }

// A text, or what is left of it.
struct Reader {
    const char *at, *end;

    explicit Reader(Text text) : at(text.data()), end(text.data() + text.size()) {}
    bool more() const { return at < end; }
    uint8_t byte() const { return static_cast<uint8_t>(*at); }
    // Past the characters for which wanted(code, class) holds.
    template <class Wanted>
    void skip(const Wanted& wanted) {
        while (more()) {
            const char* next = at;
            const uint32_t code = decode(next);
            if (!wanted(code, class_of(code))) return;
            at = next;
        }
    }
    void skip_letters() {
        while (more()) {
            if (byte() < 128) {
                if (!(ASCII.of[byte()] & WORD)) return;
                ++at;
                continue;
            }
            const char* next = at;
            const uint32_t code = decode(next);
            const uint8_t kind = class_of(code);
            if ((kind & SPACELESS) || !((kind & (WORD | MARK)) || is_joiner(code))) return;
            at = next;
        }
    }
    bool letter_ahead() const {
        Reader ahead = *this;
        ahead.skip_letters();
        return ahead.at > at;
    }
    void skip_digits() {
        while (more() && is_digit(byte())) ++at;
    }
};

// Past a number with points or commas that no letter follows; else it stays where it is.
inline bool skip_number(Reader& reader) {
    Reader ahead = reader;
    ahead.skip_digits();
    const char* found = nullptr;
    while (ahead.more() && (*ahead.at == '.' || *ahead.at == ',')) {
        const char* digits = ++ahead.at;
        ahead.skip_digits();
        if (ahead.at == digits) break;
        // Between two groups there is a sign, no letter.
        const bool ends = !ahead.more() || (ahead.byte() < 128 ? !(ASCII.of[ahead.byte()] & WORD)
                                                                : !ahead.letter_ahead());
        if (ends) found = ahead.at;
    }
    if (found) reader.at = found;
    return found != nullptr;
}

template <class Take>
void split_words(Text text, bool runs, const Take& take) {
    Reader reader(text);
    while (reader.more()) {
        const char* start = reader.at;
        const auto token = [&] { take(Text(start, static_cast<size_t>(reader.at - start))); };
        if (is_digit(reader.byte()) && skip_number(reader)) {
            token();
            continue;
        }
        const uint32_t code = decode(reader.at);
        const uint8_t kind = class_of(code);
        const auto is_mark = [](uint32_t, uint8_t other) { return (other & MARK) != 0; };
        if (kind & SPACELESS) {
            reader.skip(is_mark);
            while (runs && reader.more()) {
                Reader next = reader;
                if (!(class_of(decode(next.at)) & SPACELESS)) break;
                next.skip(is_mark);
                reader = next;
            }
        } else if (kind & (WORD | MARK)) {
            reader.skip_letters();
            while (reader.more() && *reader.at == '\'') {
                Reader next = reader;
                const char* letters = ++next.at;
                next.skip_letters();
                if (next.at == letters) break;
                reader = next;
            }
        } else if (kind & INVISIBLE) {  // joiners too, which begin no word
            continue;
        } else {
            Reader next = reader;
            if ((kind & FLAG) && next.more() && (class_of(decode(next.at)) & FLAG)) {
                reader = next;
                token();
                continue;
            }
            for (;;) {
                reader.skip([](uint32_t, uint8_t other) { return (other & (MARK | TONE)) != 0; });
                next = reader;
                if (!next.more() || decode(next.at) != 0x200D || !next.more()) break;
                if (class_of(decode(next.at)) & (WORD | INVISIBLE)) break;
                reader = next;
            }
        }
        token();
    }
}

// Replaces links and mentions; false if there are none, and `to` is not written then.
bool mask_links(Text text, std::string& to);
bool mask_mentions(Text text, std::string& to);
// Shortens every letter that is repeated more than twice to two.
void squeeze(Text text, std::string& to);

template <class Take>
void split_subwords(const Tokenizer& tokenizer, Text word, TextScratch& s, const Take& take) {
    bool first = true;
    const auto token = [&](Text subword) {
        if (first) {
            take(subword);
        } else {
            s.token.assign("##").append(subword);
            take(s.token);
        }
        first = false;
    };
    const char *at = word.data(), *end = at + word.size();
    while (at < end) {
        const char* part = at;
        size_t count = 0;
        for (; at < end && count < MOST_SPLIT; decode(at))
            s.starts[count++] = static_cast<size_t>(at - part);
        s.starts[count] = static_cast<size_t>(at - part);
        const auto piece = [&](size_t from, size_t to) {
            return Text(part + s.starts[from], s.starts[to] - s.starts[from]);
        };
        if (tokenizer.preset == BPE) {
            constexpr int32_t NONE = std::numeric_limits<int32_t>::max();
            const auto rank = [&](size_t i) {
                const int32_t pair[2] = {s.parts[i], s.parts[i + 1]};
                const int32_t found =
                    pair[0] < 0 || pair[1] < 0
                        ? -1
                        : tokenizer.pairs.find(Text(reinterpret_cast<const char*>(pair), sizeof pair));
                s.ranks[i] = found < 0 ? NONE : found;
            };
            for (size_t i = 0; i < count; ++i) s.parts[i] = tokenizer.symbols.find(piece(i, i + 1));
            for (size_t i = 0; i + 1 < count; ++i) rank(i);
            while (count > 1) {
                size_t best = 0;
                for (size_t i = 1; i + 1 < count; ++i)
                    if (s.ranks[i] < s.ranks[best]) best = i;
                if (s.ranks[best] == NONE) break;
                s.parts[best] = tokenizer.merged[static_cast<size_t>(s.ranks[best])];
                for (size_t i = best + 1; i < count; ++i) s.starts[i] = s.starts[i + 1];
                for (size_t i = best + 1; i + 1 < count; ++i) s.parts[i] = s.parts[i + 1];
                for (size_t i = best; i + 2 < count; ++i) s.ranks[i] = s.ranks[i + 1];
                --count;
                if (best > 0) rank(best - 1);
                if (best + 1 < count) rank(best);
            }
            for (size_t i = 0; i < count; ++i) token(piece(i, i + 1));
        } else {
            constexpr double LEAST = -std::numeric_limits<double>::infinity();
            for (size_t i = 0; i <= count; ++i) s.best[i] = i ? LEAST : 0, s.from[i] = 0;
            for (size_t i = 0; i < count; ++i)
                for (size_t j = i + 1; j <= count && j <= i + tokenizer.longest; ++j) {
                    const int32_t found = tokenizer.symbols.find(piece(i, j));
                    if (found < 0 && j > i + 1) continue;
                    const double score =
                        s.best[i] + (found < 0 ? tokenizer.unknown
                                               : tokenizer.scores[static_cast<size_t>(found)]);
                    if (score > s.best[j]) s.best[j] = score, s.from[j] = static_cast<int32_t>(i);
                }
            // From the last to the first; `parts` are where they end.
            size_t kept = 0;
            for (size_t i = count; i; i = static_cast<size_t>(s.from[i]))
                s.parts[kept++] = static_cast<int32_t>(i);
            size_t from = 0;
            while (kept) {
                const size_t to = static_cast<size_t>(s.parts[--kept]);
                token(piece(from, to));
                from = to;
            }
        }
    }
}

}  // namespace text_detail

template <class Take>
void split_text(const Tokenizer& tokenizer, Text text, bool ready, TextScratch& s,
                const Take& take) {
    using namespace text_detail;
    if (ready || tokenizer.preset == WHITESPACE) {
        if (!ready && tokenizer.lowercase && is_ascii(text)) {
            s.text.resize(text.size());
            for (size_t i = 0; i < text.size(); ++i) s.text[i] = lowered(text[i]);
            text = s.text;
        }
        Reader reader(text);
        for (;;) {
            const auto is_space = [&](uint32_t code, uint8_t kind) {
                return ready ? code == ' ' : (kind & SPACE) != 0;
            };
            reader.skip(is_space);
            const char* start = reader.at;
            reader.skip([&](uint32_t code, uint8_t kind) { return !is_space(code, kind); });
            if (reader.at == start) return;
            take(Text(start, static_cast<size_t>(reader.at - start)));
        }
    }
    if (tokenizer.preset == TWEET) {
        if (mask_links(text, s.text)) text = s.text;
        if (mask_mentions(text, s.other)) text = s.other;
        std::string& free = text.data() == s.other.data() ? s.text : s.other;
        if (!is_ascii(text)) {
            squeeze(text, free);
            text = free;
        }
        std::string& lower = text.data() == s.other.data() ? s.text : s.other;
        split_words(text, false, [&](Text token) {
            if (token == "USER" || token == "URL") return take(token);
            lower.clear();
            if (is_ascii(token))
                for (const char c : token) lower.push_back(lowered(c));
            else
                for (Reader reader(token); reader.more();) {
                    const uint32_t code = decode(reader.at);
                    append(lower, code < unicode().size ? unicode().lower[code] : code);
                }
            squeeze(lower, s.token);
            take(s.token);
        });
        return;
    }
    if (tokenizer.lowercase && is_ascii(text)) {  // else Python did
        s.text.resize(text.size());
        for (size_t i = 0; i < text.size(); ++i) s.text[i] = lowered(text[i]);
        text = s.text;
    }
    if (tokenizer.preset == CHARACTERS) {
        static const Text GAP = "\xE2\x90\xA3";  // the open box
        const auto is_gap = [](uint32_t code, uint8_t kind) {
            return (kind & INVISIBLE) || is_joiner(code) || code == 0x2423;
        };
        Reader reader(text);
        reader.skip(is_gap);
        size_t gaps = 0;  // that a visible character must follow
        bool gap = false;
        while (reader.more()) {
            const char* start = reader.at;
            const uint32_t code = decode(reader.at);
            if (is_joiner(code)) continue;
            if (class_of(code) & INVISIBLE) {
                gaps += !gap;
                gap = true;
                continue;
            }
            gap = false;
            if (code == 0x2423) {
                ++gaps;
                continue;
            }
            for (; gaps; --gaps) take(GAP);
            take(Text(start, static_cast<size_t>(reader.at - start)));
        }
        return;
    }
    if (tokenizer.preset == WORDS) return split_words(text, tokenizer.runs, take);
    split_words(text, true, [&](Text word) { split_subwords(tokenizer, word, s, take); });
}

#endif
