/* What a program provides where libvmarea.a was built without std. */
#include <stdio.h>
#include <stdlib.h>
#define VMAREA_NO_STD
#include <vmarea.h>

void *vmarea_alloc(size_t size, size_t align)
{
    return aligned_alloc(align, (size + align - 1) / align * align);
}

void vmarea_dealloc(void *memory, size_t size, size_t align)
{
    (void)size, (void)align;
    free(memory);
}

void vmarea_panic(const char *message, size_t length)
{
    fprintf(stderr, "%.*s\n", (int)length, message);
    abort();
}
