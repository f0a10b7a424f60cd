/* Verification: what the disk must hold, granule by granule.
 *
 * A write stamps each granule with words made from its place on the disk and a generation that no other write of the
 * job has. A write that was cut off (its connection died) may or may not have landed, so its granules remember both
 * generations until a read has shown which one the disk holds. After that the disk must not change its mind: this is
 * how a command that outlives its session is caught.
 */
#include <inttypes.h>
#include <string.h>

#include "load.h"

#define STRIDE 0x9e3779b97f4a7c15ull

static uint64_t stamp_of(const struct job *job, uint64_t granule, uint32_t generation)
{
	return mix(opt.seed ^ mix(job->base + granule * opt.smallest) ^ ((uint64_t)generation << 32));
}

static bool stamped(const struct job *job, const unsigned char *at, uint64_t granule, uint32_t generation)
{
	uint64_t seed = stamp_of(job, granule, generation), word;
	for (uint64_t i = 0; i < opt.smallest; i += sizeof word) {
		memcpy(&word, at + i, sizeof word);
		if (word != seed + i * STRIDE)
			return false;
	}
	return true;
}

void granules_stamp(const struct job *job, const struct slot *slot)
{
	unsigned char *at = slot->buffer;
	for (uint64_t g = slot->first; g < slot->first + slot->count; g++, at += opt.smallest) {
		uint64_t seed = stamp_of(job, g, slot->generation), word;
		for (uint64_t i = 0; i < opt.smallest; i += sizeof word) {
			word = seed + i * STRIDE;
			memcpy(at + i, &word, sizeof word);
		}
	}
}

/* Whether the slot's command overlaps none in flight that it must not. A write onto a granule whose content is in
 * question becomes a read: first settle what the disk holds. */
bool granules_admit(const struct job *job, struct slot *slot)
{
	bool writer = false, reader = false;
	for (uint64_t g = slot->first; g < slot->first + slot->count; g++) {
		const struct granule *it = &job->granules[g];
		writer |= it->writer;
		reader |= it->readers > 0;
		if (it->maybe && it->now)
			slot->write = false;
	}
	return !writer && !(slot->write && reader);
}

void granules_claim(struct job *job, const struct slot *slot, bool take)
{
	for (uint64_t g = slot->first; g < slot->first + slot->count; g++) {
		struct granule *it = &job->granules[g];
		if (slot->write)
			it->writer = take;
		else
			it->readers = (uint16_t)(take ? it->readers + 1 : it->readers - 1);
	}
}

void granules_written(struct job *job, const struct slot *slot, bool certain)
{
	for (uint64_t g = slot->first; g < slot->first + slot->count; g++) {
		struct granule *it = &job->granules[g];
		if (certain)
			it->now = slot->generation;
		it->maybe = certain ? 0 : slot->generation;
	}
}

void granules_check(struct job *job, const unsigned char *data, uint64_t first, uint64_t count)
{
	for (uint64_t g = first; g < first + count; g++, data += opt.smallest) {
		struct granule *it = &job->granules[g];
		if (it->maybe && stamped(job, data, g, it->maybe)) {
			it->now = it->maybe;
		} else if (it->now && !stamped(job, data, g, it->now)) {
			uint64_t word;
			memcpy(&word, data, sizeof word);
			if (job->mismatches++ < 5)
				complain(job, "MISMATCH at byte %" PRIu64 ": generation %u%s expected, first word %016" PRIx64,
					 job->base + g * opt.smallest, it->now, it->maybe ? " or a cut-off one" : "", word);
		} else if (!it->now) {
			continue; /* the content before this run is unknown, so the question stays open */
		}
		it->maybe = 0;
	}
}
