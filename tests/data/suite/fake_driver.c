/* Stand-ins for libcuda and libnvidia-ml, for tests of the suite's ctypes code on machines without a GPU.
 * One H200 in host memory; FAKE_* variables plant faults. Built by tests/unit/test_suite_driver.py with cc -shared.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}
static const char *word(const char *name, const char *otherwise) {
    const char *text = getenv(name);
    return text ? text : otherwise;
}

#ifdef FAKE_CUDA
static int device_count(void) { return (int)setting("FAKE_CUDA_DEVICES", setting("FAKE_DEVICES", 1)); }
int cuInit(unsigned flags) { return (int)setting("FAKE_CUINIT", 0); }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGetCount(int *n) { *n = device_count(); return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return i < device_count() ? 0 : 101; }
int cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, "%s", word("FAKE_CUDA_NAME", "NVIDIA H200")); return 0; }
int cuDeviceTotalMem_v2(size_t *b, int d) { *b = (size_t)143167 << 20; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) {
    switch (a) {
    case 16: *v = (int)setting("FAKE_SMS", 132); return 0;
    case 75: *v = 9; return 0;
    case 76: *v = 0; return 0;
    case 33: *v = 0x3b + d; return 0;
    case 34: *v = 0; return 0;
    case 50: *v = 0; return 0;
    }
    return 1;
}
int cuGetErrorName(int e, const char **s) { *s = "CUDA_ERROR_FAKE"; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)8; return (int)setting("FAKE_CONTEXT", 0); }
int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *active) { *f = 0; *active = 0; return 0; }
int cuCtxSetCurrent(void *c) { return c ? 0 : 201; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(unsigned long long *p, size_t n) { *p = (unsigned long long)malloc(n); return *p ? 0 : 2; }
int cuMemFree_v2(unsigned long long p) { free((void *)p); return 0; }
int cuMemcpyHtoD_v2(unsigned long long d, const void *s, size_t n) { memcpy((void *)d, s, n); return 0; }
int cuMemcpyDtoD_v2(unsigned long long d, unsigned long long s, size_t n) { memcpy((void *)d, (void *)s, n); return 0; }
int cuMemcpyDtoH_v2(void *d, unsigned long long s, size_t n) {
    memcpy(d, (void *)s, n);
    if (setting("FAKE_BITFLIP", 0)) ((char *)d)[n / 2] ^= 4;
    return 0;
}
int cuModuleLoadData(void **m, const void *image) {
    *m = (void *)image;
    return strstr(image, ".visible .entry triple_plus_one") ? (int)setting("FAKE_PTX", 0) : 218;
}
int cuModuleGetFunction(void **f, void *m, const char *name) { *f = m; return strcmp(name, "triple_plus_one") ? 500 : 0; }
int cuModuleUnload(void *m) { return 0; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **parameters, void **extra) {
    unsigned *data = *(unsigned **)parameters[0], count = *(unsigned *)parameters[1];
    if (gy != 1 || gz != 1 || by != 1 || bz != 1 || shared || stream || extra || gx * bx < count) return 1;
    for (unsigned i = 0; i < count; i++) data[i] = 3 * data[i] + 1;
    return 0;
}
#else
struct memory { unsigned long long total, free, used; };
struct use { unsigned gpu, memory; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
typedef long handle; /* index + 1 */

int nvmlInit_v2(void) { return (int)setting("FAKE_NVML", 0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int e) { return e == 3 ? "Not Supported" : e == 9 ? "Driver Not Loaded" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { snprintf(s, n, "%s", word("FAKE_DRIVER", "580.159.04")); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = (unsigned)setting("FAKE_DEVICES", 1); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, handle *h) { *h = i + 1; return 0; }
int nvmlDeviceGetName(handle h, char *s, unsigned n) { snprintf(s, n, "%s", word("FAKE_NAME", "NVIDIA H200")); return 0; }
int nvmlDeviceGetUUID(handle h, char *s, unsigned n) { snprintf(s, n, "GPU-%04ld", h); return 0; }
int nvmlDeviceGetVbiosVersion(handle h, char *s, unsigned n) { snprintf(s, n, "96.00.BC.00.01"); return 0; }
int nvmlDeviceGetPciInfo_v3(handle h, struct pci *p) {
    memset(p, 0, sizeof *p);
    p->id = (unsigned)strtoul(word("FAKE_PCI", "233510DE"), NULL, 16);
    p->subsystem = 0x18BE10DE;
    p->bus = 0x3b + h - 1;
    snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02X:00.0", p->bus);
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(handle h, int *a, int *b) { *a = 9; *b = 0; return 0; }
int nvmlDeviceGetMemoryInfo(handle h, struct memory *m) {
    m->total = (unsigned long long)setting("FAKE_MEMORY_MIB", 143771) << 20;
    m->used = (unsigned long long)setting("FAKE_USED_MIB", 610) << 20;
    m->free = m->total - m->used;
    return 0;
}
int nvmlDeviceGetMigMode(handle h, unsigned *now, unsigned *pending) { *now = *pending = 0; return 0; }
int nvmlDeviceGetEccMode(handle h, unsigned *now, unsigned *pending) { *now = *pending = 1; return 0; }
int nvmlDeviceGetBrand(handle h, unsigned *v) { *v = 14; return 0; }
int nvmlDeviceGetVirtualizationMode(handle h, unsigned *v) { *v = 0; return 0; }
int nvmlDeviceGetCurrPcieLinkGeneration(handle h, unsigned *v) { *v = 5; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(handle h, unsigned *v) { *v = (unsigned)setting("FAKE_WIDTH", 16); return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(handle h, unsigned *v) { *v = 5; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(handle h, unsigned *v) { *v = 16; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(handle h, unsigned *v) { *v = (unsigned)setting("FAKE_LIMIT_W", 700) * 1000; return 0; }
int nvmlDeviceGetPowerManagementDefaultLimit(handle h, unsigned *v) { *v = 700000; return 0; }
int nvmlDeviceGetMaxClockInfo(handle h, unsigned kind, unsigned *v) { *v = kind == 1 ? 1980 : 3201; return 0; }
int nvmlDeviceGetClockInfo(handle h, unsigned kind, unsigned *v) { *v = kind == 1 ? 1485 : 3201; return 0; }
int nvmlDeviceGetPowerUsage(handle h, unsigned *v) { *v = 691000; return 0; }
int nvmlDeviceGetTemperature(handle h, int sensor, unsigned *v) { *v = 58; return 0; }
int nvmlDeviceGetUtilizationRates(handle h, struct use *u) { u->gpu = (unsigned)setting("FAKE_UTIL", 99); u->memory = 23; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(handle h, unsigned long long *v) { *v = (unsigned long long)setting("FAKE_REASONS", 4); return 0; }
int nvmlDeviceGetTotalEccErrors(handle h, unsigned kind, unsigned counter, unsigned long long *v) {
    *v = kind == 1 && counter == 0 ? (unsigned long long)setting("FAKE_UNCORRECTED", 0) : 0;
    return 0;
}
int nvmlDeviceGetRemappedRows(handle h, unsigned *c, unsigned *u, unsigned *pending, unsigned *failed) {
    *c = *u = *pending = 0;
    *failed = (unsigned)setting("FAKE_REMAP_FAILED", 0);
    return 0;
}
int nvmlDeviceGetRetiredPages(handle h, unsigned cause, unsigned *n, unsigned long long *pages) { return 3; }
int nvmlDeviceGetPcieReplayCounter(handle h, unsigned *v) { *v = 0; return 0; }
#endif
