// One sentence through one layer: convolution, folding, k-max pooling, bias, tanh.
//
// Output rows are lanes: lane l is row l % d' of map l / d', and LANES of them are computed at
// once. A lane needs its input row at the same place of a vector, so the rows of a word are
// repeated in a tile until every group of lanes finds its own at some offset.
#ifndef DCNN_FORWARD_H
#define DCNN_FORWARD_H

#include "k_max.h"
#include "kernels.h"

namespace {

// Columns of the convolution that are summed at once, in registers.
constexpr int MOST_COLUMNS = 8;

inline int64_t groups_of(const Shape& s) { return (s.lanes + LANES - 1) / LANES; }

// How the rows of one half of a word are repeated.
struct Tile {
    int64_t period;  // offsets of groups repeat after this many lanes
    int64_t size;    // floats a word

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

// The words of a sentence between m - 1 empty ones on each side, a plane after another.
struct Words {
    Tile tile;
    int64_t edge;   // floats of the empty words on one side
    int64_t plane;  // floats a plane; a vector that starts in its last word may end behind it

    Words(const Shape& s, int64_t length)
        : tile(s.rows),
          edge((s.width - 1) * tile.size),
          plane(length * tile.size + 2 * edge + LANES) {}
};

inline void lay_out(const Shape& s, const Words& words, const float* const* columns,
                    int64_t length, float* data, float* word) {
    for (int64_t t = 0; t < length; ++t) {
        // A copy with room to read past its end.
        memcpy(word, columns[t], sizeof(float) * s.maps_below * s.rows_below);
        for (int64_t p = 0; p < s.planes; ++p) {
            float* to = data + p * words.plane + words.edge + t * words.tile.size;
            const float* from = word + p * s.rows;
            // Whole vectors: what goes too far is written over by what comes next.
            for (int64_t at = 0; at < words.tile.size; at += s.rows)
                for (int64_t r = 0; r < s.rows && at + r < words.tile.size; r += LANES)
                    store(to + at + r, load(from + r));
        }
    }
    for (int64_t p = 0; p < s.planes; ++p) {
        float* plane = data + p * words.plane;
        memset(plane, 0, sizeof(float) * words.edge);
        memset(plane + words.edge + length * words.tile.size, 0, sizeof(float) * words.edge);
    }
}

// COLUMNS columns of the convolution, from `first` on, of one group of lanes.
template <int COLUMNS>
inline void convolve_columns(const Shape& s, const Words& words, const float* weights,
                             const float* data, int64_t first, int64_t length, Floats* c) {
    Floats sums[COLUMNS] = {};
    // Weights that meet nothing but empty words at all of these columns are left out.
    const int64_t ahead = s.width - first - COLUMNS, behind = length + s.width - 1 - first;
    const int64_t from = ahead > 0 ? ahead : 0, to = behind < s.width ? behind : s.width;
    for (int64_t p = 0; p < s.planes; ++p) {
        const float* weight = weights + (p * s.width + from) * LANES;
        const float* word = data + p * words.plane + (first + from) * words.tile.size;
        for (int64_t i = from; i < to; ++i) {
            const Floats w = load(weight);
            for (int b = 0; b < COLUMNS; ++b) sums[b] += w * load(word + b * words.tile.size);
            weight += LANES;
            word += words.tile.size;
        }
    }
    for (int b = 0; b < COLUMNS; ++b) c[first + b] = sums[b];
}

// All columns of one group, in blocks of nearly equal size.
inline void convolve(const Shape& s, const Words& words, const float* weights, const float* data,
                     int64_t length, Floats* c) {
    const int64_t columns = length + s.width - 1;
    const int64_t blocks = (columns + MOST_COLUMNS - 1) / MOST_COLUMNS;
    int64_t first = 0;
    for (int64_t left = blocks; left > 0; --left) {
        const int64_t size = (columns - first + left - 1) / left;
        switch (size) {
#define DCNN_COLUMNS(N) \
    case N: \
        convolve_columns<N>(s, words, weights, data, first, length, c); \
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
        first += size;
    }
}

// Where the parts of the scratch memory lie, in floats.
struct ForwardScratch {
    int64_t word, data, c, keys, ranks, pooled, places, size;

    ForwardScratch(const Shape& s, int64_t length) {
        const int64_t columns = length + s.width - 1;
        const int64_t ranked = columns < MOST_RANKED ? columns : MOST_RANKED;
        word = 0;
        data = word + rounded_up(s.maps_below * s.rows_below + LANES, LANES);
        c = data + s.planes * Words(s, length).plane;
        keys = c + columns * LANES;
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

void forward(const Shape& s, const float* packed, const float* const* columns, int64_t length,
             int64_t k, float* values, int32_t* positions, float* scratch) {
    const ForwardScratch at(s, length);
    const Words words(s, length);
    float* data = scratch + at.data;
    Floats* c = (Floats*)(scratch + at.c);
    float* pooled = scratch + at.pooled;
    int32_t* places = (int32_t*)(scratch + at.places);
    lay_out(s, words, columns, length, data, scratch + at.word);
    for (int64_t group = 0; group < groups_of(s); ++group) {
        const float* weights = packed + group * LANES * (s.planes * s.width + 1);
        convolve(s, words, weights + LANES, data + group * LANES % words.tile.period, length, c);
        pool(c, length + s.width - 1, k, (Ints*)(scratch + at.keys), (Ints*)(scratch + at.ranks),
             pooled, places);
        const Floats bias = load(weights);
        const int64_t left = s.lanes - group * LANES, here = left < LANES ? left : LANES;
        for (int64_t slot = 0; slot < k; ++slot) {
            const Floats value = tanh_of(load(pooled + slot * LANES) + bias);
            const int64_t out = slot * s.lanes + group * LANES;
            if (here == LANES) {
                store(values + out, value);
                if (positions) memcpy(positions + out, places + slot * LANES, sizeof(Ints));
            } else {
                memcpy(values + out, &value, sizeof(float) * here);
                if (positions)
                    memcpy(positions + out, places + slot * LANES, sizeof(int32_t) * here);
            }
        }
    }
}

}  // namespace

#endif
