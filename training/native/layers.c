/* What a decoder layer does between its matrix products, for float32 on a CPU, each in one pass over memory (see __init__.py).

   Every function returns 0, or 1 where memory did not hold its work.
   Results do not depend on the number of threads: every number is summed by one thread, in one order. Nothing is checked here: layers.py
   gives what the functions say they take.

   T tokens in a stream, H query heads and G key heads of D numbers each; N = H + 2 G.
   A span is four numbers: its tokens begin at `at`, there are `n` of them, and before them it reads `common` tokens from `from` on.
   Spans of one cluster read the same beginning: clusters[c] .. clusters[c + 1] are the spans of cluster c. */
#include "vectors.h"

#define CHUNKS 16 /* in which gradients of norms are summed: fixed, so that threads change nothing */
#define BLOCK 32  /* queries worked off together */

/* y [T, d] = x / rms(x) * w; r [T] = 1 / rms(x). */
int norm_forward(long T, long d, float eps, const float *x, const float *w, float *y, float *r) {
#pragma omp parallel for schedule(static)
    for (long t = 0; t < T; t++) {
        const float *a = x + t * d;
        float s = 0;
#pragma omp simd reduction(+ : s)
        for (long i = 0; i < d; i++) s += a[i] * a[i];
        float f = r[t] = 1 / sqrtf(s / d + eps);
        for (long i = 0; i < d; i++) y[t * d + i] = a[i] * f * w[i];
    }
    return 0;
}
/* dx = the gradient of `norm_forward` for dy, plus `more` [T, d] (or NULL); y as it gave; part [CHUNKS, d] sums to the gradient of w. */
int norm_backward(long T, long d, const float *x, const float *w, const float *r, const float *dy, const float *more, float *dx, float *y, float *part) {
    memset(part, 0, sizeof(float) * CHUNKS * d);
#pragma omp parallel for schedule(static)
    for (int c = 0; c < CHUNKS; c++) {
        float *dw = part + c * d;
        for (long t = T * c / CHUNKS; t < T * (c + 1) / CHUNKS; t++) {
            const float *a = x + t * d, *g = dy + t * d;
            float f = r[t], s = 0;
#pragma omp simd reduction(+ : s)
            for (long i = 0; i < d; i++) s += g[i] * w[i] * a[i];
            s *= f * f * f / d;
            for (long i = 0; i < d; i++) {
                float n = a[i] * f;
                dw[i] += g[i] * n;
                y[t * d + i] = n * w[i];
                dx[t * d + i] = g[i] * w[i] * f - a[i] * s;
            }
            if (more)
                for (long i = 0; i < d; i++) dx[t * d + i] += more[t * d + i];
        }
    }
    return 0;
}

/* Query and key heads of qkv [T, N D], normed (wq, wk [D]; NULL: not) and turned by angles (cos, sin [T, D/2]) -> out [T, (H + G) D];
   r [T, H + G] = 1 / rms of each head. */
int turn_forward(long T, long H, long G, long D, float eps, const float *qkv, const float *wq, const float *wk, const float *cs, const float *sn, float *out, float *r) {
    long half = D / 2;
#pragma omp parallel for schedule(static)
    for (long t = 0; t < T; t++) {
        const float *c = cs + t * half, *s = sn + t * half;
        for (long h = 0; h < H + G; h++) {
            const float *a = qkv + (t * (H + 2 * G) + h) * D, *w = h < H ? wq : wk;
            float *o = out + (t * (H + G) + h) * D;
            if (w) {
                float q = 0;
#pragma omp simd reduction(+ : q)
                for (long i = 0; i < D; i++) q += a[i] * a[i];
                float f = r[t * (H + G) + h] = 1 / sqrtf(q / D + eps);
                for (long i = 0; i < half; i++) {
                    float u = a[i] * f * w[i], v = a[i + half] * f * w[i + half];
                    o[i] = u * c[i] - v * s[i];
                    o[i + half] = v * c[i] + u * s[i];
                }
            } else
                for (long i = 0; i < half; i++) {
                    o[i] = a[i] * c[i] - a[i + half] * s[i];
                    o[i + half] = a[i + half] * c[i] + a[i] * s[i];
                }
        }
    }
    return 0;
}
/* dout [T, (H + G) D] -> the query and key heads of dqkv [T, N D]; part [CHUNKS, 2 D] sums to the gradients of wq and wk. */
int turn_backward(long T, long H, long G, long D, const float *qkv, const float *wq, const float *wk, const float *cs, const float *sn, const float *r, const float *dout, float *dqkv, float *part) {
    long half = D / 2;
    memset(part, 0, sizeof(float) * CHUNKS * 2 * D);
#pragma omp parallel for schedule(static)
    for (int k = 0; k < CHUNKS; k++)
        for (long t = T * k / CHUNKS; t < T * (k + 1) / CHUNKS; t++) {
            const float *c = cs + t * half, *s = sn + t * half;
            for (long h = 0; h < H + G; h++) {
                const float *a = qkv + (t * (H + 2 * G) + h) * D, *g = dout + (t * (H + G) + h) * D, *w = h < H ? wq : wk;
                float *o = dqkv + (t * (H + 2 * G) + h) * D, *dw = part + (k * 2 + (h >= H)) * D;
                for (long i = 0; i < half; i++) {
                    o[i] = g[i] * c[i] + g[i + half] * s[i];
                    o[i + half] = g[i + half] * c[i] - g[i] * s[i];
                }
                if (w) {
                    float f = r[t * (H + G) + h], q = 0;
#pragma omp simd reduction(+ : q)
                    for (long i = 0; i < D; i++) q += o[i] * w[i] * a[i];
                    q *= f * f * f / D;
                    for (long i = 0; i < D; i++) {
                        dw[i] += o[i] * a[i] * f;
                        o[i] = o[i] * w[i] * f - a[i] * q;
                    }
                }
            }
        }
    return 0;
}

/* a [T, m] = silu(gate) * up of both [T, 2 m] (gate, then up). */
int gate_forward(long T, long m, const float *both, float *a) {
#pragma omp parallel for schedule(static)
    for (long t = 0; t < T; t++) {
        const float *g = both + t * 2 * m, *u = g + m;
        float *o = a + t * m;
        long i = 0;
        for (; i + W <= m; i += W) {
            vf x = LOAD(g + i);
            STORE(o + i, x / (1.0f + vexp(-x)) * LOAD(u + i));
        }
        for (; i < m; i++) o[i] = g[i] / (1 + expf(-g[i])) * u[i];
    }
    return 0;
}
/* da [T, m] -> dboth [T, 2 m]; a as `gate_forward` gave. */
int gate_backward(long T, long m, const float *both, const float *da, float *dboth, float *a) {
#pragma omp parallel for schedule(static)
    for (long t = 0; t < T; t++) {
        const float *g = both + t * 2 * m, *u = g + m, *d = da + t * m;
        float *dg = dboth + t * 2 * m, *du = dg + m, *o = a + t * m;
        long i = 0;
        for (; i + W <= m; i += W) {
            vf x = LOAD(g + i), y = LOAD(u + i), z = LOAD(d + i), s = 1.0f / (1.0f + vexp(-x)), f = x * s;
            STORE(o + i, f * y);
            STORE(du + i, z * f);
            STORE(dg + i, z * y * (s + f * (1.0f - s)));
        }
        for (; i < m; i++) {
            float s = 1 / (1 + expf(-g[i])), f = g[i] * s;
            o[i] = f * u[i];
            du[i] = d[i] * f;
            dg[i] = d[i] * u[i] * (s + f * (1 - s));
        }
    }
    return 0;
}

/* Rows of a span's keys or values: row j of its `common + n`, in x with rows of `stride` numbers. */
INLINE const float *seen(const float *x, long stride, const long *span, long j) {
    return x + (j < span[3] ? span[2] + j : span[0] + j - span[3]) * stride;
}
/* across [D, L] and, where they are wanted, rows [L, P] of a span's keys or values; padding is 0. */
static void lay(const float *x, long stride, const long *span, long D, long L, long P, float *across, float *rows) {
    long keys = span[3] + span[1];
    for (long j = 0; j < L; j++) {
        const float *k = j < keys ? seen(x, stride, span, j) : NULL;
        if (across)
            for (long i = 0; i < D; i++) across[i * L + j] = k ? k[i] : 0;
        if (rows)
            for (long i = 0; i < P; i++) rows[j * P + i] = k && i < D ? k[i] : 0;
    }
}

/* Causal attention: turned qk [T, (H + G) D], values in qkv [T, N D] -> y [T, H D], lse [T, H]. */
int attend_forward(long H, long G, long D, float scale, const float *qk, const float *qkv, long C, const long *clusters, const long *spans, long longest, float *y, float *lse) {
    long P = up(D, W), most = up(longest, W), sq = (H + G) * D, sv = (H + 2 * G) * D;
    int failed = 0;
#pragma omp parallel
    {
        float *KT = malloc(sizeof(float) * (D * most + most * P + BLOCK * most + BLOCK * P));
        float *V = KT + D * most, *S = V + most * P, *Y = S + BLOCK * most;
        if (!KT) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for schedule(dynamic)
        for (long job = 0; job < C * G; job++) {
            if (!KT) continue;
            long g = job % G;
            for (long i = clusters[job / G]; i < clusters[job / G + 1]; i++) {
                const long *span = spans + 4 * i, n = span[1], before = span[3], L = up(before + n, W);
                lay(qk + (H + g) * D, sq, span, D, L, P, KT, NULL);
                lay(qkv + (H + G + g) * D, sv, span, D, L, P, NULL, V);
                for (long h = g * (H / G); h < (g + 1) * (H / G); h++)
                    for (long lo = 0; lo < n; lo += BLOCK) {
                        long b = n - lo < BLOCK ? n - lo : BLOCK, wide = up(before + lo + b, W);
                        product(b, wide, D, qk + (span[0] + lo) * sq + h * D, sq, 1, KT, L, S, most, 0);
                        for (long r = 0; r < b; r++) {
                            float *s = S + r * most, top = s[0], sum = 0;
                            long live = before + lo + r + 1;
                            for (long j = live; j < wide; j++) s[j] = -INFINITY;
                            vf tops = LOAD(s), sums = all(0.0f);
                            for (long j = W; j < wide; j += W) {
                                vf x = LOAD(s + j);
                                tops = choose(x > tops, x, tops);
                            }
                            for (int j = 0; j < W; j++) top = tops[j] > top ? tops[j] : top;
                            for (long j = 0; j < wide; j += W) {
                                vf p = vexp((LOAD(s + j) - top) * scale);
                                sums += p;
                                STORE(s + j, p);
                            }
                            for (int j = 0; j < W; j++) sum += sums[j];
                            for (long j = 0; j < wide; j += W) STORE(s + j, LOAD(s + j) * (1 / sum));
                            lse[(span[0] + lo + r) * H + h] = top * scale + logf(sum);
                        }
                        product(b, P, wide, S, most, 1, V, P, Y, P, 0);
                        for (long r = 0; r < b; r++) memcpy(y + ((span[0] + lo + r) * H + h) * D, Y + r * P, sizeof(float) * D);
                    }
            }
        }
        free(KT);
    }
    return failed;
}

/* dy [T, H D] -> dqk [T, (H + G) D], whose keys must be 0 beforehand, and the values of dqkv [T, N D], which must be too. */
int attend_backward(long H, long G, long D, float scale, const float *qk, const float *qkv, long C, const long *clusters, const long *spans, long longest, const float *y, const float *lse, const float *dy, float *dqk, float *dqkv) {
    long P = up(D, W), most = up(longest, W), sq = (H + G) * D, sv = (H + 2 * G) * D;
    int failed = 0;
#pragma omp parallel
    {
        float *KT = malloc(sizeof(float) * (4 * D * most + most * P + 2 * BLOCK * most + BLOCK * P));
        float *VT = KT + D * most, *dKT = VT + D * most, *dVT = dKT + D * most, *K = dVT + D * most, *S = K + most * P, *dS = S + BLOCK * most,
              *dQ = dS + BLOCK * most;
        if (!KT) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for schedule(dynamic)
        for (long job = 0; job < C * G; job++) {
            if (!KT) continue;
            long g = job % G;
            for (long i = clusters[job / G]; i < clusters[job / G + 1]; i++) {
                const long *span = spans + 4 * i, n = span[1], before = span[3], L = up(before + n, W);
                lay(qk + (H + g) * D, sq, span, D, L, P, KT, K);
                lay(qkv + (H + G + g) * D, sv, span, D, L, P, VT, NULL);
                memset(dKT, 0, sizeof(float) * D * L);
                memset(dVT, 0, sizeof(float) * D * L);
                for (long h = g * (H / G); h < (g + 1) * (H / G); h++)
                    for (long lo = 0; lo < n; lo += BLOCK) {
                        long b = n - lo < BLOCK ? n - lo : BLOCK, wide = up(before + lo + b, W), at = span[0] + lo;
                        const float *q = qk + at * sq + h * D, *o = dy + (at * H + h) * D;
                        product(b, wide, D, q, sq, 1, KT, L, S, most, 0);
                        product(b, wide, D, o, H * D, 1, VT, L, dS, most, 0);
                        for (long r = 0; r < b; r++) {
                            float *s = S + r * most, *ds = dS + r * most, delta = 0, z = lse[(at + r) * H + h];
                            const float *a = y + ((at + r) * H + h) * D, *c = o + r * H * D;
                            for (long j = before + lo + r + 1; j < wide; j++) s[j] = -INFINITY;
#pragma omp simd reduction(+ : delta)
                            for (long j = 0; j < D; j++) delta += a[j] * c[j];
                            for (long j = 0; j < wide; j += W) {
                                vf p = vexp(LOAD(s + j) * scale - z);
                                STORE(s + j, p);
                                STORE(ds + j, p * (LOAD(ds + j) - delta) * scale);
                            }
                        }
                        product(b, P, wide, dS, most, 1, K, P, dQ, P, 0);
                        for (long r = 0; r < b; r++) memcpy(dqk + (at + r) * sq + h * D, dQ + r * P, sizeof(float) * D);
                        product(D, wide, b, q, 1, sq, dS, most, dKT, L, 1);
                        product(D, wide, b, o, 1, H * D, S, most, dVT, L, 1);
                    }
                for (long j = 0; j < before + n; j++) {
                    float *dk = (float *)seen(dqk + (H + g) * D, sq, span, j), *dv = (float *)seen(dqkv + (H + G + g) * D, sv, span, j);
                    for (long x = 0; x < D; x++) {
                        dk[x] += dKT[x * L + j];
                        dv[x] += dVT[x * L + j];
                    }
                }
            }
        }
        free(KT);
    }
    return failed;
}
