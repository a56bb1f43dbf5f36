// One sentence through one layer: convolution, folding, k-max pooling, bias, tanh.
//
// Each output row is a lane: lane l is row l % d' of map l / d'. A group of LANES lanes is computed at
// once, each at its position in a vector. The input rows must be at the same positions, so the rows of
// a word are repeated in a tile until every group can load its own at some offset.
//
// A long sentence is convolved in windows of columns, so that the words of a window, which every group
// of lanes reads, stay in cache. A column is summed in the same order whichever window it is in.
#ifndef DCNN_FORWARD_H
#define DCNN_FORWARD_H

#include "k_max.h"
#include "kernels.h"

namespace {

// Columns of the convolution that are summed at once, in registers.
constexpr int MOST_COLUMNS = 8;
// Floats of the words of one window: a quarter of a megabyte.
constexpr int64_t WINDOW = 1 << 16;
// Fewest columns of a window: the m - 1 words that it shares with the next are laid out twice.
constexpr int64_t MIN_WINDOW = 64;
// Most vectors of a tile whose loads are all aligned; see Tile.
constexpr int64_t MOST_TILES = 6;

inline int64_t groups_of(const Shape& s) { return (s.lanes + LANES - 1) / LANES; }

// How the rows of one half of a word are repeated.
struct Tile {
    int64_t period;  // offsets of groups repeat after this many lanes
    int64_t size;    // floats per word

    explicit Tile(int64_t rows) {
        int64_t common = rows;  // of rows and LANES: then all loads are aligned
        while (common % LANES) common += rows;
        const bool aligned = common <= 2 * (rows + LANES);
        period = aligned ? common : rows;
        size = aligned ? common : rounded_up(rows + LANES, LANES);
    }
};

int64_t packed_size(const Shape& s) {
    return groups_of(s) * LANES * (s.planes * s.width + 1);
}

// A group of lanes after another: its bias, then its weights by plane and place in the m-gram.
void pack(const Shape& s, const float* filters, const float* bias, float* packed) {
    memset(packed, 0, sizeof(float) * packed_size(s));
    const int64_t group_size = LANES * (s.planes * s.width + 1);
    for (int64_t lane = 0; lane < s.lanes; ++lane) {
        float* group = packed + lane / LANES * group_size + lane % LANES;
        const int64_t map = lane / s.rows, row = lane % s.rows;
        group[0] = bias[lane];
        for (int64_t below = 0; below < s.maps_below; ++below)
            for (int64_t half = 0; half < s.halves; ++half) {
                const int64_t input_row = row + half * s.rows;
                const float* filter =
                    filters + ((map * s.maps_below + below) * s.rows_below + input_row) * s.width;
                float* taps = group + LANES * (1 + (below * s.halves + half) * s.width);
                for (int64_t i = 0; i < s.width; ++i) taps[i * LANES] = filter[i];
            }
    }
}

// The words that one window of columns is computed from, plane by plane: m - 1 more than its columns.
// Words outside the sentence are zero ("empty").
struct Words {
    Tile tile;
    int64_t columns;  // of a window
    int64_t plane;    // floats per plane; a load that starts in its last word may read past that

    Words(const Shape& s, int64_t length) : tile(s.rows) {
        const int64_t all = length + s.width - 1, most = most_columns(s);
        const int64_t windows = (all + most - 1) / most;  // of nearly equal size
        columns = windows == 1 ? all : rounded_up((all + windows - 1) / windows, MOST_COLUMNS);
        plane = (columns + s.width - 1) * tile.size + LANES;
    }

    bool at_once(const Shape& s, int64_t length) const { return columns == length + s.width - 1; }

    // Floats per plane of the widest window of any sentence of up to `length` words. A shorter sentence
    // may have a wider window: the more windows there are, the narrower each can be.
    int64_t widest_plane(const Shape& s, int64_t length) const {
        const int64_t all = length + s.width - 1;
        const int64_t most = rounded_up(most_columns(s), MOST_COLUMNS);
        return ((all < most ? all : most) + s.width - 1) * tile.size + LANES;
    }

  private:
    int64_t most_columns(const Shape& s) const {
        const int64_t near = WINDOW / (s.planes * tile.size);
        return near < MIN_WINDOW ? MIN_WINDOW : near;
    }
};

// The words of `count` columns from `first` on.
inline void lay_out(const Shape& s, const Words& words, const float* const* columns,
                    int64_t length, int64_t first, int64_t count, float* data, float* word) {
    const int64_t size = words.tile.size, end = count + s.width - 1;
    // Words of the window that lie before the sentence, and from where on they lie behind it.
    const int64_t before = s.width - 1 - first;
    const int64_t from = before > 0 ? before : 0;
    const int64_t to = before + length < end ? before + length : end;
    const int64_t floats = s.maps_below * s.rows_below, tiles = size / LANES;
    // With all vectors of a tile aligned, each is a selection of the two that have all rows.
    const bool selected = LANES == 16 && s.rows <= 2 * LANES && words.tile.period == size;
    Ints from_rows[MOST_TILES];
    if (selected)
        for (int64_t i = 0; i < size; ++i) from_rows[i / LANES][i % LANES] = (int32_t)(i % s.rows);
    for (int64_t t = from; t < to; ++t) {
        // A copy with room to read past its end.
        const float* column = columns[t - before];
        int64_t copied = 0;
        for (; copied + LANES <= floats; copied += LANES) store(word + copied, load(column + copied));
        if (copied < floats) memcpy(word + copied, column + copied, sizeof(float) * (floats - copied));
        for (int64_t p = 0; p < s.planes; ++p) {
            float* at = data + p * words.plane + t * size;
            const float* rows = word + p * s.rows;
            if (selected) {
                const Floats low = load(rows);
                const Floats high = s.rows > LANES ? load(rows + LANES) : low;
                for (int64_t i = 0; i < tiles; ++i)
                    store(at + i * LANES, __builtin_shuffle(low, high, from_rows[i]));
                continue;
            }
            // Whole vectors: what goes too far is written over by what comes next.
            for (int64_t begin = 0; begin < size; begin += s.rows)
                for (int64_t r = 0; r < s.rows && begin + r < size; r += LANES)
                    store(at + begin + r, load(rows + r));
        }
    }
    for (int64_t p = 0; p < s.planes; ++p) {
        float* plane = data + p * words.plane;
        if (from > 0) memset(plane, 0, sizeof(float) * from * size);
        if (to < end) memset(plane + to * size, 0, sizeof(float) * (end - to) * size);
    }
}

// COLUMNS columns of the convolution, from `first` on, of one group of lanes; `data` begins with the
// first word of the first of them.
template <int COLUMNS>
inline void convolve_columns(const Shape& s, const Words& words, const float* weights,
                             const float* data, int64_t first, int64_t length, Floats* c) {
    Floats sums[COLUMNS] = {};
    // Weights that meet nothing but empty words at all of these columns are left out.
    const int64_t ahead = s.width - first - COLUMNS, behind = length + s.width - 1 - first;
    const int64_t from = ahead > 0 ? ahead : 0, to = behind < s.width ? behind : s.width;
    for (int64_t p = 0; p < s.planes; ++p) {
        const float* weight = weights + (p * s.width + from) * LANES;
        const float* word = data + p * words.plane + from * words.tile.size;
        for (int64_t i = from; i < to; ++i) {
            const Floats w = load(weight);
            for (int b = 0; b < COLUMNS; ++b) sums[b] += w * load(word + b * words.tile.size);
            weight += LANES;
            word += words.tile.size;
        }
    }
    for (int b = 0; b < COLUMNS; ++b) c[first + b] = sums[b];
}

// The columns of one window, from `start` on, of one group, in blocks of nearly equal size.
inline void convolve(const Shape& s, const Words& words, const float* weights, const float* data,
                     int64_t start, int64_t count, int64_t length, Floats* c) {
    const int64_t blocks = (count + MOST_COLUMNS - 1) / MOST_COLUMNS;
    int64_t done = 0;
    for (int64_t left = blocks; left > 0; --left) {
        const int64_t size = (count - done + left - 1) / left;
        const float* block = data + done * words.tile.size;
        switch (size) {
#define DCNN_COLUMNS(N) \
    case N: \
        convolve_columns<N>(s, words, weights, block, start + done, length, c); \
        break;
            DCNN_COLUMNS(1)
            DCNN_COLUMNS(2)
            DCNN_COLUMNS(3)
            DCNN_COLUMNS(4)
            DCNN_COLUMNS(5)
            DCNN_COLUMNS(6)
            DCNN_COLUMNS(7)
            DCNN_COLUMNS(8)
#undef DCNN_COLUMNS
        }
        done += size;
    }
}

// Offsets of the parts of the scratch memory, in floats. No part gets smaller with a longer sentence,
// so the memory for the longest sentence of a batch is enough for all of them.
struct ForwardScratch {
    int64_t word, data, c, group, keys, ranks, pooled, places, size;

    ForwardScratch(const Shape& s, int64_t length) {
        const int64_t columns = length + s.width - 1;
        const int64_t least = columns < MOST_SORTED ? MOST_SORTED : columns;
        const int64_t ranked = least < MOST_RANKED ? least : MOST_RANKED;
        const Words words(s, length);
        word = 0;
        data = word + rounded_up(s.maps_below * s.rows_below + LANES, LANES);
        c = data + s.planes * words.widest_plane(s, length);
        // Groups are pooled after the last window: with several windows, all groups are kept.
        group = words.at_once(s, length) ? 0 : columns * LANES;
        keys = c + columns * LANES + (groups_of(s) - 1) * group;
        ranks = keys + columns * LANES;
        pooled = ranks + ranked * LANES;
        places = pooled + columns * LANES;
        size = places + columns * LANES;
    }
};

int64_t forward_scratch(const Shape& s, int64_t length) { return ForwardScratch(s, length).size; }

// The kept columns of one group of lanes: value and place, (k, LANES) each.
inline void pool(const Floats* c, int64_t columns, int64_t k, Ints* keys, Ints* ranks,
                 float* pooled, int32_t* places) {
    int32_t taken[LANES] = {};
    const float* values = (const float*)c;
    k_max(c, columns, k, keys, ranks, [&](int64_t first, Ints kept) {
        for (int lane = 0; lane < LANES; ++lane) {
            int64_t at = taken[lane] * LANES + lane;
            for (uint32_t left = (uint32_t)kept[lane]; left; left &= left - 1, at += LANES) {
                const int64_t column = first + __builtin_ctz(left);
                pooled[at] = values[column * LANES + lane];
                places[at] = (int32_t)column;
            }
            taken[lane] = (int32_t)(at / LANES);
        }
    });
}

// One kept column of one group, with its bias and tanh, to its place.
inline void write(const Shape& s, int64_t group, int64_t slot, Floats value, Ints place,
                  float* values, int32_t* positions) {
    const int64_t left = s.lanes - group * LANES, out = slot * s.lanes + group * LANES;
    const size_t size = sizeof(float) * (size_t)(left < LANES ? left : LANES);
    if (left >= LANES)
        store(values + out, value);
    else
        memcpy(values + out, &value, size);
    if (positions) memcpy(positions + out, &place, size);
}

inline void finish(const Shape& s, int64_t group, Floats bias, int64_t k, const float* pooled,
                   const int32_t* places, float* values, int32_t* positions) {
    for (int64_t slot = 0; slot < k; ++slot) {
        Ints place;
        memcpy(&place, places + slot * LANES, sizeof place);
        const Floats value = tanh_of(load(pooled + slot * LANES) + bias);
        write(s, group, slot, value, place, values, positions);
    }
}

// Pools few columns, k <= K: goes through them from the right, and each column that a lane keeps shifts
// those kept before it by one slot.
template <int K, bool POSITIONS, bool TIES>
void shift_in(const Shape& s, int64_t group, Floats bias, const Floats* c, const Ints* keys,
              int64_t columns, int64_t k, Ints kth, Ints extra, float* values,
              int32_t* positions) {
    Floats value[K] = {};
    Ints place[K] = {};
    for (int64_t t = columns - 1; t >= 0; --t) {
        Ints kept = keys[t] >= kth;
        if (TIES) {  // of equals the leftmost are kept
            const Ints left_out = (keys[t] == kth) & (extra > 0);
            extra += left_out;
            kept &= ~left_out;
        }
        for (int j = K - 1; j >= 0; --j) {
            value[j] = kept ? (j ? value[j - 1] : c[t]) : value[j];
            if (POSITIONS) place[j] = kept ? (j ? place[j - 1] : splat_int((int32_t)t)) : place[j];
        }
    }
    for (int j = 0; j < K; ++j)
        if (j < k) write(s, group, j, tanh_of(value[j] + bias), place[j], values, positions);
}

constexpr int64_t MOST_SHIFTED = 16;

template <bool POSITIONS, bool TIES>
void shift_all(const Shape& s, int64_t group, Floats bias, const Floats* c, const Ints* keys,
               int64_t columns, int64_t k, Ints kth, Ints extra, float* values,
               int32_t* positions) {
    const auto shifted = k <= 2    ? shift_in<2, POSITIONS, TIES>
                         : k <= 4  ? shift_in<4, POSITIONS, TIES>
                         : k <= 8  ? shift_in<8, POSITIONS, TIES>
                         : k <= 12 ? shift_in<12, POSITIONS, TIES>
                                   : shift_in<16, POSITIONS, TIES>;
    shifted(s, group, bias, c, keys, columns, k, kth, extra, values, positions);
}

// The kept columns of one group, with bias and tanh, to their places.
inline void keep(const Shape& s, int64_t group, Floats bias, const Floats* c, int64_t columns,
                 int64_t k, const ForwardScratch& at, float* scratch, float* values,
                 int32_t* positions) {
    Ints *keys = (Ints*)(scratch + at.keys), *ranks = (Ints*)(scratch + at.ranks);
    if (columns <= MOST_SORTED && k < columns && k <= MOST_SHIFTED) {
        for (int64_t t = 0; t < columns; ++t) keys[t] = keys_of(c[t]);
        Ints kth, extra;
        const bool ties = kth_of_few(keys, columns, k, ranks, kth, extra);
        const auto shifted = ties ? (positions ? shift_all<true, true> : shift_all<false, true>)
                                  : (positions ? shift_all<true, false> : shift_all<false, false>);
        return shifted(s, group, bias, c, keys, columns, k, kth, extra, values, positions);
    }
    float* pooled = scratch + at.pooled;
    int32_t* places = (int32_t*)(scratch + at.places);
    pool(c, columns, k, keys, ranks, pooled, places);
    finish(s, group, bias, k, pooled, places, values, positions);
}

void forward(const Shape& s, const float* packed, const float* const* columns, int64_t length,
             int64_t k, float* values, int32_t* positions, float* scratch) {
    const ForwardScratch at(s, length);
    const Words words(s, length);
    float* data = scratch + at.data;
    const int64_t all = length + s.width - 1;
    for (int64_t first = 0; first < all; first += words.columns) {
        const int64_t left = all - first, count = left < words.columns ? left : words.columns;
        lay_out(s, words, columns, length, first, count, data, scratch + at.word);
        for (int64_t group = 0; group < groups_of(s); ++group) {
            const float* weights = packed + group * LANES * (s.planes * s.width + 1);
            Floats* c = (Floats*)(scratch + at.c + group * at.group);
            convolve(s, words, weights + LANES, data + group * LANES % words.tile.period, first,
                     count, length, c);
            if (count < left) continue;
            keep(s, group, load(weights), c, all, k, at, scratch, values, positions);
        }
    }
}

}  // namespace

#endif
