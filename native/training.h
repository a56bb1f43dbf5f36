// A whole network in training: its weights as the kernels read them, forward and backward passes.
//
// A sentence goes through all layers before the next one starts, while its data is in cache, and nothing
// is padded. The last layer writes its values as (k_top, lanes). The head reads them as features, in the
// same order, but grouped by the networks of an ensemble. The caller's order, of the head's weights and
// of dropout, is (lanes, k_top).
#ifndef DCNN_TRAINING_H
#define DCNN_TRAINING_H

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels.h"
#include "parallel.h"

struct Network {
    const Kernels& kernels;
    int64_t k_top, classes, n_ensemble, dim;
    std::vector<Shape> layers;
    std::vector<int64_t> feature_of;  // the place as a feature of each value of the last layer
    std::vector<int64_t> callers_of;  // the place in the caller's order of each feature

    explicit Network(const dcnn_sizes& sizes)
        : kernels(current_kernels()),
          k_top(sizes.k_top),
          classes(sizes.classes),
          n_ensemble(sizes.n_ensemble),
          dim(sizes.layers[0].rows_below) {
        for (int64_t l = 0; l < sizes.depth; ++l) layers.push_back(shape_of(sizes.layers[l]));
        const int64_t rows = layers.back().rows, share = rows / n_ensemble;
        std::vector<int64_t> next(static_cast<size_t>(n_ensemble));
        for (int64_t one = 0; one < n_ensemble; ++one)
            next[static_cast<size_t>(one)] = one * own_features();
        for (int64_t value = 0; value < features(); ++value)
            feature_of.push_back(next[static_cast<size_t>(value % lanes() % rows / share)]++);
        callers_of.resize(feature_of.size());
        for_each_feature([&](int64_t, int64_t feature, int64_t callers) {
            callers_of[static_cast<size_t>(feature)] = callers;
        });
    }

    size_t depth() const { return layers.size(); }
    int64_t lanes() const { return layers.back().lanes; }
    int64_t features() const { return k_top * lanes(); }
    int64_t own_features() const { return features() / n_ensemble; }
    // Columns below layer `l`, counted from 0, and with l = L those that the head reads.
    int64_t columns(size_t l, int64_t length) const {
        return l == 0 ? length
                      : dynamic_k(k_top, static_cast<int64_t>(depth()), static_cast<int64_t>(l),
                                  length);
    }

    // Calls take(index in the last layer's memory, as a feature, in the caller's order) for each value.
    template <class Take>
    void for_each_feature(Take take) const {
        for (int64_t slot = 0; slot < k_top; ++slot)
            for (int64_t lane = 0; lane < lanes(); ++lane) {
                const int64_t value = slot * lanes() + lane;
                take(value, feature_of[static_cast<size_t>(value)], lane * k_top + slot);
            }
    }

    // Checks that the network takes sentences of these lengths, and that all ids are below `words`.
    int32_t check(const dcnn_batch& batch, int64_t words) const;
};

// Classes that the head computes at once.
constexpr int64_t CLASSES_AT_ONCE = 48;

inline int64_t class_blocks(int64_t classes) {
    return (classes + CLASSES_AT_ONCE - 1) / CLASSES_AT_ONCE;
}

// The weights of the layers and of the head as the kernels read them. Those of the head are there twice:
// (classes, features) for backward, and for forward in blocks of classes, each (features, classes), the
// last one padded.
struct PackedWeights {
    std::vector<Memory> filters, taps;
    Memory head, head_blocks;

    // Room for them; forward alone needs neither taps nor `head`.
    void grow(const Network& network, bool backward);
    // One of the tasks that write them: those of the layers, then a block of classes each.
    static int64_t tasks(const Network& network) {
        return static_cast<int64_t>(network.depth()) + class_blocks(network.classes);
    }
    void pack(const Network& network, const dcnn_parameters& weights, int64_t task);
};

// Offsets of the gradient sums that each part of a batch adds up on its own: the head's, then every
// layer's.
struct Sums {
    int64_t head_weight, head_bias, size;
    std::vector<int64_t> taps, bias;

    explicit Sums(const Network& network);
};

// The forward and backward passes of a batch. All memory is the caller's.
struct Pass {
    const Network& network;
    const dcnn_batch& batch;
    const float* words;  // the table that ids are rows of
    const PackedWeights& weights;
    float* const* values;        // what every layer pooled
    int32_t* const* positions;   // from where; forward alone may have none
    float *features, *of_features;  // (sentences, features), under dropout, and their gradients

    // Floats that one thread works in.
    int64_t forward_scratch() const;
    int64_t backward_scratch() const;

    // Sentences `first` to `end` through the layers, and to logits (sentences, n_ensemble, classes).
    void forward(int64_t first, int64_t end, const float* head_bias, float* logits,
                 float* scratch) const;
    // Back, from the gradient of the logits to those of the words (sentences, columns, d) and to the
    // part's own sums, which are overwritten.
    void backward(int64_t first, int64_t end, const float* of_logits, const Sums& at, float* sums,
                  float* of_words, float* scratch) const;

  private:
    // The features of a sentence from the last layer's values.
    void drop_out(int64_t sentence) const;
    // Where the pooled values of a sentence lie.
    int64_t pooled_at(size_t l, int64_t sentence) const {
        return sentence * network.columns(l + 1, batch.columns) * network.layers[l].lanes;
    }
    int64_t largest() const;  // values of a sentence between two layers
    void layers_forward(int64_t sentence, float* scratch) const;
    void layers_backward(int64_t sentence, const Sums& at, float* sums, float* of_words,
                         float* scratch) const;
};

#endif
