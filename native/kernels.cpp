// Compiled once per instruction set; DCNN_ISA names the table that results.
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
    for (; i + LANES <= size; i += LANES) sums[0] += load(left + i) * load(right + i);
    float parts[LANES];
    store(parts, (sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; ++lane) parts[lane] += parts[lane + half];
    for (; i < size; ++i) parts[0] += left[i] * right[i];
    return parts[0];
}

void add_scaled(float* to, const float* from, float factor, int64_t size) {
    const Floats factors = splat(factor);
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) store(to + i, load(to + i) + factors * load(from + i));
    for (; i < size; ++i) to[i] += factor * from[i];
}

// Up to a vector's floats.
inline Floats load_some(const float* from, int64_t size) {
    Floats vector = {};
    memcpy(&vector, from, sizeof(float) * size);
    return vector;
}

// ROWS rows and VECTORS vectors of a product stay in registers. The last vector has `last` floats; a
// WHOLE one of `right` may be read.
template <int ROWS, int VECTORS, bool WHOLE>
inline void multiply_tile(const Product& p, int64_t row, int64_t column, int64_t last) {
    float* to = p.to + row * p.to_row + column;
    Floats sums[ROWS][VECTORS];
    for (int r = 0; r < ROWS; ++r)
        for (int v = 0; v < VECTORS; ++v)
            sums[r][v] = !p.adds ? Floats{}
                         : load_some(to + r * p.to_row + v * LANES, v + 1 < VECTORS ? LANES : last);
    const float* left = p.left + row * p.left_row;
    const float* right = p.right + column;
    for (int64_t i = 0; i < p.inner; ++i) {
        Floats others[VECTORS];
        for (int v = 0; v < VECTORS; ++v)
            others[v] = WHOLE || v + 1 < VECTORS ? load(right + v * LANES)
                                                 : load_some(right + v * LANES, last);
        for (int r = 0; r < ROWS; ++r) {
            const Floats one = splat(left[r * p.left_row]);
            for (int v = 0; v < VECTORS; ++v) sums[r][v] += one * others[v];
        }
        left += p.left_column;
        right += p.right_row;
    }
    for (int r = 0; r < ROWS; ++r)
        for (int v = 0; v < VECTORS; ++v)
            memcpy(to + r * p.to_row + v * LANES, &sums[r][v],
                   sizeof(float) * (v + 1 < VECTORS ? LANES : last));
}

template <int VECTORS, bool WHOLE>
inline void multiply_columns(const Product& p, int64_t column, int64_t last) {
    constexpr int ROWS = LANES == 16 ? 8 : 4;  // as many as there are registers for
    int64_t row = 0;
    for (; row + ROWS <= p.rows; row += ROWS) multiply_tile<ROWS, VECTORS, WHOLE>(p, row, column, last);
    for (; row < p.rows; ++row) multiply_tile<1, VECTORS, WHOLE>(p, row, column, last);
}

// Every sum is taken in the order of `inner`, whatever the number of rows and columns.
void multiply(const Product& p) {
    constexpr int VECTORS = 3;
    int64_t column = 0;
    for (; column + VECTORS * LANES <= p.columns; column += VECTORS * LANES)
        multiply_columns<VECTORS, true>(p, column, LANES);
    for (; column + LANES <= p.columns; column += LANES) multiply_columns<1, true>(p, column, LANES);
    if (column == p.columns) return;
    const auto rest = p.padded ? multiply_columns<1, true> : multiply_columns<1, false>;
    rest(p, column, p.columns - column);
}

// VECTORS vectors of the sum stay in registers while all rows are added.
template <int VECTORS>
inline void add_rows_of(float* to, const float* from, const int32_t* rows, int64_t count,
                        const float* factors, float factor, int64_t size) {
    Floats sums[VECTORS];
    for (int i = 0; i < VECTORS; ++i) sums[i] = load(to + i * LANES);
    for (int64_t r = 0; r < count; ++r) {
        const float* row = from + rows[r] * size;
        const Floats own = splat(factors ? factors[rows[r]] : factor);
        for (int i = 0; i < VECTORS; ++i) sums[i] = sums[i] + own * load(row + i * LANES);
    }
    for (int i = 0; i < VECTORS; ++i) store(to + i * LANES, sums[i]);
}

void add_rows(float* to, const float* from, const int32_t* rows, int64_t count,
              const float* factors, float factor, int64_t size) {
    constexpr int AT_ONCE = 6;
    int64_t i = 0;
    for (; i + AT_ONCE * LANES <= size; i += AT_ONCE * LANES)
        add_rows_of<AT_ONCE>(to + i, from + i, rows, count, factors, factor, size);
    for (; i + LANES <= size; i += LANES)
        add_rows_of<1>(to + i, from + i, rows, count, factors, factor, size);
    for (; i < size; ++i)
        for (int64_t r = 0; r < count; ++r)
            to[i] += (factors ? factors[rows[r]] : factor) * from[rows[r] * size + i];
}

// The rules are those of dcnn/training/adagrad.py: decay, clipping, L2, Adagrad, average.
template <bool GRADIENT, bool AVERAGE>
inline void update(const Rule& rule, float* __restrict value, const float* __restrict gradient,
                   float* __restrict total, float* __restrict average, int64_t size) {
    const float clip = rule.clip, l2 = rule.l2, rate = rule.rate, shrink = rule.shrink;
    const float eps = rule.eps;
    const bool old = rule.ema_weight < 0.5f;
    const float share = old ? rule.ema_weight : rule.ema_weight - 1;
    for (int64_t i = 0; i < size; ++i) {
        const float v = value[i] * shrink;
        const float g = GRADIENT ? gradient[i] * clip + v * l2 : v * l2;
        const float squares = total[i] + g * g;
        const float updated = v - rate * g / (__builtin_sqrtf(squares) + eps);
        total[i] = squares;
        value[i] = updated;
        if (AVERAGE)  // as torch's lerp rounds it
            average[i] = (old ? average[i] : updated) + share * (updated - average[i]);
    }
}

void adagrad(const Rule& rule, float* value, const float* gradient, float* total, float* average,
             int64_t size) {
    const FlushTiny flush;
    if (average)
        update<true, true>(rule, value, gradient, total, average, size);
    else
        update<true, false>(rule, value, gradient, total, average, size);
}

void adagrad_rows(const Rule& rule, float* value, const float* gradient, const int64_t* rows,
                  int64_t count, float* total, float* average, int64_t first, int64_t end,
                  int64_t dim) {
    const FlushTiny flush;
    // Without a gradient, L2, decay or average a row stays as it is, whatever its sum of squares.
    const bool all = rule.l2 != 0 || rule.shrink != 1 || average;
    constexpr int64_t AHEAD = 4;
    int64_t row = first;
    for (int64_t i = 0; i <= count; ++i) {
        const int64_t next = i < count ? rows[i] : end, at = row * dim, size = (next - row) * dim;
        if (all && average)
            update<false, true>(rule, value + at, nullptr, total + at, average + at, size);
        else if (all)
            update<false, false>(rule, value + at, nullptr, total + at, nullptr, size);
        if (i == count) break;
        const int64_t own = next * dim;
        // Rows far from one another are asked for before they are needed.
        if (!all && i + AHEAD < count)
            for (int64_t j = 0; j < dim; j += ALIGNMENT / (int64_t)sizeof(float)) {
                __builtin_prefetch(value + rows[i + AHEAD] * dim + j, 1);
                __builtin_prefetch(total + rows[i + AHEAD] * dim + j, 1);
            }
        if (average)
            update<true, true>(rule, value + own, gradient + i * dim, total + own, average + own,
                               dim);
        else
            update<true, false>(rule, value + own, gradient + i * dim, total + own, nullptr, dim);
        row = next + 1;
    }
}

double square_sum(const float* x, int64_t size) {
    double sums[2 * LANES] = {};
    int64_t i = 0;
    for (; i + 2 * LANES <= size; i += 2 * LANES)
        for (int j = 0; j < 2 * LANES; ++j) sums[j] += (double)x[i + j] * x[i + j];
    double total = 0;
    for (int j = 0; j < 2 * LANES; ++j) total += sums[j];
    for (; i < size; ++i) total += (double)x[i] * x[i];
    return total;
}

// MT19937 (Matsumoto and Nishimura, 1998): the next `TWISTER` numbers from the last ones.
constexpr int TWISTER = 624, MIDDLE = 397;

inline uint32_t twisted(uint32_t first, uint32_t second, uint32_t far) {
    const uint32_t joined = (first & 0x80000000u) | (second & 0x7FFFFFFFu);
    return far ^ joined >> 1 ^ (-(second & 1) & 0x9908B0DFu);
}

void twist(uint32_t* state) {
    int i = 0;
    for (; i < TWISTER - MIDDLE; ++i) state[i] = twisted(state[i], state[i + 1], state[i + MIDDLE]);
    for (; i < TWISTER - 1; ++i)
        state[i] = twisted(state[i], state[i + 1], state[i + MIDDLE - TWISTER]);
    state[i] = twisted(state[i], state[0], state[MIDDLE - 1]);
}

int64_t draw_bits(uint32_t* state, int64_t used, uint32_t* numbers, int64_t size) {
    for (int64_t done = 0; done < size;) {
        if (used == TWISTER) {
            twist(state);
            used = 0;
        }
        const int64_t some = size - done < TWISTER - used ? size - done : TWISTER - used;
        for (int64_t i = 0; i < some; ++i) {
            uint32_t bits = state[used + i];
            bits ^= bits >> 11;
            bits ^= bits << 7 & 0x9D2C5680u;
            bits ^= bits << 15 & 0xEFC60000u;
            bits ^= bits >> 18;
            numbers[done + i] = bits;
        }
        done += some;
        used += some;
    }
    return used;
}

inline float uniform_of(uint32_t bits) {  // those of torch have 24 bits
    return (float)(int32_t)(bits & 0xFFFFFFu) * (1.0f / (1 << 24));
}

void to_uniform(const uint32_t* bits, float* numbers, int64_t size) {
    for (int64_t i = 0; i < size; ++i) numbers[i] = uniform_of(bits[i]);
}

void to_mask(const uint32_t* bits, float probability, float value, float* mask, int64_t size) {
    for (int64_t i = 0; i < size; ++i) mask[i] = uniform_of(bits[i]) < probability ? value : 0;
}

// Of the logarithm and of sine and cosine by the polynomials of Cephes (Moshier, 1989), each product
// is fused with the sum that follows, as in torch's library: the bits are the same.
inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// Of a number in (0, 1].
inline float log_of(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    float exponent = (float)((bits >> 23) - 126), mantissa;
    bits = (bits & 0x007FFFFF) | 0x3F000000;  // in [0.5, 1)
    memcpy(&mantissa, &bits, sizeof bits);
    const bool low = mantissa < 0.707106781186547524f;
    exponent -= low ? 1.0f : 0.0f;
    const float y = (mantissa - 1.0f) + (low ? mantissa : 0.0f), square = y * y;
    float p = 7.0376836292e-2f;
    p = fused(p, y, -1.1514610310e-1f);
    p = fused(p, y, 1.1676998740e-1f);
    p = fused(p, y, -1.2420140846e-1f);
    p = fused(p, y, 1.4249322787e-1f);
    p = fused(p, y, -1.6668057665e-1f);
    p = fused(p, y, 2.0000714765e-1f);
    p = fused(p, y, -2.4999993993e-1f);
    p = fused(p, y, 3.3333331174e-1f);
    p = fused(p * y, square, exponent * -2.12194440e-4f);
    p = fused(square, -0.5f, p);
    return fused(exponent, 0.693359375f, y + p);
}

// Of an angle of 0 or more.
inline void sine_and_cosine(float x, float* sine, float* cosine) {
    const int32_t octant = ((int32_t)(x * 1.27323954473516f) + 1) & ~1;
    const float y = (float)octant;  // a quarter of pi times this is taken off, in three parts
    x = fused(y, -0.78515625f, x);
    x = fused(y, -2.4187564849853515625e-4f, x);
    x = fused(y, -3.77489497744594108e-8f, x);
    const float square = x * x;
    float even = 2.443315711809948e-5f;
    even = fused(even, square, -1.388731625493765e-3f);
    even = fused(even, square, 4.166664568298827e-2f);
    even = fused(even * square, square, square * -0.5f) + 1.0f;
    float odd = -1.9515295891e-4f;
    odd = fused(odd, square, 8.3321608736e-3f);
    odd = fused(odd, square, -1.6666654611e-1f);
    odd = fused(odd * square, x, x);
    const bool swapped = octant & 2;
    const float s = swapped ? even : odd, c = swapped ? odd : even;
    *sine = octant & 4 ? -s : s;
    *cosine = (octant - 2) & 4 ? c : -c;
}

// By Box and Muller (1958), as torch does it: of 16 numbers, each of the first eight and that eight
// places behind it become two normal ones.
void to_normal(float* numbers, float deviation, int64_t size) {
    for (int64_t i = 0; i + 16 <= size; i += 16)
        for (int64_t j = i; j < i + 8; ++j) {
            const float radius = __builtin_sqrtf(-2.0f * log_of(1.0f - numbers[j]));
            float sine, cosine;
            sine_and_cosine(6.283185307179586f * numbers[j + 8], &sine, &cosine);
            numbers[j] = radius * cosine * deviation;
            numbers[j + 8] = radius * sine * deviation;
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

// The C library's exp is of a version that older systems do not have, and takes one number at a time.
inline Doubles exp_of(Doubles x) {
    constexpr double ROUND = 6755399441055744.0;  // 1.5 * 2^52: a sum with it is a whole number
    const Doubles shifted = x * 1.4426950408889634 + ROUND, n = shifted - ROUND;
    Doubles r = x - n * 0.693147180369123816490;  // log(2) in two parts; r is between -0.35 and 0.35
    r = r - n * 1.90821492927058770002e-10;
    Doubles sum = r * (1.0 / 13) + 1;
    for (int term = 12; term > 0; --term) sum = sum * (r * (1.0 / term)) + 1;
    Longs bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;  // the low bits of `shifted` are those of n
    Doubles power;
    memcpy(&power, &bits, sizeof power);
    return x > -700 ? sum * power : x == x ? Doubles{} : x;
}

void exp_all(double* x, int64_t size) {
    constexpr int64_t AT_ONCE = LANES / 2;
    for (int64_t i = 0; i < size; i += AT_ONCE) {
        const size_t bytes = sizeof(double) * (size - i < AT_ONCE ? size - i : AT_ONCE);
        Doubles some = {};
        memcpy(&some, x + i, bytes);
        some = exp_of(some);
        memcpy(x + i, &some, bytes);
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
    dot,                   multiply,         add_scaled, add_rows,      adagrad,
    adagrad_rows,          square_sum,       draw_bits, to_uniform,     to_mask,
    to_normal,             tanh_all,         exp_all,
};
