// One layer over a batch, forward and backward.
#include <algorithm>
#include <vector>

#include "kernels.h"
#include "parallel.h"

namespace {

bool fits(const Shape& s, int64_t sentences, int64_t columns, const int64_t* lengths,
          const int64_t* k, int64_t kept) {
    for (int64_t i = 0; i < sentences; ++i)
        if (lengths[i] < 1 || lengths[i] > columns || k[i] < 1 || k[i] > kept ||
            k[i] > lengths[i] + s.width - 1)
            return false;
    return true;
}

}  // namespace

int32_t dcnn_layer_forward(const dcnn_layer* layer, int64_t sentences, int64_t columns,
                           const float* x, const int64_t* lengths, const float* filters,
                           const float* bias, const int64_t* k, int64_t kept, float* values,
                           int32_t* positions, int32_t threads) try {
    const Shape s = shape_of(*layer);
    const Kernels& kernels = current_kernels();
    if (!fits(s, sentences, columns, lengths, k, kept)) return DCNN_BAD_LENGTH;
    Memory packed(kernels.packed_size(s));
    kernels.pack(s, filters, bias, packed.get());
    const int64_t word = s.maps_below * s.rows_below;
    std::vector<const float*> words(static_cast<size_t>(sentences * columns));
    for (size_t i = 0; i < words.size(); ++i) words[i] = x + static_cast<int64_t>(i) * word;
    return over_sentences(
        sentences, parts_of(sentences, threads), kernels.forward_scratch(s, columns),
        [&](int64_t i, int64_t, float* scratch) {
            const int64_t used = k[i] * s.lanes, all = kept * s.lanes;
            float* to = values + i * all;
            int32_t* where = positions + i * all;
            kernels.forward(s, packed.get(), words.data() + i * columns, lengths[i], k[i], to,
                            where, scratch);
            std::fill(to + used, to + all, 0.0f);
            std::fill(where + used, where + all, -1);
        });
} catch (const std::bad_alloc&) {
    return DCNN_NO_MEMORY;
}

int32_t dcnn_layer_backward(const dcnn_layer* layer, int64_t sentences, int64_t columns,
                            const float* x, const int64_t* lengths, const float* filters,
                            const int64_t* k, int64_t kept, const float* values,
                            const int32_t* positions, const float* gradient_values,
                            float* gradient_x, float* gradient_filters, float* gradient_bias,
                            int32_t threads) try {
    const Shape s = shape_of(*layer);
    const Kernels& kernels = current_kernels();
    if (!fits(s, sentences, columns, lengths, k, kept)) return DCNN_BAD_LENGTH;
    const int64_t parts = parts_of(sentences, threads);
    const int64_t taps_size = kernels.taps_size(s), own = taps_size + s.lanes;
    Memory taps(taps_size), sums(parts * own);  // each part adds up gradients of its own
    kernels.pack_taps(s, filters, taps.get());
    std::fill(sums.get(), sums.get() + parts * own, 0.0f);
    const int64_t word = s.maps_below * s.rows_below;
    const int32_t status = over_sentences(
        sentences, parts, kernels.backward_scratch(s, columns, kept),
        [&](int64_t i, int64_t part, float* scratch) {
            const int64_t at = i * kept * s.lanes;
            float* to = gradient_x + i * columns * word;
            float* own_sums = sums.get() + part * own;
            kernels.backward(s, taps.get(), x + i * columns * word, lengths[i], k[i], values + at,
                             positions + at, gradient_values + at, to, own_sums,
                             own_sums + taps_size, scratch);
            std::fill(to + lengths[i] * word, to + columns * word, 0.0f);
        });
    // The parts are summed in their order: as many threads, the same bits.
    for (int64_t part = 1; part < parts; ++part)
        for (int64_t i = 0; i < own; ++i) sums.get()[i] += sums.get()[part * own + i];
    kernels.unpack_taps(s, sums.get(), gradient_filters);
    std::copy_n(sums.get() + taps_size, s.lanes, gradient_bias);
    return status;
} catch (const std::bad_alloc&) {
    return DCNN_NO_MEMORY;
}
