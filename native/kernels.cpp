// Compiled once an instruction set; DCNN_ISA names the table that results.
#include "kernels.h"

#include "backward.h"
#include "forward.h"

namespace {

float dot(const float* left, const float* right, int64_t size) {
    Floats sums[4] = {};
    int64_t i = 0;
    for (; i + 4 * LANES <= size; i += 4 * LANES)
        for (int j = 0; j < 4; ++j)
            sums[j] += load(left + i + j * LANES) * load(right + i + j * LANES);
    const Floats sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float total = 0;
    for (int lane = 0; lane < LANES; ++lane) total += sum[lane];
    for (; i < size; ++i) total += left[i] * right[i];
    return total;
}

void add_scaled(float* to, const float* from, float factor, int64_t size) {
    const Floats factors = splat(factor);
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) store(to + i, load(to + i) + factors * load(from + i));
    for (; i < size; ++i) to[i] += factor * from[i];
}

// The rules are those of dcnn/training/stack_adagrad.py: decay, clipping, L2, Adagrad, average.
void adagrad(float* __restrict value, const float* __restrict gradient, float* __restrict total,
             float* __restrict average, int64_t size, float clip, float l2, float rate,
             float shrink, float eps, float fresh) {
    const FlushTiny flush;
    if (average) {
        for (int64_t i = 0; i < size; ++i) {
            const float v = value[i] * shrink, g = gradient[i] * clip + v * l2;
            const float squares = total[i] + g * g;
            const float updated = v - rate * g / (__builtin_sqrtf(squares) + eps);
            total[i] = squares;
            value[i] = updated;
            average[i] += fresh * (updated - average[i]);
        }
    } else {
        for (int64_t i = 0; i < size; ++i) {
            const float v = value[i] * shrink, g = gradient[i] * clip + v * l2;
            const float squares = total[i] + g * g;
            total[i] = squares;
            value[i] = v - rate * g / (__builtin_sqrtf(squares) + eps);
        }
    }
}

void tanh_all(const float* x, float* y, int64_t size) {
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) store(y + i, tanh_of(load(x + i)));
    if (i < size) {
        Floats rest = {};
        memcpy(&rest, x + i, sizeof(float) * (size - i));
        rest = tanh_of(rest);
        memcpy(y + i, &rest, sizeof(float) * (size - i));
    }
}

}  // namespace

#define DCNN_STRING_(name) #name
#define DCNN_STRING(name) DCNN_STRING_(name)
#define DCNN_TABLE_(name) kernels_##name
#define DCNN_TABLE(name) DCNN_TABLE_(name)

const Kernels DCNN_TABLE(DCNN_ISA) = {
    DCNN_STRING(DCNN_ISA), packed_size,      pack,     forward_scratch, forward,
    taps_size,             pack_taps,        unpack_taps, backward_scratch, backward,
    dot,                   add_scaled,       adagrad,  tanh_all,
};
