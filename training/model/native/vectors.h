/* Vectors and the one matrix product of the compiled code. Vectors are GCC's and Clang's own, so one source serves AVX-512, AVX2 and NEON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#if defined(__AVX512F__)
#define W 16
#define MR 8
#elif defined(__AVX__)
#define W 8
#define MR 4
#else
#define W 4
#define MR 4
#endif
typedef float vf __attribute__((vector_size(4 * W)));
typedef float vu __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef int vi __attribute__((vector_size(4 * W)));
#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) ((vf)*(const vu *)(p))
#define STORE(p, x) (*(vu *)(p) = (x))
INLINE long up(long n, long m) { return (n + m - 1) / m * m; }
INLINE vf all(float x) { return x - (vf){0}; }
INLINE vf choose(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }

/* exp to 2 units in the last place; 0 below -87, and what is no number stays none. */
INLINE vf vexp(vf given) {
    vi gone = given < -87.0f;
    vf x = choose(given > 88.0f, all(88.0f), choose(gone, all(0.0f), given)), n = x * 1.44269504f + 12582912.0f;
    vi e = (vi)n << 23;
    n -= 12582912.0f;
    x = x - n * 0.693359375f + n * 2.12194440e-4f;
    vf y = all(1.9875691500e-4f);
    y = y * x + 1.3981999507e-3f;
    y = y * x + 8.3334519073e-3f;
    y = y * x + 4.1665795894e-2f;
    y = y * x + 1.6666665459e-1f;
    y = y * x + 5.0000001201e-1f;
    y = y * x * x + x + 1.0f;
    return choose(given == given, (vf)(((vi)y + e) & ~gone), given);
}

/* C [m, n] = or += A [m, k] B [k, n]; A at strides (sm, sk), B and C row-major; n is a multiple of W. */
INLINE void tile(const int rows, const int wide, long k, const float *A, long sm, long sk, const float *B, long ldb, float *C, long ldc, int add) {
    vf acc[MR][2];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < wide; j++) acc[r][j] = add ? LOAD(C + r * ldc + j * W) : all(0.0f);
    for (long l = 0; l < k; l++) {
        vf b[2];
        for (int j = 0; j < wide; j++) b[j] = LOAD(B + l * ldb + j * W);
        for (int r = 0; r < rows; r++) {
            vf a = all(A[r * sm + l * sk]);
            for (int j = 0; j < wide; j++) acc[r][j] += a * b[j];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < wide; j++) STORE(C + r * ldc + j * W, acc[r][j]);
}
static void product(long m, long n, long k, const float *A, long sm, long sk, const float *B, long ldb, float *C, long ldc, int add) {
    for (long j = 0; j < n; j += 2 * W) {
        long i = 0;
        const float *b = B + j;
        if (n - j >= 2 * W) {
            for (; i + MR <= m; i += MR) tile(MR, 2, k, A + i * sm, sm, sk, b, ldb, C + i * ldc + j, ldc, add);
            for (; i + 2 <= m; i += 2) tile(2, 2, k, A + i * sm, sm, sk, b, ldb, C + i * ldc + j, ldc, add);
            for (; i < m; i++) tile(1, 2, k, A + i * sm, sm, sk, b, ldb, C + i * ldc + j, ldc, add);
        } else {
            for (; i + MR <= m; i += MR) tile(MR, 1, k, A + i * sm, sm, sk, b, ldb, C + i * ldc + j, ldc, add);
            for (; i + 2 <= m; i += 2) tile(2, 1, k, A + i * sm, sm, sk, b, ldb, C + i * ldc + j, ldc, add);
            for (; i < m; i++) tile(1, 1, k, A + i * sm, sm, sk, b, ldb, C + i * ldc + j, ldc, add);
        }
    }
}

INLINE float total(vf x) {
    float s = 0;
    for (int i = 0; i < W; i++) s += x[i];
    return s;
}

/* 1 / rms of x [d]. */
INLINE float inverse_rms(long d, float eps, const float *x) {
    float s = 0;
#pragma omp simd reduction(+ : s)
    for (long i = 0; i < d; i++) s += x[i] * x[i];
    return 1 / sqrtf(s / d + eps);
}

/* out [m] = silu(gate) * up. */
INLINE void gated(long m, const float *gate, const float *up, float *out) {
    long i = 0;
    for (; i + W <= m; i += W) {
        vf x = LOAD(gate + i);
        STORE(out + i, x / (1.0f + vexp(-x)) * LOAD(up + i));
    }
    for (; i < m; i++) out[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

/* s becomes the softmax of its first `live` numbers times `scale`, and 0 from there to `wide`, a multiple of W; returns the log of the normaliser. */
INLINE float softmax(float *s, long live, long wide, float scale) {
    for (long j = live; j < wide; j++) s[j] = -INFINITY;
    vf tops = LOAD(s), sums = all(0.0f);
    for (long j = W; j < wide; j += W) {
        vf x = LOAD(s + j);
        tops = choose(x > tops, x, tops);
    }
    float top = s[0];
    for (int j = 0; j < W; j++) top = tops[j] > top ? tops[j] : top;
    for (long j = 0; j < wide; j += W) {
        vf p = vexp((LOAD(s + j) - top) * scale);
        sums += p;
        STORE(s + j, p);
    }
    float sum = total(sums);
    for (long j = 0; j < wide; j += W) STORE(s + j, LOAD(s + j) * (1 / sum));
    return top * scale + logf(sum);
}
