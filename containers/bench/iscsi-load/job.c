/* A job: commands, and the connection they travel on.
 *
 * Data moves between the socket and a slot's buffer through libiscsi's iovec calls, without a copy in between.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

static void on_done(struct iscsi_context *iscsi, int status, void *data, void *private_data);

/* Chooses the next command for a slot. False: everything tried overlaps commands in flight. */
static bool choose(struct job *job, struct slot *slot)
{
	for (int attempt = 0; attempt < 64; attempt++) {
		slot->write = below(job, 100) >= opt.read_percent;
		slot->count = opt.smallest == opt.largest ? 1 : 1 + below(job, opt.largest / opt.smallest);
		slot->first = opt.sequential ? job->next : below(job, job->granule_count - slot->count + 1);
		if (slot->first + slot->count > job->granule_count)
			slot->first = 0;
		if (!opt.verify || granules_admit(job, slot)) {
			job->next = slot->first + slot->count;
			return true;
		}
	}
	return false;
}

static void issue(struct job *job, struct slot *slot)
{
	uint64_t bytes = slot->count * opt.smallest;
	uint64_t lba = (job->base + slot->first * opt.smallest) / (uint64_t)job->block_size;
	struct scsi_task *task;

	slot->iov = (struct scsi_iovec){ slot->buffer, bytes };
	slot->started = now();
	if (slot->write)
		task = iscsi_write16_iov_task(job->iscsi, job->lun, lba, NULL, (uint32_t)bytes, job->block_size, 0, 0,
					      opt.fua, 0, 0, on_done, slot, &slot->iov, 1);
	else
		task = iscsi_read16_iov_task(job->iscsi, job->lun, lba, (uint32_t)bytes, job->block_size, 0, 0,
					     opt.fua, 0, 0, on_done, slot, &slot->iov, 1);
	if (!task) {
		job->broken = true;
		return;
	}
	slot->busy = true;
	job->inflight++;
	job->commands++;
	if (opt.verify)
		granules_claim(job, slot, true);
}

static void submit(struct job *job, struct slot *slot)
{
	if (job->broken || now() >= measure_to || !choose(job, slot))
		return;
	if (slot->write && opt.verify) {
		slot->generation = ++job->generation;
		granules_stamp(job, slot);
	}
	issue(job, slot);
}

static void account(struct job *job, const struct slot *slot, uint64_t end)
{
	uint64_t took = end - slot->started;
	if (end < measure_from || end >= measure_to)
		return;
	job->done++;
	job->bytes += slot->count * opt.smallest;
	job->histogram[bucket_of(took)]++;
	job->worst = took > job->worst ? took : job->worst;
}

static bool worth_repeating(int status, const struct scsi_task *task)
{
	return status == SCSI_STATUS_BUSY || status == SCSI_STATUS_TASK_SET_FULL ||
	       (status == SCSI_STATUS_CHECK_CONDITION && task && task->sense.key == SCSI_SENSE_UNIT_ATTENTION);
}

static void on_done(struct iscsi_context *iscsi, int status, void *data, void *private_data)
{
	struct slot *slot = private_data;
	struct job *job = slot->job;
	struct scsi_task *task = data;
	bool good = status == SCSI_STATUS_GOOD, again = worth_repeating(status, task);

	slot->busy = false;
	job->inflight--;
	if (good)
		account(job, slot, now());
	if (opt.verify) {
		granules_claim(job, slot, false);
		if (slot->write && !again)
			granules_written(job, slot, good);
		else if (good)
			granules_check(job, slot->buffer, slot->first, slot->count);
	}
	if (again) {
		job->retries++;
	} else if (status >= SCSI_STATUS_CANCELLED) {
		job->broken = true;
	} else if (!good && job->errors++ < 5) {
		complain(job, "%s at byte %" PRIu64 ": status %d: %s", slot->write ? "write" : "read",
			 job->base + slot->first * opt.smallest, status, iscsi_get_error(iscsi));
	}
	if (task)
		scsi_free_scsi_task(task);
	if (again && !job->broken)
		issue(job, slot);
	else
		submit(job, slot);
}

static struct iscsi_context *log_in(struct job *job)
{
	struct iscsi_context *iscsi = iscsi_create_context(opt.initiator);
	if (!iscsi)
		return NULL;
	/* The same ISID every time: a new login takes the session over from a connection that still stands. */
	iscsi_set_isid_random(iscsi, (uint32_t)getpid() & 0xffffff, job->number);
	iscsi_set_noautoreconnect(iscsi, 1);
	iscsi_set_timeout(iscsi, 30);
	iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(iscsi, opt.header_digest ? ISCSI_HEADER_DIGEST_CRC32C : ISCSI_HEADER_DIGEST_NONE);
	struct iscsi_url *url = iscsi_parse_full_url(iscsi, opt.url);
	bool ready = url != NULL;
	if (url) {
		iscsi_set_targetname(iscsi, url->target);
		job->lun = url->lun;
		ready = iscsi_full_connect_sync(iscsi, url->portal, url->lun) == 0;
		iscsi_destroy_url(url);
	}
	if (ready)
		return iscsi;
	complain(job, "login: %s", iscsi_get_error(iscsi));
	iscsi_destroy_context(iscsi);
	return NULL;
}

/* Replaces the connection: 0 resets the old one, 1 closes it, 2 lets it stand until the new one is logged in.
 * The commands on it come back as cancelled when its context is destroyed. */
static void reconnect(struct job *job, uint64_t way)
{
	struct iscsi_context *old = job->iscsi;
	job->broken = true;
	if (way == 0) {
		struct linger reset = { .l_onoff = 1, .l_linger = 0 };
		setsockopt(iscsi_get_fd(old), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	}
	if (way != 2) {
		iscsi_destroy_context(old);
		old = NULL;
	}
	job->iscsi = log_in(job);
	if (old)
		iscsi_destroy_context(old);
	job->broken = job->failed = !job->iscsi;
	if (opt.kill_every)
		job->kill_at = now() + below(job, 2 * opt.kill_every * SECOND);
}

/* Reads back everything this job has ever written. */
static void sweep(struct job *job)
{
	uint64_t step = opt.largest / opt.smallest;
	for (uint64_t g = 0; g < job->granule_count; g += step) {
		uint64_t count = g + step > job->granule_count ? job->granule_count - g : step, written = 0;
		for (uint64_t i = g; i < g + count; i++)
			written += job->granules[i].now || job->granules[i].maybe;
		if (!written)
			continue;
		struct scsi_iovec iov = { job->slots[0].buffer, count * opt.smallest };
		uint64_t lba = (job->base + g * opt.smallest) / (uint64_t)job->block_size;
		struct scsi_task *task = iscsi_read16_iov_sync(job->iscsi, job->lun, lba, (uint32_t)iov.iov_len,
							       job->block_size, 0, 0, 0, 0, 0, &iov, 1);
		if (task && task->status == SCSI_STATUS_GOOD)
			granules_check(job, iov.iov_base, g, count);
		else if (job->errors++ < 5)
			complain(job, "final read: %s", iscsi_get_error(job->iscsi));
		if (task)
			scsi_free_scsi_task(task);
	}
}

static bool take_slice(struct job *job)
{
	struct scsi_task *task = iscsi_readcapacity16_sync(job->iscsi, job->lun);
	struct scsi_readcapacity16 *capacity =
		task && task->status == SCSI_STATUS_GOOD ? scsi_datain_unmarshall(task) : NULL;
	if (!capacity) {
		complain(job, "READ CAPACITY (16): %s", iscsi_get_error(job->iscsi));
		return false;
	}
	uint64_t size = (capacity->returned_lba + 1) * capacity->block_length;
	job->block_size = (int)capacity->block_length;
	scsi_free_scsi_task(task);
	if (opt.span && opt.span < size)
		size = opt.span;
	job->granule_count = size / opt.jobs / opt.smallest;
	job->base = job->number * job->granule_count * opt.smallest;
	if (opt.smallest % (uint64_t)job->block_size || job->granule_count < 2 * opt.largest / opt.smallest) {
		complain(job, "%" PRIu64 " bytes in blocks of %d do not suit this block size and number of jobs", size,
			 job->block_size);
		return false;
	}
	return true;
}

static bool prepare(struct job *job)
{
	job->random = mix(opt.seed + job->number);
	job->iscsi = log_in(job);
	if (!job->iscsi || !take_slice(job))
		return false;
	job->slots = calloc(opt.depth, sizeof *job->slots);
	job->histogram = calloc(BUCKETS, sizeof *job->histogram);
	job->granules = opt.verify ? calloc(job->granule_count, sizeof *job->granules) : NULL;
	if (!job->slots || !job->histogram || (opt.verify && !job->granules))
		return false;
	for (unsigned i = 0; i < opt.depth; i++) {
		job->slots[i].job = job;
		job->slots[i].buffer = aligned_alloc(4096, (opt.largest + 4095) / 4096 * 4096);
		if (!job->slots[i].buffer)
			return false;
		for (uint64_t at = 0; at < opt.largest; at += sizeof at) { /* nothing that a store could compress */
			uint64_t word = mix(job->random++);
			memcpy(job->slots[i].buffer + at, &word, sizeof word);
		}
	}
	return true;
}

static void pump(struct job *job)
{
	for (unsigned i = 0; i < opt.depth; i++)
		if (!job->slots[i].busy)
			submit(job, &job->slots[i]);
	/* What was just queued goes out at once; poll() is for what the socket would not take. */
	if (!job->broken && iscsi_service(job->iscsi, POLLOUT) < 0)
		job->broken = true;
	struct pollfd fd = { .fd = iscsi_get_fd(job->iscsi), .events = (short)iscsi_which_events(job->iscsi) };
	if (!job->broken && poll(&fd, 1, 1000) >= 0 && iscsi_service(job->iscsi, fd.revents) < 0)
		job->broken = true;
}

void *job_run(void *argument)
{
	struct job *job = argument;

	job->failed = !prepare(job);
	pthread_barrier_wait(&gate);
	pthread_barrier_wait(&gate);
	job->kill_at = opt.kill_every ? now() + below(job, 2 * opt.kill_every * SECOND) : UINT64_MAX;
	while (!job->failed && (job->inflight || now() < measure_to)) {
		bool kill = now() >= job->kill_at && now() < measure_to;
		if (job->broken || kill) {
			job->lost += job->broken;
			job->kills += !job->broken;
			reconnect(job, below(job, 3));
		} else {
			pump(job);
		}
	}
	if (job->failed)
		return NULL;
	if (job->broken) /* with the very last command */
		job->lost++, reconnect(job, 1);
	if (opt.verify && !job->failed)
		sweep(job);
	if (!job->failed) {
		iscsi_logout_sync(job->iscsi);
		iscsi_destroy_context(job->iscsi);
	}
	return NULL;
}
