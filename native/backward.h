// The backward pass of one sentence through one layer.
//
// Only the columns that pooling kept have a gradient, k per row. It flows to the m-gram that the
// column was computed from, in all planes. The words of a row follow one another in memory, with the
// planes of a word side by side, so the m-gram is one contiguous run of m * planes floats, and so are
// its weights. A run is processed in SIMD vectors; weights are padded with zeros to whole vectors.
#ifndef DCNN_BACKWARD_H
#define DCNN_BACKWARD_H

#include "kernels.h"
#include "vectors.h"

namespace {

// Vectors of a run that are summed at once, in registers.
constexpr int MOST_VECTORS = 4;

inline int64_t run_size(const Shape& s) { return rounded_up(s.width * s.planes, LANES); }

int64_t taps_size(const Shape& s) { return s.lanes * run_size(s); }

// Calls take(index in the filters (o, n, d, m), index in the taps) for every weight.
template <class Take>
inline void for_each_tap(const Shape& s, Take take) {
    const int64_t run = run_size(s);
    for (int64_t map = 0; map < s.maps; ++map)
        for (int64_t plane = 0; plane < s.planes; ++plane)
            for (int64_t row = 0; row < s.rows; ++row)
                for (int64_t i = 0; i < s.width; ++i)
                    take(((map * s.planes + plane) * s.rows + row) * s.width + i,
                         (map * s.rows + row) * run + i * s.planes + plane);
}

void pack_taps(const Shape& s, const float* filters, float* taps) {
    memset(taps, 0, sizeof(float) * taps_size(s));
    for_each_tap(s, [&](int64_t filter, int64_t tap) { taps[tap] = filters[filter]; });
}

void unpack_taps(const Shape& s, const float* taps, float* filters) {
    for_each_tap(s, [&](int64_t filter, int64_t tap) { filters[filter] = taps[tap]; });
}

struct BackwardScratch {
    int64_t row;  // floats per row: m - 1 empty words, the sentence, room for a run at its end
    int64_t words, gradient, slopes, lane_slopes, lane_positions, size;

    BackwardScratch(const Shape& s, int64_t length, int64_t k) {
        row = rounded_up((s.width - 1 + length) * s.planes + run_size(s), LANES);
        words = 0;
        gradient = words + s.rows * row;
        slopes = gradient + s.rows * row;
        lane_slopes = slopes + rounded_up(k * s.lanes, LANES);
        lane_positions = lane_slopes + rounded_up(k, LANES);
        size = lane_positions + rounded_up(k, LANES);
    }
};

int64_t backward_scratch(const Shape& s, int64_t length, int64_t k) {
    return BackwardScratch(s, length, k).size;
}

// Adds to VECTORS vectors of the gradient of one output row's weights: for each kept column, slope
// times the words of its run, which begins at starts[slot].
template <int VECTORS>
inline void add_runs(int64_t k, const float* slopes, const int32_t* starts, const float* words,
                     float* gradient) {
    Floats sums[VECTORS];
    for (int v = 0; v < VECTORS; ++v) sums[v] = load(gradient + v * LANES);
    for (int64_t slot = 0; slot < k; ++slot) {
        const Floats slope = splat(slopes[slot]);
        const float* run = words + starts[slot];
        for (int v = 0; v < VECTORS; ++v) sums[v] += slope * load(run + v * LANES);
    }
    for (int v = 0; v < VECTORS; ++v) store(gradient + v * LANES, sums[v]);
}

inline void filter_gradient(int64_t run, int64_t k, const float* slopes, const int32_t* starts,
                            const float* words, float* gradient) {
    int64_t at = 0;
    for (; at + MOST_VECTORS * LANES <= run; at += MOST_VECTORS * LANES)
        add_runs<MOST_VECTORS>(k, slopes, starts, words + at, gradient + at);
    for (; at < run; at += LANES) add_runs<1>(k, slopes, starts, words + at, gradient + at);
}

// Adds one slot's part of the input gradient: one kept column of every output row. The loop goes over
// rows, not over the slots of a row, because the runs of a row overlap, and a load that overlaps a
// recent store has to wait for it. With ONE_VECTOR a run is one vector and needs no loop.
template <bool ONE_VECTOR>
inline void input_gradient(const Shape& s, int64_t row_size, const float* slopes,
                           const int32_t* positions, const float* taps, float* gradient) {
    const int64_t run = ONE_VECTOR ? LANES : run_size(s);
    for (int64_t map = 0; map < s.maps; ++map)
        for (int64_t row = 0; row < s.rows; ++row) {
            const int64_t lane = map * s.rows + row;
            const Floats slope = splat(slopes[lane]);
            const float* weights = taps + lane * run;
            float* to = gradient + row * row_size + positions[lane] * s.planes;
            for (int64_t at = 0; at < run; at += LANES)
                store(to + at, load(to + at) + slope * load(weights + at));
        }
}

void backward(const Shape& s, const float* taps, const float* x, int64_t length, int64_t k,
              const float* values, const int32_t* positions, const float* gradient_values,
              float* gradient_x, float* gradient_taps, float* gradient_bias, float* scratch) {
    const FlushTiny flush;
    const BackwardScratch at(s, length, k);
    float* words = scratch + at.words;
    float* gradient = scratch + at.gradient;
    float* slopes = scratch + at.slopes;
    float* lane_slopes = scratch + at.lane_slopes;
    int32_t* starts = (int32_t*)(scratch + at.lane_positions);
    const int64_t first = (s.width - 1) * s.planes;  // of a row's first word
    memset(words, 0, sizeof(float) * 2 * s.rows * at.row);  // and the gradient, which follows
    for (int64_t t = 0; t < length; ++t)
        for (int64_t plane = 0; plane < s.planes; ++plane)
            for (int64_t row = 0; row < s.rows; ++row)
                words[row * at.row + first + t * s.planes + plane] =
                    x[(t * s.planes + plane) * s.rows + row];

    for (int64_t i = 0; i < k * s.lanes; ++i)
        slopes[i] = gradient_values[i] * (1 - values[i] * values[i]);
    for (int64_t slot = 0; slot < k; ++slot)
        for (int64_t lane = 0; lane < s.lanes; ++lane)
            gradient_bias[lane] += slopes[slot * s.lanes + lane];

    const int64_t run = run_size(s);
    for (int64_t map = 0; map < s.maps; ++map)
        for (int64_t row = 0; row < s.rows; ++row) {
            const int64_t lane = map * s.rows + row;
            if (run == LANES) {
                Floats sum = load(gradient_taps + lane * LANES);
                for (int64_t slot = 0; slot < k; ++slot) {
                    const int64_t kept = slot * s.lanes + lane;
                    sum += splat(slopes[kept]) * load(words + row * at.row + positions[kept] * s.planes);
                }
                store(gradient_taps + lane * LANES, sum);
                continue;
            }
            for (int64_t slot = 0; slot < k; ++slot) {
                lane_slopes[slot] = slopes[slot * s.lanes + lane];
                starts[slot] = positions[slot * s.lanes + lane] * (int32_t)s.planes;
            }
            filter_gradient(run, k, lane_slopes, starts, words + row * at.row,
                            gradient_taps + lane * run);
        }
    const auto add_slot = run == LANES ? input_gradient<true> : input_gradient<false>;
    for (int64_t slot = 0; slot < k; ++slot)
        add_slot(s, at.row, slopes + slot * s.lanes, positions + slot * s.lanes, taps, gradient);
    for (int64_t t = 0; t < length; ++t)
        for (int64_t plane = 0; plane < s.planes; ++plane)
            for (int64_t row = 0; row < s.rows; ++row)
                gradient_x[(t * s.planes + plane) * s.rows + row] =
                    gradient[row * at.row + first + t * s.planes + plane];
}

}  // namespace

#endif
