// The character n-grams of a word, hashed into buckets; see dcnn/text/vocabulary.py.
#ifndef DCNN_CHAR_NGRAMS_H
#define DCNN_CHAR_NGRAMS_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels.h"

// CRC-32 as in zlib, so that other programs have it at hand.
class Crc {
  public:
    Crc() {
        for (uint32_t byte = 0; byte < 256; ++byte) {
            uint32_t rest = byte;
            for (int bit = 0; bit < 8; ++bit) rest = rest & 1 ? rest >> 1 ^ 0xEDB88320u : rest >> 1;
            table_[byte] = rest;
        }
    }
    uint32_t operator()(const uint8_t* from, const uint8_t* to) const {
        uint32_t rest = 0xFFFFFFFFu;
        for (; from < to; ++from) rest = rest >> 8 ^ table_[(rest ^ *from) & 0xFF];
        return rest ^ 0xFFFFFFFFu;
    }

  private:
    uint32_t table_[256];
};

struct CharNgrams {
    int64_t shortest, longest, n_buckets;

    // Adds the buckets of the n-grams of a word in UTF-8, the shortest first.
    void find(const uint8_t* from, const uint8_t* end, std::vector<int32_t>& buckets) const {
        static const Crc crc;
        thread_local std::vector<const uint8_t*> starts;  // of its characters, and its end
        starts.clear();
        for (const uint8_t* at = from; at < end; ++at)
            if ((*at & 0xC0) != 0x80) starts.push_back(at);
        const size_t characters = starts.size();
        starts.push_back(end);
        for (size_t n = static_cast<size_t>(shortest); n <= static_cast<size_t>(longest); ++n)
            for (size_t first = 0; first + n <= characters; ++first)
                buckets.push_back(static_cast<int32_t>(crc(starts[first], starts[first + n]) %
                                                       static_cast<uint64_t>(n_buckets)));
    }
};

// The factor of the sum of a word's n-gram vectors, by their number.
inline float ngram_weight(size_t ngrams) { return 1 / std::sqrt(static_cast<float>(ngrams)); }

// The vector of a word: its embedding (row 0 if it is not in the vocabulary) plus the weighted sum of
// the vectors of its n-grams.
inline void compose_word(const Kernels& kernels, const dcnn_bags& bags, int64_t id,
                         int64_t vocabulary, int64_t dim, const float* embeddings,
                         const float* ngrams, float* vector) {
    const int64_t first = bags.offsets[id], count = bags.offsets[id + 1] - first;
    std::copy_n(embeddings + (id < vocabulary ? id : 0) * dim, dim, vector);
    kernels.add_rows(vector, ngrams, bags.buckets + first, count, nullptr,
                     ngram_weight(static_cast<size_t>(count)), dim);
}

#endif
