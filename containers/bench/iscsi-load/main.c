/* iscsi-load: a load generator for iSCSI targets, on libiscsi. For tests and benchmarks; not part of the product.
 *
 * Keeps DEPTH commands in flight on each of JOBS connections and prints one line of JSON. Figures are of the measured
 * time only; "commands" counts all, warm-up included, to divide a process's CPU time by. With --verify every read is
 * compared with what was written (verify.c); with --kill connections die at random: reset, closed, or replaced by a
 * login with the same ISID while the old connection still stands.
 *
 * Exit status: 0 clean, 1 errors, mismatches or connections lost other than by --kill, 2 usage.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "load.h"

struct options opt = {
	.initiator = "iqn.2026-01.local.iscsi-load:initiator",
	.depth = 1, .jobs = 1, .read_percent = 100,
	.smallest = 4096, .largest = 4096,
	.warm_up = SECOND, .duration = 5 * SECOND,
};
uint64_t measure_from, measure_to;
pthread_barrier_t gate;

static const char usage[] =
	"usage: iscsi-load [options] iscsi://[USER%PASSWORD@]HOST:PORT/TARGET/LUN\n"
	"  -p, --pattern random|sequential   (random)\n"
	"  -r, --read PERCENT                reads among the commands (100)\n"
	"  -b, --block-size SIZE[-SIZE]      bytes a command, k and m understood; a range means random sizes (4k)\n"
	"  -d, --depth N                     commands in flight on each connection (1)\n"
	"  -j, --jobs N                      connections (1)\n"
	"  -t, --time SECONDS                measured time (5)\n"
	"  -w, --warm-up SECONDS             before it (1)\n"
	"  -s, --span SIZE                   use only the first SIZE of the disk\n"
	"  -V, --verify                      stamp what is written, compare what is read\n"
	"  -k, --kill SECONDS                kill each connection at random, this often on average\n"
	"  -f, --fua                         set FUA\n"
	"  -H, --header-digest               insist on CRC32C header digests\n"
	"  -i, --initiator NAME              initiator name\n"
	"  -S, --seed N                      repeat a run's choices\n";

uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

uint64_t below(struct job *job, uint64_t limit)
{
	return mix(job->random++) % limit;
}

unsigned bucket_of(uint64_t ns)
{
	if (ns < 64)
		return (unsigned)ns;
	unsigned shift = 57 - (unsigned)__builtin_clzll(ns);
	return (shift << 6) + (unsigned)(ns >> shift);
}

uint64_t bucket_floor(unsigned bucket)
{
	if (bucket < 128)
		return bucket;
	unsigned shift = (bucket >> 6) - 1;
	return (uint64_t)(bucket - (shift << 6)) << shift;
}

void complain(const struct job *job, const char *format, ...)
{
	char text[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	fprintf(stderr, "iscsi-load: job %u: %s\n", job->number, text);
}

static void refuse(const char *what, const char *value)
{
	fprintf(stderr, "iscsi-load: %s: %s\n%s", what, value, usage);
	exit(2);
}

static uint64_t number(const char *text, char **rest)
{
	uint64_t value = strtoull(text, rest, 10);
	unsigned shift = **rest == 'k' ? 10 : **rest == 'm' ? 20 : **rest == 'g' ? 30 : 0;
	if (*rest == text)
		refuse("not a number", text);
	*rest += shift != 0;
	return value << shift;
}

static uint64_t whole(const char *text, uint64_t least, uint64_t most)
{
	char *rest;
	uint64_t value = number(text, &rest);
	if (*rest || value < least || value > most)
		refuse("out of range", text);
	return value;
}

static void sizes(const char *text)
{
	char *rest;
	opt.smallest = opt.largest = number(text, &rest);
	if (*rest == '-')
		opt.largest = number(rest + 1, &rest);
	if (*rest || opt.smallest < 512 || opt.smallest % 8 || opt.largest % opt.smallest ||
	    opt.largest < opt.smallest || opt.largest > 16 << 20)
		refuse("not a usable block size", text);
}

static void parse(int count, char **arguments)
{
	static const struct option names[] = {
		{ "pattern", 1, NULL, 'p' }, { "read", 1, NULL, 'r' }, { "block-size", 1, NULL, 'b' },
		{ "depth", 1, NULL, 'd' }, { "jobs", 1, NULL, 'j' }, { "time", 1, NULL, 't' },
		{ "warm-up", 1, NULL, 'w' }, { "span", 1, NULL, 's' }, { "verify", 0, NULL, 'V' },
		{ "kill", 1, NULL, 'k' }, { "fua", 0, NULL, 'f' }, { "header-digest", 0, NULL, 'H' },
		{ "initiator", 1, NULL, 'i' }, { "seed", 1, NULL, 'S' }, { "help", 0, NULL, 'h' }, { 0 },
	};
	opt.seed = now();
	for (int c; (c = getopt_long(count, arguments, "p:r:b:d:j:t:w:s:Vk:fHi:S:h", names, NULL)) != -1;) {
		switch (c) {
		case 'p':
			opt.sequential = !strcmp(optarg, "sequential");
			if (!opt.sequential && strcmp(optarg, "random"))
				refuse("random or sequential, not", optarg);
			break;
		case 'r': opt.read_percent = (unsigned)whole(optarg, 0, 100); break;
		case 'b': sizes(optarg); break;
		case 'd': opt.depth = (unsigned)whole(optarg, 1, 4096); break;
		case 'j': opt.jobs = (unsigned)whole(optarg, 1, 1024); break;
		case 't': opt.duration = whole(optarg, 1, 1 << 20) * SECOND; break;
		case 'w': opt.warm_up = whole(optarg, 0, 1 << 20) * SECOND; break;
		case 's': opt.span = whole(optarg, 1, UINT64_MAX); break;
		case 'V': opt.verify = true; break;
		case 'k': opt.kill_every = (unsigned)whole(optarg, 1, 1 << 20); break;
		case 'f': opt.fua = true; break;
		case 'H': opt.header_digest = true; break;
		case 'i': opt.initiator = optarg; break;
		case 'S': opt.seed = whole(optarg, 0, UINT64_MAX); break;
		case 'h': fputs(usage, stdout); exit(0);
		default: fputs(usage, stderr); exit(2);
		}
	}
	if (optind + 1 != count)
		refuse("one URL is needed, got", optind == count ? "none" : "more");
	opt.url = arguments[optind];
}

static double percentile(const uint64_t *histogram, uint64_t total, double part)
{
	uint64_t rank = (uint64_t)((double)total * part), seen = 0;
	for (unsigned i = 0; i < BUCKETS; i++)
		if ((seen += histogram[i]) > rank)
			return (double)bucket_floor(i) / 1e3;
	return 0;
}

static int report(const struct job *jobs)
{
	static uint64_t histogram[BUCKETS];
	struct job sum = { 0 };
	bool failed = false;
	for (const struct job *job = jobs; job < jobs + opt.jobs; job++) {
		failed |= job->failed;
		sum.done += job->done;
		sum.bytes += job->bytes;
		sum.commands += job->commands;
		sum.errors += job->errors;
		sum.retries += job->retries;
		sum.lost += job->lost;
		sum.kills += job->kills;
		sum.mismatches += job->mismatches;
		sum.worst = job->worst > sum.worst ? job->worst : sum.worst;
		for (unsigned i = 0; job->histogram && i < BUCKETS; i++)
			histogram[i] += job->histogram[i];
	}
	double seconds = (double)opt.duration / (double)SECOND;
	printf("{\"iops\": %.0f, \"mb_per_s\": %.2f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, \"commands\": %" PRIu64
	       ", \"errors\": %" PRIu64 ", \"retries\": %" PRIu64 ", \"mismatches\": %" PRIu64 ", \"kills\": %" PRIu64
	       ", \"lost\": %" PRIu64 ", \"failed\": %s, \"seed\": %" PRIu64 "}\n",
	       (double)sum.done / seconds, (double)sum.bytes / seconds / 1e6, percentile(histogram, sum.done, 0.50),
	       percentile(histogram, sum.done, 0.99), (double)sum.worst / 1e3, sum.commands, sum.errors, sum.retries,
	       sum.mismatches, sum.kills, sum.lost, failed ? "true" : "false", opt.seed);
	return failed || sum.errors || sum.mismatches || sum.lost || !sum.done;
}

int main(int count, char **arguments)
{
	parse(count, arguments);
	struct job *jobs = calloc(opt.jobs, sizeof *jobs);
	if (!jobs || pthread_barrier_init(&gate, NULL, opt.jobs + 1))
		return 1;
	for (unsigned i = 0; i < opt.jobs; i++) {
		jobs[i].number = i;
		if (pthread_create(&jobs[i].thread, NULL, job_run, &jobs[i]))
			return 1;
	}
	pthread_barrier_wait(&gate);
	measure_from = now() + opt.warm_up;
	measure_to = measure_from + opt.duration;
	pthread_barrier_wait(&gate);
	for (unsigned i = 0; i < opt.jobs; i++)
		pthread_join(jobs[i].thread, NULL);
	return report(jobs);
}
