/* Turns of many conversations, sampled token by token, for float32 on a CPU: all that a decode step does in one call (see decode.py).

   A thread works on up to ROWS conversations at a time; where one ends, the next that waits takes its place. What a row gets depends on no
   other row, nor on the number of threads: every number is summed in one order.

   H query heads and G key heads of D numbers, N = H + 2 G, hidden size d, gates m, vocabulary V. Weights are [in, out], each row padded with zeros to a multiple of 16 numbers. */
#include "vectors.h"

#define ROWS 16
#define LOWEST -1e4f

typedef struct {
    long layers, H, G, D, d, m, V;
    float eps, scale;
    const float *embedding, *norm, *head, *cs, *sn; /* [V, d], [d], [d, V], cos and sin [positions, D/2] */
} Model;
typedef struct {
    const float *before, *qkv, *bias, *wq, *wk, *out, *after, *up, *down; /* bias [N D] and norms wq, wk [D] may be NULL */
    float *keys, *values;                                                /* [slots, G, capacity, D] */
    const float *shared_keys, *shared_values;                            /* of prompts, by their strides; may be NULL */
} Layer;
typedef struct {
    long n, capacity, stride_prompt, stride_head; /* conversations; columns of a slot; between prompts, and their heads */
    const long *slot, *prompt, *before;           /* [n] slot, prompt and the prompt's tokens of each */
    long *held;                                   /* [n] own tokens in the cache */
    float *last;                                  /* [slots, d] hidden state after the last token */
} Rows;
typedef struct {
    long steps, limit; /* at most `steps` tokens now; arrays by row have `limit` + 1 places */
    float temperature;
    const long *row;              /* [n] row of each conversation in the arrays by row */
    long *length;                 /* [n] tokens of this turn */
    const unsigned char *may_end; /* [V] ids after which to stop and ask */
    const double *uniforms;       /* [all rows, limit] */
    long *ids;                    /* [all rows, limit + 1] */
    float *logp, *entropy;        /* [all rows, limit + 1] */
} Turn;

#if W == 16
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif W == 8
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#else
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#endif

/* s [n] (W more may be written) = q . each of n rows of K. */
static void dots(const float *q, const float *K, long n, long D, float *s) {
    for (long j = 0; j < n; j += W) {
        vf acc[W];
        float rest[W];
        for (int x = 0; x < W; x++) {
            const float *k = K + (j + x < n ? j + x : n - 1) * D;
            long i = 0;
            acc[x] = all(0.0f);
            rest[x] = 0;
            for (; i + W <= D; i += W) acc[x] += LOAD(q + i) * LOAD(k + i);
            for (; i < D; i++) rest[x] += q[i] * k[i];
        }
        for (int half = W / 2; half; half /= 2)
            for (int x = 0; x < half; x++)
                acc[x] = __builtin_shufflevector(acc[2 * x], acc[2 * x + 1], EVEN) + __builtin_shufflevector(acc[2 * x], acc[2 * x + 1], ODD);
        STORE(s + j, acc[0] + LOAD(rest));
    }
}
/* y [D] += the rows of V weighed by p [n]. */
static void mix(const float *p, const float *V, long n, long D, float *y) {
    long i = 0;
    for (; i + W <= D; i += W) {
        vf a = LOAD(y + i), b = all(0.0f);
        long j = 0;
        for (; j + 2 <= n; j += 2) {
            a += p[j] * LOAD(V + j * D + i);
            b += p[j + 1] * LOAD(V + (j + 1) * D + i);
        }
        for (; j < n; j++) a += p[j] * LOAD(V + j * D + i);
        STORE(y + i, a + b);
    }
    for (; i < D; i++)
        for (long j = 0; j < n; j++) y[i] += p[j] * V[j * D + i];
}

INLINE void normed(long d, float eps, const float *x, const float *w, float *y) {
    float s = inverse_rms(d, eps, x);
    for (long i = 0; i < d; i++) y[i] = w ? x[i] * s * w[i] : x[i] * s;
}

/* Softmax attention of one query to the prompt (n of them) and the row's own keys. */
static void attend(const float *q, const float *k1, const float *v1, long n1, const float *k2, const float *v2, long n2, long D, float scale, float *s, float *y) {
    if (n1) dots(q, k1, n1, D, s);
    dots(q, k2, n2, D, s + n1);
    softmax(s, n1 + n2, up(n1 + n2, W), scale);
    memset(y, 0, sizeof(float) * D);
    if (n1) mix(s, v1, n1, D, y);
    mix(s + n1, v2, n2, D, y);
}

/* From logits z [V] (padded with anything to a multiple of W) the next id by inverse CDF, its log-prob and the entropy, after the
   temperature; at temperature 0 the likeliest id, its numbers those of temperature 1. */
static long draw(float *z, long V, float temperature, double u, float *logp, float *entropy) {
    long full = up(V, W), at = 0;
    for (long j = V; j < full; j++) z[j] = -INFINITY;
    if (temperature > 0 && temperature != 1)
        for (long j = 0; j < full; j++) z[j] /= temperature;
    float top = z[0];
    for (long j = 1; j < V; j++)
        if (z[j] > top || top != top) top = z[j], at = j;
    double all_of_it = 0, moment = 0;
    for (long j = 0; j < full; j += W) { /* z becomes z - top, in blocks whose sums are kept in float64 */
        vf x = LOAD(z + j) - top;
        x = choose(x < LOWEST, all(LOWEST), x);
        STORE(z + j, x);
        vf p = vexp(x);
        all_of_it += total(p);
        moment += total(p * x);
    }
    if (temperature > 0) {
        double want = u * all_of_it, so_far = 0;
        long j = 0;
        for (; j + W < full; j += W) {
            double more = total(vexp(LOAD(z + j)));
            if (so_far + more > want) break;
            so_far += more;
        }
        vf p = vexp(LOAD(z + j));
        long last = at;
        at = -1;
        for (long i = 0; i < W && j + i < V; i++) {
            if (p[i] > 0) last = j + i;
            so_far += p[i];
            if (so_far > want) {
                at = j + i;
                break;
            }
        }
        if (at < 0) at = last; /* rounding left nothing: the last that can be drawn */
    }
    float log_total = (float)log(all_of_it);
    *logp = z[at] - log_total;
    *entropy = log_total - (float)(moment / all_of_it);
    return at;
}

/* What a thread needs to bring ROWS tokens through the layers: x their states, z logits, the rest passing. */
typedef struct {
    float *x, *h, *qkv, *y, *both, *a, *z, *s;
} Work;
/* Where a token stands: its conversation's slot, prompt and the prompt's tokens, and how many tokens of its own come before it. */
typedef struct {
    long slot, prompt, before, held;
} Token;

/* Memory for `through`, to be freed by its x; x is NULL where there is none. longest: tokens of the longest conversation. */
static Work work_for(const Model *M, long longest) {
    long d = up(M->d, 16), n = up((M->H + 2 * M->G) * M->D, 16), h = up(M->H * M->D, 16), m = up(2 * M->m, 16), a = up(M->m, 16), v = up(M->V, 16);
    float *x = calloc(ROWS * (3 * d + n + h + m + a + v) + up(longest, W) + W, sizeof(float));
    Work w = {.x = x};
    if (x) {
        w.h = x + ROWS * d, w.qkv = w.h + ROWS * d, w.y = w.qkv + ROWS * n, w.both = w.y + ROWS * h, w.a = w.both + ROWS * m, w.z = w.a + ROWS * a;
        w.s = w.z + ROWS * v;
    }
    return w;
}

/* `live` tokens, whose embeddings lie in x, go through all layers; their keys and values are written. Of one conversation they stand in order. */
static void through(const Model *M, const Layer *layers, const Rows *rows, long live, const Token *at, Work w) {
    long d = M->d, D = M->D, H = M->H, G = M->G, N = H + 2 * G, dp = up(d, 16), np = up(N * D, 16), mp = up(2 * M->m, 16), ap = up(M->m, 16), hp = H * D;
    for (long l = 0; l < M->layers; l++) {
        const Layer *L = layers + l;
        for (long r = 0; r < live; r++) normed(d, M->eps, w.x + r * dp, L->before, w.h + r * dp);
        product(live, np, d, w.h, dp, 1, L->qkv, np, w.qkv, np, 0);
        for (long r = 0; r < live; r++) {
            long before = at[r].before, held = at[r].held;
            float *p = w.qkv + r * np;
            const float *c = M->cs + (before + held) * (D / 2), *s = M->sn + (before + held) * (D / 2);
            if (L->bias)
                for (long j = 0; j < N * D; j++) p[j] += L->bias[j];
            for (long j = 0; j < H + G; j++) {
                float *v = p + j * D;
                if (L->wq) normed(D, M->eps, v, j < H ? L->wq : L->wk, v);
                for (long k = 0; k < D / 2; k++) {
                    float e = v[k], f = v[k + D / 2];
                    v[k] = e * c[k] - f * s[k];
                    v[k + D / 2] = f * c[k] + e * s[k];
                }
            }
            for (long g = 0; g < G; g++) {
                long own = (at[r].slot * G + g) * rows->capacity * D, prompt = at[r].prompt * rows->stride_prompt + g * rows->stride_head;
                float *keys = L->keys + own, *values = L->values + own;
                memcpy(keys + held * D, p + (H + g) * D, sizeof(float) * D);
                memcpy(values + held * D, p + (H + G + g) * D, sizeof(float) * D);
                for (long q = g * (H / G); q < (g + 1) * (H / G); q++)
                    attend(p + q * D, before ? L->shared_keys + prompt : NULL, before ? L->shared_values + prompt : NULL, before, keys, values, held + 1,
                           D, M->scale, w.s, w.y + r * hp + q * D);
            }
        }
        product(live, dp, hp, w.y, hp, 1, L->out, dp, w.x, dp, 1);
        for (long r = 0; r < live; r++) normed(d, M->eps, w.x + r * dp, L->after, w.h + r * dp);
        product(live, mp, d, w.h, dp, 1, L->up, mp, w.both, mp, 0);
        for (long r = 0; r < live; r++) gated(M->m, w.both + r * mp, w.both + r * mp + M->m, w.a + r * ap);
        product(live, dp, M->m, w.a, ap, 1, L->down, dp, w.x, dp, 1);
    }
}

/* Conversations are given new tokens: those of the i-th are ids[begin[i]] to ids[begin[i + 1]], one at least. Returns 0, or 1 where memory does
   not hold it. */
int read_tokens(const Model *M, const Layer *layers, const Rows *rows, const long *ids, const long *begin) {
    long d = M->d, dp = up(d, 16), longest = 0;
    int failed = 0;
    for (long i = 0; i < rows->n; i++) {
        long n = rows->before[i] + rows->held[i] + begin[i + 1] - begin[i];
        longest = n > longest ? n : longest;
    }
#pragma omp parallel
    {
        Work w = work_for(M, longest);
        if (!w.x) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for schedule(dynamic)
        for (long i = 0; i < rows->n; i++) {
            long n = begin[i + 1] - begin[i], live = 0;
            for (long lo = 0; w.x && lo < n; lo += live) {
                Token at[ROWS];
                live = n - lo < ROWS ? n - lo : ROWS;
                for (long r = 0; r < live; r++) {
                    at[r] = (Token){rows->slot[i], rows->prompt[i], rows->before[i], rows->held[i] + lo + r};
                    memcpy(w.x + r * dp, M->embedding + ids[begin[i] + lo + r] * d, sizeof(float) * d);
                }
                through(M, layers, rows, live, at, w);
            }
            if (live) normed(d, M->eps, w.x + (live - 1) * dp, M->norm, rows->last + rows->slot[i] * d);
            rows->held[i] += n;
        }
        free(w.x);
    }
    return failed;
}

/* Tokens of every conversation of the turn until it may end, or `steps` of them, or its limit. Returns 0, or 1 where memory does not hold it. */
int decode(const Model *M, const Layer *layers, const Rows *rows, const Turn *turn) {
    long d = M->d, dp = up(d, 16), vp = up(M->V, 16), longest = 0, next = 0;
    int failed = 0;
    for (long i = 0; i < rows->n; i++) {
        long n = rows->before[i] + rows->held[i] + turn->steps;
        longest = n > longest ? n : longest;
    }
#pragma omp parallel
    {
        Work w = work_for(M, longest);
        long mine[ROWS], left[ROWS], live = 0;
        if (!w.x) {
#pragma omp atomic write
            failed = 1;
        }
        while (w.x) {
            while (live < ROWS) { /* whoever waits comes in */
                long i;
#pragma omp atomic capture
                i = next++;
                if (i >= rows->n) break;
                mine[live] = i;
                left[live++] = turn->steps;
            }
            if (!live) break;
            for (long r = 0; r < live; r++) memcpy(w.h + r * dp, rows->last + rows->slot[mine[r]] * d, sizeof(float) * d);
            product(live, vp, d, w.h, dp, 1, M->head, vp, w.z, vp, 0);
            Token at[ROWS];
            for (long r = 0; r < live; r++) {
                long i = mine[r], row = turn->row[i], to = row * (turn->limit + 1) + turn->length[i];
                double u = turn->uniforms[row * turn->limit + turn->length[i]];
                turn->ids[to] = draw(w.z + r * vp, M->V, turn->temperature, u, turn->logp + to, turn->entropy + to);
                memcpy(w.x + r * dp, M->embedding + turn->ids[to] * d, sizeof(float) * d);
                turn->length[i]++;
                at[r] = (Token){rows->slot[i], rows->prompt[i], rows->before[i], rows->held[i]};
            }
            through(M, layers, rows, live, at, w);
            for (long r = live - 1; r >= 0; r--) {
                long i = mine[r], row = turn->row[i];
                normed(d, M->eps, w.x + r * dp, M->norm, rows->last + rows->slot[i] * d);
                rows->held[i]++;
                left[r]--;
                if (!left[r] || turn->length[i] == turn->limit || turn->may_end[turn->ids[row * (turn->limit + 1) + turn->length[i] - 1]]) {
                    live--;
                    mine[r] = mine[live];
                    left[r] = left[live];
                }
            }
        }
        free(w.x);
    }
    return failed;
}
