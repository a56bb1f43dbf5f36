// One sentence back through one layer.
//
// Only the kept columns carry a gradient, k of them a row. Each touches m neighbouring words of the
// rows it was summed from, so here the words of a row are contiguous and a vector spans the m-gram:
// the weights of a filter, padded with zeros to whole vectors, meet a window of the row.
#ifndef DCNN_BACKWARD_H
#define DCNN_BACKWARD_H

#include "kernels.h"
#include "vectors.h"

namespace {

constexpr int TAPS = 8;
typedef float Gram __attribute__((vector_size(4 * TAPS)));

inline Gram load_gram(const float* from) {
    Gram gram;
    memcpy(&gram, from, sizeof gram);
    return gram;
}

inline void store_gram(float* to, const Gram& gram) { memcpy(to, &gram, sizeof gram); }

inline int64_t padded_width(const Shape& s) { return rounded_up(s.width, TAPS); }

int64_t taps_size(const Shape& s) {
    return s.maps * s.maps_below * s.rows_below * padded_width(s);
}

// Filters (o, n, d, m) with m padded to whole vectors.
void pack_taps(const Shape& s, const float* filters, float* taps) {
    const int64_t padded = padded_width(s), count = s.maps * s.maps_below * s.rows_below;
    memset(taps, 0, sizeof(float) * taps_size(s));
    for (int64_t i = 0; i < count; ++i)
        memcpy(taps + i * padded, filters + i * s.width, sizeof(float) * s.width);
}

void unpack_taps(const Shape& s, const float* taps, float* filters) {
    const int64_t padded = padded_width(s), count = s.maps * s.maps_below * s.rows_below;
    for (int64_t i = 0; i < count; ++i)
        memcpy(filters + i * s.width, taps + i * padded, sizeof(float) * s.width);
}

struct BackwardScratch {
    int64_t row;  // floats a row: m - 1 empty words, the sentence, room for a window at its end
    int64_t words, gradient, slopes, lane_slopes, lane_positions, size;

    BackwardScratch(const Shape& s, int64_t length, int64_t k) {
        row = rounded_up(s.width - 1 + length + padded_width(s), TAPS);
        words = 0;
        gradient = words + s.maps_below * s.rows_below * row;
        slopes = gradient + s.maps_below * s.rows_below * row;
        lane_slopes = slopes + rounded_up(k * s.lanes, LANES);
        lane_positions = lane_slopes + rounded_up(k, LANES);
        size = lane_positions + rounded_up(k, LANES);
    }
};

int64_t backward_scratch(const Shape& s, int64_t length, int64_t k) {
    return BackwardScratch(s, length, k).size;
}

// The gradient of the filters of one output row: for every input row, the sum over its kept
// columns of slope times window. VECTORS is their number in a filter, 0 if known only here.
template <int VECTORS>
inline void filter_gradient(const Shape& s, int64_t row_size, int64_t map, int64_t row, int64_t k,
                            const float* slopes, const int32_t* positions, const float* words,
                            float* gradient_taps) {
    const int64_t padded = VECTORS ? VECTORS * TAPS : padded_width(s);
    float* to = gradient_taps + (map * s.maps_below * s.rows_below + row) * padded;
    const float* from = words + row * row_size;
    for (int64_t plane = 0; plane < s.planes; ++plane) {
        for (int64_t tap = 0; tap < padded; tap += TAPS) {
            Gram sum = load_gram(to + tap);
            for (int64_t slot = 0; slot < k; ++slot)
                sum += slopes[slot] * load_gram(from + positions[slot] + tap);
            store_gram(to + tap, sum);
        }
        to += s.rows * padded;
        from += s.rows * row_size;
    }
}

// One slot's gradient of the input. Neighbouring rows follow one another, not the slots of a row:
// their windows overlap, and a load that overlaps a store just made has to wait for it.
template <int VECTORS>
inline void input_gradient(const Shape& s, int64_t row_size, const float* slopes,
                           const int32_t* positions, const float* taps, float* gradient) {
    const int64_t padded = VECTORS ? VECTORS * TAPS : padded_width(s);
    for (int64_t map = 0; map < s.maps; ++map)
        for (int64_t row = 0; row < s.rows; ++row) {
            const float slope = slopes[map * s.rows + row];
            float* window = gradient + row * row_size + positions[map * s.rows + row];
            const float* weights = taps + (map * s.planes * s.rows + row) * padded;
            for (int64_t plane = 0; plane < s.planes; ++plane) {
                for (int64_t tap = 0; tap < padded; tap += TAPS)
                    store_gram(window + tap,
                               load_gram(window + tap) + slope * load_gram(weights + tap));
                window += s.rows * row_size;
                weights += s.rows * padded;
            }
        }
}

template <int VECTORS>
inline void carry_back(const Shape& s, const BackwardScratch& at, const float* taps, int64_t k,
                       const int32_t* positions, float* gradient_taps, float* scratch) {
    const float* slopes = scratch + at.slopes;
    float* lane_slopes = scratch + at.lane_slopes;
    int32_t* lane_positions = (int32_t*)(scratch + at.lane_positions);
    for (int64_t map = 0; map < s.maps; ++map)
        for (int64_t row = 0; row < s.rows; ++row) {
            for (int64_t slot = 0; slot < k; ++slot) {
                lane_slopes[slot] = slopes[slot * s.lanes + map * s.rows + row];
                lane_positions[slot] = positions[slot * s.lanes + map * s.rows + row];
            }
            filter_gradient<VECTORS>(s, at.row, map, row, k, lane_slopes, lane_positions,
                                     scratch + at.words, gradient_taps);
        }
    for (int64_t slot = 0; slot < k; ++slot)
        input_gradient<VECTORS>(s, at.row, slopes + slot * s.lanes, positions + slot * s.lanes,
                                taps, scratch + at.gradient);
}

void backward(const Shape& s, const float* taps, const float* x, int64_t length, int64_t k,
              const float* values, const int32_t* positions, const float* gradient_values,
              float* gradient_x, float* gradient_taps, float* gradient_bias, float* scratch) {
    const FlushTiny flush;
    const BackwardScratch at(s, length, k);
    const int64_t inputs = s.maps_below * s.rows_below;
    float* words = scratch + at.words;
    float* gradient = scratch + at.gradient;
    float* slopes = scratch + at.slopes;
    memset(words, 0, sizeof(float) * 2 * inputs * at.row);  // and the gradient, which follows
    for (int64_t t = 0; t < length; ++t)
        for (int64_t input = 0; input < inputs; ++input)
            words[input * at.row + s.width - 1 + t] = x[t * inputs + input];

    for (int64_t i = 0; i < k * s.lanes; ++i)
        slopes[i] = gradient_values[i] * (1 - values[i] * values[i]);
    for (int64_t slot = 0; slot < k; ++slot)
        for (int64_t lane = 0; lane < s.lanes; ++lane)
            gradient_bias[lane] += slopes[slot * s.lanes + lane];

    const auto carry = padded_width(s) == TAPS       ? carry_back<1>
                       : padded_width(s) == 2 * TAPS ? carry_back<2>
                                                     : carry_back<0>;
    carry(s, at, taps, k, positions, gradient_taps, scratch);
    for (int64_t t = 0; t < length; ++t)
        for (int64_t input = 0; input < inputs; ++input)
            gradient_x[t * inputs + input] = gradient[input * at.row + s.width - 1 + t];
}

}  // namespace

#endif
