// The random numbers of torch's CPU generator, from the bytes of its state.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "kernels.h"

namespace {

constexpr int64_t TWISTER = 624, AT_ONCE = 1024;

// Torch's layout. `next` numbers of the state are used up, and `left` are left, plus one. A normal
// number in double precision is made together with a second one, which is kept for the next call.
struct State {
    uint64_t seed;
    int32_t left, seeded;
    uint64_t next, state[TWISTER];
    double unused, second, unused_too;
    int32_t has_second;
};

class Generator {
public:
    explicit Generator(uint8_t* bytes) : bytes_(bytes) {
        std::memcpy(&saved_, bytes, sizeof saved_);
        std::copy(std::begin(saved_.state), std::end(saved_.state), state_);
        used_ = TWISTER + 1 - saved_.left;  // `next` is 0 before the first number, when none is left
    }

    ~Generator() {
        if (drawn_) {
            saved_.left = static_cast<int32_t>(TWISTER + 1 - used_);
            saved_.next = static_cast<uint64_t>(used_);
            std::copy(std::begin(state_), std::end(state_), saved_.state);
        }
        std::memcpy(bytes_, &saved_, sizeof saved_);
    }

    Generator(const Generator&) = delete;
    Generator& operator=(const Generator&) = delete;

    // Calls use(bits, place, count) for every part of `size` numbers.
    template <typename Use>
    void draw(int64_t size, const Use& use) {
        uint32_t bits[AT_ONCE];
        for (int64_t place = 0; place < size; place += AT_ONCE) {
            const int64_t count = std::min(AT_ONCE, size - place);
            used_ = current_kernels().draw_bits(state_, used_, bits, count);
            drawn_ = true;
            use(bits, place, count);
        }
    }

    void uniform(float* numbers, int64_t size) {
        draw(size, [&](const uint32_t* bits, int64_t place, int64_t count) {
            current_kernels().to_uniform(bits, numbers + place, count);
        });
    }

    double normal() {
        if (saved_.has_second) {
            const double second = saved_.second;
            saved_.second = saved_.has_second = 0;
            return second;
        }
        double pair[2];
        draw(4, [&](const uint32_t* bits, int64_t, int64_t) {
            for (int i = 0; i < 2; ++i) {
                const uint64_t joined = uint64_t{bits[2 * i]} << 32 | bits[2 * i + 1];
                pair[i] = static_cast<double>(joined & ((uint64_t{1} << 53) - 1)) * 0x1p-53;
            }
        });
        const double angle = 2 * M_PI * pair[0], radius = std::sqrt(-2 * std::log1p(-pair[1]));
        saved_.second = radius * std::sin(angle);
        saved_.has_second = 1;
        return radius * std::cos(angle);
    }

private:
    State saved_;
    uint8_t* bytes_;
    uint32_t state_[TWISTER];
    int64_t used_;
    bool drawn_ = false;
};

}  // namespace

void dcnn_seed(uint8_t* generator, uint64_t seed) {
    State state = {};
    state.seed = seed;
    state.left = state.seeded = 1;
    state.state[0] = static_cast<uint32_t>(seed);
    for (uint64_t i = 1; i < TWISTER; ++i) {
        const auto before = static_cast<uint32_t>(state.state[i - 1]);
        state.state[i] = static_cast<uint32_t>(1812433253u * (before ^ before >> 30) + i);
    }
    std::memcpy(generator, &state, sizeof state);
}

void dcnn_draw_uniform(uint8_t* generator, float* numbers, int64_t size) {
    Generator(generator).uniform(numbers, size);
}

void dcnn_draw_mask(uint8_t* generator, float probability, float value, float* mask,
                    int64_t size) {
    Generator(generator).draw(size, [&](const uint32_t* bits, int64_t place, int64_t count) {
        current_kernels().to_mask(bits, probability, value, mask + place, count);
    });
}

void dcnn_draw_normal(uint8_t* generator, double deviation, float* numbers, int64_t size) {
    constexpr int64_t GROUP = 16;
    Generator own(generator);
    if (size < GROUP) {
        for (int64_t i = 0; i < size; ++i)
            numbers[i] = static_cast<float>(own.normal() * deviation);
        return;
    }
    const auto single = static_cast<float>(deviation);
    own.uniform(numbers, size);
    current_kernels().to_normal(numbers, single, size);
    if (size % GROUP) {  // the last group is drawn again
        float* last = numbers + size - GROUP;
        own.uniform(last, GROUP);
        current_kernels().to_normal(last, single, GROUP);
    }
}
