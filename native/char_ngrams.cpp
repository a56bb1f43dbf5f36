// Character n-grams: a word's vector is its own plus the sum of those of its n-grams, which are
// hashed into buckets. Words are rows of a table of `vocabulary` vectors; one from there on, a new
// word, has the unknown word's, row 0.
#include "char_ngrams.h"

#include <algorithm>
#include <vector>

#include "kernels.h"

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

int32_t dcnn_compose(const dcnn_bags* bags, int64_t count, const int64_t* ids, int64_t vocabulary,
                     int64_t dim, const float* embeddings, const float* ngrams, float* vectors) {
    const Kernels& kernels = current_kernels();
    for (int64_t i = 0; i < count; ++i) {
        if (ids[i] < 0 || ids[i] >= bags->words) return DCNN_BAD_ID;
        const float* own = embeddings + (ids[i] < vocabulary ? ids[i] : 0) * dim;
        const int64_t first = bags->offsets[ids[i]], end = bags->offsets[ids[i] + 1];
        float* vector = vectors + i * dim;
        std::copy(own, own + dim, vector);
        for (int64_t at = first; at < end; ++at) {
            if (bags->buckets[at] < 0 || bags->buckets[at] >= bags->n_buckets) return DCNN_BAD_ID;
            kernels.add_scaled(vector, ngrams + bags->buckets[at] * dim, ngram_weight(static_cast<size_t>(end - first)),
                               dim);
        }
    }
    return DCNN_OK;
}

int32_t dcnn_compose_backward(const dcnn_bags* bags, int64_t count, const int64_t* ids,
                              int64_t vocabulary, int64_t dim, const float* of_vectors,
                              int64_t* rows, float* of_embeddings, int64_t* n_rows,
                              int64_t* buckets, float* of_ngrams, int64_t* n_buckets) try {
    const Kernels& kernels = current_kernels();
    // The words of the vocabulary come first and ascend; all others share row 0.
    int64_t written = 0;
    std::vector<int64_t> used;
    for (int64_t i = 0; i < count; ++i) {
        if (ids[i] < (i ? ids[i - 1] + 1 : 0) || ids[i] >= bags->words) return DCNN_BAD_ID;
        const float* own = of_vectors + i * dim;
        if (i == 0 && ids[i] != 0 && ids[count - 1] >= vocabulary) {
            rows[written++] = 0;
            std::fill(of_embeddings, of_embeddings + dim, 0.0f);
        }
        if (ids[i] < vocabulary) {
            std::copy(own, own + dim, of_embeddings + written * dim);
            rows[written++] = ids[i];
        } else {
            kernels.add_scaled(of_embeddings, own, 1, dim);
        }
        for (int64_t at = bags->offsets[ids[i]]; at < bags->offsets[ids[i] + 1]; ++at) {
            if (bags->buckets[at] < 0 || bags->buckets[at] >= bags->n_buckets) return DCNN_BAD_ID;
            used.push_back(bags->buckets[at]);
        }
    }
    *n_rows = written;
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    std::copy(used.begin(), used.end(), buckets);
    *n_buckets = static_cast<int64_t>(used.size());
    std::vector<int32_t> place(static_cast<size_t>(bags->n_buckets));
    for (size_t i = 0; i < used.size(); ++i)
        place[static_cast<size_t>(used[i])] = static_cast<int32_t>(i);
    std::fill(of_ngrams, of_ngrams + *n_buckets * dim, 0.0f);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t first = bags->offsets[ids[i]], end = bags->offsets[ids[i] + 1];
        for (int64_t at = first; at < end; ++at)
            kernels.add_scaled(of_ngrams + place[static_cast<size_t>(bags->buckets[at])] * dim,
                               of_vectors + i * dim, ngram_weight(static_cast<size_t>(end - first)), dim);
    }
    return DCNN_OK;
} catch (const std::bad_alloc&) {
    return DCNN_NO_MEMORY;
}
