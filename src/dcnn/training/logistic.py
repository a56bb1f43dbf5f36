"""Logistic regression on sentence vectors, with soft targets: the head of a frozen encoder."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from dcnn.training.objective import cross_entropy

# Unit vectors (N, D), targets (N, classes) and weights (N,) of mean one, or none.
RegressionData = tuple[Tensor, Tensor, Tensor | None]


def fit_head(
    data: RegressionData, held_out: RegressionData | None, multi_label: bool
) -> tuple[Tensor, Tensor]:
    """Weights and bias of logistic regression, its regularization chosen on ``held_out``."""
    if held_out is None:
        return next(fit_logistic(*data, (10.0,), multi_label))
    best, best_loss = None, math.inf
    for head in fit_logistic(*data, (1.0, 3.0, 10.0, 30.0, 100.0), multi_label):
        logits = torch.addmm(head[1], held_out[0], head[0].T)
        loss = float(cross_entropy(logits, *held_out[1:], multi_label))
        if loss > best_loss:  # it has one minimum: weaker regularization only makes it worse
            break
        best, best_loss = head, loss
    assert best is not None  # noqa: S101
    return best


def fit_logistic(
    x: Tensor,
    targets: Tensor,
    weights: Tensor | None,
    strengths: Sequence[float],
    multi_label: bool,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Logistic regression on soft targets: weights (classes, D) and bias (classes,) per strength.

    The objective is scikit-learn's: ``strength`` times the sum of the weighted cross-entropies,
    plus half of the squared weights without the bias. As there, two classes are one sigmoid.
    L-BFGS starts from the previous solution and works in the principal axes of ``x``, scaled so
    that the curvature is about one in all directions: a dozen steps instead of hundreds.

    A class that no text has, or a label that no text or every text has, cannot be learned: its
    weights are 0, and its bias follows from its frequency, smoothed by half a text with it and half
    a text without.

    Args:
        x: (N, D) sentence vectors.
        targets: (N, classes) probabilities; of one label they sum to one.
        weights: (N,) of mean one, or none.
        strengths: inverse strengths of the L2 regularization, ascending.
        multi_label: whether each label has a sigmoid of its own.
    """
    count, dim = x.shape
    share = torch.ones(count, device=x.device) if weights is None else weights
    share = (share / share.sum())[:, None]  # (N, 1)
    prior = (share.double() * targets).sum(dim=0)  # (classes,)
    learned = prior > 1e-9
    if multi_label:
        learned &= prior < 1 - 1e-9
    binary = not multi_label and int(learned.sum()) == 2
    fitted = learned.nonzero()[:, 0][-1:] if binary else learned.nonzero()[:, 0]
    sigmoid, truth, frequency = multi_label or binary, targets[:, fitted], prior[fitted]
    mean = (share * x).sum(dim=0)
    centred = x - mean  # the bias, which is not regularized, makes up for it
    variances, axes = torch.linalg.eigh((centred.T @ (share * centred)).double())
    z = centred @ axes.float()
    curvature = (frequency * (1 - frequency)).clamp(min=1e-9)[:, None]  # (fitted, 1)
    weight = torch.zeros(len(fitted), dim, dtype=torch.float64, device=x.device)
    bias = torch.logit(frequency) if sigmoid else torch.log(frequency)
    smoothed = (count * prior + 0.5) / (count + 1)
    for strength in strengths:
        decay = 1 / (strength * count)
        scale = 1 / torch.sqrt(curvature * variances.clamp(min=0) + decay)  # (fitted, D)
        bias_scale = 1 / torch.sqrt(curvature[:, 0])
        u = (weight / scale).requires_grad_()
        v = (bias / bias_scale).requires_grad_()

        @torch.no_grad()
        def objective(
            u: Tensor = u,
            v: Tensor = v,
            scale: Tensor = scale,
            bias_scale: Tensor = bias_scale,
            decay: float = decay,
        ) -> Tensor:
            # The products in float32, twice as fast; sums in float64, for an exact line search.
            own = u * scale
            logits = torch.addmm((v * bias_scale).float(), z, own.float().T)
            if sigmoid:
                losses = torch.nn.functional.softplus(logits) - truth * logits
                probabilities = torch.sigmoid(logits)
            else:
                logs = torch.log_softmax(logits, dim=1)
                losses, probabilities = -truth * logs, logs.exp()
            errors = share * (probabilities - truth)  # (N, fitted)
            u.grad = ((errors.T @ z).double() + decay * own) * scale
            v.grad = errors.sum(dim=0).double() * bias_scale
            return (share * losses).double().sum() + decay / 2 * own.square().sum()

        if len(fitted) > (0 if sigmoid else 1):
            torch.optim.LBFGS(
                [u, v],
                max_iter=200,
                history_size=20,
                tolerance_grad=0,
                tolerance_change=1e-8,
                line_search_fn="strong_wolfe",
            ).step(objective)  # type: ignore[no-untyped-call]
        weight, bias = (u * scale).detach(), (v * bias_scale).detach()
        own, at_mean = weight @ axes.T, bias
        if binary:  # the second class against the first
            own, at_mean = torch.cat([-own, own]) / 2, torch.cat([-at_mean, at_mean]) / 2
        if not multi_label:  # logs of probabilities, to which those of the other classes compare
            at_mean = at_mean - torch.logsumexp(at_mean, dim=0)
        head = torch.zeros(len(prior), dim, dtype=torch.float64, device=x.device)
        head[learned] = own
        head_bias = torch.logit(smoothed) if multi_label else torch.log(smoothed)
        head_bias[learned] = at_mean - own @ mean.double()
        yield head.float(), head_bias.float()
