// Character n-grams: a word's vector is its own plus the sum of those of its n-grams, which are
// hashed into buckets. Words are rows of a table of `vocabulary` vectors; one from there on, a new
// word, has the unknown word's, row 0.
#include "char_ngrams.h"

#include <algorithm>
#include <numeric>
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

// Numbers the distinct ones of some whole numbers below a limit, ascending, without sorting them.
class Ranks {
  public:
    explicit Ranks(int64_t limit)
        : bits_(static_cast<size_t>(limit / 64 + 1)), before_(bits_.size()) {}
    void add(int64_t number) { bits_[static_cast<size_t>(number / 64)] |= mask(number); }
    // Writes them; `rank` is their places from then on.
    int64_t list(int64_t* to) {
        int64_t count = 0;
        for (size_t i = 0; i < bits_.size(); ++i) {
            before_[i] = count;
            for (uint64_t rest = bits_[i]; rest; rest &= rest - 1)
                to[count++] = static_cast<int64_t>(64 * i) + __builtin_ctzll(rest);
        }
        return count;
    }
    int64_t rank(int64_t number) const {
        const size_t at = static_cast<size_t>(number / 64);
        return before_[at] + __builtin_popcountll(bits_[at] & (mask(number) - 1));
    }

  private:
    static uint64_t mask(int64_t number) { return uint64_t{1} << (number % 64); }
    std::vector<uint64_t> bits_;
    std::vector<int64_t> before_;
};

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

int64_t parts_for(int64_t ngrams, int32_t threads) {
    return ngrams < WORTH_A_THREAD ? 1 : parts_of(ngrams, threads);
}

}  // namespace

int32_t dcnn_batch_words(const dcnn_batch* batch, int64_t words, int64_t* ids, int64_t* count,
                         int64_t* places) try {
    Ranks ranks(words);
    for (int64_t i = 0; i < batch->sentences; ++i) {
        if (batch->lengths[i] < 1 || batch->lengths[i] > batch->columns) return DCNN_BAD_LENGTH;
        for (int64_t t = 0; t < batch->lengths[i]; ++t) {
            const int64_t id = batch->ids[i * batch->columns + t];
            if (id < 0 || id >= words) return DCNN_BAD_ID;
            ranks.add(id);
        }
    }
    *count = ranks.list(ids);
    for (int64_t i = 0; i < batch->sentences; ++i)
        for (int64_t t = i * batch->columns; t < (i + 1) * batch->columns; ++t)
            places[t] =
                t - i * batch->columns < batch->lengths[i] ? ranks.rank(batch->ids[t]) : 0;
    return DCNN_OK;
} catch (const std::bad_alloc&) {
    return DCNN_NO_MEMORY;
}

int32_t dcnn_compose(const dcnn_bags* bags, int64_t count, const int64_t* ids, int64_t vocabulary,
                     int64_t dim, const float* embeddings, const float* ngrams, float* vectors,
                     int32_t threads) {
    const Kernels& kernels = current_kernels();
    const int64_t total = count_ngrams(*bags, count, ids);
    if (total < 0) return DCNN_BAD_ID;
    const int64_t parts = parts_for(total, threads);
    in_parallel(parts, [&](int64_t part) {
        const int64_t last = count * (part + 1) / parts;
        for (int64_t i = count * part / parts; i < last; ++i) {
            const float* own = embeddings + (ids[i] < vocabulary ? ids[i] : 0) * dim;
            const int64_t first = bags->offsets[ids[i]], end = bags->offsets[ids[i] + 1];
            const float weight = ngram_weight(static_cast<size_t>(end - first));
            float* vector = vectors + i * dim;
            std::copy(own, own + dim, vector);
            kernels.add_rows(vector, ngrams, bags->buckets + first, end - first, nullptr, weight, dim);
        }
    });
    return DCNN_OK;
}

int32_t dcnn_compose_backward(const dcnn_bags* bags, int64_t count, const int64_t* ids,
                              int64_t vocabulary, int64_t dim, const float* of_vectors,
                              int64_t* rows, float* of_embeddings, int64_t* n_rows,
                              int64_t* buckets, float* of_ngrams, int64_t* n_buckets,
                              int32_t threads) try {
    const Kernels& kernels = current_kernels();
    const int64_t total = count_ngrams(*bags, count, ids);
    if (total < 0) return DCNN_BAD_ID;
    // The words of the vocabulary come first and ascend; all others share row 0.
    int64_t written = 0;
    Ranks used(bags->n_buckets);
    std::vector<float> weights(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
        if (i && ids[i] <= ids[i - 1]) return DCNN_BAD_ID;
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
        const int64_t first = bags->offsets[ids[i]], end = bags->offsets[ids[i] + 1];
        weights[static_cast<size_t>(i)] = ngram_weight(static_cast<size_t>(end - first));
        for (int64_t at = first; at < end; ++at) used.add(bags->buckets[at]);
    }
    *n_rows = written;
    *n_buckets = used.list(buckets);
    // The words of every bucket, in their order: a bucket's sum is the same on any thread.
    std::vector<int32_t> ends(static_cast<size_t>(*n_buckets + 1)), words(static_cast<size_t>(total));
    std::vector<int32_t> ranks(static_cast<size_t>(total));
    size_t next = 0;
    for (int64_t i = 0; i < count; ++i)
        for (int64_t at = bags->offsets[ids[i]]; at < bags->offsets[ids[i] + 1]; ++at) {
            ranks[next] = static_cast<int32_t>(used.rank(bags->buckets[at]));
            ++ends[static_cast<size_t>(ranks[next++]) + 1];
        }
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    next = 0;
    for (int64_t i = 0; i < count; ++i)  // each start moves to its end
        for (int64_t at = bags->offsets[ids[i]]; at < bags->offsets[ids[i] + 1]; ++at)
            words[static_cast<size_t>(ends[static_cast<size_t>(ranks[next++])]++)] =
                static_cast<int32_t>(i);
    const int64_t parts = parts_for(total, threads);
    in_parallel(parts, [&](int64_t part) {
        const int64_t last = *n_buckets * (part + 1) / parts;
        for (int64_t bucket = *n_buckets * part / parts; bucket < last; ++bucket) {
            const size_t to = static_cast<size_t>(bucket);
            float* gradient = of_ngrams + bucket * dim;
            std::fill(gradient, gradient + dim, 0.0f);
            const int32_t first = to ? ends[to - 1] : 0;
            kernels.add_rows(gradient, of_vectors, words.data() + first, ends[to] - first,
                             weights.data(), 1, dim);
        }
    });
    return DCNN_OK;
} catch (const std::bad_alloc&) {
    return DCNN_NO_MEMORY;
}
