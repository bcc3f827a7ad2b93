/* A stand-in for libnvidia-ml.so.1, the C library of the NVIDIA driver: what pynvml loads.
 *
 * It answers from the text file that NVML_STAND_IN names, which it reads at every call, so that a test changes the
 * machine while it is used. Lines, in order of GPUs:
 *
 *   init CODE                                    what nvmlInit answers (0 by default)
 *   hang SECONDS                                 how long every query of memory takes
 *   gpu UUID NAME BYTES MIG MODE HEALTH          NAME without blanks; MIG 0 or 1, or -CODE; HEALTH 0, or an error code
 *   slice UUID SIZE MEGABYTES                    a MIG instance of the GPU above; SIZE 0: its attributes are an error
 *   proc PID BYTES PERCENT                       a process on the GPU, or on the slice, above
 *   xid CODE                                     one critical error of the GPU above, told once for each line
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 64
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT 7
#define TIMEOUT 10

typedef struct { unsigned pid; unsigned long long bytes; unsigned percent; } Proc;
typedef struct { char uuid[128]; unsigned size; unsigned long long mb; Proc procs[MOST]; int nprocs; } Slice;
typedef struct {
    char uuid[128], name[128];
    unsigned long long bytes;
    int mig, mode, health, nslices, nprocs, xids[MOST], nxids;
    Slice slices[16];
    Proc procs[MOST];
} Gpu;
typedef struct { int code; double hang; int ngpus; Gpu gpus[32]; } Machine;

/* A handle is the address of one of these: the GPU by its UUID, so that it stays what it is when others go. */
typedef struct { char uuid[128]; char part[128]; int told; } Handle;
static Handle handles[256];
static int nhandles;
static Machine machine;

static Machine *look(void) {
    const char *path = getenv("NVML_STAND_IN");
    char line[512];
    static char last[4096];
    if (path && strcmp(path, last)) { /* another machine: what was told of the former one is forgotten */
        snprintf(last, sizeof last, "%s", path);
        nhandles = 0;
        memset(handles, 0, sizeof handles);
    }
    memset(&machine, 0, sizeof machine);
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) { machine.code = 9; return &machine; }
    Gpu *gpu = NULL;
    Slice *slice = NULL;
    while (fgets(line, sizeof line, file)) {
        Proc proc;
        int xid;
        if (sscanf(line, "init %d", &machine.code) == 1 || sscanf(line, "hang %lf", &machine.hang) == 1) continue;
        if (!strncmp(line, "gpu ", 4)) {
            gpu = &machine.gpus[machine.ngpus++];
            slice = NULL;
            sscanf(line, "gpu %127s %127s %llu %d %d %d", gpu->uuid, gpu->name, &gpu->bytes, &gpu->mig, &gpu->mode,
                   &gpu->health);
        } else if (gpu && !strncmp(line, "slice ", 6)) {
            slice = &gpu->slices[gpu->nslices++];
            sscanf(line, "slice %127s %u %llu", slice->uuid, &slice->size, &slice->mb);
        } else if (gpu && sscanf(line, "proc %u %llu %u", &proc.pid, &proc.bytes, &proc.percent) == 3) {
            if (slice) slice->procs[slice->nprocs++] = proc; else gpu->procs[gpu->nprocs++] = proc;
        } else if (gpu && sscanf(line, "xid %d", &xid) == 1) gpu->xids[gpu->nxids++] = xid;
    }
    fclose(file);
    return &machine;
}

static Handle *handle_of(const char *uuid, const char *part) {
    for (int i = 0; i < nhandles; i++)
        if (!strcmp(handles[i].uuid, uuid) && !strcmp(handles[i].part, part)) return &handles[i];
    Handle *made = &handles[nhandles++];
    strcpy(made->uuid, uuid);
    strcpy(made->part, part);
    return made;
}

static Gpu *gpu_of(Handle *handle) {
    Machine *now = look();
    for (int i = 0; i < now->ngpus; i++) if (!strcmp(now->gpus[i].uuid, handle->uuid)) return &now->gpus[i];
    return NULL;
}

static Slice *slice_of(Gpu *gpu, Handle *handle) {
    for (int i = 0; i < gpu->nslices; i++) if (!strcmp(gpu->slices[i].uuid, handle->part)) return &gpu->slices[i];
    return NULL;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return look()->code; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : "Error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = look()->ngpus; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle **handle) {
    Machine *now = look();
    if ((int)index >= now->ngpus) return 2;
    if (now->gpus[index].health == 15) return 15;
    *handle = handle_of(now->gpus[index].uuid, "");
    return 0;
}

int nvmlDeviceGetUUID(Handle *handle, char *text, unsigned length) {
    snprintf(text, length, "%s", handle->part[0] ? handle->part : handle->uuid);
    return 0;
}

int nvmlDeviceGetName(Handle *handle, char *text, unsigned length) {
    Gpu *gpu = gpu_of(handle);
    if (!gpu) return 15;
    if (!strcmp(gpu->name, "-")) return 999;
    snprintf(text, length, "%s", gpu->name);
    return 0;
}

int nvmlDeviceGetMemoryInfo(Handle *handle, unsigned long long *memory) {
    Gpu *gpu = gpu_of(handle);
    if (machine.hang > 0) usleep((useconds_t)(machine.hang * 1e6));
    if (!gpu) return 15;
    if (gpu->health) return gpu->health;
    memory[0] = gpu->bytes;
    memory[1] = gpu->bytes;
    memory[2] = 0;
    return 0;
}

int nvmlDeviceGetComputeMode(Handle *handle, unsigned *mode) {
    Gpu *gpu = gpu_of(handle);
    if (!gpu) return 15;
    *mode = gpu->mode;
    return 0;
}

int nvmlDeviceGetMigMode(Handle *handle, unsigned *now, unsigned *pending) {
    Gpu *gpu = gpu_of(handle);
    if (!gpu) return 15;
    if (gpu->mig < 0) return -gpu->mig;
    *now = *pending = gpu->mig;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(Handle *handle, unsigned *count) { (void)handle; *count = 7; return 0; }

int nvmlDeviceGetMigDeviceHandleByIndex(Handle *handle, unsigned index, Handle **part) {
    Gpu *gpu = gpu_of(handle);
    if (!gpu) return 15;
    if ((int)index >= gpu->nslices) return NOT_FOUND;
    *part = handle_of(gpu->uuid, gpu->slices[index].uuid);
    return 0;
}

typedef struct { unsigned counts[8]; unsigned long long memory_mb; } Attributes;

int nvmlDeviceGetAttributes_v2(Handle *handle, Attributes *attributes) {
    Gpu *gpu = gpu_of(handle);
    Slice *slice = gpu ? slice_of(gpu, handle) : NULL;
    if (!slice || !slice->size) return 2;
    memset(attributes, 0, sizeof *attributes);
    attributes->counts[6] = attributes->counts[7] = slice->size;
    attributes->memory_mb = slice->mb;
    return 0;
}

typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } Running;

int nvmlDeviceGetComputeRunningProcesses_v3(Handle *handle, unsigned *count, Running *found) {
    Gpu *gpu = gpu_of(handle);
    if (!gpu) return 15;
    Slice *slice = handle->part[0] ? slice_of(gpu, handle) : NULL;
    Proc *procs = slice ? slice->procs : gpu->procs;
    unsigned there = slice ? slice->nprocs : gpu->nprocs;
    unsigned room = *count;
    *count = there;
    if (!there) return 0;
    if (!found || room < there) return INSUFFICIENT;
    for (unsigned i = 0; i < there; i++) {
        memset(&found[i], 0, sizeof found[i]);
        found[i].pid = procs[i].pid;
        found[i].bytes = procs[i].bytes;
    }
    return 0;
}

typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } Sample;

int nvmlDeviceGetProcessUtilization(Handle *handle, Sample *found, unsigned *count, unsigned long long since) {
    static unsigned long long clock = 1000;
    Gpu *gpu = gpu_of(handle);
    if (!gpu) return 15;
    if (gpu->mig > 0) return NOT_SUPPORTED;
    if (!gpu->nprocs) return NOT_FOUND;
    unsigned room = *count;
    *count = gpu->nprocs;
    if (!found || room < *count) return INSUFFICIENT;
    clock = since > clock ? since + 1 : clock + 1;
    for (int i = 0; i < gpu->nprocs; i++) {
        memset(&found[i], 0, sizeof found[i]);
        found[i].pid = gpu->procs[i].pid;
        found[i].at = clock;
        found[i].sm = gpu->procs[i].percent;
    }
    return 0;
}

int nvmlEventSetCreate(void **set) { *set = &machine; return 0; }
int nvmlEventSetFree(void *set) { (void)set; return 0; }
int nvmlDeviceRegisterEvents(Handle *handle, unsigned long long kinds, void *set) {
    (void)handle; (void)kinds; (void)set;
    return 0;
}

typedef struct { Handle *device; unsigned long long kind, data; unsigned gpu_instance, compute_instance; } Event;

int nvmlEventSetWait_v2(void *set, Event *event, unsigned milliseconds) {
    (void)set; (void)milliseconds;
    Machine *now = look();
    for (int i = 0; i < now->ngpus; i++) {
        Handle *handle = handle_of(now->gpus[i].uuid, "");
        if (handle->told < now->gpus[i].nxids) {
            memset(event, 0, sizeof *event);
            event->device = handle;
            event->kind = 8;
            event->data = now->gpus[i].xids[handle->told++];
            return 0;
        }
    }
    return TIMEOUT;
}
