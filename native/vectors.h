// Vectors of the width of the instruction set this file is compiled for.
//
// Everything lives in an unnamed namespace and nothing of the standard library is used but memcpy:
// a shared inline function compiled with AVX-512 could otherwise be the copy that the linker keeps
// for a machine without it.
#ifndef DCNN_VECTORS_H
#define DCNN_VECTORS_H

#include <cstdint>
#include <cstring>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef double Doubles __attribute__((vector_size(4 * LANES)));
typedef int64_t Longs __attribute__((vector_size(4 * LANES)));

inline Floats load(const float* from) {
    Floats vector;
    memcpy(&vector, from, sizeof vector);
    return vector;
}

inline void store(float* to, Floats vector) { memcpy(to, &vector, sizeof vector); }

inline Floats splat(float value) { return value - Floats{}; }

inline Ints splat_int(int32_t value) { return value - Ints{}; }

inline Floats select(Ints mask, Floats yes, Floats no) { return mask ? yes : no; }

inline Ints bits_of(Floats vector) {
    Ints bits;
    memcpy(&bits, &vector, sizeof bits);
    return bits;
}

inline Floats from_bits(Ints bits) {
    Floats vector;
    memcpy(&vector, &bits, sizeof vector);
    return vector;
}

inline int64_t rounded_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// While it lives, denormal numbers (below 1e-38) count as zero. L2 with Adagrad shrinks the embeddings
// of words that do not occur to denormals, and arithmetic on those is a hundred times slower.
struct FlushTiny {
#if defined(__SSE2__)
    unsigned before = __builtin_ia32_stmxcsr();
    FlushTiny() { __builtin_ia32_ldmxcsr(before | 0x8040u); }  // flush results, and operands
    ~FlushTiny() { __builtin_ia32_ldmxcsr(before); }
#else
    FlushTiny() {}
#endif
    FlushTiny(const FlushTiny&) = delete;
    FlushTiny& operator=(const FlushTiny&) = delete;
};

// tanh to about 1e-7 of the true value. Near zero an odd polynomial, elsewhere
// 1 - 2 / (exp(2|x|) + 1), which near zero would lose the small result in the rounding of the one.
inline Floats tanh_of(Floats x) {
    const Ints sign = bits_of(x) & splat_int(INT32_MIN);
    Floats size = from_bits(bits_of(x) & splat_int(INT32_MAX));
    const Floats square = x * x;
    Floats odd = splat(62.0f / 2835);
    odd = odd * square - splat(17.0f / 315);
    odd = odd * square + splat(2.0f / 15);
    odd = odd * square - splat(1.0f / 3);
    odd = x + x * square * odd;

    size = select(size > splat(10), splat(10), size);  // a comparison with NaN is false: NaN stays
    // exp(2|x|) = 2^n * exp(r) with |r| <= log(2) / 2; log(2) is taken in two parts.
    const Floats doubled = size + size;
    const Floats scaled = doubled * splat(1.44269504f) + splat(0.5f);
    const Ints n = __builtin_convertvector(scaled, Ints);  // truncation; scaled is not negative
    const Floats whole = __builtin_convertvector(n, Floats);
    const Floats r = doubled - whole * splat(0.693359375f) + whole * splat(2.12194440e-4f);
    Floats power = splat(1.0f / 5040);
    power = power * r + splat(1.0f / 720);
    power = power * r + splat(1.0f / 120);
    power = power * r + splat(1.0f / 24);
    power = power * r + splat(1.0f / 6);
    power = power * r + splat(0.5f);
    power = power * r + splat(1.0f);
    power = power * r + splat(1.0f);
    power *= from_bits((n + splat_int(127)) << 23);
    const Floats large = splat(1) - splat(2) / (power + splat(1));
    const Floats signed_large = from_bits(bits_of(large) | sign);
    return select(size < splat(0.3f), odd, signed_large);
}

}  // namespace

#endif
