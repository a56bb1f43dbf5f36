// A training step in one call: words, forward, loss, backward, norm and Adagrad.
//
// The threads of a call go through these phases together. Each part of the batch adds up its own
// gradients. The parts, the occurrences of a word and the words of an n-gram are summed in a fixed
// order, so the same number of threads gives the same bits.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "adagrad.h"
#include "char_ngrams.h"
#include "training.h"

// glibc 2.29 has a second version of it, and a linker takes the newest: a library built there would not
// load where the first is the only one.
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver log, log@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver log, log@GLIBC_2.17");
#endif

namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

// Ranks the distinct values of some integers below a limit in ascending order, without sorting them.
class Ranks {
  public:
    void clear(int64_t limit) {
        bits_.assign(at(limit / 64 + 1), 0);
        before_.resize(bits_.size());
    }
    void add(int64_t number) { bits_[at(number / 64)] |= mask(number); }
    // Appends the distinct values, ascending; from then on `rank` gives the index of each.
    void list(std::vector<int64_t>& to) {
        const int64_t first = static_cast<int64_t>(to.size());
        for (size_t i = 0; i < bits_.size(); ++i) {
            before_[i] = static_cast<int64_t>(to.size()) - first;
            for (uint64_t rest = bits_[i]; rest; rest &= rest - 1)
                to.push_back(static_cast<int64_t>(64 * i) + __builtin_ctzll(rest));
        }
    }
    int64_t rank(int64_t number) const {
        const size_t word = at(number / 64);
        return before_[word] + __builtin_popcountll(bits_[word] & (mask(number) - 1));
    }

  private:
    static uint64_t mask(int64_t number) { return uint64_t{1} << (number % 64); }
    std::vector<uint64_t> bits_;
    std::vector<int64_t> before_;
};

// The members of some groups, group after group, each in the order in which they were added.
class Groups {
  public:
    void start(size_t groups, size_t members) {
        ends_.assign(groups + 1, 0);
        members_.resize(members);
    }
    void count(int64_t group) { ++ends_[at(group) + 1]; }
    void counted() { std::partial_sum(ends_.begin(), ends_.end(), ends_.begin()); }
    // While members are added, ends_[group] moves from the start of the group to its end.
    void add(int64_t group, int32_t member) { members_[at(ends_[at(group)]++)] = member; }

    const int32_t* begin(int64_t group) const {
        return members_.data() + (group ? ends_[at(group - 1)] : 0);
    }
    const int32_t* end(int64_t group) const { return members_.data() + ends_[at(group)]; }

  private:
    std::vector<int32_t> ends_, members_;
};

// The loss of a sentence and, in `gradient`, the gradient of its logits, both times `scale`.
double cross_entropy(const Kernels& kernels, int64_t classes, const float* logits,
                     const float* targets, double scale, float* gradient) {
    thread_local std::vector<double> powers;
    powers.resize(at(classes));
    const double largest = *std::max_element(logits, logits + classes);
    double exponentials = 0, mass = 0, dot = 0;
    for (int64_t c = 0; c < classes; ++c) {
        powers[at(c)] = logits[c] - largest;
        mass += targets[c];
        dot += targets[c] * powers[at(c)];
    }
    kernels.exp(powers.data(), classes);
    for (const double power : powers) exponentials += power;
    for (int64_t c = 0; c < classes; ++c)
        gradient[c] = static_cast<float>(scale * (powers[at(c)] / exponentials * mass - targets[c]));
    return scale * (mass * std::log(exponentials) - dot);
}

// The same for multi-label targets: each label is an independent yes or no.
double binary_cross_entropy(const Kernels& kernels, int64_t labels, const float* logits,
                            const float* targets, double scale, float* gradient) {
    thread_local std::vector<double> powers;
    powers.resize(at(labels));
    for (int64_t c = 0; c < labels; ++c) powers[at(c)] = -std::abs(static_cast<double>(logits[c]));
    kernels.exp(powers.data(), labels);
    double loss = 0;
    for (int64_t c = 0; c < labels; ++c) {
        const double logit = logits[c], power = powers[at(c)];
        const double larger = 1 / (1 + power);  // of the two probabilities
        gradient[c] =
            static_cast<float>(scale * ((logit < 0 ? 1 - larger : larger) - targets[c]));
        loss += std::log(1 + power) + std::max(logit, 0.0) - targets[c] * logit;
    }
    return scale * loss;
}

class Learner {
  public:
    Learner(const dcnn_sizes& sizes, const dcnn_bags* bags, const dcnn_parameter* parameters)
        : layers_(sizes.layers, sizes.layers + sizes.depth),
          sizes_(sizes),
          has_ngrams_(bags != nullptr),
          bags_(bags ? *bags : dcnn_bags{}),
          parameters_(parameters, parameters + 3 + 2 * sizes.depth + (bags ? 1 : 0)) {
        sizes_.layers = layers_.data();
        for (dcnn_parameter& parameter : parameters_) parameter.count = parameter.rows;
        for (size_t l = 0; l < layers_.size(); ++l) {
            filters_.push_back(parameters_[3 + 2 * l].value);
            biases_.push_back(parameters_[4 + 2 * l].value);
        }
        weights_ = {parameters_[0].value, filters_.data(), biases_.data(), parameters_[1].value,
                    parameters_[2].value};
    }
    Learner(const Learner&) = delete;
    Learner& operator=(const Learner&) = delete;

    // With `rates` the parameters are updated, and the norm of the gradients is written.
    int32_t learn(const dcnn_batch& batch, const dcnn_targets& targets, const dcnn_rates* rates,
                  double* loss, double* norm, int32_t threads);
    const std::vector<dcnn_parameter>& parameters() const { return parameters_; }

  private:
    int64_t vocabulary() const { return sizes_.vocabulary; }
    float* ngrams() const { return parameters_.back().value; }
    int64_t count_ngrams(int64_t id) const { return bags_.offsets[id + 1] - bags_.offsets[id]; }
    void grow(const Network& network, const dcnn_batch& batch, const Sums& sums, int64_t parts);
    void find_words(const dcnn_batch& batch);
    void find_buckets();
    void add_loss(int64_t sentence, const Network& network, const dcnn_batch& batch,
              const dcnn_targets& targets);
    void add_up_words(int64_t first, int64_t end, const Network& network);
    void add_up_new_words(const Network& network);
    void add_up_buckets(int64_t first, int64_t end, const Network& network);
    void add_up_weights(int64_t task, int64_t parts, const Sums& at, const Network& network);

    std::vector<dcnn_layer> layers_;
    dcnn_sizes sizes_;
    bool has_ngrams_;
    dcnn_bags bags_;
    std::vector<dcnn_parameter> parameters_;
    std::vector<float*> filters_, biases_;
    dcnn_parameters weights_;

    // The distinct words of a batch, the gradient row of each, and for every word of the batch its index
    // in words_; the rows of the embeddings and the buckets that have a gradient.
    std::vector<int64_t> words_, rows_, places_, used_rows_, used_buckets_;
    bool shares_row_ = false;  // new words have the vector of row 0, and its gradient
    Groups occurrences_, bearers_;  // a word's places in the batch; the rows of a bucket's words
    std::vector<int32_t> ranks_;
    std::vector<float> ngram_weights_;  // by the row of a word's gradient
    Ranks ranks_of_;

    PackedWeights packed_;
    std::vector<Memory> values_, positions_, scratch_, gradients_;
    Memory vectors_, features_, logits_, of_logits_, of_words_, sums_, of_rows_, of_ngrams_;
    std::vector<float*> values_at_;
    std::vector<int32_t*> positions_at_;
    std::vector<double> losses_, squares_;
};

// A task's share of the words, buckets or classes of a phase.
constexpr int64_t ROWS_AT_ONCE = 64;

int64_t tasks_of(size_t rows) {
    return (static_cast<int64_t>(rows) + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
}

// Known words come first, and their gradient rows are in the order of used_rows_. If there are new words,
// which add to the gradient of embedding 0, its sum is gradient row 0, and the last row is word 0's own.
void Learner::find_words(const dcnn_batch& batch) {
    ranks_of_.clear(has_ngrams_ ? bags_.words : vocabulary());
    const auto for_each_word = [&](auto take) {
        for (int64_t i = 0; i < batch.sentences; ++i)
            for (int64_t t = 0; t < batch.lengths[i]; ++t) take(i * batch.columns + t);
    };
    for_each_word([&](int64_t word) { ranks_of_.add(batch.ids[word]); });
    words_.clear();
    ranks_of_.list(words_);
    const int64_t count = static_cast<int64_t>(words_.size());
    occurrences_.start(words_.size(), places_.size());
    for_each_word([&](int64_t word) {
        places_[at(word)] = ranks_of_.rank(batch.ids[word]);
        occurrences_.count(places_[at(word)]);
    });
    occurrences_.counted();
    for_each_word([&](int64_t word) {
        occurrences_.add(places_[at(word)], static_cast<int32_t>(word));
    });
    shares_row_ = words_.back() >= vocabulary();
    used_rows_.clear();
    if (shares_row_) used_rows_.push_back(0);
    rows_.resize(words_.size());
    const bool has_unknown = words_.front() == 0;
    for (int64_t i = 0; i < count; ++i) {
        rows_[at(i)] = !shares_row_ ? i : !has_unknown ? i + 1 : i ? i : count;
        if (words_[at(i)] < vocabulary() && !(shares_row_ && i == 0 && has_unknown))
            used_rows_.push_back(words_[at(i)]);
    }
    parameters_[0].gradient = of_rows_.get();
    parameters_[0].used = used_rows_.data();
    parameters_[0].count = static_cast<int64_t>(used_rows_.size());
}

void Learner::find_buckets() {
    ranks_of_.clear(bags_.n_buckets);
    size_t total = 0;
    ngram_weights_.resize(words_.size() + 1);
    for (size_t i = 0; i < words_.size(); ++i) {
        const int64_t ngrams = count_ngrams(words_[i]);
        total += at(ngrams);
        ngram_weights_[at(rows_[i])] = ngram_weight(at(ngrams));
        const int32_t* own = bags_.buckets + bags_.offsets[words_[i]];
        for (int64_t j = 0; j < ngrams; ++j) ranks_of_.add(own[j]);
    }
    used_buckets_.clear();
    ranks_of_.list(used_buckets_);
    bearers_.start(used_buckets_.size(), total);
    ranks_.resize(total);
    size_t next = 0;
    for (const int64_t word : words_)
        for (int64_t j = bags_.offsets[word]; j < bags_.offsets[word + 1]; ++j) {
            ranks_[next] = static_cast<int32_t>(ranks_of_.rank(bags_.buckets[j]));
            bearers_.count(ranks_[next++]);
        }
    bearers_.counted();
    next = 0;
    for (size_t i = 0; i < words_.size(); ++i)
        for (int64_t j = count_ngrams(words_[i]); j > 0; --j)
            bearers_.add(ranks_[next++], static_cast<int32_t>(rows_[i]));
    const int64_t count = static_cast<int64_t>(used_buckets_.size());
    of_ngrams_.grow(count * parameters_.back().dim);
    parameters_.back().gradient = of_ngrams_.get();
    parameters_.back().used = used_buckets_.data();
    parameters_.back().count = count;
}

void Learner::add_up_words(int64_t first, int64_t end, const Network& network) {
    const float* of_words = of_words_.get();
    for (int64_t i = first; i < end; ++i) {
        float* sum = of_rows_.get() + rows_[at(i)] * network.dim;
        const int32_t *from = occurrences_.begin(i), *to = occurrences_.end(i);
        std::copy_n(of_words + *from * network.dim, network.dim, sum);
        network.kernels.add_rows(sum, of_words, from + 1, to - from - 1, nullptr, 1, network.dim);
    }
}

void Learner::add_up_new_words(const Network& network) {
    const int64_t dim = network.dim, count = static_cast<int64_t>(words_.size());
    float* sum = of_rows_.get();
    if (words_.front() == 0)
        std::copy_n(sum + count * dim, dim, sum);
    else
        std::fill_n(sum, dim, 0.0f);
    for (int64_t i = 0; i < count; ++i)
        if (words_[at(i)] >= vocabulary())
            network.kernels.add_scaled(sum, sum + rows_[at(i)] * dim, 1, dim);
}

// The sums of all parts, in the caller's order: tasks are the maps of every layer, then the classes.
void Learner::add_up_weights(int64_t task, int64_t parts, const Sums& sums, const Network& network) {
    const Kernels& kernels = network.kernels;
    const auto add_parts = [&](int64_t first, int64_t size) {
        float* own = sums_.get() + first;
        for (int64_t part = 1; part < parts; ++part)
            kernels.add_scaled(own, own + part * sums.size, 1.0f, size);
        return own;
    };
    for (size_t l = 0; l < network.depth(); ++l) {
        Shape s = network.layers[l];
        if (task < s.maps) {
            const int64_t taps = kernels.taps_size(s) / s.maps, weights = s.planes * s.rows * s.width;
            s.maps = 1;
            kernels.unpack_taps(s, add_parts(sums.taps[l] + task * taps, taps),
                                gradients_[2 * l].get() + task * weights);
            std::copy_n(add_parts(sums.bias[l] + task * s.rows, s.rows), s.rows,
                        gradients_[2 * l + 1].get() + task * s.rows);
            return;
        }
        task -= s.maps;
    }
    const size_t head = 2 * network.depth();
    const int64_t all = network.features(), last = std::min((task + 1) * ROWS_AT_ONCE, network.classes);
    for (int64_t c = task * ROWS_AT_ONCE; c < last; ++c) {
        const float* own = add_parts(sums.head_weight + c * all, all);
        float* to = gradients_[head].get() + c * all;
        network.for_each_feature(
            [&](int64_t, int64_t feature, int64_t callers) { to[callers] = own[feature]; });
        gradients_[head + 1].get()[c] = *add_parts(sums.head_bias + c, 1);
    }
}

void Learner::add_up_buckets(int64_t first, int64_t end, const Network& network) {
    for (int64_t bucket = first; bucket < end; ++bucket) {
        float* sum = of_ngrams_.get() + bucket * network.dim;
        std::fill_n(sum, network.dim, 0.0f);
        const int32_t* from = bearers_.begin(bucket);
        network.kernels.add_rows(sum, of_rows_.get(), from, bearers_.end(bucket) - from,
                                 ngram_weights_.data(), 1, network.dim);
    }
}

// Room for all that a step writes.
void Learner::grow(const Network& network, const dcnn_batch& batch, const Sums& sums,
                   int64_t parts) {
    const size_t depth = network.depth();
    const int64_t sentences = batch.sentences, logits = sentences * network.n_ensemble * network.classes;
    values_.resize(depth);
    positions_.resize(depth);
    gradients_.resize(2 * depth + 2);
    values_at_.resize(depth);
    positions_at_.resize(depth);
    for (size_t l = 0; l < depth; ++l) {
        const Shape& s = network.layers[l];
        const int64_t size = sentences * network.columns(l + 1, batch.columns) * s.lanes;
        values_at_[l] = values_[l].grow(size);
        positions_at_[l] = reinterpret_cast<int32_t*>(positions_[l].grow(size));
        parameters_[3 + 2 * l].gradient =
            gradients_[2 * l].grow(s.maps * s.planes * s.rows * s.width);
        parameters_[4 + 2 * l].gradient = gradients_[2 * l + 1].grow(s.lanes);
    }
    parameters_[1].gradient = gradients_[2 * depth].grow(network.classes * network.features());
    parameters_[2].gradient = gradients_[2 * depth + 1].grow(network.classes);
    packed_.grow(network, true);
    features_.grow(2 * sentences * network.features());
    logits_.grow(logits);
    of_logits_.grow(logits);
    const int64_t words = sentences * batch.columns * network.dim;
    of_words_.grow(words);
    if (has_ngrams_) vectors_.grow(words);
    of_rows_.grow(words + network.dim);
    sums_.grow(parts * sums.size);
    losses_.resize(at(sentences));
    places_.resize(at(sentences * batch.columns));
    scratch_.resize(std::max(scratch_.size(), at(parts)));
}

// The loss of a sentence, and the gradient of its logits.
void Learner::add_loss(int64_t i, const Network& network, const dcnn_batch& batch,
                   const dcnn_targets& targets) {
    const int64_t classes = network.classes, n_ensemble = network.n_ensemble;
    const double weight = targets.weights ? targets.weights[i] : 1.0;
    const double scale = weight / static_cast<double>(batch.sentences * n_ensemble);
    losses_[at(i)] = 0;
    for (int64_t logit = i * n_ensemble * classes; logit < (i + 1) * n_ensemble * classes;
         logit += classes) {
        float* gradient = of_logits_.get() + logit;
        losses_[at(i)] += (targets.multi_label ? binary_cross_entropy : cross_entropy)(
            network.kernels, classes, logits_.get() + logit, targets.targets + i * classes, scale,
            gradient);
        // A network of an ensemble learns as if it were alone: not by its share of a mean.
        for (int64_t c = 0; c < classes; ++c) gradient[c] *= static_cast<float>(n_ensemble);
    }
}

int32_t Learner::learn(const dcnn_batch& given, const dcnn_targets& targets, const dcnn_rates* rates,
                       double* loss, double* norm, int32_t threads) {
    const Network network(sizes_);
    if (given.sentences < 1) return DCNN_BAD_LENGTH;
    if (const int32_t status = network.check(given, has_ngrams_ ? bags_.words : vocabulary()))
        return status;
    const int64_t sentences = given.sentences, parts = parts_of(sentences, threads);
    const Sums sums(network);
    grow(network, given, sums, parts);
    dcnn_batch batch = given;
    if (has_ngrams_) batch.ids = places_.data();
    const Pass pass{network,
                    batch,
                    has_ngrams_ ? vectors_.get() : weights_.embeddings,
                    packed_,
                    values_at_.data(),
                    positions_at_.data(),
                    features_.get(),
                    features_.get() + sentences * network.features()};
    for (int64_t part = 0; part < parts; ++part)
        scratch_[at(part)].grow(std::max(pass.forward_scratch(), pass.backward_scratch()));
    const Update update{parameters_.data(), static_cast<int64_t>(parameters_.size()),
                        rates ? *rates : dcnn_rates{}};
    const auto prepare = [&] {
        find_words(given);
        if (has_ngrams_) find_buckets();
        const bool clips = rates && std::isfinite(rates->largest_norm);
        squares_.assign(at(clips ? update.norm_tasks() : 0), 0);
    };
    const auto square_sum = [&] { return std::accumulate(squares_.begin(), squares_.end(), 0.0); };
    const int64_t packs = PackedWeights::tasks(network);
    int64_t weight_tasks = tasks_of(at(network.classes));
    for (const Shape& s : network.layers) weight_tasks += s.maps;
    with_team(parts, prepare, [&](Team& team) {
        const int64_t words = static_cast<int64_t>(words_.size()), word_tasks = tasks_of(words_.size());
        team.each(0, packs + (has_ngrams_ ? word_tasks : 0), [&](int64_t task) {
            if (task < packs) return packed_.pack(network, weights_, task);
            const int64_t first = (task - packs) * ROWS_AT_ONCE;
            for (int64_t i = first; i < std::min(first + ROWS_AT_ONCE, words); ++i)
                compose_word(network.kernels, bags_, words_[at(i)], vocabulary(), network.dim,
                             weights_.embeddings, ngrams(), vectors_.get() + i * network.dim);
        });
        team.each(1, parts, [&](int64_t part) {
            const int64_t first = sentences * part / parts, end = sentences * (part + 1) / parts;
            float* scratch = scratch_[at(part)].get();
            pass.forward(first, end, weights_.head_bias, logits_.get(), scratch);
            for (int64_t i = first; i < end; ++i) add_loss(i, network, batch, targets);
            pass.backward(first, end, of_logits_.get(), sums, sums_.get() + part * sums.size,
                          of_words_.get(), scratch);
        });
        team.each(2, weight_tasks + word_tasks, [&](int64_t task) {
            if (task < weight_tasks) return add_up_weights(task, parts, sums, network);
            const int64_t first = (task - weight_tasks) * ROWS_AT_ONCE;
            add_up_words(first, std::min(first + ROWS_AT_ONCE, words), network);
        });
        if (has_ngrams_) {
            const int64_t buckets = static_cast<int64_t>(used_buckets_.size());
            const int64_t bucket_tasks = tasks_of(used_buckets_.size());
            team.each(3, bucket_tasks + 1, [&](int64_t task) {
                if (task == bucket_tasks) return shares_row_ ? add_up_new_words(network) : void();
                const int64_t first = task * ROWS_AT_ONCE;
                add_up_buckets(first, std::min(first + ROWS_AT_ONCE, buckets), network);
            });
        }
        if (!rates) return;
        team.each(4, static_cast<int64_t>(squares_.size()),
                  [&](int64_t task) { squares_[at(task)] = update.square_sum(task); });
        const float clip = update.clip(std::sqrt(square_sum()));
        team.each(5, update.tasks(), [&](int64_t task) { update.apply(task, clip); });
    });
    *loss = std::accumulate(losses_.begin(), losses_.end(), 0.0);
    if (norm) *norm = std::sqrt(square_sum());
    return DCNN_OK;
}

}  // namespace

void* dcnn_learner_new(const dcnn_sizes* sizes, const dcnn_bags* bags,
                       const dcnn_parameter* parameters) try {
    for (int64_t i = 0; bags && i < bags->offsets[bags->words]; ++i)
        if (bags->buckets[i] < 0 || bags->buckets[i] >= bags->n_buckets) return nullptr;
    return new Learner(*sizes, bags, parameters);
} catch (const std::bad_alloc&) {
    return nullptr;
}

void dcnn_learner_free(void* learner) { delete static_cast<Learner*>(learner); }

int32_t dcnn_learner_step(void* learner, const dcnn_batch* batch, const dcnn_targets* targets,
                          const dcnn_rates* rates, double* loss, double* norm,
                          int32_t threads) try {
    return static_cast<Learner*>(learner)->learn(*batch, *targets, rates, loss, norm, threads);
} catch (const std::bad_alloc&) {
    return DCNN_NO_MEMORY;
}

int32_t dcnn_learner_gradients(void* learner, const dcnn_batch* batch, const dcnn_targets* targets,
                               double* loss, dcnn_parameter* gradients, int32_t threads) try {
    Learner& own = *static_cast<Learner*>(learner);
    const int32_t status = own.learn(*batch, *targets, nullptr, loss, nullptr, threads);
    std::copy(own.parameters().begin(), own.parameters().end(), gradients);
    return status;
} catch (const std::bad_alloc&) {
    return DCNN_NO_MEMORY;
}
