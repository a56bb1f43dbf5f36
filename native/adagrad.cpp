// Adagrad in one pass, and the norm of the gradients before it.
#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "parallel.h"

namespace {

// Numbers of a table that are worth another thread.
constexpr int64_t WORTH_A_THREAD = 1 << 16;

}  // namespace

void dcnn_adagrad(float* value, const float* gradient, float* total, float* average, int64_t size,
                  float clip, float l2, float rate, float shrink, float eps, float fresh) {
    const Rule rule{clip, l2, rate, shrink, eps, fresh};
    current_kernels().adagrad(rule, value, gradient, total, average, size);
}

int32_t dcnn_adagrad_rows(float* value, const float* gradient, const int64_t* rows, int64_t count,
                          float* total, float* average, int64_t all, int64_t dim, float clip,
                          float l2, float rate, float shrink, float eps, float fresh,
                          int32_t threads) {
    for (int64_t i = 0; i < count; ++i)
        if (rows[i] < (i ? rows[i - 1] + 1 : 0) || rows[i] >= all) return DCNN_BAD_ID;
    const Rule rule{clip, l2, rate, shrink, eps, fresh};
    const Kernels& kernels = current_kernels();
    const int64_t parts = all * dim < WORTH_A_THREAD ? 1 : parts_of(all, threads);
    in_parallel(parts, [&](int64_t part) {
        const int64_t first = all * part / parts, end = all * (part + 1) / parts;
        const int64_t* from = std::lower_bound(rows, rows + count, first);
        const int64_t* to = std::lower_bound(from, rows + count, end);
        kernels.adagrad_rows(rule, value, gradient + (from - rows) * dim, from, to - from, total,
                             average, first, end, dim);
    });
    return DCNN_OK;
}

double dcnn_norm(const float* const* arrays, const int64_t* sizes, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; ++i) total += current_kernels().square_sum(arrays[i], sizes[i]);
    return std::sqrt(total);
}
