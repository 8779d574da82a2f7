/* A stand-in for CUPTI: delivers three records per flush, in the layout that RECORD_BYTES asks for,
   and says REFUSE to cuptiActivityEnable. Each call is checked for what the real one needs. */
#include <stdint.h>
#include <stddef.h>
#include <string.h>

#ifndef RECORD_BYTES
#define RECORD_BYTES 104
#endif
#ifndef REFUSE
#define REFUSE 0
#endif
#ifndef DROPPED
#define DROPPED 0
#endif
#ifndef FLAGS
#define FLAGS 1
#endif

typedef void (*requested)(uint8_t **, size_t *, size_t *);
typedef void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t);

struct config { uint32_t scope, kind, device, enable; };
struct counter {
    uint32_t kind, counter_kind;
    uint64_t value, start, end, address;
    uint32_t source, destination, stream, process, flags, reserved;
};

static requested request;
static completed complete;
static unsigned configured, enabled;

uint32_t cuptiGetVersion(uint32_t *version) { *version = 130000; return 0; }

uint32_t cuptiActivityRegisterCallbacks(requested r, completed c) {
    if (request) return 7;
    request = r;
    complete = c;
    return 0;
}

uint32_t cuptiActivityConfigureUnifiedMemoryCounter(struct config *config, uint32_t count) {
    if (count != 1 || config->scope != 1 || config->kind < 1 || config->kind > 8) return 1;
    if (config->enable) configured |= 1u << config->kind;
    else configured &= ~(1u << config->kind);
    return 0;
}

uint32_t cuptiActivityEnable(uint32_t kind) {
    if (REFUSE) return REFUSE;
    if (kind != 25 || configured != 0x1fe) return 1;
    enabled = 1;
    return 0;
}

uint32_t cuptiActivityDisable(uint32_t kind) {
    if (kind != 25 || !enabled) return 1;
    enabled = 0;
    return 0;
}

static void put(uint8_t *at, uint32_t kind, uint32_t counter_kind) {
    struct counter record = {kind, counter_kind, 8192, 10, 15, 0x200000, 0xffffffff, 0, 0, 1, FLAGS, 0};
    memset(at, 0xee, RECORD_BYTES);
    memcpy(at, &record, sizeof record);
}

uint32_t cuptiActivityFlushAll(uint32_t flag) {
    uint8_t *buffer = 0;
    size_t size = 0, most = 99;
    if (flag != 1) return 1;
    if (!enabled) return 0;
    request(&buffer, &size, &most);
    if (!buffer || most != 0 || size < 3 * RECORD_BYTES || (uintptr_t)buffer % 8) return 8;
    put(buffer, 25, 1);
    put(buffer + RECORD_BYTES, 3, 1);
    put(buffer + 2 * RECORD_BYTES, 25, 3);
    complete(0, 0, buffer, size, 3 * RECORD_BYTES);
    return 0;
}

uint32_t cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
    uint8_t *next = *record ? *record + RECORD_BYTES : buffer;
    if (next + RECORD_BYTES > buffer + valid) return 12;
    *record = next;
    return 0;
}

uint32_t cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) {
    if (context || stream) return 1;
    *dropped = enabled ? DROPPED : 0;
    return 0;
}
