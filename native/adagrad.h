// One update of all parameters of a network, in tasks that any thread may do.
#ifndef DCNN_ADAGRAD_H
#define DCNN_ADAGRAD_H

#include "kernels.h"

struct Update {
    const dcnn_parameter* parameters;
    int64_t count;
    dcnn_rates rates;

    // The sum of the squares of a gradient's numbers, in tasks.
    int64_t norm_tasks() const;
    double square_sum(int64_t task) const;
    // The factor of gradients of this norm.
    float clip(double norm) const;
    // The update itself, in tasks.
    int64_t tasks() const;
    void apply(int64_t task, float clip) const;

  private:
    Rule rule_of(const dcnn_parameter& parameter, float clip) const;
};

#endif
