// The work on one sentence, compiled once per instruction set and reached through a table.
#ifndef DCNN_KERNELS_H
#define DCNN_KERNELS_H

#include <cstdint>

#include "dcnn_native.h"

// A layer's sizes, with what follows from them; made by shape_of.
struct Shape {
    int64_t maps_below, rows_below, maps, width;
    int64_t halves;  // 2 with folding, else 1
    int64_t rows;    // d', after folding
    int64_t planes;  // maps below times halves: what one output row sums over
    int64_t lanes;   // maps times rows: output rows, side by side in memory
};

// An update of Adagrad: the numbers of dcnn/training/adagrad.py.
struct Rule {
    float clip, l2, rate, shrink, eps, ema_weight;
};

// A product of matrices that may be parts of larger ones: (rows, inner) times (inner, columns) is written
// or added to (rows, columns). `to_row` and the like are the floats from one row or column to the next.
struct Product {
    float* to;
    int64_t to_row;
    const float* left;
    int64_t left_row, left_column;
    const float* right;
    int64_t right_row;
    int64_t rows, inner, columns;
    bool adds;
    bool padded;  // whether there is room for a whole vector after the last columns of `right`
};

struct Kernels {
    const char* name;

    // Filters and bias as `forward` reads them; sizes are in floats.
    int64_t (*packed_size)(const Shape&);
    void (*pack)(const Shape&, const float* filters, const float* bias, float* packed);

    // One sentence through one layer. columns[t] points to the n * d values of word t. Writes k
    // rows of `lanes` values; positions may be null.
    int64_t (*forward_scratch)(const Shape&, int64_t length);
    void (*forward)(const Shape&, const float* packed, const float* const* columns, int64_t length,
                    int64_t k, float* values, int32_t* positions, float* scratch);

    // Filters as `backward` reads them, and the layout of its filter gradient.
    int64_t (*taps_size)(const Shape&);
    void (*pack_taps)(const Shape&, const float* filters, float* taps);
    void (*unpack_taps)(const Shape&, const float* taps, float* filters);

    // One sentence back through one layer: writes gradient_x, adds to the other two.
    int64_t (*backward_scratch)(const Shape&, int64_t length, int64_t k);
    void (*backward)(const Shape&, const float* taps, const float* x, int64_t length, int64_t k,
                     const float* values, const int32_t* positions, const float* gradient_values,
                     float* gradient_x, float* gradient_taps, float* gradient_bias,
                     float* scratch);

    float (*dot)(const float* left, const float* right, int64_t size);
    void (*multiply)(const Product&);
    // to += factor * from
    void (*add_scaled)(float* to, const float* from, float factor, int64_t size);
    // to += the sum of some rows of a table (..., size), each times factors[row] or, if that is null,
    // all times `factor`.
    void (*add_rows)(float* to, const float* from, const int32_t* rows, int64_t count,
                     const float* factors, float factor, int64_t size);
    void (*adagrad)(const Rule&, float* value, const float* gradient, float* total,
                    float* average, int64_t size);
    // Rows `first` to `end` of a table; `rows` are those of them that have a gradient, ascending.
    void (*adagrad_rows)(const Rule&, float* value, const float* gradient, const int64_t* rows,
                         int64_t count, float* total, float* average, int64_t first, int64_t end,
                         int64_t dim);
    double (*square_sum)(const float* x, int64_t size);
    // The next numbers of MT19937. `used` of the 624 numbers of `state` are used up; returns how many
    // are afterwards.
    int64_t (*draw_bits)(uint32_t* state, int64_t used, uint32_t* numbers, int64_t size);
    // Such numbers as uniform ones in [0, 1), or as a mask: `value` with this probability, else 0.
    void (*to_uniform)(const uint32_t* bits, float* numbers, int64_t size);
    void (*to_mask)(const uint32_t* bits, float probability, float value, float* mask,
                    int64_t size);
    // Makes of uniform numbers normal ones with mean 0, 16 at a time; fewer at the end stay.
    void (*to_normal)(float* numbers, float deviation, int64_t size);
    void (*tanh)(const float* x, float* y, int64_t size);
    // In place, of numbers that are not above 0; NaN stays NaN.
    void (*exp)(double* x, int64_t size);
};

// All scratch and packed memory starts at a multiple of this many bytes.
constexpr int64_t ALIGNMENT = 64;

// As many floats, or a few more, so that what follows them is aligned too.
inline int64_t rounded(int64_t floats) {
    constexpr int64_t step = ALIGNMENT / sizeof(float);
    return (floats + step - 1) / step * step;
}

Shape shape_of(const dcnn_layer& layer);

// k_l = max(k_top, ceil((L - l) / L * s)), l from 1 (Eq. 4): dynamic_k of dcnn/ops/reference.py.
inline int64_t dynamic_k(int64_t k_top, int64_t depth, int64_t layer, int64_t length) {
    const int64_t k = (length * (depth - layer) + depth - 1) / depth;
    return k > k_top ? k : k_top;
}

const Kernels& current_kernels();

extern const Kernels kernels_plain;
#if defined(__x86_64__)
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
#endif

#endif
