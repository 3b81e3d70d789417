/* Losses: with and without an incoming cotangent, scaled, and together with their forward. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* Forward and backward in one call: the losses, one per row, and the gradient of the logits. */
void softmax_xent(float *dlogits, float *losses, const float *logits, const int32_t *targets,
                  const float *dlosses, int rows, int V) {
    for (int r = 0; r < rows; r++) {
        const float *x = logits + r * V;
        float top = x[0];
        double sum = 0;
        for (int i = 1; i < V; i++) top = fmaxf(top, x[i]);
        for (int i = 0; i < V; i++) sum += exp((double)x[i] - top);
        losses[r] = (float)(log(sum) - ((double)x[targets[r]] - top));
        for (int i = 0; i < V; i++) {
            double p = exp((double)x[i] - top) / sum;
            if (i != targets[r]) {
                dlogits[r * V + i] = (float)(dlosses[r] * p);
                continue;
            }
            double others = 0; /* 1 - p, without cancellation */
            for (int j = 0; j < V; j++) others += j == i ? 0 : exp((double)x[j] - top) / sum;
            dlogits[r * V + i] = (float)(-dlosses[r] * others);
        }
    }
}

/* No incoming cotangent: the mean loss is the end of the program, and the return value. Rows whose
 * target is `ignore` do not count. */
double masked_xent(double *dlogits, const double *logits, const int64_t *targets, int64_t ignore,
                   size_t rows, size_t V) {
    double loss = 0, count = 0;
    for (size_t r = 0; r < rows; r++) count += targets[r] != ignore;
    for (size_t r = 0; r < rows; r++) {
        const double *x = logits + r * V;
        double top = x[0], sum = 0, others = 0;
        for (size_t i = 1; i < V; i++) top = fmax(top, x[i]);
        for (size_t i = 0; i < V; i++) sum += exp(x[i] - top);
        for (size_t i = 0; i < V; i++) {
            double p = exp(x[i] - top) / sum;
            dlogits[r * V + i] = targets[r] == ignore ? 0 : p / count;
            if ((int64_t)i != targets[r]) others += p;
        }
        if (targets[r] == ignore) continue;
        dlogits[r * V + targets[r]] = -others / count;
        loss += (log(sum) + top - x[targets[r]]) / count;
    }
    return loss;
}

/* A loss scale: the gradients are `scale` times as large as the true ones, so that they survive in
 * a narrow type. One loss per row. */
void mse_backward(float *dx, float *dy, const float *dlosses, const float *x, const float *y,
                  float scale, size_t rows, size_t n) {
    for (size_t i = 0; i < rows * n; i++) {
        dx[i] = scale * dlosses[i / n] * 2 * (x[i] - y[i]) / n;
        dy[i] = -dx[i];
    }
}
