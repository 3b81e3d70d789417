/* A convolution along one axis, padded so that its length stays, through a matrix of windows. */
#include <stddef.h>

/* `cols` [W, IC, K] is workspace that may hold anything: it is written before it is read. */
void conv1d_backward(float *dx, float *dw, const float *dy, const float *x, const float *w,
                     float *cols, size_t N, size_t IC, size_t OC, size_t W, size_t K) {
    for (size_t i = 0; i < OC * IC * K; i++) dw[i] = 0;
    for (size_t i = 0; i < N * IC * W; i++) dx[i] = 0;
    for (size_t n = 0; n < N; n++) {
        for (size_t q = 0; q < W; q++)
            for (size_t c = 0; c < IC; c++)
                for (size_t k = 0; k < K; k++) {
                    size_t at = q + k - K / 2; /* wraps around where it is negative */
                    cols[(q * IC + c) * K + k] = at < W ? x[(n * IC + c) * W + at] : 0;
                }
        for (size_t o = 0; o < OC; o++)
            for (size_t q = 0; q < W; q++) {
                float d = dy[(n * OC + o) * W + q];
                for (size_t c = 0; c < IC; c++)
                    for (size_t k = 0; k < K; k++) {
                        size_t at = q + k - K / 2;
                        dw[(o * IC + c) * K + k] += d * cols[(q * IC + c) * K + k];
                        if (at < W) dx[(n * IC + c) * W + at] += d * w[(o * IC + c) * K + k];
                    }
            }
    }
}
