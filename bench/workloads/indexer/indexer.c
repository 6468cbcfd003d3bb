/* indexer: builds a full-text index of real text found on this machine.
 *
 *   STEP 1  N threads read files, cut them into words and build partial indexes,
 *           which means that they allocate and free all the time, and mostly free
 *           what another thread allocated.
 *   STEP 2  One thread merges the partial indexes, sorts the result, and frees the
 *           pieces, in the memory that STEP 1 left behind.
 *
 * After "malloc, TCMalloc and mimalloc inside a full-text indexer": there the
 * threads of STEP 1 stood waiting inside free, so CPU time and context switches
 * are shown beside wall time. The checksum depends on the text only, neither on
 * the number of threads nor on the allocator. */
#include <getopt.h>
#include <inttypes.h>
#include <sys/resource.h>

#include "../workload.h"
#include "index.h"
#include "pipeline.h"
#include "text.h"

static const char USAGE[] =
    "usage: indexer [--threads N] [--megabytes N] [--json] [FILE OR FOLDER]...\n"
    "  --threads N    threads of STEP 1 (8)\n"
    "  --megabytes N  text to read, in units of 1,000,000 bytes; files are read again until it is reached (200)\n"
    "  --json         no table, only the line of JSON that follows it\n"
    "Without files and folders it reads headers, sources and documentation below /usr.\n";

static char *const USUAL_ROOTS[] = {"/usr/include",    "/usr/lib/gcc",    "/usr/lib/python3", "/usr/lib/python3.11",
                                    "/usr/share/perl", "/usr/share/doc", NULL};

typedef struct settings {
  size_t threads, megabytes;
  bool json;
  char *const *roots;
} settings;

/* What a step used, or, as a point in time, what was used so far. */
typedef struct usage {
  double wall, user, system; /* s */
  long voluntary, involuntary; /* context switches */
  long faults;
} usage;

static double seconds(struct timeval t) {
  return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

static usage usage_now(void) {
  struct rusage r;
  getrusage(RUSAGE_SELF, &r);
  return (usage){(double)now_ns() * 1e-9, seconds(r.ru_utime), seconds(r.ru_stime),
                 r.ru_nvcsw,              r.ru_nivcsw,         r.ru_minflt + r.ru_majflt};
}

static usage usage_since(usage start) {
  usage u = usage_now();
  return (usage){u.wall - start.wall,           u.user - start.user,
                 u.system - start.system,       u.voluntary - start.voluntary,
                 u.involuntary - start.involuntary, u.faults - start.faults};
}

static settings settings_from(int argc, char **argv) {
  static const struct option OPTIONS[] = {{"threads", required_argument, NULL, 't'},
                                          {"megabytes", required_argument, NULL, 'm'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
  settings s = {8, 200, false, USUAL_ROOTS};
  for (int option; (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;)
    switch (option) {
    case 't':
      s.threads = to_number(optarg, "--threads");
      break;
    case 'm':
      s.megabytes = to_number(optarg, "--megabytes");
      break;
    case 'j':
      s.json = true;
      break;
    default:
      fputs(USAGE, option == 'h' ? stdout : stderr);
      exit(option == 'h' ? 0 : 2);
    }
  if (!s.threads || !s.megabytes)
    fail("--threads and --megabytes have to be at least 1");
  if (optind < argc)
    s.roots = argv + optind;
  return s;
}

static sorted merge_and_sort(partials *parts) {
  for (size_t i = 1; i < parts->count; i++)
    partial_merge(parts->items[0], parts->items[i]);
  sorted s = partial_sort(parts->items[0]);
  free(parts->items);
  return s;
}

static void step_figure(const char *step, const char *what, double value) {
  char name[64];
  snprintf(name, sizeof name, "%s_%s", step, what);
  figure(name, value);
}

static void step_figures(const char *step, usage u) {
  step_figure(step, "wall_s", u.wall);
  step_figure(step, "cpu_s", u.user + u.system);
  step_figure(step, "system_s", u.system);
  step_figure(step, "voluntary_switches", (double)u.voluntary);
  step_figure(step, "involuntary_switches", (double)u.involuntary);
  step_figure(step, "page_faults", (double)u.faults);
}

static void print_step(const char *name, usage u) {
  printf("%s  %9.3f %9.3f %9.3f %12ld %12ld %12ld\n", name, u.wall, u.user + u.system, u.system, u.voluntary,
         u.involuntary, u.faults);
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  settings s = settings_from(argc, argv);
  corpus text = corpus_gather(s.roots, s.megabytes * 1000000);
  if (!text.count)
    fail("no text files found");

  usage start = usage_now();
  partials parts = pipeline_run(&text, s.threads);
  usage step1 = usage_since(start);
  start = usage_now();
  sorted final = merge_and_sort(&parts);
  usage step2 = usage_since(start);

  char checksum[17];
  snprintf(checksum, sizeof checksum, "%016" PRIx64, sorted_checksum(&final));
  size_t postings = sorted_postings(&final);
  long peak = status_kib("VmHWM");
  if (!s.json) {
    printf("%.1f MB of text (%zu files of %.1f MB together), %zu distinct words, %zu postings\n\n",
           (double)text.volume * 1e-6, text.count, (double)text.bytes * 1e-6, final.count, postings);
    printf("             wall s     CPU s  system s    voluntary  involuntary  page faults\n");
    print_step("STEP 1", step1);
    print_step("STEP 2", step2);
    printf("\n%zu threads, peak RSS %.1f MiB, checksum %s\n", s.threads, (double)peak / 1024, checksum);
  }
  figure("threads", (double)s.threads);
  figure("files", (double)text.count);
  figure("file_bytes", (double)text.bytes);
  figure("volume_bytes", (double)text.volume);
  figure("distinct_words", (double)final.count);
  figure("postings", (double)postings);
  figure_text("checksum", checksum);
  step_figures("step1", step1);
  step_figures("step2", step2);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  sorted_free(&final);
  corpus_free(&text);
  return 0;
}
