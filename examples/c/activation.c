/* Activations, one element at a time. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* In place: `d` holds dy before the call and dx after it. A symbol per dtype. */
void silu_backward_f32(float *d, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float s = 1 / (1 + expf(-x[i]));
        d[i] *= s * (1 + x[i] * (1 - s));
    }
}

void silu_backward_f64(double *d, const double *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double s = 1 / (1 + exp(-x[i]));
        d[i] *= s * (1 + x[i] * (1 - s));
    }
}

/* One backward for two forwards, from the saved output y: softcap (y = cap tanh(x/cap), below) and
 * plain tanh, which is softcap with cap = 1; its forward is in another library (forward.c). */
void softcap_forward(float *y, const float *x, float cap, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = cap * tanhf(x[i] / cap);
}

void softcap_backward(float *dx, const float *y, const float *dy, float cap, size_t n) {
    for (size_t i = 0; i < n; i++) dx[i] = dy[i] * (1 - (y[i] / cap) * (y[i] / cap));
}

/* The form is a C string, the result a status (0: it went well), `stream` is for another device and
 * not used here. */
int gelu_backward(const char *form, double *dx, const double *dy, const double *x, long n,
                  void *stream) {
    (void)stream;
    int erf_form = strcmp(form, "erf") == 0, quick = strcmp(form, "quick") == 0;
    if (!erf_form && !quick && strcmp(form, "tanh") != 0) return 1;
    for (long i = 0; i < n; i++) {
        double v = x[i], slope;
        if (erf_form) {
            slope = 0.5 * erfc(-v * 0.70710678118654752) +
                    v * 0.39894228040143268 * exp(-0.5 * v * v);
        } else if (quick) {
            double s = 1 / (1 + exp(-1.702 * v));
            slope = s + 1.702 * v * s * (1 - s);
        } else {
            double u = 0.79788456080286536 * (v + 0.044715 * v * v * v);
            double s = 1 / (1 + exp(-2 * u)); /* (1 + tanh u)/2, without cancellation */
            double du = 0.79788456080286536 * (1 + 3 * 0.044715 * v * v);
            slope = s + 2 * v * s / (1 + exp(2 * u)) * du;
        }
        dx[i] = dy[i] * slope;
    }
    return 0;
}

/* A float by value. */
void leaky_relu_backward(float *dx, const float *dy, const float *x, float slope, unsigned int n) {
    for (unsigned int i = 0; i < n; i++) dx[i] = x[i] > 0 ? dy[i] : slope * dy[i];
}

/* A double by value, also among floats. */
void elu_backward(float *dx, const float *dy, const float *x, double alpha, int n) {
    for (int i = 0; i < n; i++) dx[i] = x[i] > 0 ? dy[i] : (float)(dy[i] * alpha * exp(x[i]));
}

/* A mask of bytes, saved when the numbers were drawn. */
void dropout_backward(double *dx, const double *dy, const uint8_t *keep, double p, size_t n) {
    double scale = p < 1 ? 1 / (1 - p) : 0;
    for (size_t i = 0; i < n; i++) dx[i] = keep[i] ? dy[i] * scale : 0;
}

/* Two tensors in the halves of each row, [gate | up]; so are their gradients. */
void swiglu_forward(double *y, const double *h, size_t rows, size_t n) {
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++) {
            double g = h[2 * r * n + i];
            y[r * n + i] = g / (1 + exp(-g)) * h[2 * r * n + n + i];
        }
}

void swiglu_backward(double *dh, const double *h, const double *dy, size_t rows, size_t n) {
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++) {
            size_t gate = 2 * r * n + i, up = gate + n;
            double g = h[gate], s = 1 / (1 + exp(-g)), d = dy[r * n + i];
            dh[gate] = d * h[up] * s * (1 + g * (1 - s));
            dh[up] = d * g * s;
        }
}
