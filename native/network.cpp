// A whole network on many sentences: texts or ids to logits, without a step back to the caller.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <memory>
#include <vector>

#include "char_ngrams.h"
#include "kernels.h"
#include "parallel.h"
#include "text.h"

namespace {

constexpr int MOST_SPELLED = 64;  // code points: MAX_SPELLED of dcnn/text/vocabulary.py
constexpr int32_t MOST_NEW_WORDS = 1 << 20;

// Sentences a thread takes at a time.
constexpr int64_t TAKEN_AT_ONCE = 8;
// What a thread keeps between calls at most, in floats; a very long text gives its memory back.
constexpr int64_t KEPT_SCRATCH = 1 << 20;

struct Network {
    const Kernels& kernels;
    std::vector<Shape> layers;
    std::vector<Memory> packed;
    int64_t k_top, vocabulary, classes;
    const float* embeddings;
    std::vector<float> head_weight, head_bias;  // features in the order of the last layer's memory
    CharNgrams char_ngrams;
    const float* ngrams;  // or null

    int64_t depth() const { return static_cast<int64_t>(layers.size()); }
    int64_t features() const { return k_top * layers.back().lanes; }

    int64_t k(int64_t layer, int64_t length) const {
        return dynamic_k(k_top, depth(), layer, length);
    }
};

// Where the parts of a thread's memory lie for sentences of one length, in floats.
struct Plan {
    int64_t words, outputs[2], scratch, size;

    Plan(const Network& network, int64_t length) {
        int64_t widest[2] = {0, 0}, most = 0, valid = length;
        for (int64_t l = 0; l < network.depth(); ++l) {
            const Shape& s = network.layers[static_cast<size_t>(l)];
            most = std::max(most, network.kernels.forward_scratch(s, valid));
            valid = network.k(l + 1, length);
            widest[l % 2] = std::max(widest[l % 2], valid * s.lanes);
        }
        words = 0;
        const int64_t pointer = sizeof(const float*), number = sizeof(float);
        outputs[0] = rounded(pointer / number * std::max(length, network.k(1, length)));
        outputs[1] = outputs[0] + rounded(widest[0]);
        scratch = outputs[1] + rounded(widest[1]);
        size = scratch + most;
    }
};

// The vector of a word that is not in the vocabulary: the unknown word's with those of its n-grams.
void vector_of(const Network& network, const uint8_t* from, const uint8_t* end,
               std::vector<int32_t>& buckets, float* vector) {
    const int64_t dim = network.layers.front().rows_below;
    std::copy(network.embeddings, network.embeddings + dim, vector);
    if (!network.ngrams) return;
    buckets.clear();
    network.char_ngrams.find(from, end, buckets);
    network.kernels.add_rows(vector, network.ngrams, buckets.data(),
                             static_cast<int64_t>(buckets.size()), nullptr,
                             ngram_weight(buckets.size()), dim);
}

int32_t sentence_logits(const Network& network, const int32_t* ids, int64_t length,
                        int64_t new_words, const float* new_vectors, float* logits,
                        Memory& memory) {
    const Plan plan(network, length);
    float* base = memory.grow(plan.size);
    const float** words = reinterpret_cast<const float**>(base + plan.words);
    const int64_t dim = network.layers.front().rows_below;
    for (int64_t t = 0; t < length; ++t) {
        const int64_t beyond = ids[t] - network.vocabulary;
        if (ids[t] < 0 || beyond >= new_words) return DCNN_BAD_ID;
        words[t] = beyond < 0 ? network.embeddings + ids[t] * dim : new_vectors + beyond * dim;
        // All words are asked for at once: those of a large vocabulary lie far from one another.
        for (int64_t i = 0; i < dim; i += ALIGNMENT / static_cast<int64_t>(sizeof(float)))
            __builtin_prefetch(words[t] + i);
    }
    int64_t valid = length;
    float* output = nullptr;
    for (int64_t l = 0; l < network.depth(); ++l) {
        const Shape& s = network.layers[static_cast<size_t>(l)];
        const int64_t k = network.k(l + 1, length);
        if (k > valid + s.width - 1) return DCNN_BAD_LENGTH;
        output = base + plan.outputs[l % 2];
        network.kernels.forward(s, network.packed[static_cast<size_t>(l)].get(), words, valid, k,
                                output, nullptr, base + plan.scratch);
        for (int64_t t = 0; t < k; ++t) words[t] = output + t * s.lanes;
        valid = k;
    }
    const int64_t features = network.features();
    for (int64_t c = 0; c < network.classes; ++c)
        logits[c] = network.head_bias[static_cast<size_t>(c)] +
                    network.kernels.dot(network.head_weight.data() + c * features, output, features);
    return DCNN_OK;
}

// What a thread keeps from text to text.
struct Scratch {
    Memory memory;
    TextScratch text;
    WordTable found;  // of a text, that are not in the vocabulary
    std::string word;
    std::vector<int32_t> ids, buckets;
    std::vector<float> vectors;
};

// Calls work(text, scratch), which returns a status, for every text.
template <class Work>
int32_t over_texts(int64_t count, int32_t threads, const Work& work) {
    std::atomic<int64_t> next{0};
    std::atomic<int32_t> status{DCNN_OK};
    in_parallel(parts_of(count, threads), [&](int64_t) {
        thread_local Scratch scratch;
        try {
            for (;;) {
                const int64_t first = next.fetch_add(TAKEN_AT_ONCE);
                const int64_t end = std::min(first + TAKEN_AT_ONCE, count);
                if (first >= count || status != DCNN_OK) break;
                for (int64_t i = first; i < end; ++i) {
                    const int32_t done = work(i, scratch);
                    if (done != DCNN_OK) status = done;
                }
            }
        } catch (const std::bad_alloc&) {
            status = DCNN_NO_MEMORY;
        }
        const size_t words = scratch.ids.capacity() + scratch.vectors.capacity();
        const size_t letters = scratch.text.text.capacity() + scratch.text.other.capacity();
        if (scratch.memory.size() + static_cast<int64_t>(words + letters) > KEPT_SCRATCH)
            scratch = Scratch();
    });
    return status;
}

// A word with its start and end, as `marked` of dcnn/text/vocabulary.py.
void spell(Text word, std::string& marked) {
    const char* at = word.data();
    for (int left = MOST_SPELLED; left && at < word.data() + word.size(); --left)
        text_detail::decode(at);
    marked.assign("<").append(word.data(), at).append(">");
}

// Probabilities in the place of logits.
void finish(const Kernels& kernels, float* logits, int64_t classes, int32_t output) {
    if (output == DCNN_LOGITS) return;
    thread_local std::vector<double> powers;
    powers.resize(static_cast<size_t>(classes));
    const bool sigmoid = output == DCNN_SIGMOID;
    const double most = sigmoid ? 0 : *std::max_element(logits, logits + classes);
    for (size_t c = 0; c < powers.size(); ++c)
        powers[c] = sigmoid ? -std::abs(static_cast<double>(logits[c])) : logits[c] - most;
    kernels.exp(powers.data(), classes);
    double sum = 0;
    for (const double power : powers) sum += power;
    for (size_t c = 0; c < powers.size(); ++c)
        logits[c] = static_cast<float>(sigmoid ? (logits[c] < 0 ? powers[c] : 1) / (1 + powers[c])
                                               : powers[c] / sum);
}

}  // namespace

void* dcnn_network_new(int64_t depth, const dcnn_layer* layers, const float* const* filters,
                       const float* const* biases, int64_t k_top, int64_t vocabulary,
                       const float* embeddings, int64_t classes, const float* head_weight,
                       const float* head_bias, int64_t shortest, int64_t longest, int64_t n_buckets,
                       const float* ngrams) try {
    const Kernels& kernels = current_kernels();
    std::unique_ptr<Network> network(
        new Network{kernels, {}, {}, k_top, vocabulary, classes, embeddings, {}, {},
                    {shortest, longest, n_buckets}, ngrams});
    for (int64_t l = 0; l < depth; ++l) {
        const Shape s = shape_of(layers[l]);
        network->layers.push_back(s);
        network->packed.emplace_back(kernels.packed_size(s));
        kernels.pack(s, filters[l], biases[l], network->packed.back().get());
    }
    // From (classes, lanes, k_top) to (classes, k_top, lanes).
    const int64_t lanes = network->layers.back().lanes, features = network->features();
    network->head_weight.resize(static_cast<size_t>(classes * features));
    for (int64_t c = 0; c < classes; ++c)
        for (int64_t lane = 0; lane < lanes; ++lane)
            for (int64_t slot = 0; slot < k_top; ++slot)
                network->head_weight[static_cast<size_t>(c * features + slot * lanes + lane)] =
                    head_weight[c * features + lane * k_top + slot];
    network->head_bias.assign(head_bias, head_bias + classes);
    return network.release();
} catch (const std::bad_alloc&) {
    return nullptr;
}

void dcnn_network_free(void* network) { delete static_cast<Network*>(network); }

int32_t dcnn_network_logits(const void* handle, int64_t sentences, const int32_t* ids,
                            const int64_t* offsets, int64_t new_words, const uint8_t* text,
                            const int64_t* ends, float* logits, int32_t threads) try {
    const Network& network = *static_cast<const Network*>(handle);
    for (int64_t i = 0; i < sentences; ++i)
        if (offsets[i] < 0 || offsets[i + 1] <= offsets[i]) return DCNN_BAD_LENGTH;
    const int64_t dim = network.layers.front().rows_below;
    std::vector<float> new_vectors(static_cast<size_t>(new_words * dim));
    std::vector<int32_t> buckets;
    for (int64_t word = 0; word < new_words; ++word)
        vector_of(network, text + (word ? ends[word - 1] : 0), text + ends[word], buckets,
                  new_vectors.data() + word * dim);
    return over_texts(sentences, threads, [&](int64_t i, Scratch& scratch) {
        return sentence_logits(network, ids + offsets[i], offsets[i + 1] - offsets[i], new_words,
                               new_vectors.data(), logits + i * network.classes, scratch.memory);
    });
} catch (const std::bad_alloc&) {
    return DCNN_NO_MEMORY;
}

int32_t dcnn_network_texts(const void* handle, const void* tokenizer_handle, int64_t count,
                           const char* text, const int64_t* ends, const uint8_t* ready,
                           int32_t output, float* result, int32_t threads) {
    const dcnn_strings texts = {count, text, ends};
    const Network& network = *static_cast<const Network*>(handle);
    const Tokenizer& tokenizer = *static_cast<const Tokenizer*>(tokenizer_handle);
    const size_t dim = static_cast<size_t>(network.layers.front().rows_below);
    return over_texts(count, threads, [&](int64_t i, Scratch& scratch) {
        scratch.ids.clear();
        scratch.vectors.clear();
        scratch.found.clear();
        split_text(tokenizer, string_at(texts, i), ready && ready[i], scratch.text, [&](Text word) {
            const int32_t known = tokenizer.words.find(word);
            if (known >= 0 || !network.ngrams) return scratch.ids.push_back(known + 1);
            const int32_t before = scratch.found.size();
            const int32_t number =
                before < MOST_NEW_WORDS ? scratch.found.add(word) : scratch.found.find(word);
            const int32_t beyond = static_cast<int32_t>(network.vocabulary);
            scratch.ids.push_back(number < 0 ? 0 : beyond + number);
            if (number < before) return;
            scratch.vectors.resize(scratch.vectors.size() + dim);
            spell(word, scratch.word);
            const uint8_t* from = reinterpret_cast<const uint8_t*>(scratch.word.data());
            vector_of(network, from, from + scratch.word.size(), scratch.buckets,
                      scratch.vectors.data() + scratch.vectors.size() - dim);
        });
        if (scratch.ids.empty()) scratch.ids.push_back(0);
        float* own = result + i * network.classes;
        const int32_t done = sentence_logits(
            network, scratch.ids.data(), static_cast<int64_t>(scratch.ids.size()),
            scratch.found.size(), scratch.vectors.data(), own, scratch.memory);
        if (done == DCNN_OK) finish(network.kernels, own, network.classes, output);
        return done;
    });
}
