/* What the files of iscsi-load share; main.c says what the program is.
 *
 *   job      one connection: a libiscsi context with its own event loop in its own thread
 *   slot     one command in flight of a job; a job keeps DEPTH of them busy
 *   slice    the part of the disk that a job alone touches, so that jobs can verify without talking to each other
 *   granule  the smallest block size of the run; offsets and lengths are multiples of it
 */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

#define SECOND 1000000000ull /* all times are CLOCK_MONOTONIC nanoseconds */
#define BUCKETS (64 * 64)    /* latency histogram: 64 steps an octave, so 1.6 % wide */

struct options {
	const char *url, *initiator;
	unsigned depth, jobs, read_percent;
	unsigned kill_every; /* mean seconds between kills of one connection; 0: never */
	uint64_t smallest, largest, span, warm_up, duration, seed;
	bool sequential, verify, header_digest, fua;
};
extern struct options opt;

struct granule {
	uint32_t now;   /* generation on the disk; 0: never written by this run */
	uint32_t maybe; /* generation of a write that was cut off; 0: none */
	uint16_t readers;
	bool writer;
};

struct slot {
	struct job *job;
	unsigned char *buffer;
	struct scsi_iovec iov;
	uint64_t first, count; /* granules, counted within the slice */
	uint64_t started;
	uint32_t generation;
	bool busy, write;
};

struct job {
	pthread_t thread;
	unsigned number;
	struct iscsi_context *iscsi;
	int lun, block_size;
	uint64_t base, granule_count; /* the slice: its byte offset on the disk, its length */
	struct slot *slots;
	struct granule *granules; /* only with --verify */
	uint64_t next, random, kill_at;
	uint32_t generation;
	unsigned inflight;
	bool broken; /* the connection is gone */
	bool failed; /* and there is no other */
	/* within the measured time */
	uint64_t done, bytes, worst, *histogram;
	/* from the first command to the last */
	uint64_t commands, errors, retries, lost, kills, mismatches;
};

/* The measured time; set once, when every job is logged in. */
extern uint64_t measure_from, measure_to;
extern pthread_barrier_t gate; /* passed twice: all are logged in; the clock is set */

uint64_t now(void);
uint64_t mix(uint64_t x);
uint64_t below(struct job *job, uint64_t limit);
unsigned bucket_of(uint64_t ns);
uint64_t bucket_floor(unsigned bucket);
void complain(const struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

void *job_run(void *job);

bool granules_admit(const struct job *job, struct slot *slot);
void granules_claim(struct job *job, const struct slot *slot, bool take);
void granules_stamp(const struct job *job, const struct slot *slot);
void granules_written(struct job *job, const struct slot *slot, bool certain);
void granules_check(struct job *job, const unsigned char *data, uint64_t first, uint64_t count);
