/* Tokens of three integer types; gradients of tables of which only some rows are used. */
#include <stddef.h>
#include <stdint.h>

/* Accumulated. Token plus position: out[b, t] = wte[token] + wpe[t]. */
void encoder_forward(float *out, const int32_t *inp, const float *wte, const float *wpe, int B,
                     int T, int C) {
    for (int t = 0; t < B * T; t++)
        for (int i = 0; i < C; i++) out[t * C + i] = wte[inp[t] * C + i] + wpe[t % T * C + i];
}

void encoder_backward(float *dwte, float *dwpe, const float *dout, const int32_t *inp, int B, int T,
                      int C) {
    for (int t = 0; t < B * T; t++)
        for (int i = 0; i < C; i++) {
            dwte[inp[t] * C + i] += dout[t * C + i];
            dwpe[t % T * C + i] += dout[t * C + i];
        }
}

/* Partly written: clears the rows that this batch uses, and no others (tokens fit in 16 bits). The
 * caller clears the whole table once. */
void lookup_backward(double *dtable, const double *dy, const uint16_t *tokens, size_t n, size_t C) {
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < C; i++) dtable[tokens[t] * C + i] = 0;
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < C; i++) dtable[tokens[t] * C + i] += dy[t * C + i];
}
