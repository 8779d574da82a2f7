/* Loads text of a PTX that no driver knows yet, twice, and prints the answers. */
#include <stdio.h>
#include <stddef.h>

extern int cuInit(unsigned);
extern int cuDevicePrimaryCtxRetain(void **, int);
extern int cuCtxSetCurrent(void *);
extern int cuModuleLoadData(void **, const void *);

int main(void) {
    const char *text = ".version 99.9\n.target sm_75\n.address_size 64\n";
    void *context, *module;
    if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0) return 1;
    if (cuCtxSetCurrent(context) != 0) return 1;
    printf("%d ", cuModuleLoadData(&module, text));
    printf("%d\n", cuModuleLoadData(&module, text));
    return 0;
}
