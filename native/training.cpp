// A whole network in training: one call forward, one back.
//
// A sentence goes through all layers at once, while what it needs is near, and nothing is padded.
// The last layer writes its values as (k_top, lanes). The top sees them as features, those of a
// member together and else in that order. The caller's order, of the top weights and of dropout, is
// (lanes, k_top).
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels.h"
#include "parallel.h"

// glibc 2.29 has a second version of these, and a linker takes the newest: a library built there
// would not load where the first is the only one.
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver exp, exp@GLIBC_2.2.5");
__asm__(".symver log, log@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver exp, exp@GLIBC_2.17");
__asm__(".symver log, log@GLIBC_2.17");
#endif

namespace {

struct Network {
    const Kernels& kernels;
    int64_t k_top, vocabulary, classes, members, dim;
    std::vector<Shape> layers;
    std::vector<int64_t> feature_of;  // the place as a feature of each value of the last layer

    explicit Network(const dcnn_sizes& sizes)
        : kernels(current_kernels()),
          k_top(sizes.k_top),
          vocabulary(sizes.vocabulary),
          classes(sizes.classes),
          members(sizes.members),
          dim(sizes.layers[0].rows_below) {
        for (int64_t l = 0; l < sizes.depth; ++l) layers.push_back(shape_of(sizes.layers[l]));
        const int64_t rows = layers.back().rows, share = rows / members;
        std::vector<int64_t> next(static_cast<size_t>(members));
        for (int64_t member = 0; member < members; ++member)
            next[static_cast<size_t>(member)] = member * member_features();
        for (int64_t value = 0; value < features(); ++value)
            feature_of.push_back(next[static_cast<size_t>(value % lanes() % rows / share)]++);
    }

    size_t depth() const { return layers.size(); }
    int64_t lanes() const { return layers.back().lanes; }
    int64_t features() const { return k_top * lanes(); }
    int64_t member_features() const { return features() / members; }
    // Columns below layer `l`, counted from 0, and with l = L those at the top.
    int64_t columns(size_t l, int64_t length) const {
        return l == 0 ? length
                      : dynamic_k(k_top, static_cast<int64_t>(depth()), static_cast<int64_t>(l),
                                  length);
    }
};

// Calls take(place in the last layer's memory, as a feature, in the caller's order), a value each.
template <class Take>
void for_each_feature(const Network& network, Take take) {
    const int64_t lanes = network.lanes();
    for (int64_t slot = 0; slot < network.k_top; ++slot)
        for (int64_t lane = 0; lane < lanes; ++lane) {
            const int64_t value = slot * lanes + lane;
            take(value, network.feature_of[static_cast<size_t>(value)],
                 lane * network.k_top + slot);
        }
}

int32_t check(const Network& network, const dcnn_batch& batch) {
    for (int64_t i = 0; i < batch.sentences; ++i) {
        const int64_t length = batch.lengths[i];
        if (length < 1 || length > batch.columns) return DCNN_BAD_LENGTH;
        for (size_t l = 0; l < network.depth(); ++l)
            if (network.columns(l + 1, length) >
                network.columns(l, length) + network.layers[l].width - 1)
                return DCNN_BAD_LENGTH;
        for (int64_t t = 0; t < length; ++t) {
            const int64_t id = batch.ids[i * batch.columns + t];
            if (id < 0 || id >= network.vocabulary) return DCNN_BAD_ID;
        }
    }
    return DCNN_OK;
}

// (classes, features).
Memory pack_top(const Network& network, const float* top_weight) {
    const int64_t features = network.features();
    Memory packed(network.classes * features);
    for (int64_t c = 0; c < network.classes; ++c)
        for_each_feature(network, [&](int64_t, int64_t feature, int64_t callers) {
            packed.get()[c * features + feature] = top_weight[c * features + callers];
        });
    return packed;
}

// The features that the top sees: the last layer's values under their dropout.
void drop_out(const Network& network, const dcnn_batch& batch, int64_t sentence,
              const float* values, float* features) {
    const float* mask = batch.dropout ? batch.dropout + sentence * network.features() : nullptr;
    for_each_feature(network, [&](int64_t value, int64_t feature, int64_t callers) {
        features[feature] = mask ? values[value] * mask[callers] : values[value];
    });
}

// Backward: the gradient of the values from that of the features.
void drop_out_gradient(const Network& network, const dcnn_batch& batch, int64_t sentence,
                       const float* of_features, float* of_values) {
    const float* mask = batch.dropout ? batch.dropout + sentence * network.features() : nullptr;
    for_each_feature(network, [&](int64_t value, int64_t feature, int64_t callers) {
        of_values[value] = mask ? of_features[feature] * mask[callers] : of_features[feature];
    });
}

// Calls work(sentence, first class, end) for blocks of classes, one after another, each for all of
// some sentences: the weights of a block stay near while many classes do not fit.
template <class Work>
void over_classes(const Network& network, int64_t from, int64_t to, const Work& work) {
    constexpr int64_t NEAR = 1 << 15;  // floats of a block's weights
    const int64_t block = std::max<int64_t>(NEAR / network.features(), 1);
    for (int64_t first = 0; first < network.classes; first += block)
        for (int64_t i = from; i < to; ++i)
            work(i, first, std::min(first + block, network.classes));
}

// Where each layer's pooled values of a sentence lie.
int64_t pooled_at(const Network& network, size_t l, int64_t columns, int64_t sentence) {
    return sentence * network.columns(l + 1, columns) * network.layers[l].lanes;
}

}  // namespace

int32_t dcnn_training_forward(const dcnn_sizes* sizes, const dcnn_batch* batch,
                              const dcnn_parameters* weights, float* const* values,
                              int32_t* const* positions, float* logits, int32_t threads) try {
    const Network network(*sizes);
    const Kernels& kernels = network.kernels;
    if (const int32_t status = check(network, *batch)) return status;
    const Memory top = pack_top(network, weights->top_weight);
    std::vector<Memory> packed;
    int64_t working = 0, widest = batch->columns;
    for (size_t l = 0; l < network.depth(); ++l) {
        const Shape& s = network.layers[l];
        packed.emplace_back(kernels.packed_size(s));
        kernels.pack(s, weights->filters[l], weights->biases[l], packed.back().get());
        const int64_t below = network.columns(l, batch->columns);
        working = std::max(working, rounded(kernels.forward_scratch(s, below)));
        widest = std::max(widest, below);
    }
    const int64_t features = network.features();
    // A part's memory: what the kernels work in, and pointers to words.
    const int64_t pointer = sizeof(const float*) / sizeof(float);
    const int64_t parts = parts_of(batch->sentences, threads);
    const Memory seen(batch->sentences * features);
    const auto layers = [&](int64_t i, float* scratch) {
        const int64_t length = batch->lengths[i];
        const float** words = reinterpret_cast<const float**>(scratch + working);
        for (int64_t t = 0; t < length; ++t)
            words[t] = weights->embeddings + batch->ids[i * batch->columns + t] * network.dim;
        const float* pooled = nullptr;
        for (size_t l = 0; l < network.depth(); ++l) {
            const Shape& s = network.layers[l];
            const int64_t at = pooled_at(network, l, batch->columns, i);
            const int64_t k = network.columns(l + 1, length);
            kernels.forward(s, packed[l].get(), words, network.columns(l, length), k,
                            values[l] + at, positions[l] + at, scratch);
            pooled = values[l] + at;
            for (int64_t t = 0; t < k && l + 1 < network.depth(); ++t)
                words[t] = pooled + t * s.lanes;
        }
        drop_out(network, *batch, i, pooled, seen.get() + i * features);
    };
    const int64_t own = network.member_features();
    const auto head = [&](int64_t i, int64_t first, int64_t end) {
        for (int64_t member = 0; member < network.members; ++member)
            for (int64_t c = first; c < end; ++c)
                logits[(i * network.members + member) * network.classes + c] =
                    weights->top_bias[c] +
                    kernels.dot(top.get() + c * features + member * own,
                                seen.get() + i * features + member * own, own);
    };
    return over_parts(batch->sentences, parts, working + pointer * widest,
                      [&](int64_t, int64_t first, int64_t end, float* scratch) {
                          for (int64_t i = first; i < end; ++i) layers(i, scratch);
                          over_classes(network, first, end, head);
                      });
} catch (const std::bad_alloc&) {
    return DCNN_NO_MEMORY;
}

namespace {

// The sums that each part has of its own: the top's gradients, then every layer's.
struct Sums {
    int64_t top_weight, top_bias, size;
    std::vector<int64_t> taps, bias;

    explicit Sums(const Network& network) {
        top_weight = 0;
        top_bias = rounded(network.classes * network.features());
        size = top_bias + rounded(network.classes);
        for (const Shape& s : network.layers) {
            taps.push_back(size);
            bias.push_back(size + rounded(network.kernels.taps_size(s)));
            size = bias.back() + rounded(s.lanes);
        }
    }
};

// The words of a sentence after one another, (length, d).
void gather(const Network& network, const dcnn_batch& batch, const float* embeddings,
            int64_t sentence, float* words) {
    for (int64_t t = 0; t < batch.lengths[sentence]; ++t)
        std::copy_n(embeddings + batch.ids[sentence * batch.columns + t] * network.dim,
                    network.dim, words + t * network.dim);
}

// Calls take(place in the batch) for every word.
template <class Take>
void for_each_word(const dcnn_batch& batch, Take take) {
    for (int64_t i = 0; i < batch.sentences; ++i)
        for (int64_t t = 0; t < batch.lengths[i]; ++t) take(i * batch.columns + t);
}

// The gradients of the words of a batch, one per word of the vocabulary: the ids, ascending, and
// their sums, each in the order of the batch. Returns how many they are.
int64_t add_rows(const Network& network, const dcnn_batch& batch, const float* gradient_words,
                 int64_t* rows, float* gradients) {
    std::vector<std::pair<int64_t, int64_t>> words;  // id and place
    words.reserve(static_cast<size_t>(batch.sentences * batch.columns));
    for_each_word(batch, [&](int64_t word) { words.emplace_back(batch.ids[word], word); });
    std::sort(words.begin(), words.end());
    int64_t count = 0;
    for (const auto& [id, word] : words) {
        const float* from = gradient_words + word * network.dim;
        if (count == 0 || rows[count - 1] != id) {
            std::copy_n(from, network.dim, gradients + count * network.dim);
            rows[count++] = id;
        } else {
            network.kernels.add_scaled(gradients + (count - 1) * network.dim, from, 1.0f,
                                       network.dim);
        }
    }
    return count;
}

}  // namespace

int32_t dcnn_training_backward(const dcnn_sizes* sizes, const dcnn_batch* batch,
                               const dcnn_parameters* weights, float* const* values,
                               int32_t* const* positions, const float* gradient_logits,
                               const dcnn_parameters* gradients, int64_t* rows, int64_t* count,
                               int32_t threads) try {
    const Network network(*sizes);
    const Kernels& kernels = network.kernels;
    if (const int32_t status = check(network, *batch)) return status;
    const Memory top = pack_top(network, weights->top_weight);
    const int64_t features = network.features(), classes = network.classes;
    std::vector<Memory> taps;
    int64_t working = 0, largest = features;
    for (size_t l = 0; l < network.depth(); ++l) {
        const Shape& s = network.layers[l];
        taps.emplace_back(kernels.taps_size(s));
        kernels.pack_taps(s, weights->filters[l], taps.back().get());
        const int64_t below = network.columns(l, batch->columns);
        const int64_t kept = network.columns(l + 1, batch->columns);
        working = std::max(working, rounded(kernels.backward_scratch(s, below, kept)));
        largest = std::max({largest, below * s.maps_below * s.rows_below, kept * s.lanes});
    }
    const int64_t parts = parts_of(batch->sentences, threads);
    const Sums at(network);
    Memory sums(parts * at.size), gradient_words(batch->sentences * batch->columns * network.dim);
    // The features of every sentence, and then their gradients.
    const Memory seen(2 * batch->sentences * features);
    float* of_seen = seen.get() + batch->sentences * features;
    const size_t last = network.depth() - 1;
    const int64_t share = network.member_features();
    const auto head = [&](float* own, int64_t i, int64_t first, int64_t end) {
        for (int64_t member = 0; member < network.members; ++member)
            for (int64_t c = first; c < end; ++c) {
                const int64_t weight = c * features + member * share;
                const int64_t feature = i * features + member * share;
                const float of_logit =
                    gradient_logits[(i * network.members + member) * classes + c];
                kernels.add_scaled(own + at.top_weight + weight, seen.get() + feature, of_logit,
                                   share);
                kernels.add_scaled(of_seen + feature, top.get() + weight, of_logit, share);
                own[at.top_bias + c] += of_logit;
            }
    };
    const int64_t room = rounded(largest);  // for words and two gradients
    const auto layers = [&](float* own, int64_t i, float* scratch) {
        const int64_t length = batch->lengths[i];
        float *below = scratch + working, *gradient = below + room, *next = gradient + room;
        drop_out_gradient(network, *batch, i, of_seen + i * features, gradient);

        for (size_t l = network.depth(); l-- > 0;) {
            const Shape& s = network.layers[l];
            const int64_t place = pooled_at(network, l, batch->columns, i);
            const float* x = below;
            if (l == 0)
                gather(network, *batch, weights->embeddings, i, below);
            else
                x = values[l - 1] + pooled_at(network, l - 1, batch->columns, i);
            float* to = l ? next : gradient_words.get() + i * batch->columns * network.dim;
            kernels.backward(s, taps[l].get(), x, network.columns(l, length),
                             network.columns(l + 1, length), values[l] + place,
                             positions[l] + place, gradient, to, own + at.taps[l],
                             own + at.bias[l], scratch);
            std::swap(gradient, next);
        }
    };
    const int32_t status = over_parts(
        batch->sentences, parts, working + 3 * room,
        [&](int64_t part, int64_t first, int64_t end, float* scratch) {
            float* own = sums.get() + part * at.size;
            std::fill_n(own, at.size, 0.0f);
            std::fill(of_seen + first * features, of_seen + end * features, 0.0f);
            for (int64_t i = first; i < end; ++i)
                drop_out(network, *batch, i,
                         values[last] + pooled_at(network, last, batch->columns, i),
                         seen.get() + i * features);
            over_classes(network, first, end, [&](int64_t i, int64_t from, int64_t to) {
                head(own, i, from, to);
            });
            for (int64_t i = first; i < end; ++i) layers(own, i, scratch);
        });
    if (status != DCNN_OK) return status;

    // The parts are summed in their order, and words in theirs: as many threads, the same bits.
    float* total = sums.get();
    for (int64_t part = 1; part < parts; ++part)
        kernels.add_scaled(total, total + part * at.size, 1.0f, at.size);
    for (int64_t c = 0; c < classes; ++c) {
        gradients->top_bias[c] = total[at.top_bias + c];
        for_each_feature(network, [&](int64_t, int64_t feature, int64_t callers) {
            gradients->top_weight[c * features + callers] =
                total[at.top_weight + c * features + feature];
        });
    }
    for (size_t l = 0; l < network.depth(); ++l) {
        kernels.unpack_taps(network.layers[l], total + at.taps[l], gradients->filters[l]);
        std::copy_n(total + at.bias[l], network.layers[l].lanes, gradients->biases[l]);
    }
    if (rows)
        *count = add_rows(network, *batch, gradient_words.get(), rows, gradients->embeddings);
    else
        for_each_word(*batch, [&](int64_t word) {
            kernels.add_scaled(gradients->embeddings + batch->ids[word] * network.dim,
                               gradient_words.get() + word * network.dim, 1.0f, network.dim);
        });
    return DCNN_OK;
} catch (const std::bad_alloc&) {
    return DCNN_NO_MEMORY;
}

float dcnn_cross_entropy(int64_t sentences, int64_t classes, const float* logits,
                         const float* targets, const float* weights, float* gradient) {
    double loss = 0;
    for (int64_t i = 0; i < sentences; ++i) {
        const float *own = logits + i * classes, *target = targets + i * classes;
        const double largest = *std::max_element(own, own + classes);
        double exponentials = 0, mass = 0, dot = 0;
        for (int64_t c = 0; c < classes; ++c) {
            exponentials += std::exp(own[c] - largest);
            mass += target[c];
            dot += target[c] * (own[c] - largest);
        }
        const double weight = weights ? weights[i] : 1.0;
        loss += weight * (mass * std::log(exponentials) - dot);
        for (int64_t c = 0; c < classes; ++c) {
            const double share = std::exp(own[c] - largest) / exponentials;
            gradient[i * classes + c] =
                static_cast<float>(weight * (share * mass - target[c]) / sentences);
        }
    }
    return static_cast<float>(loss / sentences);
}
