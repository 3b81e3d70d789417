/* Causal self-attention on packed rows [q | k | v], each a row of NH heads side by side. */
#include <math.h>

/* preatt (scores) and att (weights), both [B, NH, T, T], are kept for the backward. */
void attention_forward(float *out, float *preatt, float *att, const float *inp, int B, int T, int C,
                       int NH) {
    int hs = C / NH;
    float scale = 1 / sqrtf((float)hs);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            for (int h = 0; h < NH; h++) {
                const float *q = inp + (b * T + t) * 3 * C + h * hs;
                float *pre = preatt + ((b * NH + h) * T + t) * T;
                float *a = att + ((b * NH + h) * T + t) * T, *y = out + (b * T + t) * C + h * hs;
                float top = -INFINITY, sum = 0;
                for (int s = 0; s <= t; s++) {
                    const float *k = inp + (b * T + s) * 3 * C + C + h * hs;
                    pre[s] = 0;
                    for (int i = 0; i < hs; i++) pre[s] += q[i] * k[i] * scale;
                    top = fmaxf(top, pre[s]);
                }
                for (int s = 0; s <= t; s++) sum += expf(pre[s] - top);
                for (int s = 0; s < T; s++) a[s] = s <= t ? expf(pre[s] - top) / sum : 0;
                for (int s = t + 1; s < T; s++) pre[s] = 0;
                for (int i = 0; i < hs; i++) {
                    y[i] = 0;
                    for (int s = 0; s <= t; s++)
                        y[i] += a[s] * inp[(b * T + s) * 3 * C + 2 * C + h * hs + i];
                }
            }
}

/* Accumulated, with scratch that must be zero: adds to dinp, and uses dpreatt and datt as sums that
 * begin at zero. */
void attention_backward(float *dinp, float *dpreatt, float *datt, const float *dout,
                        const float *inp, const float *att, int B, int T, int C, int NH) {
    int hs = C / NH;
    float scale = 1 / sqrtf((float)hs);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            for (int h = 0; h < NH; h++) {
                int row = ((b * NH + h) * T + t) * T, here = (b * T + t) * 3 * C + h * hs;
                const float *a = att + row, *dy = dout + (b * T + t) * C + h * hs;
                float *da = datt + row, *dpre = dpreatt + row, dot = 0;
                for (int s = 0; s <= t; s++) {
                    int there = (b * T + s) * 3 * C + h * hs;
                    for (int i = 0; i < hs; i++) {
                        da[s] += inp[there + 2 * C + i] * dy[i];
                        dinp[there + 2 * C + i] += a[s] * dy[i];
                    }
                    dot += a[s] * da[s];
                }
                for (int s = 0; s <= t; s++) {
                    int there = (b * T + s) * 3 * C + h * hs;
                    dpre[s] += a[s] * (da[s] - dot);
                    for (int i = 0; i < hs; i++) {
                        dinp[here + i] += inp[there + C + i] * dpre[s] * scale;
                        dinp[there + C + i] += inp[here + i] * dpre[s] * scale;
                    }
                }
            }
}
