// Tokenizers behind the C interface, and the parts of them that are not templates.
#include "text.h"

#include <algorithm>
#include <memory>
#include <new>

namespace text_detail {

namespace {

Unicode tables = {nullptr, nullptr, 0};

}  // namespace

const Unicode& unicode() { return tables; }

// (?<!\w)(?:[Hh][Tt]{2}[Pp][Ss\u017f]?://|[Ww]{3}\.)\S+
static const char* link_end(Reader reader) {
    const auto literal = [&](Text wanted) {
        if (static_cast<size_t>(reader.end - reader.at) < wanted.size()) return false;
        for (size_t i = 0; i < wanted.size(); ++i)
            if (lowered(reader.at[i]) != wanted[i]) return false;
        reader.at += wanted.size();
        return true;
    };
    if (literal("http")) {
        if (!literal("s")) literal("\xC5\xBF");
        if (!literal("://")) return nullptr;
    } else if (!literal("www.")) {
        return nullptr;
    }
    const char* start = reader.at;
    reader.skip([](uint32_t, uint8_t kind) { return !(kind & SPACE); });
    return reader.at > start ? reader.at : nullptr;
}

// Replaces what `end_of` finds where no character of a word stands before it.
template <class EndOf>
static bool mask(Text text, std::string& to, const char* by, const EndOf& end_of) {
    bool found = false, inside = false;
    Reader reader(text);
    const char* copied = reader.at;
    while (reader.more()) {
        if (const char* end = inside ? nullptr : end_of(reader)) {
            if (!found) to.clear();
            found = true;
            to.append(copied, reader.at).append(by);
            copied = end;
            // What the masked part ended with decides whether the next may begin.
            while (reader.at < end) inside = (class_of(decode(reader.at)) & WORD) != 0;
            continue;
        }
        inside = (class_of(decode(reader.at)) & WORD) != 0;
    }
    if (found) to.append(copied, reader.end);
    return found;
}

bool mask_links(Text text, std::string& to) {
    if (text.find("://") == Text::npos && text.find("ww") == Text::npos &&
        text.find("WW") == Text::npos && text.find("wW") == Text::npos &&
        text.find("Ww") == Text::npos)
        return false;
    return mask(text, to, " URL ", [](const Reader& reader) -> const char* {
        const char first = lowered(*reader.at);
        return first == 'h' || first == 'w' ? link_end(reader) : nullptr;
    });
}

bool mask_mentions(Text text, std::string& to) {
    if (text.find('@') == Text::npos) return false;
    return mask(text, to, " USER ", [](Reader reader) -> const char* {
        if (*reader.at != '@') return nullptr;
        const char* start = ++reader.at;
        reader.skip([](uint32_t, uint8_t kind) { return (kind & WORD) != 0; });
        return reader.at > start ? reader.at : nullptr;
    });
}

void squeeze(Text text, std::string& to) {
    to.clear();
    uint32_t last = 0;
    size_t times = 0;
    for (Reader reader(text); reader.more();) {
        const char* start = reader.at;
        const uint32_t code = decode(reader.at);
        times = code == last ? times + 1 : 1;
        last = code;
        if (times <= 2 || !(class_of(code) & ALPHABETIC)) to.append(start, reader.at);
    }
}

}  // namespace text_detail

uint32_t dcnn_text_code() { return DCNN_TEXT_CODE; }

void dcnn_unicode(const uint8_t* classes, const uint32_t* lower, int64_t size) {
    text_detail::tables = {classes, lower, static_cast<uint32_t>(size)};
}

void* dcnn_tokenizer_new(int32_t preset, int32_t lowercase, int32_t runs, const dcnn_strings* words,
                         const dcnn_strings* left, const dcnn_strings* right, const double* scores,
                         double unknown) try {
    std::unique_ptr<Tokenizer> made(new Tokenizer{});
    made->preset = static_cast<Preset>(preset);
    made->lowercase = lowercase;
    made->runs = runs;
    made->unknown = unknown;
    for (int64_t i = 0; i < words->count; ++i) made->words.add(string_at(*words, i));
    std::string both;
    for (int64_t i = 0; i < left->count; ++i) {
        const Text first = string_at(*left, i);
        const int32_t symbol = made->symbols.add(first);
        if (preset == UNIGRAM) {
            made->scores.push_back(scores[i]);
            const auto begins = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
            const int64_t length = std::count_if(first.begin(), first.end(), begins);
            made->longest = std::max(made->longest, static_cast<size_t>(length));
            continue;
        }
        const Text second = string_at(*right, i);
        const int32_t pair[2] = {symbol, made->symbols.add(second)};
        made->pairs.add(Text(reinterpret_cast<const char*>(pair), sizeof pair));
        made->merged.push_back(made->symbols.add(both.assign(first).append(second)));
    }
    return made.release();
} catch (const std::bad_alloc&) {
    return nullptr;
}

void dcnn_tokenizer_free(void* tokenizer) { delete static_cast<Tokenizer*>(tokenizer); }

int64_t dcnn_tokenize(const void* handle, const dcnn_strings* texts, const uint8_t* ready,
                      int32_t* ids, int32_t* lengths, char* words, int64_t* size) try {
    const Tokenizer& tokenizer = *static_cast<const Tokenizer*>(handle);
    WordTable found;
    TextScratch scratch;
    int64_t count = 0;
    for (int64_t i = 0; i < texts->count; ++i) {
        const int64_t before = count;
        split_text(tokenizer, string_at(*texts, i), ready && ready[i], scratch,
                   [&](Text token) { ids[count++] = found.add(token); });
        lengths[i] = static_cast<int32_t>(count - before);
    }
    char* to = words;
    for (int32_t i = 0; i < found.size(); ++i) {
        const Text word = found.word(i);
        to = std::copy(word.begin(), word.end(), to);
        *to++ = '\n';
    }
    *size = to - words;
    return count;
} catch (const std::bad_alloc&) {
    return -1;
}
