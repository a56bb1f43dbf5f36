// A whole network in training: the passes of training.h, and its logits in one call.
#include "training.h"

int32_t Network::check(const dcnn_batch& batch, int64_t words) const {
    for (int64_t i = 0; i < batch.sentences; ++i) {
        const int64_t length = batch.lengths[i];
        if (length < 1 || length > batch.columns) return DCNN_BAD_LENGTH;
        for (size_t l = 0; l < depth(); ++l)
            if (columns(l + 1, length) > columns(l, length) + layers[l].width - 1)
                return DCNN_BAD_LENGTH;
        for (int64_t t = 0; t < length; ++t) {
            const int64_t id = batch.ids[i * batch.columns + t];
            if (id < 0 || id >= words) return DCNN_BAD_ID;
        }
    }
    return DCNN_OK;
}

void PackedWeights::grow(const Network& network, bool backward) {
    filters.resize(network.depth());
    taps.resize(network.depth());
    for (size_t l = 0; l < network.depth(); ++l) {
        filters[l].grow(network.kernels.packed_size(network.layers[l]));
        if (backward) taps[l].grow(network.kernels.taps_size(network.layers[l]));
    }
    if (backward) head.grow(network.classes * network.features());
    head_blocks.grow(class_blocks(network.classes) * CLASSES_AT_ONCE * network.features());
}

void PackedWeights::pack(const Network& network, const dcnn_parameters& weights, int64_t task) {
    const size_t l = static_cast<size_t>(task);
    if (l < network.depth()) {
        const Shape& s = network.layers[l];
        network.kernels.pack(s, weights.filters[l], weights.biases[l], filters[l].get());
        if (taps[l].size()) network.kernels.pack_taps(s, weights.filters[l], taps[l].get());
        return;
    }
    const int64_t first = (task - static_cast<int64_t>(network.depth())) * CLASSES_AT_ONCE;
    const int64_t features = network.features();
    const int64_t count = std::min(CLASSES_AT_ONCE, network.classes - first);
    float* rows = head.size() ? head.get() + first * features : nullptr;  // backward alone reads it
    float* block = head_blocks.get() + first * features;
    const float* from = weights.head_weight + first * features;
    constexpr int64_t NEAR = 16;  // features of all classes of a block that stay in cache
    for (int64_t near = 0; near < features; near += NEAR)
        for (int64_t c = 0; c < CLASSES_AT_ONCE; ++c)
            for (int64_t f = near; f < std::min(near + NEAR, features); ++f) {
                const int64_t callers = network.callers_of[static_cast<size_t>(f)];
                const float weight = c < count ? from[c * features + callers] : 0;
                block[f * CLASSES_AT_ONCE + c] = weight;
                if (rows && c < count) rows[c * features + f] = weight;
            }
}

Sums::Sums(const Network& network) {
    head_weight = 0;
    head_bias = rounded(network.classes * network.features());
    size = head_bias + rounded(network.classes);
    for (const Shape& s : network.layers) {
        taps.push_back(size);
        bias.push_back(size + rounded(network.kernels.taps_size(s)));
        size = bias.back() + rounded(s.lanes);
    }
}

int64_t Pass::largest() const {
    int64_t most = network.features();
    for (size_t l = 0; l < network.depth(); ++l) {
        const Shape& s = network.layers[l];
        most = std::max({most, network.columns(l, batch.columns) * s.maps_below * s.rows_below,
                         network.columns(l + 1, batch.columns) * s.lanes});
    }
    return rounded(most);
}

// What the kernels work in, and pointers to words.
int64_t Pass::forward_scratch() const {
    int64_t working = 0, widest = 0;
    for (size_t l = 0; l < network.depth(); ++l) {
        const int64_t below = network.columns(l, batch.columns);
        widest = std::max(widest, below);
        working = std::max(working, network.kernels.forward_scratch(network.layers[l], below));
    }
    constexpr int64_t pointer = sizeof(const float*) / sizeof(float);
    return rounded(pointer * widest) + rounded(working);
}

// The words of a sentence, two gradients, and what the kernels work in.
int64_t Pass::backward_scratch() const {
    int64_t working = 0;
    for (size_t l = 0; l < network.depth(); ++l)
        working = std::max(working, network.kernels.backward_scratch(
                                        network.layers[l], network.columns(l, batch.columns),
                                        network.columns(l + 1, batch.columns)));
    return 3 * largest() + rounded(working);
}

void Pass::layers_forward(int64_t i, float* scratch) const {
    const int64_t length = batch.lengths[i];
    const float** columns = reinterpret_cast<const float**>(scratch);
    int64_t widest = 0;
    for (size_t l = 0; l < network.depth(); ++l)
        widest = std::max(widest, network.columns(l, batch.columns));
    float* working = scratch + rounded(widest * static_cast<int64_t>(sizeof *columns / sizeof(float)));
    for (int64_t t = 0; t < length; ++t)
        columns[t] = words + batch.ids[i * batch.columns + t] * network.dim;
    if (i + 1 < batch.sentences)
        for (int64_t t = 0; t < batch.lengths[i + 1]; ++t) {
            const float* row = words + batch.ids[(i + 1) * batch.columns + t] * network.dim;
            for (int64_t at = 0; at < network.dim; at += 16) __builtin_prefetch(row + at);
        }
    for (size_t l = 0; l < network.depth(); ++l) {
        const Shape& s = network.layers[l];
        const int64_t at = pooled_at(l, i), k = network.columns(l + 1, length);
        network.kernels.forward(s, weights.filters[l].get(), columns, network.columns(l, length), k,
                                values[l] + at, positions ? positions[l] + at : nullptr, working);
        for (int64_t t = 0; t < k && l + 1 < network.depth(); ++t)
            columns[t] = values[l] + at + t * s.lanes;
    }
}

void Pass::drop_out(int64_t i) const {
    const float* from = values[network.depth() - 1] + pooled_at(network.depth() - 1, i);
    const float* mask = batch.dropout ? batch.dropout + i * network.features() : nullptr;
    float* to = features + i * network.features();
    network.for_each_feature([&](int64_t value, int64_t feature, int64_t callers) {
        to[feature] = mask ? from[value] * mask[callers] : from[value];
    });
}

void Pass::forward(int64_t first, int64_t end, const float* head_bias, float* logits,
                   float* scratch) const {
    for (int64_t i = first; i < end; ++i) {
        layers_forward(i, scratch);
        drop_out(i);
    }
    const int64_t all = network.features(), own = network.own_features(), sentences = end - first;
    const int64_t classes = network.classes, n_ensemble = network.n_ensemble;
    float* to = logits + first * n_ensemble * classes;
    for (int64_t i = 0; i < sentences * n_ensemble; ++i)
        std::copy_n(head_bias, classes, to + i * classes);
    for (int64_t from = 0; from < classes; from += CLASSES_AT_ONCE)
        for (int64_t one = 0; one < n_ensemble; ++one) {
            const int64_t columns = std::min(CLASSES_AT_ONCE, classes - from);
            const float* block = weights.head_blocks.get() + from * all + one * own * CLASSES_AT_ONCE;
            network.kernels.multiply({to + one * classes + from, n_ensemble * classes,
                                      features + first * all + one * own, all, 1, block,
                                      CLASSES_AT_ONCE, sentences, own, columns, true, true});
        }
}

void Pass::layers_backward(int64_t i, const Sums& at, float* sums, float* of_words,
                           float* scratch) const {
    const int64_t length = batch.lengths[i], room = largest();
    float *below = scratch, *gradient = below + room, *next = gradient + room;
    float* working = next + room;
    const float* from = of_features + i * network.features();
    const float* mask = batch.dropout ? batch.dropout + i * network.features() : nullptr;
    network.for_each_feature([&](int64_t value, int64_t feature, int64_t callers) {
        gradient[value] = mask ? from[feature] * mask[callers] : from[feature];
    });
    for (size_t l = network.depth(); l-- > 0;) {
        const Shape& s = network.layers[l];
        const int64_t place = pooled_at(l, i);
        const float* x = l ? values[l - 1] + pooled_at(l - 1, i) : below;
        for (int64_t t = 0; t < length && l == 0; ++t)
            std::copy_n(words + batch.ids[i * batch.columns + t] * network.dim, network.dim,
                        below + t * network.dim);
        float* to = l ? next : of_words + i * batch.columns * network.dim;
        network.kernels.backward(s, weights.taps[l].get(), x, network.columns(l, length),
                                 network.columns(l + 1, length), values[l] + place,
                                 positions[l] + place, gradient, to, sums + at.taps[l],
                                 sums + at.bias[l], working);
        std::swap(gradient, next);
    }
}

void Pass::backward(int64_t first, int64_t end, const float* of_logits, const Sums& at, float* sums,
                    float* of_words, float* scratch) const {
    const int64_t all = network.features(), own = network.own_features(), sentences = end - first;
    const int64_t classes = network.classes, n_ensemble = network.n_ensemble;
    std::fill(sums + at.head_bias, sums + at.size, 0.0f);
    for (int64_t i = first * n_ensemble; i < end * n_ensemble; ++i)
        network.kernels.add_scaled(sums + at.head_bias, of_logits + i * classes, 1, classes);
    for (int64_t from = 0; from < classes; from += CLASSES_AT_ONCE)
        for (int64_t one = 0; one < n_ensemble; ++one) {
            const int64_t rows = std::min(CLASSES_AT_ONCE, classes - from);
            const float* own_logits = of_logits + (first * n_ensemble + one) * classes + from;
            const int64_t feature = first * all + one * own, weight = from * all + one * own;
            network.kernels.multiply({sums + at.head_weight + weight, all, own_logits, 1,
                                      n_ensemble * classes, features + feature, all, rows, sentences,
                                      own, false, false});
            network.kernels.multiply({of_features + feature, all, own_logits, n_ensemble * classes, 1,
                                      weights.head.get() + weight, all, sentences, rows, own,
                                      from > 0, false});
        }
    for (int64_t i = first; i < end; ++i) layers_backward(i, at, sums, of_words, scratch);
}

int32_t dcnn_training_logits(const dcnn_sizes* sizes, const dcnn_batch* batch,
                             const dcnn_parameters* weights, float* logits, int32_t threads) try {
    const Network network(*sizes);
    if (const int32_t status = network.check(*batch, sizes->vocabulary)) return status;
    PackedWeights packed;
    packed.grow(network, false);
    for (int64_t task = 0; task < PackedWeights::tasks(network); ++task)
        packed.pack(network, *weights, task);
    std::vector<Memory> pooled;
    std::vector<float*> values;
    for (size_t l = 0; l < network.depth(); ++l) {
        const int64_t kept = network.columns(l + 1, batch->columns);
        pooled.emplace_back(batch->sentences * kept * network.layers[l].lanes);
        values.push_back(pooled.back().get());
    }
    const Memory features(batch->sentences * network.features());
    const Pass pass{network,       *batch,  weights->embeddings, packed,
                    values.data(), nullptr, features.get(),      nullptr};
    return over_parts(batch->sentences, parts_of(batch->sentences, threads), pass.forward_scratch(),
                      [&](int64_t, int64_t first, int64_t end, float* scratch) {
                          pass.forward(first, end, weights->head_bias, logits, scratch);
                      });
} catch (const std::bad_alloc&) {
    return DCNN_NO_MEMORY;
}
