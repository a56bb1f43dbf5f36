// Which instruction set is used, and the functions that need no more than its table.
#include <atomic>
#include <cstring>
#include <initializer_list>

#include "kernels.h"

namespace {

const Kernels* find(const char* name) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!std::strcmp(name, "avx512") && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma"))
        return &kernels_avx512;
    if (!std::strcmp(name, "avx2") && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        return &kernels_avx2;
#endif
    return std::strcmp(name, "plain") ? nullptr : &kernels_plain;
}

const Kernels* best() {
    for (const char* name : {"avx512", "avx2"})
        if (const Kernels* found = find(name)) return found;
    return &kernels_plain;
}

std::atomic<const Kernels*>& chosen() {
    static std::atomic<const Kernels*> kernels{best()};
    return kernels;
}

}  // namespace

Shape shape_of(const dcnn_layer& layer) {
    Shape s;
    s.maps_below = layer.maps_below;
    s.rows_below = layer.rows_below;
    s.maps = layer.maps;
    s.width = layer.width;
    s.halves = layer.fold ? 2 : 1;
    s.rows = s.rows_below / s.halves;
    s.planes = s.maps_below * s.halves;
    s.lanes = s.maps * s.rows;
    return s;
}

const Kernels& current_kernels() { return *chosen().load(); }

int32_t dcnn_abi() { return DCNN_ABI; }

const char* dcnn_isa() { return current_kernels().name; }

int32_t dcnn_use_isa(const char* name) {
    const Kernels* found = find(name);
    if (found) chosen().store(found);
    return found != nullptr;
}

void dcnn_tanh(const float* x, float* y, int64_t size) { current_kernels().tanh(x, y, size); }
