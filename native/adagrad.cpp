// Adagrad in one pass, and the norm of the gradients before it.
#include "adagrad.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "parallel.h"

namespace {

constexpr int64_t CHUNK = 1 << 14;           // numbers of a task
constexpr int64_t WORTH_A_THREAD = 1 << 16;  // numbers that are worth another thread

int64_t rows_at_once(const dcnn_parameter& parameter) {
    return std::max<int64_t>(CHUNK / std::max<int64_t>(parameter.dim, 1), 1);
}

// Where no row has a gradient, `used` may be null too.
bool is_dense(const dcnn_parameter& parameter) {
    return !parameter.used && parameter.count == parameter.rows;
}

int64_t chunks(const dcnn_parameter& parameter, int64_t rows) {
    const int64_t size = rows_at_once(parameter);
    return (rows + size - 1) / size;
}

// Rows without a gradient change by L2, by decay and in their average.
bool changes_all_rows(const Rule& rule, const dcnn_parameter& parameter) {
    return is_dense(parameter) || rule.l2 != 0 || rule.shrink != 1 || parameter.average;
}

}  // namespace

Rule Update::rule_of(const dcnn_parameter& parameter, float clip) const {
    const double shrink = 1 - rates.rate * parameter.decay;
    return {clip,
            static_cast<float>(parameter.l2),
            static_cast<float>(rates.rate),
            static_cast<float>(shrink),
            static_cast<float>(rates.eps),
            static_cast<float>(rates.ema_weight)};
}

int64_t Update::norm_tasks() const {
    int64_t tasks = 0;
    for (int64_t i = 0; i < count; ++i) tasks += chunks(parameters[i], parameters[i].count);
    return tasks;
}

double Update::square_sum(int64_t task) const {
    for (int64_t i = 0; i < count; ++i) {
        const dcnn_parameter& own = parameters[i];
        const int64_t tasks = chunks(own, own.count);
        if (task < tasks) {
            const int64_t first = task * rows_at_once(own);
            const int64_t end = std::min(first + rows_at_once(own), own.count);
            return current_kernels().square_sum(own.gradient + first * own.dim,
                                                (end - first) * own.dim);
        }
        task -= tasks;
    }
    return 0;
}

float Update::clip(double norm) const {
    return static_cast<float>(std::min(1.0, rates.largest_norm / (norm + 1e-6)));
}

int64_t Update::tasks() const {
    int64_t tasks = 0;
    for (int64_t i = 0; i < count; ++i) {
        const dcnn_parameter& own = parameters[i];
        tasks += chunks(own, changes_all_rows(rule_of(own, 1), own) ? own.rows : own.count);
    }
    return tasks;
}

void Update::apply(int64_t task, float clip) const {
    const Kernels& kernels = current_kernels();
    for (int64_t i = 0; i < count; ++i) {
        const dcnn_parameter& own = parameters[i];
        const Rule rule = rule_of(own, clip);
        const bool all = changes_all_rows(rule, own);
        const int64_t tasks = chunks(own, all ? own.rows : own.count);
        if (task >= tasks) {
            task -= tasks;
            continue;
        }
        int64_t first = task * rows_at_once(own);
        int64_t end = std::min(first + rows_at_once(own), all ? own.rows : own.count);
        const int64_t at = first * own.dim;
        if (is_dense(own))
            return kernels.adagrad(rule, own.value + at, own.gradient + at, own.total + at,
                                   own.average ? own.average + at : nullptr, (end - first) * own.dim);
        const int64_t *from = own.used + first, *to = own.used + end;
        if (all) {
            from = std::lower_bound(own.used, own.used + own.count, first);
            to = std::lower_bound(from, own.used + own.count, end);
        } else {
            first = *from;
            end = to[-1] + 1;
        }
        return kernels.adagrad_rows(rule, own.value, own.gradient + (from - own.used) * own.dim, from,
                                    to - from, own.total, own.average, first, end, own.dim);
    }
}

int32_t dcnn_update(const dcnn_parameter* parameters, int64_t count, const dcnn_rates* rates,
                    double* norm, int32_t threads) try {
    int64_t numbers = 0;
    for (int64_t p = 0; p < count; ++p) {
        const dcnn_parameter& own = parameters[p];
        numbers += own.rows * own.dim;
        for (int64_t i = 0; !is_dense(own) && i < own.count; ++i)
            if (own.used[i] < (i ? own.used[i - 1] + 1 : 0) || own.used[i] >= own.rows)
                return DCNN_BAD_ID;
    }
    const Update update{parameters, count, *rates};
    const bool clips = std::isfinite(rates->largest_norm);
    std::vector<double> squares(static_cast<size_t>(clips ? update.norm_tasks() : 0));
    const auto nothing = [] {};
    with_team(numbers < WORTH_A_THREAD ? 1 : std::max(threads, 1), nothing, [&](Team& team) {
        team.each(0, static_cast<int64_t>(squares.size()), [&](int64_t task) {
            squares[static_cast<size_t>(task)] = update.square_sum(task);
        });
        double total = 0;
        for (const double square : squares) total += square;
        const float clip = update.clip(std::sqrt(total));
        team.each(1, update.tasks(), [&](int64_t task) { update.apply(task, clip); });
    });
    double total = 0;
    for (const double square : squares) total += square;
    *norm = std::sqrt(total);
    return DCNN_OK;
} catch (const std::bad_alloc&) {
    return DCNN_NO_MEMORY;
}
