// The C interface of the native backend: plain pointers and numbers, no torch and no Python.
//
// Axes in memory are (sentence, column, map, row), rows contiguous. All arrays are dense. Functions
// that return int32_t return one of the statuses below and never throw.
#ifndef DCNN_NATIVE_H
#define DCNN_NATIVE_H

#include <cstdint>

#define DCNN_API extern "C" __attribute__((visibility("default")))

// Changes whenever a signature or a layout below changes; the loader refuses another number.
constexpr int32_t DCNN_ABI = 10;

enum dcnn_status : int32_t {
    DCNN_OK = 0,
    DCNN_NO_MEMORY = 1,
    DCNN_BAD_ID = 2,      // a word id outside the embeddings
    DCNN_BAD_LENGTH = 3,  // a length or a k outside its limits
};

struct dcnn_layer {
    int64_t maps_below;  // n
    int64_t rows_below;  // d
    int64_t maps;        // o
    int64_t width;       // m
    int64_t fold;        // 1: rows i and i + d/2 are summed
};

DCNN_API int32_t dcnn_abi();
// The instruction set in use: "plain", "avx2" or "avx512".
DCNN_API const char* dcnn_isa();
// Take another instruction set from now on; returns 0 if this machine does not have it.
DCNN_API int32_t dcnn_use_isa(const char* name);

// x (B, s, n, d), filters (o, n, d, m), bias (o, d') -> values, positions (B, kept, o, d').
DCNN_API int32_t dcnn_layer_forward(const dcnn_layer* layer, int64_t sentences, int64_t columns,
                                    const float* x, const int64_t* lengths, const float* filters,
                                    const float* bias, const int64_t* k, int64_t kept,
                                    float* values, int32_t* positions, int32_t threads);

// The gradients of x, filters and bias from that of values; shapes as above.
DCNN_API int32_t dcnn_layer_backward(const dcnn_layer* layer, int64_t sentences, int64_t columns,
                                     const float* x, const int64_t* lengths, const float* filters,
                                     const int64_t* k, int64_t kept, const float* values,
                                     const int32_t* positions, const float* gradient_values,
                                     float* gradient_x, float* gradient_filters,
                                     float* gradient_bias, int32_t threads);

// A network keeps its own copy of all weights but the embeddings (vocabulary, d) and the vectors of
// character n-grams (n_buckets, d), or null, which must outlive it. head_weight is
// (classes, o * d' * k_top). Returns null if memory is short.
DCNN_API void* dcnn_network_new(int64_t depth, const dcnn_layer* layers,
                                const float* const* filters, const float* const* biases,
                                int64_t k_top, int64_t vocabulary, const float* embeddings,
                                int64_t classes, const float* head_weight, const float* head_bias,
                                int64_t shortest, int64_t longest, int64_t n_buckets,
                                const float* ngrams);
DCNN_API void dcnn_network_free(void* network);
// Sentence i is ids[offsets[i] .. offsets[i + 1]); logits are (sentences, classes). Words that are not
// in the vocabulary, with ids vocabulary, vocabulary + 1, ..., are given by their texts in UTF-8, which
// end at `ends` one after another.
DCNN_API int32_t dcnn_network_logits(const void* network, int64_t sentences, const int32_t* ids,
                                     const int64_t* offsets, int64_t new_words,
                                     const uint8_t* text, const int64_t* ends, float* logits,
                                     int32_t threads);

// Strings in UTF-8, which end at `ends` one after another.
struct dcnn_strings {
    int64_t count;
    const char* text;
    const int64_t* ends;
};

// A checksum of the code that tokenizes: text that other code encoded may have other tokens.
DCNN_API uint32_t dcnn_text_code();

// Sets the classes (the bits of text.h) and the lower case of the code points below size, for all
// tokenizers. The arrays must stay valid. Call it before the first text that is not ASCII.
DCNN_API void dcnn_unicode(const uint8_t* classes, const uint32_t* lower, int64_t size);

// A tokenizer of a preset (text.h) with the vocabulary `words`. For byte-pair encoding, left and right
// are the merged pairs by rank. For the unigram model, left has the subwords, `scores` their scores,
// and `unknown` is the score of an unknown character. All are copied. Returns null if memory is short.
DCNN_API void* dcnn_tokenizer_new(int32_t preset, int32_t lowercase, int32_t runs,
                                  const dcnn_strings* words, const dcnn_strings* left,
                                  const dcnn_strings* right, const double* scores, double unknown);
DCNN_API void dcnn_tokenizer_free(void* tokenizer);

// Tokenizes texts. Writes the distinct tokens in the order of first occurrence to `words`, one per line,
// and their bytes to `size`; the number of each token, among the distinct ones, to `ids`; and the number
// of tokens per text to `lengths`. `ready` (or null) marks texts that are tokens separated by spaces.
// `ids` needs room for one id per byte of text, `words` for 64 bytes and six per byte of text. Returns
// the number of tokens, or -1 if memory is short.
DCNN_API int64_t dcnn_tokenize(const void* tokenizer, const dcnn_strings* texts,
                               const uint8_t* ready, int32_t* ids, int32_t* lengths, char* words,
                               int64_t* size);

enum dcnn_output : int32_t { DCNN_LOGITS = 0, DCNN_SOFTMAX = 1, DCNN_SIGMOID = 2 };

// Texts to (texts, classes) in one call; an empty text is one unknown word. A word that is not known to
// the tokenizer has the vector of its n-grams where the network has any.
DCNN_API int32_t dcnn_network_texts(const void* network, const void* tokenizer, int64_t count,
                                    const char* text, const int64_t* ends, const uint8_t* ready,
                                    int32_t output, float* result, int32_t threads);

// The network in training: its sizes, and pointers to its weights, with shapes as above. The rows of
// the last layer are divided among the networks of the ensemble, which share the head's bias.
struct dcnn_sizes {
    int64_t depth, k_top, vocabulary, classes, n_ensemble;
    const dcnn_layer* layers;
};
struct dcnn_parameters {
    float* embeddings;
    float* const* filters;
    float* const* biases;
    float* head_weight;
    float* head_bias;
};
struct dcnn_batch {
    int64_t sentences, columns;
    const int64_t* ids;      // (sentences, columns)
    const int64_t* lengths;  // (sentences,)
    const float* dropout;    // (sentences, o * d' * k_top), or null
};

// Logits (sentences, n_ensemble, classes).
DCNN_API int32_t dcnn_training_logits(const dcnn_sizes* sizes, const dcnn_batch* batch,
                                      const dcnn_parameters* weights, float* logits,
                                      int32_t threads);

// A parameter (rows, dim), the sum of its squared gradients (`total`) and its average (or null). Its
// gradient is (count, dim): that of the rows `used`, in ascending order, or of all rows if `used` is
// null.
struct dcnn_parameter {
    float *value, *total, *average;
    int64_t rows, dim;
    double l2, decay;  // l2 * value is added to the gradient; the value shrinks by rate * decay
    const float* gradient;
    const int64_t* used;
    int64_t count;
};

// The learning rate, the epsilon of Adagrad, the norm that all gradients together are clipped to
// (infinite: no clipping), and the weight of the new value in its average.
struct dcnn_rates {
    double rate, eps, largest_norm, ema_weight;
};

// Updates all parameters in place. Writes the norm of all gradients, or 0 if largest_norm is infinite.
DCNN_API int32_t dcnn_update(const dcnn_parameter* parameters, int64_t count,
                             const dcnn_rates* rates, double* norm, int32_t threads);

// The character n-grams of words: those of word i are buckets[offsets[i] .. offsets[i + 1]).
struct dcnn_bags {
    int64_t words, n_buckets;
    const int64_t* offsets;
    const int32_t* buckets;
};

// Writes the buckets of the n-grams of words, whose UTF-8 texts end at `ends` one after another;
// `buckets` has room for `room` of them. Returns their number, or -1 if memory or room is short.
DCNN_API int64_t dcnn_char_ngrams(int64_t words, const uint8_t* text, const int64_t* ends,
                                  int64_t shortest, int64_t longest, int64_t n_buckets,
                                  int64_t* offsets, int32_t* buckets, int64_t room);

// The vectors (count, dim) of the words `ids`: the word's row of the embeddings (vocabulary, dim), or
// row 0 if id >= vocabulary, plus 1 / sqrt(n) times the sum of its n rows of ngrams (n_buckets, dim).
DCNN_API int32_t dcnn_compose(const dcnn_bags* bags, int64_t count, const int64_t* ids,
                              int64_t vocabulary, int64_t dim, const float* embeddings,
                              const float* ngrams, float* vectors, int32_t threads);

// A network that learns. Its parameters are, in this order, the embeddings, the head's weight and bias,
// the filters and bias of each layer, and with `bags` the n-grams. The memory that `parameters` and
// `bags` point to must outlive the learner; the structs are copied. Word ids of a batch must be below
// bags->words, or without `bags` below the vocabulary. Returns null if memory is short or a bucket is
// out of range.
DCNN_API void* dcnn_learner_new(const dcnn_sizes* sizes, const dcnn_bags* bags,
                                const dcnn_parameter* parameters);
DCNN_API void dcnn_learner_free(void* learner);

// The targets of a batch (sentences, classes): distributions over the classes or, if multi-label, values
// between 0 and 1; and the weights of its sentences (sentences,), or null.
struct dcnn_targets {
    const float* targets;
    const float* weights;
    int64_t multi_label;
};

// The mean loss of a batch, and one update by its gradients. Every network of an ensemble learns as if
// it were alone.
DCNN_API int32_t dcnn_learner_step(void* learner, const dcnn_batch* batch,
                                   const dcnn_targets* targets, const dcnn_rates* rates,
                                   double* loss, double* norm, int32_t threads);

// The loss and the gradients, without an update: sets `gradient`, `used` and `count` of each parameter,
// in memory of the learner that the next call overwrites. Of embeddings and n-grams, only the rows that
// the batch uses have a gradient.
DCNN_API int32_t dcnn_learner_gradients(void* learner, const dcnn_batch* batch,
                                        const dcnn_targets* targets, double* loss,
                                        dcnn_parameter* gradients, int32_t threads);

// Random numbers. `generator` is the state tensor of torch's MT19937 generator, which advances as it
// would in torch, and the numbers are those of torch: uniform in [0, 1), normal with mean 0 (in torch
// by AVX2), or a mask, which is `value` with this probability, else 0.
DCNN_API void dcnn_seed(uint8_t* generator, uint64_t seed);
DCNN_API void dcnn_draw_uniform(uint8_t* generator, float* numbers, int64_t size);
DCNN_API void dcnn_draw_mask(uint8_t* generator, float probability, float value, float* mask,
                             int64_t size);
DCNN_API void dcnn_draw_normal(uint8_t* generator, double deviation, float* numbers, int64_t size);

DCNN_API void dcnn_tanh(const float* x, float* y, int64_t size);

#endif
