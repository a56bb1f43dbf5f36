// The k largest of each row, many rows at once (Sect. 3.2): which columns does each lane keep?
//
// A value becomes an integer key with a total order: larger value, larger key; NaN above all, so
// that a broken network shows instead of being pooled away. Among equals the leftmost wins.
#ifndef DCNN_K_MAX_H
#define DCNN_K_MAX_H

#include <utility>

#include "vectors.h"

namespace {

// Up to here every pair is compared; beyond, the k-th key is found bit by bit: 32 linear passes.
constexpr int64_t MOST_RANKED = 64;

inline Ints keys_of(Floats values) {
    values = values + splat(0);  // minus zero becomes zero, which it must tie with
    const Ints bits = bits_of(values);
    const Ints keys = bits ^ ((bits >> 31) & splat_int(INT32_MAX));
    return values == values ? keys : splat_int(INT32_MAX);
}

// The rank of each value: how many others are larger, or equal and further left. A value starts with
// the rank of its index; each pair whose right value is larger moves one rank from right to left.
inline void rank(const Ints* keys, int64_t columns, Ints* ranks) {
    int64_t j = 0;
    for (; j + 4 <= columns; j += 4) {  // four at a time, so that ranks[i] is stored once for four
        const Ints a = keys[j], b = keys[j + 1], c = keys[j + 2], d = keys[j + 3];
        Ints rank_a = splat_int((int32_t)j), rank_b = rank_a + 1;
        Ints rank_c = rank_a + 2, rank_d = rank_a + 3;
        for (int64_t i = 0; i < j; ++i) {
            const Ints key = keys[i];
            const Ints over_a = a > key, over_b = b > key, over_c = c > key, over_d = d > key;
            ranks[i] -= (over_a + over_b) + (over_c + over_d);  // true is -1
            rank_a += over_a, rank_b += over_b, rank_c += over_c, rank_d += over_d;
        }
        const Ints ab = b > a, ac = c > a, ad = d > a, bc = c > b, bd = d > b, cd = d > c;
        ranks[j] = rank_a - ab - ac - ad;
        ranks[j + 1] = rank_b + ab - bc - bd;
        ranks[j + 2] = rank_c + ac + bc - cd;
        ranks[j + 3] = rank_d + ad + bd + cd;
    }
    for (; j < columns; ++j) {
        const Ints mine = keys[j];
        Ints my_rank = splat_int((int32_t)j);
        for (int64_t i = 0; i < j; ++i) {
            const Ints over = mine > keys[i];
            ranks[i] -= over;
            my_rank += over;
        }
        ranks[j] = my_rank;
    }
}

inline Ints count_at_least(const Ints* keys, int64_t columns, Ints threshold) {
    Ints count = {};
    for (int64_t t = 0; t < columns; ++t) count -= keys[t] >= threshold;
    return count;
}

// The k-th largest key of each lane: the largest threshold that k keys reach.
inline Ints kth_key(const Ints* keys, int64_t columns, int32_t k) {
    const Ints zero = {}, wanted = splat_int(k);
    Ints threshold = count_at_least(keys, columns, zero) >= wanted ? zero : splat_int(INT32_MIN);
    for (int bit = 30; bit >= 0; --bit) {
        const Ints higher = threshold | splat_int(1 << bit);
        threshold = count_at_least(keys, columns, higher) >= wanted ? higher : threshold;
    }
    return threshold;
}

// The pairs that Batcher's odd-even merge sort of N values compares: those of the network for the
// next power of two, without the pairs that have an index of N or more.
template <int N>
struct Network {
    int count = 0;
    int low[N * 7] = {}, high[N * 7] = {};

    constexpr Network() {
        for (int p = 1; p < N; p *= 2)
            for (int k = p; k >= 1; k /= 2)
                for (int j = k % p; j + k < N; j += 2 * k)
                    for (int i = 0; i < k && i + j + k < N; ++i)
                        if ((i + j) / (2 * p) == (i + j + k) / (2 * p)) {
                            low[count] = i + j;
                            high[count++] = i + j + k;
                        }
    }
};

template <int N>
constexpr Network<N> NETWORK{};

template <int N, size_t... I>
inline __attribute__((always_inline)) void sort(Ints* v, std::index_sequence<I...>) {
    const auto compare = [](Ints& a, Ints& b) {
        const Ints larger = a > b ? a : b;
        b = a > b ? b : a;
        a = larger;
    };
    (compare(v[NETWORK<N>.low[I]], v[NETWORK<N>.high[I]]), ...);
}

// The columns, at most N, sorted, the largest first; in registers where there are enough.
template <int N>
void sorted(const Ints* keys, int64_t columns, Ints* to) {
    Ints v[N];
    for (int i = 0; i < N; ++i) v[i] = i < columns ? keys[i] : splat_int(INT32_MIN);
    sort<N>(v, std::make_index_sequence<(size_t)NETWORK<N>.count>());
    for (int i = 0; i < N; ++i) to[i] = v[i];
}

// Up to here columns are sorted to find the k-th.
constexpr int64_t MOST_SORTED = 32;

// The K-th and the next key: fewer comparisons than sorting, for a small K.
template <int K>
inline void largest_of(const Ints* keys, int64_t columns, Ints& kth, Ints& next) {
    Ints largest[K + 1];
    for (int j = 0; j <= K; ++j) largest[j] = splat_int(INT32_MIN);
    for (int64_t t = 0; t < columns; ++t) {
        Ints key = keys[t];
        for (int j = 0; j <= K; ++j) {
            const Ints smaller = largest[j] > key ? key : largest[j];
            largest[j] = largest[j] > key ? largest[j] : key;
            key = smaller;
        }
    }
    kth = largest[K - 1];
    next = largest[K];
}

// For k < columns <= MOST_SORTED: the k-th largest key, and how many columns with an equal key are not
// kept. Returns false, and leaves `extra` open, if no lane has any. `sorts` has room for MOST_SORTED.
inline bool kth_of_few(const Ints* keys, int64_t columns, int64_t k, Ints* sorts, Ints& kth,
                       Ints& extra) {
    const auto any = [](Ints lanes) {
        int32_t found = 0;
        for (int lane = 0; lane < LANES; ++lane) found |= lanes[lane];
        return found != 0;
    };
    if (k <= 2) {
        Ints next;
        k == 1 ? largest_of<1>(keys, columns, kth, next) : largest_of<2>(keys, columns, kth, next);
        if (!any(kth == next)) return false;
    }
    switch ((columns + 3) / 4) {
        case 1: sorted<4>(keys, columns, sorts); break;
        case 2: sorted<8>(keys, columns, sorts); break;
        case 3: sorted<12>(keys, columns, sorts); break;
        case 4: sorted<16>(keys, columns, sorts); break;
        case 5: sorted<20>(keys, columns, sorts); break;
        case 6: sorted<24>(keys, columns, sorts); break;
        case 7: sorted<28>(keys, columns, sorts); break;
        default: sorted<32>(keys, columns, sorts);
    }
    kth = sorts[k - 1];
    extra = kth == sorts[k];
    if (!any(extra)) return false;
    extra = -extra;
    for (int64_t i = k + 1; i < columns; ++i) extra -= kth == sorts[i];
    return true;
}

// Calls take(first, kept) for blocks of 32 columns from left to right: `kept` is one integer per lane,
// with one bit per kept column of first .. first + 31. `ranks` has room for as many as `keys`.
template <class Take>
inline void k_max(const Floats* values, int64_t columns, int64_t k, Ints* keys, Ints* ranks,
                  Take take) {
    const Ints wanted = splat_int((int32_t)k);
    const bool all = k == columns, ranked = columns <= MOST_RANKED;
    Ints threshold = {}, equals_left = {};
    if (!all) {
        for (int64_t t = 0; t < columns; ++t) keys[t] = keys_of(values[t]);
        if (ranked) {
            rank(keys, columns, ranks);
        } else {
            threshold = kth_key(keys, columns, (int32_t)k);
            Ints above = {};
            for (int64_t t = 0; t < columns; ++t) above -= keys[t] > threshold;
            equals_left = wanted - above;
        }
    }
    for (int64_t first = 0; first < columns; first += 32) {
        const int64_t end = first + 32 < columns ? first + 32 : columns;
        Ints kept = {};
        for (int64_t t = first; t < end; ++t) {
            const Ints bit = splat_int((int32_t)(1u << (t - first)));
            if (all) {
                kept |= bit;
            } else if (ranked) {
                kept |= (ranks[t] < wanted) & bit;
            } else {
                const Ints equal = (keys[t] == threshold) & (equals_left > 0);
                equals_left += equal;
                kept |= ((keys[t] > threshold) | equal) & bit;
            }
        }
        take(first, kept);
    }
}

}  // namespace

#endif
