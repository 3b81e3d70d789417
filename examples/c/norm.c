/* Normalisations: what a trainer saves in its forward, and four ways to lay rows out in memory. */
#include <math.h>
#include <stdint.h>

/* Accumulated, with residuals: the forward saves mean and rstd, one per row; the backward ADDS to
 * dinp, dweight and dbias, as trainers do that clear all gradients once per step. */
void layernorm_forward(float *out, float *mean, float *rstd, const float *inp, const float *weight,
                       const float *bias, int B, int T, int C) {
    for (int t = 0; t < B * T; t++) {
        const float *x = inp + t * C;
        float m = 0, v = 0;
        for (int i = 0; i < C; i++) m += x[i] / C;
        for (int i = 0; i < C; i++) v += (x[i] - m) * (x[i] - m) / C;
        float s = 1 / sqrtf(v + 1e-5f);
        for (int i = 0; i < C; i++) out[t * C + i] = (x[i] - m) * s * weight[i] + bias[i];
        mean[t] = m;
        rstd[t] = s;
    }
}

void layernorm_backward(float *dinp, float *dweight, float *dbias, const float *dout,
                        const float *inp, const float *weight, const float *mean,
                        const float *rstd, int B, int T, int C) {
    for (int t = 0; t < B * T; t++) {
        const float *x = inp + t * C, *dy = dout + t * C;
        float mean_g = 0, mean_gn = 0; /* of g = w dy, and of g times the normalised row */
        for (int i = 0; i < C; i++) {
            float n = (x[i] - mean[t]) * rstd[t], g = weight[i] * dy[i];
            mean_g += g / C;
            mean_gn += g * n / C;
        }
        for (int i = 0; i < C; i++) {
            float n = (x[i] - mean[t]) * rstd[t];
            dbias[i] += dy[i];
            dweight[i] += n * dy[i];
            dinp[t * C + i] += (weight[i] * dy[i] - mean_g - n * mean_gn) * rstd[t];
        }
    }
}

/* Padded rows: each matrix has its own leading dimension, and what lies between its rows is not
 * this function's to touch. */
void layernorm_plain_backward(float *dx, int lddx, const float *dy, int lddy, const float *x,
                              int ldx, int rows, int cols, float eps) {
    for (int r = 0; r < rows; r++) {
        const float *row = x + r * ldx, *g = dy + r * lddy;
        double m = 0, v = 0, mean_g = 0, mean_gn = 0;
        for (int i = 0; i < cols; i++) m += row[i] / (double)cols;
        for (int i = 0; i < cols; i++) v += (row[i] - m) * (row[i] - m) / cols;
        double s = 1 / sqrt(v + eps);
        for (int i = 0; i < cols; i++) {
            mean_g += g[i] / (double)cols;
            mean_gn += g[i] * (row[i] - m) * s / cols;
        }
        for (int i = 0; i < cols; i++)
            dx[r * lddx + i] = (float)((g[i] - mean_g - (row[i] - m) * s * mean_gn) * s);
    }
}

/* A symbol per dtype from one macro. Only the backward is here: rstd comes from somebody else's
 * forward, so the manifest says how it follows from the primals. y = x rstd (1 + w). */
#define RMSNORM_BACKWARD(NAME, REAL)                                                              \
    void NAME(const REAL *w, const REAL *x, const REAL *rstd, const REAL *dy, int64_t cols,       \
              int64_t rows, REAL *dw, REAL *dx) {                                                 \
        for (int64_t i = 0; i < cols; i++) dw[i] = 0;                                             \
        for (int64_t r = 0; r < rows; r++) {                                                      \
            const REAL *xr = x + r * cols, *g = dy + r * cols;                                    \
            REAL s = rstd[r], mean = 0;                                                           \
            for (int64_t i = 0; i < cols; i++) mean += g[i] * (1 + w[i]) * xr[i] * s / cols;      \
            for (int64_t i = 0; i < cols; i++) {                                                  \
                dw[i] += g[i] * xr[i] * s;                                                        \
                dx[r * cols + i] = (g[i] * (1 + w[i]) - xr[i] * s * mean) * s;                    \
            }                                                                                     \
        }                                                                                         \
    }

RMSNORM_BACKWARD(rmsnorm_backward_f32, float)
RMSNORM_BACKWARD(rmsnorm_backward_f64, double)

/* Reversed dimensions: ne[0] is the length of the axis whose elements are neighbours, and there
 * are always four of them. */
void rmsnorm_plain_back(const float *dz, const float *x, float *dx, const int64_t ne[4],
                        float eps) {
    int64_t rows = ne[1] * ne[2] * ne[3];
    for (int64_t r = 0; r < rows; r++) {
        const float *xr = x + r * ne[0], *g = dz + r * ne[0];
        double squares = 0, dot = 0;
        for (int64_t i = 0; i < ne[0]; i++) {
            squares += (double)xr[i] * xr[i];
            dot += (double)xr[i] * g[i];
        }
        double ms = squares / ne[0] + eps;
        for (int64_t i = 0; i < ne[0]; i++)
            dx[r * ne[0] + i] = (float)((g[i] - xr[i] * dot / (ms * ne[0])) / sqrt(ms));
    }
}

/* Channels last: element (n, s, c) of x lies at (n * S + s) * C + c. `stats` is workspace of
 * another element type that may hold anything before. */
void groupnorm_nhwc_backward(float *dx, float *dw, float *db, const float *dy, const float *x,
                             const float *w, double *stats, int N, int S, int C, int groups,
                             float eps) {
    int per = C / groups;
    double count = (double)per * S;
    for (int c = 0; c < C; c++) dw[c] = db[c] = 0;
    for (int n = 0; n < N; n++)
        for (int g = 0; g < groups; g++) {
            double m = 0, v = 0, *mean_g = stats, *mean_gn = stats + 1;
            for (int s = 0; s < S; s++)
                for (int c = g * per; c < (g + 1) * per; c++) m += x[(n * S + s) * C + c] / count;
            for (int s = 0; s < S; s++)
                for (int c = g * per; c < (g + 1) * per; c++) {
                    double d = x[(n * S + s) * C + c] - m;
                    v += d * d / count;
                }
            double rstd = 1 / sqrt(v + eps);
            *mean_g = *mean_gn = 0;
            for (int s = 0; s < S; s++)
                for (int c = g * per; c < (g + 1) * per; c++) {
                    int at = (n * S + s) * C + c;
                    double normal = (x[at] - m) * rstd;
                    *mean_g += (double)dy[at] * w[c] / count;
                    *mean_gn += dy[at] * w[c] * normal / count;
                    dw[c] += (float)(dy[at] * normal);
                    db[c] += dy[at];
                }
            for (int s = 0; s < S; s++)
                for (int c = g * per; c < (g + 1) * per; c++) {
                    int at = (n * S + s) * C + c;
                    double normal = (x[at] - m) * rstd;
                    dx[at] = (float)(((double)dy[at] * w[c] - *mean_g - normal * *mean_gn) * rstd);
                }
        }
}
