/* The NVML functions that ddpmon calls, with NVML's own signatures and structs.

   Each call reads the text file that NVML_STATE names, a key and its value per line, so that a test changes the answers
   while processes run. A value that is absent is not supported. These keys change how a call ends:

       FUNCTION.error CODE, INDEX.error CODE, INDEX.FUNCTION.error CODE    the call returns this error code
       FUNCTION.sleep_ms MS                                                the call takes this long
       INDEX.xids CODE,CODE                                                critical errors, reported once each
       INDEX.processes PID:MIB,PID:MIB                                     processes that compute on it; absent: none

   With OLD_DRIVER defined the library lacks the functions that came with driver 535. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10 };
enum { UNCORRECTED = 1, VOLATILE = 0 };
enum { TEMPERATURE_GPU = 0, CLOCK_SM = 1, XID_CRITICAL_ERROR = 8, MAX_DEVICES = 8, LONGEST = 128 };

struct device { unsigned index; };
struct event { struct device *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };
struct event_set { struct device *device; unsigned delivered; };
struct utilization { unsigned gpu, memory; };
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct process { unsigned pid; unsigned long long used_bytes; unsigned gpu_instance, compute_instance; };

const unsigned sizeof_utilization = sizeof(struct utilization);
const unsigned sizeof_memory = sizeof(struct memory);
const unsigned sizeof_memory_v2 = sizeof(struct memory_v2);
const unsigned sizeof_event = sizeof(struct event);
const unsigned sizeof_process = sizeof(struct process);

static struct device devices[MAX_DEVICES] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
static int initialized;

static int text(const char *key, char *value)
{
    char line[2 * LONGEST];
    size_t length = strlen(key);
    const char *path = getenv("NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file))
        if ((found = !strncmp(line, key, length) && line[length] == ' ')) {
            line[strcspn(line, "\n")] = 0;
            snprintf(value, LONGEST, "%s", line + length + 1);
        }
    if (file)
        fclose(file);
    return found;
}

static int number(const char *key, unsigned long long *value)
{
    char found[LONGEST];
    if (!text(key, found))
        return 0;
    *value = strtoull(found, NULL, 10);
    return 1;
}

/* Returns how the call begins to go: its error code, after its delay. */
static int enter(const char *function, const struct device *device)
{
    char key[LONGEST];
    unsigned long long value;
    snprintf(key, sizeof key, "%s.sleep_ms", function);
    if (number(key, &value))
        nanosleep(&(struct timespec){value / 1000, value % 1000 * 1000000}, NULL);
    snprintf(key, sizeof key, "%s.error", function);
    if (number(key, &value))
        return (int)value;
    if (device) {
        snprintf(key, sizeof key, "%u.error", device->index);
        if (number(key, &value))
            return (int)value;
        snprintf(key, sizeof key, "%u.%s.error", device->index, function);
        if (number(key, &value))
            return (int)value;
    }
    return initialized ? SUCCESS : UNINITIALIZED;
}

/* Reads a number of a device for a function that returns one. */
static int answer(const char *function, const struct device *device, const char *name, unsigned long long *value)
{
    char key[LONGEST];
    int code = enter(function, device);
    snprintf(key, sizeof key, "%u.%s", device->index, name);
    return code ? code : number(key, value) ? SUCCESS : NOT_SUPPORTED;
}

static int answer_unsigned(const char *function, const struct device *device, const char *name, unsigned *value)
{
    unsigned long long wide;
    int code = answer(function, device, name, &wide);
    if (!code)
        *value = (unsigned)wide;
    return code;
}

static unsigned count(void)
{
    unsigned long long value = 0;
    number("count", &value);
    return value < MAX_DEVICES ? (unsigned)value : MAX_DEVICES;
}

int nvmlInitWithFlags(unsigned flags)
{
    unsigned long long value;
    int code;
    (void)flags;
    if (!number("count", &value))
        return DRIVER_NOT_LOADED;
    initialized = 1;
    if ((code = enter(__func__, NULL)))
        initialized = 0;
    return code;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    char value[LONGEST] = "580.1";
    int code = enter(__func__, NULL);
    if (!code)
        snprintf(version, length, "%s", value);
    return code;
}

int nvmlDeviceGetCount_v2(unsigned *devices_here)
{
    int code = enter(__func__, NULL);
    if (!code)
        *devices_here = count();
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device)
{
    int code = enter(__func__, NULL);
    if (code || index >= count())
        return code ? code : INVALID_ARGUMENT;
    *device = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device)
{
    char key[LONGEST], value[LONGEST];
    int code = enter(__func__, NULL);
    for (unsigned index = 0; !code && index < count(); index++) {
        snprintf(key, sizeof key, "%u.uuid", index);
        if (text(key, value) && !strcmp(value, uuid)) {
            *device = &devices[index];
            return SUCCESS;
        }
    }
    return code ? code : NOT_FOUND;
}

int nvmlDeviceGetName(struct device *device, char *name, unsigned length)
{
    char key[LONGEST], value[LONGEST];
    int code = enter(__func__, device);
    snprintf(key, sizeof key, "%u.name", device->index);
    if (code || !text(key, value))
        return code ? code : NOT_SUPPORTED;
    snprintf(name, length, "%s", value);
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *rates)
{
    rates->memory = 1;
    return answer_unsigned(__func__, device, "percent", &rates->gpu);
}

int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory)
{
    char key[LONGEST];
    int code = answer(__func__, device, "memory_used_bytes", &memory->used);
    snprintf(key, sizeof key, "%u.memory_total_bytes", device->index);
    if (code || !number(key, &memory->total))
        return code ? code : NOT_SUPPORTED;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory)
{
    struct memory without;
    char key[LONGEST];
    int code = enter(__func__, device);
    if (!code)
        code = nvmlDeviceGetMemoryInfo(device, &without);
    if (code)
        return code;
    snprintf(key, sizeof key, "%u.memory_reserved_bytes", device->index);
    memory->reserved = 0;
    number(key, &memory->reserved);
    memory->total = without.total;
    memory->used = without.used;
    memory->free = without.free - memory->reserved;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(struct device *device, unsigned *milliwatts)
{
    return answer_unsigned(__func__, device, "power_mw", milliwatts);
}

int nvmlDeviceGetTemperature(struct device *device, unsigned sensor, unsigned *celsius)
{
    return sensor == TEMPERATURE_GPU ? answer_unsigned(__func__, device, "temperature_c", celsius) : INVALID_ARGUMENT;
}

int nvmlDeviceGetClockInfo(struct device *device, unsigned type, unsigned *megahertz)
{
    return type == CLOCK_SM ? answer_unsigned(__func__, device, "clock_mhz", megahertz) : INVALID_ARGUMENT;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *device, unsigned long long *reasons)
{
    return answer(__func__, device, "reasons", reasons);
}

#ifndef OLD_DRIVER
int nvmlDeviceGetCurrentClocksEventReasons(struct device *device, unsigned long long *reasons)
{
    return answer(__func__, device, "reasons", reasons);
}
#endif

int nvmlDeviceGetTotalEccErrors(struct device *device, unsigned kind, unsigned since, unsigned long long *errors)
{
    return kind == UNCORRECTED && since == VOLATILE ? answer(__func__, device, "ecc", errors) : INVALID_ARGUMENT;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *room, struct process *processes)
{
    char key[LONGEST], value[LONGEST] = "";
    unsigned found = 0;
    int code = enter(__func__, device);
    if (code)
        return code;
    snprintf(key, sizeof key, "%u.processes", device->index);
    text(key, value);
    for (char *one = strtok(value, ","); one; one = strtok(NULL, ","), found++)
        if (found < *room) {
            char *mib = strchr(one, ':');
            processes[found] = (struct process){(unsigned)strtoul(one, NULL, 10), strtoull(mib + 1, NULL, 10) << 20, ~0u, ~0u};
        }
    code = found > *room ? INSUFFICIENT_SIZE : SUCCESS;
    *room = found;
    return code;
}

int nvmlEventSetCreate(struct event_set **set)
{
    int code = enter(__func__, NULL);
    if (!code)
        *set = calloc(1, sizeof **set);
    return code;
}

int nvmlDeviceRegisterEvents(struct device *device, unsigned long long types, struct event_set *set)
{
    int code = enter(__func__, device);
    if (!code)
        set->device = device;
    return code ? code : types == XID_CRITICAL_ERROR ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned timeout_ms)
{
    char key[LONGEST], value[LONGEST];
    int code = enter(__func__, set->device);
    snprintf(key, sizeof key, "%u.xids", set->device->index);
    if (code || timeout_ms || !text(key, value))
        return code ? code : timeout_ms ? INVALID_ARGUMENT : TIMEOUT;
    const char *xid = strtok(value, ",");
    for (unsigned passed = 0; xid && passed < set->delivered; passed++)
        xid = strtok(NULL, ",");
    if (!xid)
        return TIMEOUT;
    set->delivered++;
    *event = (struct event){set->device, XID_CRITICAL_ERROR, strtoull(xid, NULL, 10), ~0u, ~0u};
    return SUCCESS;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    char path[4096];
    const char *state = getenv("NVML_STATE");
    snprintf(path, sizeof path, "%s.capture", state ? state : "");
    FILE *file = fopen(path, "w");
    if (!file)
        return INVALID_ARGUMENT;
    fprintf(file, "%d", *mode);
    return fclose(file) ? INVALID_ARGUMENT : SUCCESS;
}
