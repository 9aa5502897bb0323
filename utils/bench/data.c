// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Test data: shaped like gradients, and a function of (seed, rank, index), so
 * that any rank can tell what any other sent.
 *
 * A floating-point element is a common part and the rank's own, both nearly
 * normal, times a power of two that all elements of a block share.
 */
#include <string.h>

#include "bench.h"

#define COMMON	0xffffu		/* the "rank" of what the ranks have in common */

bool is_float(enum optinc_dtype dtype)
{
	return dtype == OPTINC_F32 || dtype == OPTINC_F16 || dtype == OPTINC_BF16;
}

size_t data_bytes(const struct bench *b, uint64_t count)
{
	return b->collective == ALLREDUCE ? optinc_data_bytes(count, b->dtype) : count;
}

size_t result_bytes(const struct bench *b, uint64_t count)
{
	if (b->collective != ALLREDUCE)
		return count;
	return optinc_result_bytes(count, b->dtype, b->redop, 0);
}

uint64_t data_count(const struct bench *b, uint64_t bytes)
{
	if (b->collective != ALLREDUCE)
		return bytes;
	return b->dtype == OPTINC_BIT ? 8 * bytes : bytes / optinc_data_bytes(1, b->dtype);
}

/* splitmix64 */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static uint64_t stream(const struct bench *b, unsigned int rank)
{
	return mix(b->seed ^ (uint64_t)rank << 48);
}

/* Four uniform numbers added are nearly normal: mean 0, standard deviation 1. */
static float normal(uint64_t x)
{
	int sum = (int)(x & 0xffff) + (int)(x >> 16 & 0xffff) + (int)(x >> 32 & 0xffff) +
		  (int)(x >> 48);

	return (float)(sum - 131070) * (1.0f / 37837);
}

static float element(uint64_t own, uint64_t common, uint64_t i)
{
	/* 2^0 to 2^-9 */
	uint32_t bits = (uint32_t)(127 - mix(common ^ i / OPTINC_BLOCK) % 10) << 23;
	float scale;

	memcpy(&scale, &bits, sizeof(scale));
	return scale * (normal(mix(own + i)) + 0.5f * normal(mix(common + i)));
}

static uint16_t to_bf16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* For |x| below 65504; halves go up in magnitude, which is good enough for data. */
static uint16_t to_f16(float x)
{
	uint32_t bits, sign, exponent, fraction;

	memcpy(&bits, &x, sizeof(bits));
	sign = bits >> 16 & 0x8000;
	exponent = bits >> 23 & 0xff;
	fraction = (bits & 0x7fffff) | 0x800000;
	if (exponent < 127 - 25)
		return (uint16_t)sign;
	if (exponent < 127 - 14) {	/* subnormal: units of 2^-24 */
		fraction >>= 127 - 14 - exponent;
		return (uint16_t)(sign | (fraction + 0x1000) >> 13);
	}
	bits = (exponent - 112) << 23 | (fraction & 0x7fffff);
	return (uint16_t)(sign | (bits + 0x1000) >> 13);
}

static double f16_value(uint16_t x)
{
	int exponent = x >> 10 & 0x1f;
	double value = exponent ? (x & 0x3ff) | 0x400 : x & 0x3ff;

	/* units of 2^-24 for the two lowest exponents */
	value *= (double)(1u << (exponent ? exponent - 1 : 0)) / (1u << 24);
	return x & 0x8000 ? -value : value;
}

static int raw_code(uint64_t x, float scale, int limit)
{
	int i = (int)(scale * normal(mix(x)));

	return i > limit ? limit : i < -limit ? -limit : i;
}

static void fill_words(uint64_t own, uint64_t first, size_t bytes, uint8_t *data)
{
	size_t i;

	for (i = 0; i < bytes; i += 8) {
		uint64_t word = mix(own + first + i);

		memcpy(data + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

void data_fill(const struct bench *b, unsigned int rank, uint64_t first, uint64_t count,
	       void *data)
{
	uint64_t own = stream(b, rank), common = stream(b, COMMON), i;

	if (b->collective != ALLREDUCE || b->dtype == OPTINC_BIT) {
		fill_words(own, data_bytes(b, first), data_bytes(b, count), data);
		return;
	}
	for (i = 0; i < count; i++) {
		switch (b->dtype) {
		case OPTINC_F32:
			((float *)data)[i] = element(own, common, first + i);
			break;
		case OPTINC_F16:
			((uint16_t *)data)[i] = to_f16(element(own, common, first + i));
			break;
		case OPTINC_BF16:
			((uint16_t *)data)[i] = to_bf16(element(own, common, first + i));
			break;
		case OPTINC_I8:
			((int8_t *)data)[i] = (int8_t)raw_code(own + first + i, 32, 127);
			break;
		default:
			((int16_t *)data)[i] = (int16_t)raw_code(own + first + i, 8192, 32767);
			break;
		}
	}
}

double data_float(const void *data, enum optinc_dtype dtype, uint64_t i)
{
	uint32_t bits;
	float value;

	if (dtype == OPTINC_F16)
		return f16_value(((const uint16_t *)data)[i]);
	if (dtype == OPTINC_F32)
		return ((const float *)data)[i];
	bits = (uint32_t)((const uint16_t *)data)[i] << 16;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

double data_integer(const void *data, size_t bytes, uint64_t i)
{
	switch (bytes) {
	case 1:
		return ((const int8_t *)data)[i];
	case 2:
		return ((const int16_t *)data)[i];
	default:
		return ((const int32_t *)data)[i];
	}
}
