/* solver [N] [STEPS]
 *
 * Three substances diffuse in a cube of N^3 (64^3) cells, with coefficients that depend
 * on how much there is: STEPS (4) implicit time steps. Each assembles the 7-point
 * matrices, factorizes them (incomplete Cholesky), solves by conjugate gradients, and
 * works out the fluxes. Some dozens of arrays of N^3 numbers and some of N^2 are
 * allocated and freed in every step; the results of the last three steps are kept. The
 * checksum is that of the numbers found, the same on every allocator. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>

#include "workload.h"

enum { SUBSTANCES = 3, HISTORY = 3, MOST_ITERATIONS = 500 };

static const double TIME_STEP = 0.8, TOLERANCE = 1e-10;

static size_t n, cells, pad, iterations;

/* An array of all cells, with a zero layer before and behind, so that neighbours
 * outside may be read. */
static double *array_new(void) {
  return (double *)got(calloc(cells + 2 * pad, sizeof(double))) + pad;
}

static void array_free(double *a) {
  for (size_t i = 1; i <= pad; i++)
    if (a[-(ptrdiff_t)i] != 0 || a[cells - 1 + i] != 0)
      fail("an array was overwritten beyond its cells");
  free(a - pad);
}

/* ---- The matrix: symmetric, so it has a diagonal and three lower neighbours ---- */

typedef struct matrix {
  double *diagonal, *x, *y, *z; /* couplings to cells i - 1, i - n, i - n * n */
  double *factor;               /* inverse diagonal of the incomplete Cholesky factor */
} matrix;

static void matrix_assemble(matrix *m, const double *k) {
  for (size_t i = 0; i < cells; i++) {
    double c = k[i] * TIME_STEP / 2;
    m->x[i] = i % n ? -c - k[i - 1] * TIME_STEP / 2 : 0;
    m->y[i] = i / n % n ? -c - k[i - n] * TIME_STEP / 2 : 0;
    m->z[i] = i / n / n ? -c - k[i - n * n] * TIME_STEP / 2 : 0;
  }
  for (size_t i = 0; i < cells; i++)
    m->diagonal[i] = 1.01 - m->x[i] - m->y[i] - m->z[i] - m->x[i + 1] - m->y[i + n] - m->z[i + n * n];
}

static void matrix_factorize(matrix *m) {
  for (ptrdiff_t i = 0, s = (ptrdiff_t)n; i < (ptrdiff_t)cells; i++)
    m->factor[i] = 1 / (m->diagonal[i] - m->x[i] * m->x[i] * m->factor[i - 1] - m->y[i] * m->y[i] * m->factor[i - s] -
                        m->z[i] * m->z[i] * m->factor[i - s * s]);
}

static matrix matrix_new(const double *conductivity) {
  matrix m = {array_new(), array_new(), array_new(), array_new(), array_new()};
  matrix_assemble(&m, conductivity);
  matrix_factorize(&m);
  return m;
}

static void matrix_free(matrix *m) {
  array_free(m->factor);
  array_free(m->x);
  array_free(m->y);
  array_free(m->z);
  array_free(m->diagonal);
}

static void multiply(double *to, const matrix *m, const double *v) {
  for (ptrdiff_t i = 0, s = (ptrdiff_t)n; i < (ptrdiff_t)cells; i++)
    to[i] = m->diagonal[i] * v[i] + m->x[i] * v[i - 1] + m->x[i + 1] * v[i + 1] + m->y[i] * v[i - s] +
            m->y[i + s] * v[i + s] + m->z[i] * v[i - s * s] + m->z[i + s * s] * v[i + s * s];
}

static void precondition(double *to, const matrix *m, const double *r) {
  ptrdiff_t s = (ptrdiff_t)n;
  for (ptrdiff_t i = 0; i < (ptrdiff_t)cells; i++)
    to[i] = (r[i] - m->x[i] * to[i - 1] - m->y[i] * to[i - s] - m->z[i] * to[i - s * s]) * m->factor[i];
  for (ptrdiff_t i = (ptrdiff_t)cells; i--;)
    to[i] -= (m->x[i + 1] * to[i + 1] + m->y[i + s] * to[i + s] + m->z[i + s * s] * to[i + s * s]) * m->factor[i];
}

/* ---- Conjugate gradients ---- */

static double product(const double *a, const double *b) {
  double sum = 0;
  for (size_t i = 0; i < cells; i++)
    sum += a[i] * b[i];
  return sum;
}

static void add(double *to, double factor, const double *v) {
  for (size_t i = 0; i < cells; i++)
    to[i] += factor * v[i];
}

/* Improves u until m * u is b; returns what remains of the residual. */
static double solve(double *u, const matrix *m, const double *b) {
  double *r = array_new(), *z = array_new(), *p = array_new(), *q = array_new();
  multiply(q, m, u);
  for (size_t i = 0; i < cells; i++)
    r[i] = b[i] - q[i];
  precondition(z, m, r);
  memcpy(p, z, cells * sizeof *p);
  double rz = product(r, z), goal = TOLERANCE * sqrt(product(b, b)), left = sqrt(product(r, r));
  for (size_t i = 0; left > goal; i++, iterations++) {
    if (i == MOST_ITERATIONS)
      fail("no solution after %zu iterations", i);
    multiply(q, m, p);
    double alpha = rz / product(p, q);
    add(u, alpha, p);
    add(r, -alpha, q);
    precondition(z, m, r);
    double before = rz, beta = (rz = product(r, z)) / before;
    for (size_t j = 0; j < cells; j++)
      p[j] = z[j] + beta * p[j];
    left = sqrt(product(r, r));
  }
  array_free(r);
  array_free(q);
  array_free(z);
  array_free(p);
  return left;
}

/* ---- A time step ---- */

/* What flows in one direction, summed over the lines of cells. */
static double flux(const double *u, const double *k, size_t stride) {
  double *f = array_new(), sum = 0;
  double *layer = got(malloc(n * n * sizeof *layer));
  for (size_t i = stride; i < cells; i++)
    f[i] = (u[i] - u[i - stride]) * (k[i] + k[i - stride]) / 2;
  for (size_t i = 0; i < n * n; i++) {
    layer[i] = 0;
    for (size_t j = 0; j < n; j++)
      layer[i] += fabs(f[i + j * n * n]);
    sum += layer[i];
  }
  free(layer);
  array_free(f);
  return sum;
}

typedef struct problem {
  double *coefficient, *right; /* right side */
  matrix m;
} problem;

static problem problem_new(const double *before, size_t substance) {
  double *k = array_new(), *source = array_new(), *b = array_new();
  for (size_t i = 0; i < cells; i++) {
    k[i] = 1 + 0.5 * before[i] / (1 + fabs(before[i])) + (i / n % 8 < 4 ? 0.25 : 0);
    source[i] = i % n == n / (2 + substance) && i / n % n == n / 3 ? 10 : 0;
    b[i] = before[i] + TIME_STEP * source[i];
  }
  array_free(source);
  return (problem){k, b, matrix_new(k)};
}

static void problem_free(problem *p) {
  array_free(p->right);
  matrix_free(&p->m);
  array_free(p->coefficient);
}

/* Returns the new amounts, and says what flowed. */
static double *problem_solve(const problem *p, const double *before, double *residual, double *flow) {
  double *u = array_new();
  memcpy(u, before, cells * sizeof *u);
  *residual += solve(u, &p->m, p->right);
  *flow = flux(u, p->coefficient, 1) + flux(u, p->coefficient, n) + flux(u, p->coefficient, n * n);
  return u;
}

static uint64_t checksum_add(uint64_t sum, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (sum ^ bits) * 0x100000001b3u;
}

typedef struct amounts {
  double *of[SUBSTANCES];
} amounts;

static amounts time_step(const amounts *before, double *residual, uint64_t *checksum) {
  problem p[SUBSTANCES];
  amounts now;
  *residual = 0;
  for (size_t i = 0; i < SUBSTANCES; i++)
    p[i] = problem_new(before->of[i], i);
  for (size_t i = 0; i < SUBSTANCES; i++) {
    double flow;
    now.of[i] = problem_solve(&p[i], before->of[i], residual, &flow);
    *checksum = checksum_add(checksum_add(*checksum, flow), product(now.of[i], now.of[i]));
  }
  for (size_t i = 0; i < SUBSTANCES; i++)
    problem_free(&p[i]);
  return now;
}

static void amounts_free(amounts *a) {
  for (size_t i = 0; i < SUBSTANCES; i++)
    if (a->of[i])
      array_free(a->of[i]);
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  n = argument(argc, argv, 1, 64, "N");
  size_t steps = argument(argc, argv, 2, 4, "STEPS");
  cells = n * n * n;
  pad = n * n;
  uint64_t checksum = 0xcbf29ce484222325u;
  double residual = 0;

  uint64_t start = now_ns();
  amounts history[HISTORY] = {{{NULL}}};
  for (size_t i = 0; i < SUBSTANCES; i++)
    history[0].of[i] = array_new();
  for (size_t step = 1; step <= steps; step++) {
    amounts_free(&history[step % HISTORY]);
    history[step % HISTORY] = time_step(&history[(step - 1) % HISTORY], &residual, &checksum);
  }
  for (size_t i = 0; i < HISTORY; i++)
    amounts_free(&history[i]);
  double time = seconds_since(start);
  long peak = status_kib("VmHWM");
  char text[17];
  snprintf(text, sizeof text, "%016" PRIx64, checksum);
  printf("solver: %zu^3 cells, %zu steps, %zu iterations, residual %.3g: %.3f s, peak %ld KiB, checksum %s\n", n, steps,
         iterations, residual, time, peak, text);
  figure("wall_s", time);
  figure("iterations", (double)iterations);
  figure("residual", residual);
  figure("peak_rss_kib", (double)peak);
  figure_text("checksum", text);
  figures_end();
  return 0;
}
