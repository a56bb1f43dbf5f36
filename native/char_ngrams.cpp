// Character n-grams: a word's vector is its embedding plus the weighted sum of the vectors of its
// n-grams, which are hashed into buckets. A word whose id is `vocabulary` or more is a new word; its
// embedding is that of the unknown word, row 0.
#include "char_ngrams.h"

#include <algorithm>
#include <vector>

#include "kernels.h"
#include "parallel.h"

int64_t dcnn_char_ngrams(int64_t words, const uint8_t* text, const int64_t* ends, int64_t shortest,
                         int64_t longest, int64_t n_buckets, int64_t* offsets, int32_t* buckets,
                         int64_t room) try {
    const CharNgrams ngrams{shortest, longest, n_buckets};
    std::vector<int32_t> found;
    offsets[0] = 0;
    for (int64_t word = 0; word < words; ++word) {
        found.clear();
        ngrams.find(text + (word ? ends[word - 1] : 0), text + ends[word], found);
        offsets[word + 1] = offsets[word] + static_cast<int64_t>(found.size());
        if (offsets[word + 1] > room) return -1;
        std::copy(found.begin(), found.end(), buckets + offsets[word]);
    }
    return offsets[words];
} catch (const std::bad_alloc&) {
    return -1;
}

namespace {

// N-grams whose work is worth another thread.
constexpr int64_t WORTH_A_THREAD = 1 << 12;

// How many n-grams the words have, or -1 if a word or a bucket is none.
int64_t count_ngrams(const dcnn_bags& bags, int64_t count, const int64_t* ids) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (ids[i] < 0 || ids[i] >= bags.words) return -1;
        const int64_t first = bags.offsets[ids[i]], end = bags.offsets[ids[i] + 1];
        for (int64_t at = first; at < end; ++at)
            if (bags.buckets[at] < 0 || bags.buckets[at] >= bags.n_buckets) return -1;
        total += end - first;
    }
    return total;
}

}  // namespace

int32_t dcnn_compose(const dcnn_bags* bags, int64_t count, const int64_t* ids, int64_t vocabulary,
                     int64_t dim, const float* embeddings, const float* ngrams, float* vectors,
                     int32_t threads) {
    const Kernels& kernels = current_kernels();
    const int64_t total = count_ngrams(*bags, count, ids);
    if (total < 0) return DCNN_BAD_ID;
    const int64_t parts = total < WORTH_A_THREAD ? 1 : parts_of(total, threads);
    in_parallel(parts, [&](int64_t part) {
        const int64_t last = count * (part + 1) / parts;
        for (int64_t i = count * part / parts; i < last; ++i)
            compose_word(kernels, *bags, ids[i], vocabulary, dim, embeddings, ngrams,
                         vectors + i * dim);
    });
    return DCNN_OK;
}
